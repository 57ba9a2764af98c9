"""The engine of one loader: scheduler, memory and workers brought together. All state changes under one lock."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from pyloader_delta.engine.deaths import Deaths, told
from pyloader_delta.engine.executor import Executor
from pyloader_delta.engine.held import beside_slabs, held
from pyloader_delta.engine.kinds import FileTypes
from pyloader_delta.engine.leases import Lease, Leases
from pyloader_delta.engine.mapped import advise
from pyloader_delta.engine.meter import Meter
from pyloader_delta.engine.notes import Notes
from pyloader_delta.engine.outcome import Outcome
from pyloader_delta.engine.pack import EMPTY, Packed, unpack
from pyloader_delta.engine.region import Region
from pyloader_delta.engine.regions import Regions
from pyloader_delta.engine.scheduler import Scheduler
from pyloader_delta.engine.slabs import SlabPool
from pyloader_delta.engine.tasks import MixTask, ReadTask, RunTask, Task
from pyloader_delta.errors import LoaderTimeout, WorkerDied

Run = tuple[RunTask, Iterator[Any], BaseException | None, list[int], Notes]


class Engine:
    """Carries out passes, one at a time, with workers that stay.

    Args:
        executor: Where tasks are carried out.
        memory_bytes: What slabs may cost together.
        lease_bytes: What batches in the hands of the training loop may cost before they are copied to its own memory.
        timeout_s: Longest time that a task may take; 0 for no limit.
        layout: What regions of shuffled windows will hold, where that is known before reading.
        trace: Whether each task is kept for a trace.
        skips: Whether rows that end a worker are to be skipped: a run that has ended two is tried with care.
    """

    def __init__(
        self, executor: Executor, *, memory_bytes: int, lease_bytes: int, timeout_s: float,
        layout: bytes | None = None, skips: bool = False, trace: bool = False,
    ) -> None:  # fmt: skip
        self.lock = threading.RLock()  # Ctrl-C inside of a Condition's own `__exit__` would leave it taken for ever
        self.changed = threading.Condition(self.lock)
        self.pool = SlabPool(
            shared=executor.shared, max_bytes=memory_bytes,
            beside=lambda: beside_slabs(self.scheduler, self._regions, shared=executor.shared),
        )  # fmt: skip
        self.blocks: dict[int, Any] = {}
        self.scheduler: Scheduler | None = None
        self._executor, self._timeout_s = executor, timeout_s
        self.meter = Meter(trace=trace)
        self.memory_bytes, self.lease_bytes = memory_bytes, lease_bytes
        self._number = self._cancelled = 0
        self._busy: dict[int, tuple[Task, float, list[int], int]] = {}  # worker → task, since when, slabs it uses, pass
        self._regions = Regions(self.pool, layout)
        self._outcomes: dict[int, Outcome] = {}
        self._deaths = Deaths(skips=skips)
        self._broken: BaseException | None = None
        self._pass_error: BaseException | None = None  # of the pass under way: the next one may do better
        self.closed = self._changing = self._started = False
        self._leases = Leases(self.pool, lease_bytes)

    # The training loop's side ---------------------------------------------------------------------------------------

    def begin(self, scheduler: Scheduler) -> int:
        """Begin a pass; an older one ends. Return its number."""
        with self.lock:
            self._changing = True
            self._end_pass()
            self._number += 1
            self.scheduler = scheduler
            if not self._started:
                self._started = True
                self._executor.start(self)
            error = self._dispatch()
            self._changing = False
        if error is not None:
            raise error
        return self._number

    def next_run(self) -> Run | None:
        """Return the next run: task, batches, the error after them, bytes of each, notes; None at the pass's end."""
        with self.lock:
            self._changing = True
            found = self._next_run()
            self._changing = False
        if isinstance(found, BaseException):
            raise found
        return found

    @property
    def error(self) -> BaseException | None:
        """What ends the pass under way, wherever it is in the order."""
        return self._pass_error if self._broken is None else self._broken

    @property
    def interrupted(self) -> bool:
        """Whether Ctrl-C has ended a call of the training loop in the middle of a change: only good to be closed."""
        return self._changing

    def _next_run(self) -> Run | BaseException | None:
        scheduler = self.scheduler
        if scheduler is None:
            return self._ending()
        number = scheduler.delivered_runs
        self.meter.asked += 1
        self.meter.ready += number in self._outcomes
        while number not in self._outcomes:
            self.look_after()
            if self.scheduler is not scheduler:  # another thread ended the pass
                return self._ending()
            if self.error is not None:
                return self.error
            if scheduler.failure is not None and scheduler.failure[0] == number:
                return scheduler.failure[1]
            if scheduler.done:
                return None
            late = self._late()
            if late is not None:
                return late
            self._changing = self._executor.works_in_wait
            self._executor.wait(self.changed, self._patience())
            self._changing = True
        outcome = self._outcomes.pop(number)
        scheduler.delivered(number)
        if self.meter.events is not None:
            held = self.waiting
            sample = time.monotonic(), held["store_bytes"], held["ready_bytes"], held["leased_bytes"]
            self.meter.samples.append(sample)
        batches = self._lend(outcome)
        self.look_after()
        return outcome.task, batches, outcome.error, outcome.packed.sizes(), outcome.packed.notes

    def cancel(self, number: int) -> None:
        """End pass `number` now, unless a newer one has: nothing more is read, workers wait idle."""
        with self.lock:
            if self._changing:
                self._executor.close(wait=False)
            elif number == self._number:
                self._end_pass()

    def cancel_soon(self, number: int) -> None:
        """Have pass `number` ended by somebody else soon. Takes no lock: for finalizers."""
        self._cancelled = max(self._cancelled, number)
        self._executor.nudge()

    def close(self, *, wait: bool = True) -> None:
        """End pass and workers and give all memory back. With `wait` False only have it done: for finalizers."""
        if not wait:
            self.closed = True
            self._executor.close(wait=False)
            return
        with self.lock:
            if self.closed and not self._started:
                return
            self.closed = True
            if not self._changing:
                self._end_pass()
        if self._started:
            self._executor.close(wait=True)
        with self.lock:
            self._started = False
            self.pool.close()

    # The workers' side; under the lock ------------------------------------------------------------------------------

    def read_finished(
        self, worker: int, number: int, task: ReadTask, block: Any, rows: list[int], size_bytes: int, types: FileTypes,
        placed: frozenset[str] | None, layout: bytes | None,
    ) -> None:  # fmt: skip
        """Take in what came of a read task."""
        self._land(worker)
        if number != self._number or self.scheduler is None:
            self._executor.discard(block)
            return
        self.blocks[task.number] = block
        mix = self._regions.read_done(task, placed, layout)
        self.scheduler.read_done(worker, task, rows, size_bytes, mix=mix, types=types)

    def mix_finished(self, worker: int, number: int, task: MixTask) -> None:
        """Take in that a window is mixed."""
        self._land(worker)
        if number == self._number and self.scheduler is not None:
            self.scheduler.mix_done(worker, task)

    def run_finished(
        self, worker: int, number: int, task: RunTask, packed: Packed, slab: int | None, seconds: float,
        error: BaseException | None,
    ) -> None:  # fmt: skip
        """Take in what came of a run task."""
        self._land(worker)
        if number != self._number or self.scheduler is None:
            if slab is not None:
                self.pool.give(slab)
            return
        self._outcomes[task.number] = Outcome(task, packed, slab, error)
        self.meter.made(packed.notes.seconds)
        self.scheduler.run_done(worker, task, packed.total_bytes, seconds)

    def task_failed(self, worker: int, number: int, task: Task, error: BaseException) -> None:
        """Take in that a task raised."""
        self._land(worker)
        if number == self._number and self.scheduler is not None:
            self._fail_task(worker, task, error)

    def worker_lost(self, worker: int, how: str) -> None:
        """Have a dead worker's task done again, or fail if it died of it twice."""
        task = self._land(worker)
        if self.scheduler is None:
            return
        if task is not None and self._deaths.enough(task):
            text = f"worker {worker} {how} while {told(task, self.scheduler)}; so did the worker before it"
            self._fail_task(worker, task, WorkerDied(text))
        for lost in self.scheduler.lost(worker):
            if isinstance(lost, ReadTask):
                self._regions.leave(lost.number)

    def _fail_task(self, worker: int, task: Task, error: BaseException) -> None:
        assert self.scheduler is not None
        if isinstance(task, RunTask):
            self._outcomes[task.number] = Outcome(task, EMPTY, None, error)
            self.scheduler.run_done(worker, task, 0, 0.0)
            return
        if isinstance(task, ReadTask):
            self._regions.leave(task.number)
        self.scheduler.read_failed(worker, task, error)

    def fail(self, error: BaseException) -> None:
        """Let the training loop raise an error that has no place in the order: no worker can work any more."""
        self._broken = error if self._broken is None else self._broken
        self.changed.notify_all()

    def look_after(self) -> None:
        """Take back what the training loop dropped, let freed blocks go, and give idle workers tasks."""
        self._leases.take_back()
        if self._cancelled >= self._number:
            self._end_pass()
        if self._pass_error is None:
            self._pass_error = self._dispatch()
        if self._is_awaited():
            self.changed.notify_all()

    def held(self, number: int, reads: tuple[int, ...]) -> list[Any] | None:
        """Return the blocks of some read tasks of pass `number`; None where that pass has ended."""
        return [self.blocks[read] for read in reads] if number == self._number else None

    def region(self, number: int, epoch: int, window: int) -> Region | None:
        """Return the region of a window of pass `number`, if it has one."""
        return self._regions.get(epoch, window) if number == self._number else None

    def lease(self, number: int, epoch: int, window: int, size_bytes: int, slabs: Sequence[int] = ()) -> Lease | None:
        """Return a lease on a window of pass `number`; None where its rows must be copied.

        Args:
            number: The pass.
            epoch: The window's epoch.
            window: Its number.
            size_bytes: What it takes.
            slabs: Where it lies, beside its region.
        """
        region = self.region(number, epoch, window)
        slabs = slabs if region is None else [*slabs, region.slab]
        return self._leases.lend_window((number, epoch, window), size_bytes, slabs)

    def task_of(self, worker: int) -> Task:
        """Return the task that a worker has."""
        return self._busy[worker][0]

    @property
    def waiting(self) -> dict[str, float]:
        """Bytes and counts of what is held now."""
        with self.lock:
            sizes = [outcome.packed.total_bytes for outcome in self._outcomes.values()]
            now = held(self.scheduler, self.pool, self._regions, self._leases, sizes, shared=self._executor.shared)
            return now | {"tasks_in_flight": float(len(self._busy))}

    # Inside ---------------------------------------------------------------------------------------------------------

    def _ending(self) -> RuntimeError:
        return RuntimeError("this DataLoader is closed" if self.closed else "a newer iter() has ended this pass")

    def _dispatch(self) -> BaseException | None:
        """Give idle workers tasks; return an error that keeps them from it: memory is refused, as a rule."""
        scheduler = self.scheduler
        if scheduler is None or self.closed or self._pass_error is not None:
            return None
        try:
            for worker in scheduler.cursors.turns(self._executor.n_workers):
                self._let_go(scheduler)  # first, so that what begins takes the memory of what has ended
                if worker not in self._busy and self._executor.available(worker):
                    task = scheduler.next_task(worker)
                    if task is not None:
                        self._give(worker, self._deaths.with_care(task))
        except Exception as error:
            advise(error)
            return error
        self._let_go(scheduler)
        return None

    def _is_awaited(self) -> bool:
        """Return whether something has come that the training loop may wait for; to wake it for less costs time."""
        scheduler = self.scheduler
        if scheduler is None or self.error is not None or scheduler.done:
            return True
        return scheduler.delivered_runs in {*self._outcomes, *(scheduler.failure or ())[:1]}

    def _let_go(self, scheduler: Scheduler) -> None:
        """Give back what holds chunks that nobody needs any more."""
        for number in scheduler.freed:
            block = self.blocks.pop(number, None)
            if block is not None:
                self._executor.discard(block)
            self._regions.leave(number)
        scheduler.freed.clear()

    def _give(self, worker: int, task: Task) -> None:
        pins = self._slabs_of(task)
        for slab in pins:
            self.pool.pin(slab)
        self.pool.trim()
        self._busy[worker] = (task, time.monotonic(), pins, self._number)
        try:
            self._executor.submit(worker, self._number, task)
        except BaseException:
            self._land(worker)
            raise

    def _land(self, worker: int) -> Task | None:
        """Note that a worker is idle; return its task if that is of this pass."""
        task, since, pins, number = self._busy.pop(worker, (None, 0.0, [], 0))
        if task is not None:
            self.meter.landed(worker, task, since)
        for slab in pins:
            self.pool.unpin(slab)
        return task if number == self._number else None

    def _slabs_of(self, task: Task) -> list[int]:
        """Return the slabs that a task reads or fills, other than the one that its own result goes to."""
        if isinstance(task, ReadTask):
            entered = self._regions.enter(task)
            return [] if entered is None else [entered.slab]
        windows = [segment.window for segment in task.segments] if isinstance(task, RunTask) else [task.window]
        regions = [region.slab for w in windows if (region := self._regions.get(task.epoch, w)) is not None]
        if isinstance(task, RunTask):
            return regions + self._executor.slabs([self.blocks[r] for s in task.segments for r in s.reads])
        return regions

    def _end_pass(self) -> None:
        self.scheduler = None
        for block in self.blocks.values():
            self._executor.discard(block)
        self.blocks.clear()
        self._regions.end_pass()
        for outcome in self._outcomes.values():
            if outcome.slab is not None:
                self.pool.give(outcome.slab)
        self._outcomes.clear()
        self._deaths.forget()
        self._pass_error = None
        self._number += 1  # what is still in flight belongs to no pass
        self.changed.notify_all()

    def _lend(self, outcome: Outcome) -> Iterator[Any]:
        """Return the batches of a run on memory that belongs to the training loop alone."""
        size = outcome.packed.size_bytes
        return unpack(outcome.packed, _NOTHING if outcome.slab is None else self._leases.lend(outcome.slab, size))

    def _awaited(self) -> list[tuple[int, Task, float]]:
        """Return (worker, task, since when) of what the pass waits for: older passes' tasks only if all are stuck."""
        busy = [(worker, task, since, number) for worker, (task, since, _, number) in self._busy.items()]
        stuck = len(busy) == self._executor.n_workers and all(number != self._number for *_, number in busy)
        return [(worker, task, since) for worker, task, since, number in busy if stuck or number == self._number]

    def _patience(self) -> float | None:
        if not self._timeout_s:
            return None
        left = [since + self._timeout_s - time.monotonic() for _, _, since in self._awaited()]
        return max(min(left, default=self._timeout_s), 0.01)

    def _late(self) -> LoaderTimeout | None:
        """Return an error where a task takes too long; its worker is replaced where that is possible."""
        if not self._timeout_s:
            return None
        for worker, task, since in self._awaited():
            if time.monotonic() - since > self._timeout_s:
                if self._executor.retire(worker):
                    self._land(worker)
                limit = f"timeout={self._timeout_s} s"
                return LoaderTimeout(f"worker {worker} took longer than {limit}, {told(task, self.scheduler)}")
        return None


_NOTHING = np.zeros(0, dtype=np.uint8)
