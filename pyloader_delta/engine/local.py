"""Executors inside this process: in the caller's own thread, or in threads."""

from __future__ import annotations

import copy
import threading
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyloader_delta.engine.core import Engine, Executor
from pyloader_delta.engine.pack import EMPTY, Tray
from pyloader_delta.engine.tasks import ReadTask, RunTask, Task
from pyloader_delta.engine.window import WindowBlocks
from pyloader_delta.engine.work import Blocks, StagesLike, Workshop

_JOIN_TIMEOUT_S = 5.0

Job = tuple[int, Task]


class InlineExecutor(Executor):
    """One worker: the caller, whenever it waits."""

    n_workers = 1
    shared = False

    def __init__(self, stages: StagesLike) -> None:
        self._workshop = Workshop(stages)
        self._jobs: deque[Job] = deque()

    def start(self, engine: Engine) -> None:
        self._engine = engine

    def submit(self, worker: int, number: int, task: Task) -> None:
        self._jobs.append((number, task))

    def discard(self, block: Blocks) -> None:
        pass

    def wait(self, changed: threading.Condition, timeout_s: float | None) -> None:
        number, task = self._jobs.popleft()
        _carry_out(self._engine, self._workshop, 0, number, task)

    def nudge(self) -> None:
        pass  # the caller looks after everything itself

    def retire(self, worker: int) -> None:
        pass

    def close(self, *, wait: bool) -> None:
        self._jobs.clear()
        if wait:
            self._workshop.close()


class ThreadExecutor(Executor):
    """Workers that are threads; each has its own copy of the user's objects."""

    shared = False

    def __init__(self, stages: StagesLike, n_workers: int) -> None:
        self.n_workers = n_workers
        self._workshops = [Workshop(own_copy(stages)) for _ in range(n_workers)]
        self._inboxes: list[SimpleQueue[Job | None]] = [SimpleQueue() for _ in range(n_workers)]
        self._threads: list[threading.Thread] = []
        self._retired: set[int] = set()

    def start(self, engine: Engine) -> None:
        for worker in range(self.n_workers):
            args = (engine, self._workshops[worker], worker, self._inboxes[worker])
            thread = threading.Thread(target=_work, args=args, name=f"pyloader_delta-worker-{worker}", daemon=True)
            self._threads.append(thread)
            thread.start()

    def available(self, worker: int) -> bool:
        """Whether a worker can take tasks: a thread whose user code never came back cannot."""
        return worker not in self._retired

    def submit(self, worker: int, number: int, task: Task) -> None:
        self._inboxes[worker].put((number, task))

    def discard(self, block: Blocks) -> None:
        pass

    def wait(self, changed: threading.Condition, timeout_s: float | None) -> None:
        changed.wait(timeout_s)

    def nudge(self) -> None:
        self._inboxes[0].put(_NUDGE)

    def retire(self, worker: int) -> None:
        self._retired.add(worker)

    def close(self, *, wait: bool) -> None:
        for inbox in self._inboxes:
            inbox.put(None)
        if wait:
            for thread in self._threads:
                if thread is not threading.current_thread():
                    thread.join(_JOIN_TIMEOUT_S)  # user code may never return; the thread is a daemon


_NUDGE: Job = (-1, ReadTask(-1, 0, 0, range(0), (), 0))


def own_copy(stages: StagesLike) -> StagesLike:
    """Return a worker's copy of the user's objects; what cannot be copied (a lock, a connection) is shared."""
    try:
        return copy.deepcopy(stages)
    except Exception:
        return copy.deepcopy(stages, memo=_shared(stages))


def _shared(stages: Any) -> dict[int, Any]:
    """Return a deepcopy memo in which those attributes of the user's objects that cannot be copied stand for themselves."""
    memo: dict[int, Any] = {}
    for owner in vars(stages).values():
        for value in getattr(owner, "__dict__", {}).values():
            try:
                copy.deepcopy(value)
            except Exception:
                memo[id(value)] = value
    return memo


def _work(engine: Engine, workshop: Workshop, worker: int, inbox: SimpleQueue[Job | None]) -> None:
    try:
        while (job := inbox.get()) is not None:
            if job is _NUDGE:
                with engine.changed:
                    engine.look_after()
            else:
                _carry_out(engine, workshop, worker, *job)
                del job
    finally:
        workshop.close()


def _carry_out(engine: Engine, workshop: Workshop, worker: int, number: int, task: Task) -> None:
    done = _read(engine, workshop, worker, number, task) if isinstance(task, ReadTask) else _run(
        engine, workshop, worker, number, task
    )  # fmt: skip
    with engine.changed:
        done()
        engine.look_after()


def _read(engine: Engine, workshop: Workshop, worker: int, number: int, task: ReadTask) -> Callable[[], None]:
    try:
        blocks = workshop.read(task)
    except BaseException as raised:
        error = raised
        return lambda: engine.read_failed(worker, number, task, error)
    size = blocks.size_bytes
    return lambda: engine.read_finished(worker, number, task, blocks, blocks.rows, size, blocks.types)


def _run(engine: Engine, workshop: Workshop, worker: int, number: int, task: RunTask) -> Callable[[], None]:
    try:
        windows = []
        for segment in task.segments:
            with engine.changed:
                held = engine.held(number, segment.reads)
            if held is None:  # the pass ended meanwhile
                return lambda: engine.run_finished(worker, number, task, EMPTY, None, 0.0, None)
            windows.append(_opened(held, workshop, join=segment.key is not None))
    except BaseException as raised:
        error = raised
        return lambda: engine.run_finished(worker, number, task, EMPTY, None, 0.0, error)
    slabs: list[int] = []

    def take(size_bytes: int) -> NDArray[np.uint8]:
        with engine.changed:
            slabs.append(engine.pool.take(size_bytes))
            engine.pool.touch(slabs[-1], size_bytes)
            return engine.pool[slabs[-1]].array

    made = workshop.run(task, windows, Tray(take))

    def done() -> None:
        used = slabs.pop() if made.packed.size_bytes else None
        for slab in slabs:
            engine.pool.give(slab)
        engine.run_finished(worker, number, task, made.packed, used, made.seconds, made.error)

    return done


def _opened(held: list[Blocks], workshop: Workshop, *, join: bool) -> WindowBlocks:
    """Return a window's blocks opened; kept with the first of them, so that they go together."""
    with _opening:
        window = held[0].window
        if window is None:
            batches = [batch for blocks in held for batch in blocks.batches]
            window = held[0].window = WindowBlocks(batches, missing_as_none=workshop.missing_as_none, join=join)
            for blocks in held:
                blocks.batches = []  # what was joined would be held twice
    return window


_opening = threading.Lock()
