"""Decides what each worker does next. A state machine without I/O, clocks or threads: events in, tasks out.

Space is granted strictly in the order of delivery, and what the head (the next undelivered run) needs is granted
always, so that no state is a deadlock: if nothing is in flight, either a task is given, or everything was delivered, or
`failure` tells why nothing can go on.
"""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from itertools import takewhile

from pyloader_delta.engine.kinds import FileTypes, Kinds
from pyloader_delta.engine.progress import Lost, Progress
from pyloader_delta.engine.space import Cursors, Store
from pyloader_delta.engine.tasks import Limits, MixTask, ReadTask, RunTask, Task
from pyloader_delta.errors import BudgetError, IncompleteEpochError
from pyloader_delta.units import most_together
from pyloader_delta.values import EpochLike


class Scheduler:
    """The tasks of one pass over one or more epochs.

    Args:
        epochs: The epochs' plans in order; may be endless.
        limits: What may happen at once.
        batch_size: Rows in a batch, >= 1.
        drop_last: Leave out an epoch's last batch if it is short.
        group: Batches that are encoded together; runs consist of whole groups.
        strict_types: Whether a type that changes between files is an error.
        missing_as_none: Whether a column that a file lacks is None there; otherwise it is an error.
        lost: Where chunks that cannot be read are entered, and others stand in for them; None: they are errors.
    """

    def __init__(
        self, epochs: Iterator[EpochLike], limits: Limits, *, batch_size: int, drop_last: bool = False, group: int = 1,
        strict_types: bool = False, missing_as_none: bool = False, lost: Lost | None = None,
    ) -> None:  # fmt: skip
        self.limits = limits
        self.failure: tuple[int, BaseException] | None = None
        """(run, error): what stands in the place of that run, after the runs before it."""
        self.freed: list[int] = []
        """Numbers of read tasks whose blocks can go; the caller takes them away."""
        self.delivered_runs = 0
        self._epochs, self._exhausted = epochs, False
        self._batch_size, self._drop_last, self._group = batch_size, drop_last, group
        self._strict_types, self._missing_as_none, self._lost = strict_types, missing_as_none, lost
        self._reading: deque[Progress] = deque()  # epochs in progress; runs are made in the first
        self._chunks_planned = 0
        self._by_epoch: dict[int, Progress] = {}
        self._flying: dict[int, dict[tuple[str, int], Task]] = {}  # worker → its tasks
        self._redo_runs: list[RunTask] = []
        self.cursors = Cursors()
        self._next_task = self._next_run = 0
        self._undelivered: dict[int, tuple[RunTask, int | None]] = {}  # run → its bytes, None while it is made
        self.store = Store(limits.store_bytes, limits.read_cost, self.cursors)
        self._finished_bytes = 0
        self._batch_cost: tuple[float, float] | None = None  # (bytes, seconds) of a batch, lately
        self._extend()

    # Events ---------------------------------------------------------------------------------------------------------

    def next_task(self, worker: int) -> Task | None:
        """Return what a worker is to do now; None where it must wait for another event."""
        self._advance()
        task = self._run_task() or self._mix_task() or self._read_task(worker)
        if task is not None:
            self._flying.setdefault(worker, {})[_name(task)] = task
        return task

    def read_done(
        self, worker: int, task: ReadTask, rows: list[int], size_bytes: int, *, mix: bool = False, types: FileTypes = ()
    ) -> None:
        """Note that a read ended: rows of each chunk, bytes it takes, whether its window must be mixed, its columns."""
        self._land(worker, task)
        progress = self._by_epoch.get(task.epoch)
        wrong = [(c, n) for c, n in zip(task.chunks, rows, strict=True) if c.n_rows not in (None, n)]
        if progress is None or wrong:  # an epoch that was over (`drop_last`) before its last chunk was read
            self.freed.append(task.number)
            if progress is not None:
                text = f"{wrong[0][0]}: the plan has {wrong[0][0].n_rows} rows, reading gave {wrong[0][1]}"
                progress.read_failed(task.positions, IncompleteEpochError(text))
            return
        self.store.keep(task.number, task.chunks, size_bytes)
        progress.read_done(task, rows, mix=mix, types=types)
        self._let_go(progress.free())

    def mix_done(self, worker: int, task: MixTask) -> None:
        """Note that a window is mixed."""
        self._land(worker, task)
        if task.epoch in self._by_epoch:
            self._by_epoch[task.epoch].mixed(task.window, task.number)

    def read_failed(self, worker: int, task: ReadTask | MixTask, error: BaseException) -> None:
        """Note that a chunk cannot be read; the error is delivered in the place of the first batch that needs it."""
        self._land(worker, task)
        progress = self._by_epoch.get(task.epoch)
        if progress is not None:
            progress.failed(task, error)

    def run_done(self, worker: int, task: RunTask, size_bytes: int, seconds: float) -> None:
        """Note that a run is ready for delivery: bytes of its batches, time that user code took."""
        self._land(worker, task)
        self._undelivered[task.number] = (task, size_bytes)
        self._finished_bytes += size_bytes
        self._batch_cost = (size_bytes / len(task.batch_rows), seconds / len(task.batch_rows))
        self._let_go(self._by_epoch[task.epoch].release(task.segments))

    def lost(self, worker: int) -> list[Task]:
        """Note that a worker died; its tasks are given out again. Return them."""
        tasks = list(self._flying.pop(worker, {}).values())
        for task in tasks:
            if isinstance(task, RunTask):
                again = self._by_epoch[task.epoch].chunks_of(task.segments)
                insort(self._redo_runs, replace(task, again=again), key=lambda run: run.number)
            elif isinstance(task, MixTask):  # columns half mixed: its chunks are read again
                if task.epoch in self._by_epoch:
                    self._let_go(self._by_epoch[task.epoch].unread(task.window, task.number))
            else:
                self.store.release(task)
                if task.epoch in self._by_epoch and task.chunks:
                    self._by_epoch[task.epoch].again_alone(task.positions)
        self.cursors.leave(worker)
        return tasks

    def delivered(self, number: int) -> None:
        """Note that the caller has taken a run, in order of their numbers."""
        assert number == self.delivered_runs, (number, self.delivered_runs)
        task, size = self._undelivered.pop(number)
        self._finished_bytes -= size or 0
        self.delivered_runs += 1
        if task.last:
            self._forget(task.epoch)
        self._advance()

    def files_of(self, task: RunTask) -> list[str]:
        """Return the paths of the files whose rows a run may have."""
        progress = self._by_epoch.get(task.epoch)
        return [] if progress is None else progress.files_of(task.segments)

    @property
    def done(self) -> bool:
        """Whether every run of every epoch was delivered."""
        return self._exhausted and not self._reading and not self._undelivered

    @property
    def in_flight(self) -> int:
        """Tasks that workers have."""
        return sum(map(len, self._flying.values()))

    @property
    def store_bytes(self) -> int:
        """Bytes of the chunks that are held, and estimated bytes of those being read and of open cursors."""
        return self.store.used

    def __repr__(self) -> str:
        return (
            f"<Scheduler delivered={self.delivered_runs} undelivered={len(self._undelivered)} "
            f"in_flight={self.in_flight} store_bytes={self.store_bytes}>"
        )

    # Runs -----------------------------------------------------------------------------------------------------------

    def _run_task(self) -> RunTask | None:
        if self._redo_runs:
            return self._redo_runs.pop(0)
        if self.failure is not None or not self._reading:
            return None
        task = self._cut(self._reading[0])
        self._advance()
        if task is None and self._reading:
            self._fail_if_due(self._reading[0])
        return task

    def _advance(self) -> None:
        """Go on to the next epoch where the first one in progress has handed out its last run."""
        while self._reading:
            progress = self._reading[0]
            if progress.has_no_batch(self._batch_size if self._drop_last else 1):
                if progress.next_batch:
                    self.failure = self.failure or (self._next_run, progress.beyond())
                    return
                self._exhausted = True  # an epoch without a batch: those after it have none either
                for empty in self._reading:
                    empty.ended = True
                    self._forget(empty.plan.epoch)
                self._reading.clear()
                return
            if not progress.ended:
                return
            self._reading.popleft()
            if not self._reading:
                self._extend()

    def _cut(self, progress: Progress) -> RunTask | None:
        """Return the next run of an epoch, or None where its rows are not there yet or it must wait."""
        if progress.ended:
            return None
        size, total = self._batch_size, progress.total
        there = progress.rows_there - progress.next_row
        if not self._may_run():
            return None
        if total is None and progress.failure is None:  # more must be there than is taken: is a batch the last?
            there = max(there - (size if self._drop_last else 1), 0)
        left = None if total is None else total - progress.next_row
        if left is not None and self._drop_last:
            left -= left % size
        available = there if left is None else min(there, left)
        ends = progress.failure is not None or available == left
        if available != left:
            available -= available % size
        group = progress.plan.group or self._group
        most = self._batches_per_run(most_together(progress.next_batch, group))
        groups, starved = progress.groups(available, size, group, most, ends=ends)
        rows = min(sum(groups) * size, available)
        if rows <= 0:
            return None
        if starved and len(self._undelivered) > 1 and self._flying_reads():
            return None  # a longer run is coming, and the caller has work until then
        last = left is not None and rows == left
        first_row, first_batch = progress.next_row, progress.next_batch
        segments = progress.take(rows)
        batch_rows = tuple(min(size, rows - start) for start in range(0, rows, size))
        progress.next_batch += len(batch_rows)
        progress.ended = last
        dropped = (total or 0) - progress.next_row if last else 0
        task = RunTask(
            self._next_run, progress.plan.epoch, first_batch, batch_rows, groups, segments, last,
            (total or 0) if last else 0, dropped, first_row, progress.plan.origin,
        )  # fmt: skip
        self._undelivered[task.number] = (task, None)
        self._next_run += 1
        return task

    def _may_run(self) -> bool:
        if not self._undelivered:
            return True
        if len(self._undelivered) >= self.limits.pending_runs:
            return False
        if self._batch_cost is None:
            fit = self.limits.batch_bytes // max(self._reading[0].row_bytes * self._batch_size, 1)
            return len(self._undelivered) < min(self.limits.n_workers, fit)
        flying = sum(size is None for _, size in self._undelivered.values())
        run_bytes = self._batch_cost[0] * self._batches_per_run(self._group)
        return self._finished_bytes + (flying + 1) * run_bytes <= self.limits.batch_bytes

    def _batches_per_run(self, group: int) -> int:
        if self._batch_cost is None:
            return group
        limits, (size_bytes, seconds) = self.limits, self._batch_cost
        fit = min(
            limits.run_rows // self._batch_size,
            int(min(limits.run_bytes, limits.batch_bytes // 2) / max(size_bytes, 1.0)),
            int(limits.run_seconds / max(seconds, 1e-9)),
        )
        return max(fit // group, 1) * group

    def _fail_if_due(self, progress: Progress) -> None:
        """Put the epoch's failure in the place of the next run once everything before it was made."""
        left = progress.rows_there - progress.next_row
        if progress.failure is not None and progress.at_failure and left < self._batch_size:
            self.failure = (self._next_run, progress.failure[1])

    # Windows --------------------------------------------------------------------------------------------------------

    def _mix_task(self) -> MixTask | None:
        for progress in self._reading:
            window = progress.mixable()
            if window is not None and self.failure is None:
                number, self._next_task = self._next_task, self._next_task + 1
                n_rows, key = progress.mixing(window, number)
                return MixTask(number, progress.plan.epoch, window, n_rows, key)
        return None

    # Reads ----------------------------------------------------------------------------------------------------------

    def _read_task(self, worker: int) -> ReadTask | None:
        if self.failure is not None or not self._reading:
            return None
        if worker in self.cursors.closing:
            return self._reserved(worker, ReadTask(-1, -1, -1, range(0), (), 0, cursors=self.cursors.of(worker)))
        stalled = not self.in_flight and not self._undelivered
        for progress in self._reading:
            if progress.redo:
                again = self.store.readmits(worker, progress, progress.redo[0], stalled=stalled)
                return self._grant(worker, progress, progress.redo.pop(0)) if again else None
        if len(self._reading) == 1 and self._reading[0].next_read == self._reading[0].n_chunks:
            self._extend()  # the next epoch's first window is read while this one's last batches are taken
        for progress in self._reading:
            if progress.failure is not None or not (progress.skipped or progress.next_read < progress.n_chunks):
                continue
            position = self.cursors.position(worker, progress)
            return None if position is None else self._read_at(worker, progress, position)
        return None

    def _read_at(self, worker: int, progress: Progress, position: int) -> ReadTask | None:
        """Return the read of a chunk and its small neighbours, where the queue and the store have a place for them."""
        stalled = not self.in_flight and not self._undelivered
        cap = self._cap()
        if progress.base + position >= cap and not stalled:
            return None
        earlier = takewhile(lambda other: other is not progress, self._by_epoch.values())
        stop = progress.begun_with(position, sum(other.n_held for other in earlier))
        place = self.store.admits(worker, progress, position, stop, stalled=stalled)
        if isinstance(place, BudgetError):
            self.failure = (self._next_run, place)
        if place is not True:
            return None
        stop = self._group_end(worker, progress, position, cap)
        left = [p for p in progress.skipped if not position <= p < stop]
        progress.skipped = left + list(range(progress.next_read, position))
        progress.next_read = max(progress.next_read, stop)
        return self._grant(worker, progress, range(position, stop))

    def _grant(self, worker: int, progress: Progress, positions: range) -> ReadTask:
        chunks, window = progress.plan.chunks[positions.start : positions.stop], progress.window_of(positions.start)
        size = self.store.estimate(chunks)
        more = *progress.place_of(positions), progress.instead(positions), self.cursors.of(worker)
        self.cursors.claim(worker, progress, chunks)
        return self._reserved(worker, ReadTask(-1, progress.plan.epoch, window, positions, chunks, size, *more))

    def _reserved(self, worker: int, task: ReadTask) -> ReadTask:
        """Return a read task with its number, and what it takes: with cursors that it closes until it has ended."""
        closes = self.cursors.closed_by(self._next_task, worker)
        task = replace(task, number=self._next_task, size_bytes=task.size_bytes + closes)
        self._next_task += 1
        self.store.reserve(task.size_bytes)
        return task

    def _group_end(self, worker: int, progress: Progress, start: int, cap: int) -> int:
        """Return the end of the small chunks that a worker reads together with the chunk at `start`."""
        chunks, window = progress.plan.chunks, progress.plan.windows[progress.window_of(start)]
        parts = chunks[start].is_part  # about equally large: the same ones together in each window, as cursors stay
        n_workers = 1 if progress.plan.row_seed is None else self.limits.n_workers
        share = -(-(len(window) if parts else window.stop - start) // n_workers)
        if parts:
            share = -(-share // max(-(-share * chunks[start].size_bytes // self.limits.read_bytes), 1))
        most = max(min(share, self.limits.read_chunks), 1)
        stop = min(window.stop, start + most, max(cap - progress.base, start + 1))
        end, left = start + 1, self.limits.read_bytes - chunks[start].size_bytes
        while end < stop and chunks[end].size_bytes <= left and self.cursors.may_read(worker, progress, end):
            left -= chunks[end].size_bytes
            end += 1
        while end > start + 1 and not self.store.fits(progress, end):
            end -= 1
        return end

    def _cap(self) -> int:
        """Return the number in the pass of the first chunk that the queue has no place for."""
        progress = self._reading[0]
        head = next(iter(self._undelivered.values()), None)
        if head is not None and head[0].epoch != progress.plan.epoch and head[0].epoch in self._by_epoch:
            progress = self._by_epoch[head[0].epoch]
        n = self._batch_size * (progress.plan.group or self._group) if head is None else head[0].n_rows
        window = progress.window_at((progress.next_row if head is None else head[0].first_row) + n - 1) + 1
        if window < len(progress.plan.windows):
            end = progress.base + progress.plan.windows[window].stop
        else:
            end = progress.base + progress.n_chunks
            after = next((p for p in self._reading if p.base == end), None)
            if after is not None and after.plan.windows:
                end += after.plan.windows[0].stop
        return end + self.limits.max_queue_size

    # Both -----------------------------------------------------------------------------------------------------------

    def _extend(self) -> None:
        plan = None if self._exhausted else next(self._epochs, None)
        if plan is None:
            self._exhausted = True
            return
        kinds = Kinds(strict=self._strict_types, missing_as_none=self._missing_as_none)
        progress = Progress(plan, self._chunks_planned, kinds, self._lost)
        self._chunks_planned += progress.n_chunks
        self._reading.append(progress)
        self._by_epoch[plan.epoch] = progress

    def _forget(self, epoch: int) -> None:
        self._let_go(self._by_epoch.pop(epoch).free_all())
        self.cursors.end_epoch(epoch)

    def _land(self, worker: int, task: Task) -> None:
        del self._flying[worker][_name(task)]
        if isinstance(task, ReadTask):
            self.store.release(task)

    def _let_go(self, numbers: list[int]) -> None:
        self.store.let_go(numbers)
        self.freed += numbers

    def _flying_reads(self) -> bool:
        return any(not isinstance(task, RunTask) for tasks in self._flying.values() for task in tasks.values())


def _name(task: Task) -> tuple[str, int]:
    return type(task).__name__, task.number
