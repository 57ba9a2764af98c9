"""Passes over a loader: what `iter()` gives, how epochs follow each other, and what a dropped iterator means."""

from __future__ import annotations

import os
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyloader_delta.engine.ahead import Ahead, goes_on
from pyloader_delta.engine.core import Engine, Run
from pyloader_delta.engine.mapped import advise
from pyloader_delta.engine.notes import NOTHING
from pyloader_delta.engine.scheduler import Scheduler
from pyloader_delta.engine.tasks import RunTask
from pyloader_delta.engine.tree import private_copy
from pyloader_delta.errors import ContractError
from pyloader_delta.ledger import Ledger, Tally
from pyloader_delta.plan.ranks import Place
from pyloader_delta.state import Position
from pyloader_delta.stats import Stats

_WINDOWS = 256  # batches that a wrapper may have fetched ahead, for it to be known where their windows began
PEEK = 2
"""An iterator dropped after at most so many batches was a peek: the next one begins with the same batches."""


class Pass:
    """One live pipeline: the batches of one or more epochs, each epoch proved complete with its last batch.

    Args:
        engine: Carries it out.
        schedulers: Its tasks; more than one where something has to be done between epochs.
        finalize: Turns a worker's batch into what the training loop gets; may be set anew for a newer iterator.
        stats: Counts what is delivered.
        nothing: What to warn of if the pass ends without a batch.
        begins: Where in its first epoch it begins.
        again: Batches before that which are made once more, and not delivered.
        place: The rank that it delivers to.
        ledger: Where its epochs are entered.
        number: Of the engine's pass that it goes on with; None to begin one.
    """

    def __init__(
        self, engine: Engine, schedulers: Iterator[Scheduler], finalize: Callable[[Any], Any], stats: Stats,
        nothing: str, begins: Position, again: int, place: Place, ledger: Ledger, number: int | None = None,
    ) -> None:  # fmt: skip
        self.epoch = begins.epoch
        """0-based epoch of the batch delivered last."""
        self.batches = begins.batches
        """Batches of that epoch delivered, those of an earlier process included."""
        self.began = begins.began
        """Epoch at which the pass began, in an earlier process perhaps."""
        self.begins = begins
        """Where in its first epoch the pass began in this process."""
        self.place = place
        """The rank that it delivers to."""
        self.finished = False
        """Whether nothing can follow: all was delivered, or an error was raised."""
        self.cut_off = False
        """Whether the loader was closed before an epoch's end: an iterator must not end as if all were delivered."""
        self.at_epoch_end = False
        """Whether the batch delivered last was its epoch's last."""
        self.delivered = 0
        """Batches delivered in this pass."""
        self._scheduler, self._schedulers = next(schedulers), schedulers
        self.number = engine.begin(self._scheduler) if number is None else number
        self.finalize = finalize
        self._engine, self._stats, self._meter = engine, stats, engine.meter
        self._nothing, self._pid = nothing, os.getpid()
        self._replay: list[Any] = []
        self._run: Run | None = None
        self._in_run = self._size = 0
        self._epoch_rows, self._of_epoch = 0, -1
        self._windows: deque[tuple[int, int, tuple[int, int]]] = deque(maxlen=_WINDOWS)
        self._ledger = ledger
        self._tally: Tally | None = None  # of the epoch of the batch delivered last
        self._notes = NOTHING
        self._again = again
        self._began, self._spent = time.perf_counter(), stats.pass_seconds

    def end(self) -> None:
        """Note that the loader is closed."""
        self.cut_off = self.cut_off or not (self.finished or self.at_epoch_end)
        self.finished = True

    @property
    def reads_ahead(self) -> bool:
        """Whether all was delivered, and what the next pass begins with is being read."""
        return isinstance(self._scheduler, Ahead) and self.at_epoch_end and not self.cut_off

    def next_pass(self, begins: Position, place: Place, finalize: Callable[[Any], Any]) -> Pass | None:
        """Return the pass that begins there, where this one has read ahead for it; None where it must begin anew."""
        anew = begins.batches or begins.history or begins.source is not None or place != self.place
        live = self._scheduler
        if anew or not self.reads_ahead or not isinstance(live, Ahead):
            return None
        if not goes_on(self._engine, live, begins.epoch):
            return None
        rest = self._stats, self._nothing, begins, 0, place, self._ledger, self.number
        return Pass(self._engine, iter([live]), finalize, *rest)

    def position(self, num_epoch: int | None, again: int = 0) -> Position:
        """Return where the pass is after the batch delivered last; the beginning of the next one at its end.

        Args:
            num_epoch: Epochs of a pass.
            again: Batches delivered last that will be given once more.
        """
        if self.at_epoch_end:
            return Position(self.epoch, 0, self.began).following(num_epoch)
        return self.place_in(self.epoch, self.batches - again)

    def place_in(self, epoch: int, batches: int) -> Position:
        """Return the place after so many batches of an epoch of the pass."""
        begins = self.begins if epoch == self.begins.epoch else Position(epoch, 0, epoch)
        window = begins.window if batches == begins.batches else None
        for found in self._windows:
            window = found[2] if found[:2] == (epoch, batches) else window
        return Position(epoch, batches, self.began, begins.history, window, begins.source)

    @property
    def is_peek(self) -> bool:
        """Whether so few batches were delivered that the next iterator begins with them once more."""
        return not (self.finished or self.at_epoch_end or self.delivered > PEEK)

    def peeked(self) -> list[Any] | None:
        """Return private copies of the batches delivered so far, before `finalize`.

        None if they were no peek, or too large to be kept twice: then they must be made again.
        """
        if not self.is_peek or len(self._replay) < self.delivered:
            return None
        return [private_copy(batch) for batch in self._replay]

    def next(self) -> Any:
        """Return the next batch.

        Raises:
            StopIteration: The pass is over.
            IncompleteEpochError: With an epoch's last batch: rows are missing or too many.
            RuntimeError: This process was forked from the one that the pass belongs to.
        """
        if os.getpid() != self._pid:
            raise RuntimeError("this iterator belongs to the parent process: call iter(loader) in this one")
        started = time.perf_counter()
        try:
            try:
                batch, task = self._next()
            finally:
                there = time.perf_counter()
                self._stats.wait_seconds += there - started
                self._stats.pass_seconds = self._spent + there - self._began
            if self.delivered < PEEK and not self.at_epoch_end and PEEK * self._size <= self._engine.lease_bytes:
                self._replay.append(private_copy(batch))
            else:
                self._replay.clear()
            if self._meter.events is None and self.delivered:
                before = time.perf_counter()
                batch = self._finalize_at(batch, task)
                self._meter.finalizing += time.perf_counter() - before
            else:
                batch = self._finalize_traced(batch, task, there - started)
        except BaseException as error:
            advise(error)
            self.finished = True
            if not (isinstance(error, StopIteration) and self.reads_ahead):
                self._engine.cancel(self.number)
            self._replay.clear()
            if isinstance(error, StopIteration) and not self.delivered:
                warnings.warn(self._nothing, stacklevel=3)
            raise
        self.delivered += 1
        return batch

    def _finalize_traced(self, batch: Any, task: RunTask, waited: float) -> Any:
        """Do the same, and keep what the training loop's thread did: of the first batch, and for a trace of all."""
        what, before = f"batch {self.batches - 1} of epoch {self.epoch}", time.monotonic()
        batch = self._finalize_at(batch, task)
        after = time.monotonic()
        self._meter.finalizing += after - before
        self._meter.first_wait += 0.0 if self.delivered else waited
        self._meter.took("waiting", what, before - waited, before)
        self._meter.took("finalizing", what, before, after)
        return batch

    def _finalize_at(self, batch: Any, task: RunTask) -> Any:
        try:
            return self.finalize(batch)
        except BaseException as error:
            first = task.first_row + sum(task.batch_rows[: self._in_run - 1])
            last = first + task.batch_rows[self._in_run - 1] - 1
            place = f"epoch {task.epoch}, batch {task.first_batch + self._in_run - 1}, rows {first}..{last}"
            error.add_note(f"pyloader_delta: {place} of the epoch's order")
            raise

    def _next(self) -> tuple[Any, RunTask]:
        batch, task = self._gathered()
        while self._again:  # delivered by an earlier process, and encoded in one call with what comes now
            self._again -= 1
            batch, task = self._gathered()
        n_rows = task.batch_rows[self._in_run - 1]
        tally = self._tally
        if tally is None or tally.plan.epoch != task.epoch:
            source = self.place_in(task.epoch, 0).source
            tally = self._tally = self._ledger.begin(task.epoch, self.place, self._epoch_rows - n_rows, source)
            if tally.total is not None:
                self._stats.rows_planned += tally.total - tally.before
        self.epoch, self.batches = task.epoch, task.first_batch + self._in_run
        self._stats.epoch = task.epoch + 1
        self._stats.rows_delivered += n_rows
        self._stats.batches_delivered += 1
        self.at_epoch_end = task.last and self._in_run == len(task.batch_rows)
        if tally.total is None:
            self._windows.append((self.epoch, self.batches, task.window_after(self._in_run)))
        repeated = tally.plan.padded if self._epoch_rows == tally.total else 0
        self._stats.rows_padded += repeated
        tally.delivered += n_rows
        tally.padded += repeated
        lost = None if self._notes.numbers is None else self._noted(tally, self._notes.numbers, task)
        if self.place.uneven == "mask":
            batch = masked(batch, n_rows, repeated, lost)
        if self.at_epoch_end:
            self._end_epoch(task, tally)
        return batch, task

    def _noted(self, tally: Tally, numbers: NDArray[np.int64], task: RunTask) -> NDArray[np.intp]:
        """Enter the rows of the batch into the books; return the places in which other rows stand."""
        start = sum(task.batch_rows[: self._in_run - 1])
        stop = start + task.batch_rows[self._in_run - 1]
        skipped = [(row - start, text) for row, text in self._notes.skipped if start <= row < stop]
        first = not tally.skipped
        lost = tally.note(numbers[start:stop], skipped)
        if len(lost):
            self._stats.rows_skipped += len(lost)
            if first:
                text = "on_error='skip' has skipped rows of this epoch; loader.receipt() lists them"
                warnings.warn(text, stacklevel=5)
        return lost

    def _gathered(self) -> tuple[Any, RunTask]:
        """Return the next batch that was made; its rows are counted."""
        while self._run is None or self._in_run == len(self._run[0].batch_rows):
            if self._run is not None and self._run[2] is not None:  # raised after all of its batches were made
                raise self._run[2]
            self._run, self._in_run = None, 0
            self._run = self._engine.next_run()
            if self._run is None:
                self._go_on()
        task, batches, error, sizes, notes = self._run
        self._notes = notes
        batch = next(batches, _END)
        if batch is _END:
            assert error is not None
            raise error
        if self._of_epoch != task.epoch:
            self._of_epoch, self._epoch_rows = task.epoch, task.first_row
        self._epoch_rows += task.batch_rows[self._in_run]
        self._size = sizes[self._in_run]
        self._stats.delivered_bytes += self._size
        self._in_run += 1
        return batch, task

    def _go_on(self) -> None:
        """Begin with the next tasks, if any follow and these were not in vain.

        Raises:
            StopIteration: The pass is over.
        """
        following = next(self._schedulers, None) if self._scheduler.delivered_runs else None
        if following is None:
            raise StopIteration
        self._scheduler = following
        self.number = self._engine.begin(following)

    def _end_epoch(self, task: RunTask, tally: Tally) -> None:
        self._stats.rows_dropped += task.dropped_rows
        if tally.total is None:
            self._stats.rows_planned += task.epoch_rows - tally.before
        tally.end(planned=task.epoch_rows, dropped=task.dropped_rows)
        self._stats.epochs_completed += 1


def masked(batch: Any, n_rows: int, repeated: int, lost: NDArray[np.intp] | None) -> Any:
    """Return a batch with `_valid`, bool of shape (n_rows,): False for the last rows, if repeated, and for `lost`.

    Raises:
        ContractError: The batch is no dict, or has such a name already.
    """
    if type(batch) is not dict or "_valid" in batch:
        raise ContractError(
            "uneven='mask' adds '_valid' to each batch: collate_batch must return a dict without that name, or take "
            "uneven='pad' or 'drop'"
        )
    valid = np.ones(n_rows, dtype=bool)
    valid[n_rows - repeated :] = False
    if lost is not None:
        valid[lost] = False
    return batch | {"_valid": valid}


_END = object()


class BatchIterator(Iterator[Any]):
    """What `iter(loader)` gives. A newer one takes its place.

    Args:
        live: The pass that it delivers.
        replay: Batches to deliver before it goes on.
        engine: Carries the pass out.
        loader: Kept until the pass is over: a loader that nobody else holds is closed when it is garbage.
    """

    def __init__(self, live: Pass, replay: list[Any], engine: Engine, loader: Any) -> None:
        self._pass, self._replay, self._engine, self._loader = live, replay, engine, loader
        self._replaced = False
        self.taken = 0
        """Batches given."""
        self.waits = False
        """Whether a thread is in `next` now."""

    def __next__(self) -> Any:
        if self._replaced:
            raise RuntimeError("a newer iter() of this loader has taken the place of this iterator")
        if self._pass.cut_off:
            raise RuntimeError("this DataLoader is closed")
        if self._replay:
            batch = self._pass.finalize(self._replay.pop(0))
            self.taken += 1
            return batch
        if self._pass.finished:
            raise StopIteration
        self.waits = True
        try:
            batch = self._pass.next()
        except BaseException:
            self._loader = None
            raise
        finally:
            self.waits = False
        self.taken += 1
        return batch

    @property
    def reached(self) -> tuple[int, int]:
        """Epochs of the pass that are over, and batches of its epoch that were given; those before a resume count."""
        return self._pass.epoch - self._pass.began, self._pass.batches - len(self._replay)

    @property
    def to_replay(self) -> int:
        """Batches of an older iterator that it gives again before it goes on."""
        return len(self._replay)

    def replace(self) -> None:
        """Note that a newer iterator has taken over."""
        self._replaced = not self._pass.finished
        self._replay.clear()

    def __del__(self) -> None:
        over = self._pass.finished or self._pass.reads_ahead
        if not self._replaced and not over and self._pass.delivered > PEEK:
            self._engine.cancel_soon(self._pass.number)
