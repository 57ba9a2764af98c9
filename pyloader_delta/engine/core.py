"""The engine of one loader: scheduler, memory and workers brought together. All state changes under one lock."""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyloader_delta.engine.kinds import FileTypes
from pyloader_delta.engine.pack import EMPTY, Packed, unpack
from pyloader_delta.engine.region import Region, load_layout
from pyloader_delta.engine.scheduler import Scheduler
from pyloader_delta.engine.slabs import ALIGNMENT, Lease, SlabPool
from pyloader_delta.engine.tasks import MixTask, ReadTask, RunTask, Task
from pyloader_delta.errors import LoaderTimeout, WorkerDied


class Executor(ABC):
    """Where tasks are carried out. Called under the engine's lock unless said otherwise."""

    n_workers: int
    shared: bool
    """Whether slabs must be mapped by other processes."""

    @abstractmethod
    def start(self, engine: Engine) -> None:
        """Start the workers; called once, from the thread that iterates first."""

    @abstractmethod
    def submit(self, worker: int, number: int, task: Task) -> None:
        """Give an idle worker a task of pass `number`."""

    @abstractmethod
    def discard(self, block: Any) -> None:
        """Let go of a block that nobody needs any more."""

    def slabs(self, blocks: list[Any]) -> list[int]:
        """Return the slabs in which blocks lie."""
        return []

    @abstractmethod
    def wait(self, changed: threading.Condition, timeout_s: float | None) -> None:
        """Wait until something may have changed."""

    @abstractmethod
    def nudge(self) -> None:
        """Make a worker look after the engine soon. Called without the lock, also by finalizers: must not wait."""

    @abstractmethod
    def retire(self, worker: int) -> None:
        """End a worker whose task takes too long; it is replaced where that is possible."""

    @abstractmethod
    def close(self, *, wait: bool) -> None:
        """End the workers. Called without the lock; with `wait` False also by finalizers."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """A run ready for delivery."""

    task: RunTask
    packed: Packed
    slab: int | None
    """Number of the slab that holds it; None where it holds no array."""
    error: BaseException | None
    """What ended the run after the batches that are there."""


Run = tuple[RunTask, Iterator[Any], BaseException | None, list[int]]


class Engine:
    """Carries out passes, one at a time, with workers that stay.

    Args:
        executor: Where tasks are carried out.
        memory_bytes: What slabs may cost together.
        lease_bytes: What batches in the hands of the training loop may cost before they are copied to its own memory.
        timeout_s: Longest time that a task may take; 0 for no limit.
        layout: What regions of shuffled windows will hold, where that is known before reading.
    """

    def __init__(
        self, executor: Executor, *, memory_bytes: int, lease_bytes: int, timeout_s: float,
        layout: bytes | None = None,
    ) -> None:  # fmt: skip
        self.changed = threading.Condition()
        self.pool = SlabPool(shared=executor.shared, max_bytes=memory_bytes)
        self.blocks: dict[int, Any] = {}
        self.scheduler: Scheduler | None = None
        self.closed = False
        self._executor = executor
        self._lease_bytes, self._timeout_s = lease_bytes, timeout_s
        self._number = 0
        self._cancelled = 0
        self._busy: dict[int, tuple[Task, float, list[int], int]] = {}  # worker → task, since when, slabs it uses, pass
        self._regions: dict[tuple[int, int], Region] = {}  # (epoch, window) → where its numbers lie
        self._region_of: dict[int, tuple[int, int]] = {}  # read task → its window, if that has a region
        self._begun: set[tuple[int, int]] = set()  # windows that are read without one
        self._layout = layout
        self._outcomes: dict[int, Outcome] = {}
        self._deaths: dict[tuple[str, int], int] = {}
        self._broken: BaseException | None = None
        self._started = False
        self._ended: SimpleQueue[int] = SimpleQueue()
        self._leases: dict[int, tuple[int, int]] = {}  # lease → (slab, bytes)
        self._next_lease = 0

    # The training loop's side ---------------------------------------------------------------------------------------

    def begin(self, scheduler: Scheduler) -> int:
        """Begin a pass; an older one ends. Return its number."""
        with self.changed:
            self._end_pass()
            self._number += 1
            self.scheduler = scheduler
            if not self._started:
                self._started = True
                self._executor.start(self)
            self._dispatch()
            return self._number

    def next_run(self) -> Run | None:
        """Return the next run: task, batches, the error after them, bytes of each; None at the end of the pass."""
        with self.changed:
            scheduler = self.scheduler
            if scheduler is None:
                raise self._ending()
            number = scheduler.delivered_runs
            while number not in self._outcomes:
                self.look_after()
                if self.scheduler is not scheduler:  # another thread ended the pass
                    raise self._ending()
                if self._broken is not None:
                    raise self._broken
                if scheduler.failure is not None and scheduler.failure[0] == number:
                    raise scheduler.failure[1]
                if scheduler.done:
                    return None
                self._check_time()
                self._executor.wait(self.changed, self._patience())
            outcome = self._outcomes.pop(number)
            scheduler.delivered(number)
            batches = self._lend(outcome)
            self.look_after()
            return outcome.task, batches, outcome.error, outcome.packed.sizes()

    def cancel(self) -> None:
        """End the pass now: nothing more is read, workers wait idle."""
        with self.changed:
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
        with self.changed:
            if self.closed and not self._started:
                return
            self.closed = True
            self._end_pass()
        if self._started:
            self._executor.close(wait=True)
        with self.changed:
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
        region = self._regions.get((task.epoch, task.window))
        if region is not None and placed is not None:
            region.placed = placed if region.placed is None else region.placed & placed
        self._layout = self._layout or layout
        self.scheduler.read_done(worker, task, rows, size_bytes, mix=placed is not None, types=types)

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
        self.scheduler.run_done(worker, task, packed.size_bytes, seconds)

    def read_failed(self, worker: int, number: int, task: ReadTask, error: BaseException) -> None:
        """Take in that a read task raised."""
        self._land(worker)
        if number == self._number and self.scheduler is not None:
            self.scheduler.read_failed(worker, task, error)

    def worker_lost(self, worker: int, how: str) -> None:
        """Have a dead worker's task done again, or fail if it died of it twice."""
        task = self._land(worker)
        if self.scheduler is None:
            return
        if task is not None:
            name = (type(task).__name__, task.number)
            self._deaths[name] = self._deaths.get(name, 0) + 1
            if self._deaths[name] >= 2:
                error = WorkerDied(f"worker {worker} {how} while {task}; so did the worker before it")
                if not isinstance(task, RunTask):
                    self.scheduler.read_failed(worker, task, error)
                else:
                    self._outcomes[task.number] = Outcome(task, EMPTY, None, error)
                    self.scheduler.run_done(worker, task, 0, 0.0)
        for lost in self.scheduler.lost(worker):
            if isinstance(lost, ReadTask):
                self._leave_region(lost.number)

    def fail(self, error: BaseException) -> None:
        """Let the training loop raise an error that has no place in the order: no worker can work any more."""
        self._broken = self._broken or error
        self.changed.notify_all()

    def look_after(self) -> None:
        """Take back what the training loop dropped, let freed blocks go, and give idle workers tasks."""
        self._take_back()
        if self._cancelled >= self._number:
            self._end_pass()
        self._dispatch()

    def held(self, number: int, reads: tuple[int, ...]) -> list[Any] | None:
        """Return the blocks of some read tasks of pass `number`; None where that pass has ended."""
        return [self.blocks[read] for read in reads] if number == self._number else None

    def region(self, number: int, epoch: int, window: int) -> Region | None:
        """Return the region of a window of pass `number`, if it has one."""
        return self._regions.get((epoch, window)) if number == self._number else None

    def task_of(self, worker: int) -> Task:
        """Return the task that a worker has."""
        return self._busy[worker][0]

    @property
    def waiting(self) -> dict[str, float]:
        """Bytes and counts of what is held now."""
        scheduler = self.scheduler
        return {
            "store_bytes": float(scheduler.store_bytes) if scheduler else 0.0,
            "ready_runs": float(len(self._outcomes)),
            "leased_bytes": float(sum(size for _, size in self._leases.values())),
            "slab_bytes": float(self.pool.cost_bytes),
            "tasks_in_flight": float(len(self._busy)),
        }

    # Inside ---------------------------------------------------------------------------------------------------------

    def _ending(self) -> RuntimeError:
        return RuntimeError("this DataLoader is closed" if self.closed else "a newer iter() has ended this pass")

    def _dispatch(self) -> None:
        scheduler = self.scheduler
        if scheduler is None or self.closed:
            return
        for worker in range(self._executor.n_workers):
            if worker not in self._busy and self._available(worker):
                task = scheduler.next_task(worker)
                if task is not None:
                    pins = self._slabs_of(task)
                    for slab in pins:
                        self.pool.pin(slab)
                    self._busy[worker] = (task, time.monotonic(), pins, self._number)
                    self._executor.submit(worker, self._number, task)
        for number in scheduler.freed:
            block = self.blocks.pop(number, None)
            if block is not None:
                self._executor.discard(block)
            self._leave_region(number)
        scheduler.freed.clear()
        self.changed.notify_all()

    def _land(self, worker: int) -> Task | None:
        """Note that a worker is idle; return its task if that is of this pass."""
        task, _, pins, number = self._busy.pop(worker, (None, 0.0, [], 0))
        for slab in pins:
            self.pool.unpin(slab)
        return task if number == self._number else None

    def _slabs_of(self, task: Task) -> list[int]:
        """Return the slabs that a task reads or fills, other than the one that its own result goes to."""
        if isinstance(task, ReadTask):
            region = self._enter_region(task)
            return [] if region is None else [region.slab]
        windows = [segment.window for segment in task.segments] if isinstance(task, RunTask) else [task.window]
        regions = [self._regions[key].slab for w in windows if (key := (task.epoch, w)) in self._regions]
        if isinstance(task, RunTask):
            return regions + self._executor.slabs([self.blocks[r] for s in task.segments for r in s.reads])
        return regions

    def _enter_region(self, task: ReadTask) -> Region | None:
        """Return the region that a read task fills, made with the first of its window."""
        if task.window_rows is None:
            return None
        key = (task.epoch, task.window)
        region = self._regions.get(key)
        if region is None:
            size = load_layout(self._layout).size_bytes(task.window_rows) if self._layout is not None else 0
            if size < _SMALLEST_REGION or key in self._begun:
                self._begun.add(key)
                return None
            assert self._layout is not None
            region = self._regions[key] = Region(self.pool.take(size), task.window_rows, self._layout)
            self.pool.touch(region.slab, size)
        region.reads.add(task.number)
        self._region_of[task.number] = key
        return region

    def _leave_region(self, read: int) -> None:
        key = self._region_of.pop(read, None)
        if key is not None:
            region = self._regions[key]
            region.reads.discard(read)
            if not region.reads:
                self.pool.give(self._regions.pop(key).slab)

    def _available(self, worker: int) -> bool:
        return bool(getattr(self._executor, "available", lambda _: True)(worker))

    def _end_pass(self) -> None:
        self.scheduler = None
        for block in self.blocks.values():
            self._executor.discard(block)
        self.blocks.clear()
        for region in self._regions.values():
            self.pool.give(region.slab)
        self._regions.clear()
        self._region_of.clear()
        self._begun.clear()
        for outcome in self._outcomes.values():
            if outcome.slab is not None:
                self.pool.give(outcome.slab)
        self._outcomes.clear()
        self._deaths.clear()
        self._number += 1  # what is still in flight belongs to no pass
        self.changed.notify_all()

    def _lend(self, outcome: Outcome) -> Iterator[Any]:
        """Return the batches of a run on memory that belongs to the training loop alone."""
        packed, slab = outcome.packed, outcome.slab
        if slab is None:
            return unpack(packed, _NOTHING)
        memory = self.pool[slab].array[: packed.size_bytes]
        self._take_back()
        if sum(size for _, size in self._leases.values()) + packed.size_bytes > self._lease_bytes:
            if self.pool[slab].fd is None:
                self.pool.disown(slab)
                return unpack(packed, memory)
            copy = _aligned_copy(memory)
            self.pool.give(slab)
            return unpack(packed, copy)
        self._next_lease += 1
        self._leases[self._next_lease] = (slab, packed.size_bytes)
        lease = Lease(self.pool[slab], packed.size_bytes, self._next_lease, self._ended)
        return unpack(packed, lease.array)

    def _take_back(self) -> None:
        while True:
            try:
                lease = self._ended.get_nowait()
            except Empty:
                return
            slab, _ = self._leases.pop(lease)
            if not self.closed:
                self.pool.give(slab)

    def _patience(self) -> float | None:
        if not self._timeout_s or not self._busy:
            return None if not self._timeout_s else self._timeout_s
        return max(min(since for _, since, _, _ in self._busy.values()) + self._timeout_s - time.monotonic(), 0.01)

    def _check_time(self) -> None:
        if not self._timeout_s:
            return
        for worker, (task, since, _, _) in list(self._busy.items()):
            if time.monotonic() - since > self._timeout_s:
                self._executor.retire(worker)
                raise LoaderTimeout(f"worker {worker} took longer than timeout={self._timeout_s} s, {task}")


def _aligned_copy(memory: NDArray[np.uint8]) -> NDArray[np.uint8]:
    room = np.empty(len(memory) + ALIGNMENT, dtype=np.uint8)
    start = -room.ctypes.data % ALIGNMENT
    copy = room[start : start + len(memory)]
    copy[...] = memory
    return copy


_SMALLEST_REGION = 1 << 20  # smaller windows lie in a processor's cache as they are
_NOTHING = np.zeros(0, dtype=np.uint8)
