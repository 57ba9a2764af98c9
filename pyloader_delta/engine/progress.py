"""How far one epoch has come: which chunks are read, how many rows are there, which windows can be let go."""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate

from pyloader_delta.engine.kinds import FileTypes, Kinds
from pyloader_delta.engine.losses import Losses
from pyloader_delta.engine.losses import Lost as Lost
from pyloader_delta.engine.tasks import MixTask, ReadTask, Segment
from pyloader_delta.errors import IncompleteEpochError
from pyloader_delta.permute import row_key
from pyloader_delta.units import Borders, most_together
from pyloader_delta.values import Chunk, EpochLike


class Progress:
    """The state of one epoch. Told of reads and runs by the scheduler; asks nobody."""

    def __init__(self, plan: EpochLike, base: int, kinds: Kinds, lost: Lost | None = None) -> None:
        self.plan = plan
        self._kinds = kinds
        losses = Losses(plan, lost)
        self.instead, self._again, self._instead_of_rows = losses.instead, losses.again, losses.instead_of_rows
        self._types: dict[int, FileTypes] = {}  # first position of a read → its files' types
        self._columns: list[tuple[str, ...]] = []  # of each ready window
        self.base = base
        """Chunks of the pass before this epoch: `base + position` numbers chunks over the whole pass."""
        self.n_chunks = len(plan.chunks)
        self.planned_rows = plan.n_rows
        self.next_read = 0
        """First position that was not granted yet."""
        self.redo: list[range] = []
        """Positions granted to a worker that died, in order."""
        self.skipped: list[int] = []
        """Positions passed over because another worker's cursor must read them, in order."""
        self.next_row = 0
        """Rows handed to runs."""
        self.next_batch = 0
        self.ended = False
        """Whether the last run was made."""
        self.ready = 0
        """Windows read without a gap, from the first."""
        self.starts = [0]
        """First row of each ready window, and the end of the last."""
        self._units = Borders()  # of the ready windows
        self.failure: tuple[int, BaseException] | None = None
        """(window, error) of the first window that cannot be read."""
        self._fails_at = self.n_chunks  # the first chunk that cannot
        self._window_of = [0] * self.n_chunks
        for number, window in enumerate(plan.windows):
            for position in window:
                self._window_of[position] = number
        self._rows: list[int | None] = [None] * self.n_chunks
        self._unread = [len(window) for window in plan.windows]
        self._unmixed: dict[int, int] = {}  # window → number of the task that mixes it, -1 before it is given
        self._reads: list[list[tuple[int, int]]] = [[] for _ in plan.windows]  # (first position, number of the task)
        self._users = [0] * len(plan.windows)
        self.freed = 0
        """Windows let go, from the first."""
        self._row_starts = list(accumulate((chunk.n_rows or 0 for chunk in plan.chunks), initial=0))
        self._known_starts = self._plan_starts()
        self._begin_at(plan.first_window)

    def _begin_at(self, window: int) -> None:
        """Take the windows before one, whose rows an earlier process delivered, as read and let go."""
        self.next_row, self.next_batch = self.plan.first_row, self.plan.first_batch
        if not window:
            return
        self.next_read = self.plan.windows[window].start
        self.ready = self.freed = window
        first = self.plan.first_window_row or 0  # known, where lengths are not
        self.starts = self._known_starts[: window + 1] if self._known_starts else [*[0] * window, first]
        self._units = Borders(self.starts[-1])
        self._columns = [()] * window

    def _plan_starts(self) -> list[int] | None:
        if self.planned_rows is None:
            return None
        sizes = [self._row_starts[window.stop] - self._row_starts[window.start] for window in self.plan.windows]
        for number, rest in self.plan.rests.items():
            sizes[number] = rest.stop - rest.start
        return list(accumulate(sizes, initial=0))

    @property
    def at_failure(self) -> bool:
        """Whether all rows are there that come before what cannot be read."""
        windows, (window, _) = self.plan.windows, self.failure or (-1, None)
        return self.ready == window and (window == len(windows) or self._fails_at <= windows[window].start)

    def window_of(self, position: int) -> int:
        """Return the window of a chunk."""
        return self._window_of[position]

    @property
    def row_bytes(self) -> int:
        """About what a row takes decoded; 0 where the plan does not know."""
        first = next((chunk for chunk in self.plan.chunks if chunk.n_rows), None)
        return 0 if first is None else first.size_bytes // (first.n_rows or 1)

    @property
    def n_held(self) -> int:
        """Windows that were not let go."""
        return len(self.plan.windows) - self.freed

    def begun_with(self, position: int, n_before: int) -> int:
        """Return the end of the chunks that must have a place together with one.

        Memory for a mixed window is taken as a whole: a third one is begun only when all of it has a place.

        Args:
            position: Of the chunk.
            n_before: Windows of earlier epochs that are held.
        """
        number = self._window_of[position]
        window = self.plan.windows[number]
        third = n_before + number - self.freed > 1
        return window.stop if third and position == window.start and self.plan.row_seed is not None else position + 1

    @property
    def all_read(self) -> bool:
        """Whether every window of the epoch is there."""
        return self.ready == len(self.plan.windows) and self.failure is None

    @property
    def total(self) -> int | None:
        """Rows of the epoch that are delivered or dropped; None where that is not known yet."""
        total, most = self.rows_there if self.all_read else self.planned_rows, self.plan.max_rows
        if most is None or (total is None and self.rows_there < most):
            return total
        return most if total is None else min(total, most)

    @property
    def rows_there(self) -> int:
        """Rows of the windows that are read without a gap."""
        return self.starts[-1]

    def has_no_batch(self, least: int) -> bool:
        """Return whether all is read, no batch was made, and fewer rows than `least` are there for one."""
        made = self.next_batch - self.plan.first_batch
        return self.all_read and not made and self.rows_there - self.next_row < least

    def beyond(self) -> IncompleteEpochError:
        """Return the error where an earlier process has delivered more of the epoch than there is."""
        return IncompleteEpochError(
            f"epoch {self.plan.epoch} has {self.rows_there} rows, but a state says that {self.next_row} were "
            "delivered: files have changed"
        )

    def read_done(self, task: ReadTask, rows: list[int], *, mix: bool = False, types: FileTypes = ()) -> None:
        """Note the rows of each chunk of a task; `mix`: the window must be mixed before its rows are there."""
        self._types[task.positions.start] = types
        if mix:
            self._unmixed[task.window] = -1
        for position, n in zip(task.positions, rows, strict=True):
            self._rows[position] = n
        self._reads[task.window].append((task.positions.start, task.number))
        self._unread[task.window] -= len(task.positions)
        self._get_ready()

    def mixable(self) -> int | None:
        """Return the first window that is read and waits for somebody to mix it."""
        return min((w for w, number in self._unmixed.items() if number < 0 and not self._unread[w]), default=None)

    def mixing(self, window: int, number: int) -> tuple[int, tuple[int | str, ...]]:
        """Note that a task mixes a window; return its rows and the key of their permutation."""
        assert self._known_starts is not None
        self._unmixed[window] = number
        return self._held(window), self._key(window, self._known_starts[window])

    def _held(self, window: int) -> int:
        """Return the rows that a window has by the plan, those that are not delivered of it included."""
        span = self.plan.windows[window]
        return self._row_starts[span.stop] - self._row_starts[span.start]

    def _key(self, window: int, start: int) -> tuple[int | str, ...]:
        """Return the key by which a window is mixed, of which the first row delivered has a number in the epoch."""
        rest = self.plan.rests.get(window)
        return row_key(self.plan.row_seed or 0, self.plan.epoch, self.plan.origin + start) if rest is None else rest.key

    def mixed(self, window: int, number: int) -> None:
        """Note that a window is mixed; nothing if it has been read again since the task was given."""
        if self._unmixed.get(window) == number:
            del self._unmixed[window]
            self._get_ready()

    def unread(self, window: int, number: int) -> list[int]:
        """Have a window read again whose mixing was cut short; return the numbers of the read tasks it had."""
        if self._unmixed.get(window) != number:
            return []
        del self._unmixed[window]
        numbers = [read for _, read in self._reads[window]]
        self._reads[window] = []
        self._unread[window] = len(self.plan.windows[window])
        self.again_alone(self.plan.windows[window])
        return numbers

    def again_alone(self, positions: range) -> None:
        """Have chunks read again, one by one."""
        self.redo = sorted([*self.redo, *(range(p, p + 1) for p in positions)], key=lambda again: again.start)

    def reads_before(self, position: int) -> list[int]:
        """Return the numbers of the read tasks before a position whose blocks are held."""
        return [number for reads in self._reads[self.freed :] for first, number in reads if first < position]

    def place_of(self, positions: range) -> tuple[int | None, int, tuple[int | str, ...]]:
        """Return (rows of the window, number in it of the first row, key of its permutation) of some chunks.

        Nothing is known where the plan does not mix, or does not know the rows before they are read.
        """
        if self._known_starts is None or self.plan.row_seed is None:
            return None, 0, ()
        window = self._window_of[positions.start]
        first = self._row_starts[positions.start] - self._row_starts[self.plan.windows[window].start]
        return self._held(window), first, self._key(window, self._known_starts[window])

    def _get_ready(self) -> None:
        windows = self.plan.windows
        while self.ready < (len(windows) if self.failure is None else self.failure[0]):
            if self._unread[self.ready] or self.ready in self._unmixed or not self._take_in(windows[self.ready]):
                break
        if self.failure is not None and self.failure[0] == self.ready < len(windows):
            self._cut_short(range(windows[self.ready].start, self._fails_at), self.failure[1])

    def _take_in(self, positions: range) -> bool:
        """Note that a window, or the first chunks of it, are there; False where their columns are an error."""
        for position in positions:
            error = self._kinds.add(self._types.pop(position, ()))
            if error is not None:
                self.read_failed(positions[:1], error)
                return False
        self._columns.append(self._kinds.columns)
        rest = self.plan.rests.get(self.ready)
        n_rows = rest.stop - rest.start if rest is not None else sum(self._rows[p] or 0 for p in positions)
        self.starts.append(self.starts[-1] + n_rows)
        self.ready += 1
        self._units.add(self.plan.units[self.ready - 1], self.rows_there)
        return True

    def _cut_short(self, before: range, error: BaseException) -> None:
        """Let a window end with the chunks before the one that cannot be read, once they are there."""
        if before and all(self._rows[position] is not None for position in before) and self._take_in(before):
            self.failure = (self.ready, error)

    def _may_go_on(self) -> bool:
        """Return whether the next window belongs to the last ready one's unit."""
        return self.ready < len(self.plan.units) and self._units.goes_on(self.plan.units[self.ready])

    def groups(self, n_rows: int, size: int, group: int, most: int, *, ends: bool) -> tuple[tuple[int, ...], bool]:
        """Return the batches of each group of the next run, and whether more rows could make it longer.

        Args:
            n_rows: Rows that are there for it.
            size: Rows in a batch.
            group: Batches that may be encoded together.
            most: Batches that the run should have; its first group may have more.
            ends: Whether no rows come after these.
        """
        row, stop = self.next_row, self.next_row + n_rows
        found: list[int] = []
        while row < stop and sum(found) < most:
            together = most_together(row // size, group)
            n, over = (1, True) if together == 1 else self._group(row, stop, size, together)
            if found and sum(found) + n > most:
                return tuple(found), False
            if not (over or ends or n == together):
                break
            found.append(n)
            row += n * size
        return tuple(found), not ends and sum(found) < most

    def _group(self, row: int, stop: int, size: int, most: int) -> tuple[int, bool]:
        """Return the batches from `row` on that are encoded together, and whether no later one can belong to them.

        They all lie in one unit, or each of them lies in several. So what is encoded together depends on the plan and
        on the lengths of its files, and mostly lies in one piece.

        Args:
            row: First row of a batch.
            stop: One past the last row that may be taken; the rows are there.
            size: Rows in a batch; the one that ends at `stop` may be shorter.
            most: Batches that may be encoded together, >= 1.
        """
        n_left = -(-(stop - row) // size)
        _, end = self._units.around(row)
        if end >= stop:
            over = end < stop + size and not (end == self.rows_there and self._may_go_on())
            return min(n_left, most), over
        inside = (end - row) // size
        if inside:
            return min(inside, most), True
        n = 0
        while n < min(n_left, most) and self._units.around(row)[1] < min(row + size, stop):
            n, row = n + 1, row + size
        return n, row < stop

    def failed(self, task: ReadTask | MixTask, error: BaseException) -> None:
        """Note that a task failed: its chunks are read again one by one, or their window fails."""
        if isinstance(task, MixTask):
            self.read_failed(self.plan.windows[task.window], error)
        elif self._again(task.positions, error):
            self.again_alone(task.positions)
        else:
            self.read_failed(task.positions, error)

    def read_failed(self, positions: range, error: BaseException) -> None:
        """Note that chunks of a window cannot be read; the first counts, as it is delivered first.

        In a mixed window each row may come from any chunk of it, so none of them is delivered.
        """
        window = self._window_of[positions.start]
        position = positions.start if self.plan.row_seed is None else self.plan.windows[window].start
        if position < self._fails_at:
            self.failure, self._fails_at = (window, error), position
            self.redo = [again for again in self.redo if again.start < position]
            self._get_ready()

    def take(self, n_rows: int) -> tuple[Segment, ...]:
        """Hand the next rows to a run; they must be there."""
        row, stop = self.next_row, self.next_row + n_rows
        segments = []
        window = max(bisect_right(self.starts, row) - 1, 0)
        while row < stop:
            start, end = self.starts[window], self.starts[window + 1]
            if end > row:
                reads = tuple(number for _, number in sorted(self._reads[window]))
                key = None if self.plan.row_seed is None else self._key(window, start)
                rest = self.plan.rests.get(window)
                held, skipped = (end - start, 0) if rest is None else (self._held(window), rest.start)
                place = row - start + skipped, min(end, stop) - start + skipped
                others = self._instead_of_rows(window)
                segments.append(Segment(window, held, *place, key, reads, self._columns[window], others))
                self._users[window] += 1
                row = min(end, stop)
            window += 1
        self.next_row = stop
        return tuple(segments)

    def release(self, segments: tuple[Segment, ...]) -> list[int]:
        """Note that a run has gathered its rows; return the numbers of the read tasks whose blocks can go."""
        for segment in segments:
            self._users[segment.window] -= 1
        return self.free()

    def free(self) -> list[int]:
        """Return the numbers of the read tasks whose blocks nobody needs any more."""
        numbers: list[int] = []
        while self.freed < self.ready:
            if self._users[self.freed] or not (self.ended or self.next_row >= self.starts[self.freed + 1]):
                break
            numbers += [number for _, number in self._reads[self.freed]]
            self.freed += 1
        return numbers

    def free_all(self) -> list[int]:
        """Return the numbers of all read tasks whose blocks are still held; the epoch is over."""
        numbers = [number for reads in self._reads[self.freed :] for _, number in reads]
        self.freed = self.ready = 0
        self._reads = []
        return numbers

    def chunks_of(self, segments: tuple[Segment, ...]) -> tuple[tuple[Chunk, ...], ...]:
        """Return the chunks of each segment's window."""
        windows = [self.plan.windows[segment.window] for segment in segments]
        return tuple(self.plan.chunks[window.start : window.stop] for window in windows)

    def files_of(self, segments: tuple[Segment, ...]) -> list[str]:
        """Return the paths of the files whose rows segments may have."""
        return list(dict.fromkeys(chunk.path for chunks in self.chunks_of(segments) for chunk in chunks))

    def window_at(self, row: int) -> int:
        """Return the window that holds a row, by plan where known, else an estimate from the rows seen so far."""
        n_windows = len(self.plan.windows)
        if self._known_starts is not None:
            return min(bisect_right(self._known_starts, row) - 1, n_windows - 1)
        if row < self.rows_there or not self.ready:
            return min(max(bisect_right(self.starts, row) - 1, 0), n_windows - 1)
        mean = max(self.rows_there / self.ready, 1.0)
        return min(self.ready + int((row - self.rows_there) / mean), n_windows - 1)
