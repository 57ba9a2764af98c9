"""What the soak does: an act is one or two epochs of one loader, disturbed, ended in one of many ways, and checked."""

import gc
import json
import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import numpy as np
import psutil

from benchmarks.soak_figures import lives
from benchmarks.soak_loaders import BATCH_SIZE, N_BATCHES, SETUPS, Loaders, Setup, Wrong
from benchmarks.soak_work import Sabotage

_BETWEEN_KILLS = 250
"""Batches between two kills: a task that kills two workers is an error, and the soak's kills are not the task's."""
_REST_S = 0.3
_STOPPED_S = 0.4

Fault = Callable[[], object]


class Act:
    """One act.

    Args:
        loaders: All loaders.
        seed: What is done depends on it alone, but for when exactly it meets what workers do.
        counts: Where faults are counted by their names.
    """

    def __init__(self, loaders: Loaders, seed: str, counts: Counter[str]) -> None:
        self._loaders, self._random, self._counts = loaders, random.Random(seed), counts
        self.setup: Setup = self._random.choice(SETUPS)
        self.ending = self._random.choice([*_ENDINGS, "whole", "whole"])
        self.faults: list[tuple[int, str]] = sorted(self._drawn(), key=lambda fault: fault[0])
        self.n_batches = 0
        self._kept: list[Any] = []
        self._keeps = False

    def __str__(self) -> str:
        faults = ", ".join(f"{name} at {at}" for at, name in self.faults)
        return f"{self.setup.name}: {faults or 'no fault'}; {self.ending}"

    def run(self) -> int:
        """Do it; return how many epochs were begun.

        Raises:
            Wrong: Something did not come as it must.
        """
        self._counts.update(name for _, name in self.faults)
        self._counts[f"ending: {self.ending}"] += 1
        try:
            return int(_ENDINGS[self.ending](self))
        finally:
            self._loaders.traps.clear()
            self._kept.clear()

    # Faults ---------------------------------------------------------------------------------------------------------

    def _drawn(self) -> Iterator[tuple[int, str]]:
        draw, last_kill = self._random, -_BETWEEN_KILLS
        names = [*_FAULTS, *_KILLS] if self.setup.workers == "process" else list(_FAULTS)
        for at in sorted(draw.randrange(N_BATCHES) for _ in range(draw.choice([0, 1, 2, 2, 3, 4]))):
            name = draw.choice(names)
            if name in _KILLS and at - last_kill < _BETWEEN_KILLS:
                continue
            last_kill = at if name in _KILLS else last_kill
            yield at, name

    def _batches(self, iterator: Iterator[Any], start: int = 0) -> Iterator[Any]:
        """Yield batches, with the faults due before each."""
        due = [(at, name) for at, name in self.faults if at >= start]
        for number in range(start, N_BATCHES + 1):
            while due and due[0][0] <= number:
                name = due.pop(0)[1]
                if name in _KILLS:  # one that waits for a read could end the task that this one ends, done again
                    self._loaders.traps.clear("kill")
                {**_FAULTS, **_KILLS}[name](self)
            batch = next(iterator, None)
            if batch is None:
                return
            self.n_batches += 1
            if self._keeps:
                self._kept.append(batch)
            yield batch

    def _other_loader(self) -> None:
        setup = self._random.choice(SETUPS)
        with self._loaders.make(setup, 0) as other:
            for _, batch in zip(range(self._random.randrange(1, 60)), other, strict=False):
                assert len(batch["id"])

    def _one_worker(self) -> list[psutil.Process]:
        found = workers()
        return self._random.sample(found, min(len(found), 1))

    def _kill(self) -> None:
        for process in self._one_worker():
            with suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGKILL)

    def _kill_idle(self) -> None:
        time.sleep(_REST_S)
        self._kill()

    def _stop(self) -> None:
        """Stop a worker for a while."""
        for process in self._one_worker():
            with suppress(psutil.NoSuchProcess):
                process.suspend()
                threading.Timer(_STOPPED_S, _resume, (process,)).start()

    def _look(self) -> None:
        loader = self._loaders.get(self.setup)
        loader.stats(), loader.memory(), loader.report(), repr(loader), json.dumps(loader.state_dict())

    # Endings --------------------------------------------------------------------------------------------------------

    def _ids(self, batches: Iterator[Any], most: int | None = None) -> np.ndarray:
        found = []
        for batch in batches:
            found.append(batch["id"].copy())
            if len(found) == most:
                break
        return np.concatenate(found) if found else np.empty(0, np.int64)

    def whole(self) -> int:
        """Take an epoch to its end."""
        loader = self._loaders.get(self.setup)
        ids = self._ids(self._batches(iter(loader)))
        self._check(ids, whole=True)
        return 1

    def _check(self, ids: np.ndarray, *, whole: bool) -> None:
        loader = self._loaders.get(self.setup)
        epoch = loader.get_epoch()
        self._loaders.check_rows(self.setup, epoch, ids, whole=whole)
        if whole:
            self._loaders.check_receipt(self.setup, loader, epoch)

    def _begun(self) -> tuple[Iterator[Any], np.ndarray]:
        """Take the beginning of an epoch."""
        iterator = iter(self._loaders.get(self.setup))
        ids = self._ids(self._batches(iterator), self._random.randrange(1, N_BATCHES))
        self._check(ids, whole=False)
        return iterator, ids

    def abandoned(self) -> int:
        """Leave an epoch by `break`, or drop its iterator; the next one is whole."""
        iterator, _ = self._begun()
        del iterator
        return 1 + self.whole()

    def replaced(self) -> int:
        """A second `iter()` ends the first."""
        first, _ = self._begun()
        ids = self._ids(self._batches(iter(self._loaders.get(self.setup))))
        self._check(ids, whole=True)
        with suppress(RuntimeError):
            next(first)
            raise Wrong(f"{self.setup.name}: an iterator goes on after a second iter()")
        return 2

    def closed(self) -> int:
        """Close a loader in the middle of an epoch; a new one begins again."""
        iterator, _ = self._begun()
        self._loaders.let_go(self.setup).close()
        with suppress(RuntimeError):
            next(iterator)
            raise Wrong(f"{self.setup.name}: an iterator goes on after close()")
        return 1 + self.whole()

    def collected(self) -> int:
        """Let go of a loader without closing it."""
        self._begun()
        self._loaders.let_go(self.setup)
        gc.collect()
        return 1 + self.whole()

    def broken(self) -> int:
        """An exception in the training loop ends the `with` of a loader."""
        with suppress(Sabotage), self._loaders.get(self.setup) as loader:
            self._ids(self._batches(iter(loader)), self._random.randrange(1, N_BATCHES))
            raise Sabotage("in the training loop")
        self._loaders.let_go(self.setup)
        return 1 + self.whole()

    def resumed(self) -> int:
        """Go on from a state in another loader, with another number of workers."""
        iterator, ids = self._begun()
        older = self._loaders.let_go(self.setup)
        state = json.dumps(older.state_dict())
        del iterator
        older.close()
        loader = self._loaders.make(self.setup, 2)
        self._loaders.put(self.setup, loader)
        loader.load_state_dict(json.loads(state))
        rest = self._ids(self._batches(iter(loader), len(ids) // BATCH_SIZE))
        epoch = loader.get_epoch()
        self._loaders.check_rows(self.setup, epoch, np.concatenate([ids, rest]), whole=True)
        self._loaders.check_receipt(self.setup, loader, epoch, len(rest))
        return 1

    def started(self) -> int:
        """A worker is killed as soon as it is there."""
        self._loaders.get(self.setup).close()
        self._loaders.let_go(self.setup)
        before = {process.pid for process in workers()}
        ended = threading.Event()

        def watch() -> None:
            while not ended.is_set():
                for process in workers():
                    if process.pid not in before:
                        with suppress(ProcessLookupError):
                            os.kill(process.pid, signal.SIGKILL)
                        return
                time.sleep(0.001)

        watcher = threading.Thread(target=watch)
        watcher.start()
        try:
            return self.whole()
        finally:
            ended.set()
            watcher.join()

    def failed(self) -> int:
        """User code raises: what was made before it comes first; the next epoch is whole."""
        if self.setup.skips:
            return self.whole()
        loader = self._loaders.get(self.setup)
        iterator, place = iter(loader), self._random.choice(["encode", "collate"])
        found: list[np.ndarray] = []
        try:
            for number, batch in enumerate(self._batches(iterator)):
                found.append(batch["id"].copy())
                if number == 10:
                    self._loaders.traps.set(place, "raise")
        except Sabotage as error:
            if str(error) != place or not error.__notes__:
                raise Wrong(f"{self.setup.name}: an error came without its place") from error
        self._loaders.traps.clear()
        epoch = loader.get_epoch()
        self._loaders.check_rows(self.setup, epoch, np.concatenate(found), whole=False)
        return 1 + self.whole()


def workers() -> list[psutil.Process]:
    """Return the worker processes of this process."""
    return [process for process in psutil.Process().children() if lives(process)]


def _resume(process: psutil.Process) -> None:
    with suppress(psutil.NoSuchProcess):
        process.resume()


def _trap(place: str, kind: str) -> Callable[[Act], None]:
    return lambda act: act._loaders.traps.set(place, kind)


_FAULTS: dict[str, Callable[[Act], object]] = {
    "the loop pauses": lambda act: time.sleep(_REST_S),
    "a worker stalls reading": _trap("read", "stall"),
    "a worker stalls encoding": _trap("encode", "stall"),
    "a worker stalls collating": _trap("collate", "stall"),
    "a worker is stopped": Act._stop,
    "another loader beside it": Act._other_loader,
    "batches are kept": lambda act: setattr(act, "_keeps", True),
    "memory(), report(), state_dict()": Act._look,
}
_KILLS: dict[str, Callable[[Act], object]] = {
    "a worker is killed": Act._kill,
    "a worker is killed while it rests": Act._kill_idle,
    "a worker is killed reading": _trap("read", "kill"),
    "a worker is killed encoding": _trap("encode", "kill"),
    "a worker is killed collating": _trap("collate", "kill"),
    "a worker is killed sending": _trap("collate", "kill soon"),
}
_ENDINGS: dict[str, Callable[[Act], int]] = {
    name: getattr(Act, name)
    for name in ("whole", "abandoned", "replaced", "closed", "collected", "broken", "started", "resumed", "failed")
}
