"""What the scheduler keeps account of for reading: bytes in the store, and which worker's cursor is where."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence

from pyloader_delta.engine.progress import Progress
from pyloader_delta.engine.tasks import ReadTask
from pyloader_delta.errors import BudgetError
from pyloader_delta.values import Chunk

_LOOK_AHEAD = (
    32  # positions that a worker may pass over as another's cursor reads them; plans let 16 row groups alternate
)
_RATIO_BYTES = 1 << 20  # smaller reads tell nothing of how far estimates are off


class Store:
    """Bytes of chunks held and being read, and of open cursors.

    Args:
        max_bytes: What they may take together.
        read_cost: Times its size that a chunk takes while it is read: 2 where it is decoded first and copied then.
        cursors: Of those who read.
    """

    def __init__(self, max_bytes: int, read_cost: int, cursors: Cursors) -> None:
        self.held = 0
        self.max_bytes, self._read_cost, self._cursors = max_bytes, read_cost, cursors
        self._reserved = 0
        self._sizes: dict[int, int] = {}  # read task → real bytes of what came of it
        self._estimated = self._real = 0

    @property
    def used(self) -> int:
        """Bytes held and reserved."""
        return self.held + self._reserved + self._cursors.size_bytes

    def estimate(self, chunks: Iterable[Chunk]) -> int:
        """Return what chunks will take while they are read: their estimates, corrected by how far others were off."""
        ratio = max(self._real / self._estimated, 1.0) if self._estimated else 1.0
        return self._read_cost * sum([int(chunk.size_bytes * ratio) for chunk in chunks])

    def fits(self, progress: Progress, stop: int) -> bool:
        """Return whether all chunks below a position that were not granted yet have a place."""
        chunks = [progress.plan.chunks[p] for p in (*progress.skipped, *range(progress.next_read, stop)) if p < stop]
        return self._lacking(progress, chunks) <= 0

    def admits(self, worker: int, progress: Progress, position: int, stop: int, *, stalled: bool) -> bool | BudgetError:
        """Return whether a chunk has a place now, with those up to `stop`; an error where it will never have one.

        Args:
            worker: Is to read it.
            progress: The epoch.
            position: Of the chunk.
            stop: One past those that must have a place together with it.
            stalled: Whether nothing else is under way.
        """
        if self.fits(progress, stop):
            return True
        if position != min([*progress.skipped, progress.next_read]) or not (stalled or stop == position + 1):
            return False
        if self._make_room(worker, progress, position):
            return True
        if self._cursors.closing or not stalled:
            return False
        return self._beyond(progress, position) or True

    def readmits(self, worker: int, progress: Progress, positions: range, *, stalled: bool) -> bool:
        """Return whether chunks that are read again have a place; they must come, where nothing else is under way."""
        if self._lacking(progress, progress.plan.chunks[positions.start : positions.stop]) <= 0:
            return True
        return self._make_room(worker, progress, positions.start) or (stalled and not self._cursors.closing)

    def _make_room(self, worker: int, progress: Progress, position: int) -> bool:
        """Have cursors closed until a chunk has a place; they are opened again, at a cost, when they are needed.

        Return whether it has one now: not where other workers must close theirs first, or that is not enough.
        """
        lacking = self._lacking(progress, [progress.plan.chunks[position]])
        return self._cursors.close(worker, progress, position, lacking)

    def _lacking(self, progress: Progress, chunks: Sequence[Chunk]) -> int:
        """Return how many bytes too many are held if chunks are read, too."""
        return self.used + self.estimate(chunks) + self._cursors.opening(progress, chunks) - self.max_bytes

    def _beyond(self, progress: Progress, position: int) -> BudgetError | None:
        """Return an error where even an idle loader has no place for the chunk that the next batch needs.

        It does not depend on which cursors are open, or on what else was read ahead.
        """
        chunk = progress.plan.chunks[position]
        held = sum(self._sizes[number] for number in progress.reads_before(position))
        size = chunk.size_bytes + (0 if _cursor(progress, chunk) is None else chunk.cursor_bytes)
        if not held or held + size <= self.max_bytes:
            return None
        windows = f"windows {progress.freed}..{progress.window_of(position)} of epoch {progress.plan.epoch}"
        return BudgetError(
            f"memory_budget is too small: the next batch needs {windows} at once; they hold {held} bytes, and {chunk} "
            f"(about {size} bytes) is still to come, but all may take {self.max_bytes} bytes. Raise memory_budget, or "
            "lower shuffle_window or batch_size"
        )

    def reserve(self, size_bytes: int) -> None:
        """Take space for a read."""
        self._reserved += size_bytes

    def release(self, task: ReadTask) -> None:
        """Give it back: the read has ended, and what it had to close is closed."""
        self._reserved -= task.size_bytes
        self._cursors.leaving.pop(task.number, None)

    def keep(self, number: int, chunks: Iterable[Chunk], size_bytes: int) -> None:
        """Note the real bytes of what came of a read task."""
        self._sizes[number] = size_bytes
        self.held += size_bytes
        if size_bytes >= _RATIO_BYTES:
            self._estimated += sum(chunk.size_bytes for chunk in chunks)
            self._real += size_bytes

    def let_go(self, numbers: Iterable[int]) -> None:
        """Note that what came of read tasks is not held any more."""
        for number in numbers:
            self.held -= self._sizes.pop(number)


class Cursors:
    """Row groups that are read in several chunks, each by one worker, which keeps its place in them."""

    def __init__(self) -> None:
        self._owners: dict[_Key, int] = {}  # → worker that reads on
        self._sizes: dict[_Key, int] = {}
        self.size_bytes = 0
        """What they hold, by estimates; those included that are to be closed."""
        self.closing: dict[int, int] = {}
        """Worker → bytes of its cursors that it is to close."""
        self.leaving: dict[int, int] = {}
        """Read task → bytes of the cursors that it closes."""

    def __len__(self) -> int:
        return len(self._owners)

    def turns(self, n_workers: int) -> Iterator[int]:
        """Yield workers to be asked for a task: twice, where one must close what another has no place for."""
        yield from range(n_workers)
        if self.closing:
            yield from range(n_workers)

    def opening(self, progress: Progress, chunks: Iterable[Chunk]) -> int:
        """Return what cursors will hold that reading chunks opens."""
        found = {cursor: c.cursor_bytes for c in chunks if (cursor := _cursor(progress, c)) is not None}
        return sum(size for cursor, size in found.items() if cursor not in self._owners)

    def of(self, worker: int) -> tuple[tuple[str, int], ...]:
        """Return (path, row group) of those that a worker must keep."""
        return tuple((path, group) for (_, path, group), owner in self._owners.items() if owner == worker)

    def position(self, worker: int, progress: Progress) -> int | None:
        """Return the first position not granted yet that no other worker's cursor must read; None if far away."""
        stop = min(progress.next_read + _LOOK_AHEAD - len(progress.skipped), progress.n_chunks)
        for position in [*progress.skipped, *range(progress.next_read, stop)]:
            if self._may_go_on(worker, progress, position):
                return int(position)
        return None

    def may_read(self, worker: int, progress: Progress, position: int) -> bool:
        """Return whether a chunk was not granted yet and no other worker's cursor must read it."""
        ungranted = position >= progress.next_read or position in progress.skipped
        return ungranted and self._may_go_on(worker, progress, position)

    def _may_go_on(self, worker: int, progress: Progress, position: int) -> bool:
        cursor = _cursor(progress, progress.plan.chunks[position])
        return cursor is None or self._owners.get(cursor, worker) == worker

    def claim(self, worker: int, progress: Progress, chunks: Iterable[Chunk]) -> None:
        """Note that a worker reads chunks, and will read on in row groups that they do not end."""
        for chunk in chunks:
            cursor = _cursor(progress, chunk)
            if cursor is not None and chunk.rows is not None and chunk.row_group_rows is not None:
                self._owners[cursor], self._sizes[cursor] = worker, chunk.cursor_bytes
                if chunk.rows.stop == chunk.row_group_rows.stop:
                    del self._owners[cursor]
                self._count()

    def close(self, worker: int, progress: Progress, position: int, n_bytes: int) -> bool:
        """Have cursors closed that hold so many bytes, those first that are needed last; never that of a chunk.

        Args:
            worker: Is about to read the chunk; its own are closed then.
            progress: The epoch.
            position: Of the chunk.
            n_bytes: What has no place.

        Returns:
            Whether that was enough, and no other worker must close its own first.
        """
        n_bytes -= sum(self.closing.values()) + sum(self.leaving.values())
        others = self._owners.keys() - {_cursor(progress, progress.plan.chunks[position])}
        if n_bytes > sum(self._sizes[cursor] for cursor in others):
            return False
        for cursor in _last_needed(others, progress, position) if n_bytes > 0 else ():
            owner, size = self._owners.pop(cursor), self._sizes[cursor]
            if owner != worker:
                self.closing[owner] = self.closing.get(owner, 0) + size
            n_bytes -= size
            if n_bytes <= 0:
                break
        self._count()
        return not self.closing and not self.leaving

    def closed_by(self, number: int, worker: int) -> int:
        """Note that a read task closes what its worker is to close; return the bytes of that."""
        size = self.closing.pop(worker, 0)
        self.size_bytes -= size
        if size:
            self.leaving[number] = size
        return size

    def leave(self, worker: int) -> None:
        """Note that a worker is gone, and its cursors with it."""
        self.closing.pop(worker, None)
        self._owners = {cursor: owner for cursor, owner in self._owners.items() if owner != worker}
        self._count()

    def end_epoch(self, epoch: int) -> None:
        """Note that nothing of an epoch will be read any more."""
        self._owners = {cursor: owner for cursor, owner in self._owners.items() if cursor[0] != epoch}
        self._count()

    def _count(self) -> None:
        self._sizes = {cursor: self._sizes[cursor] for cursor in self._owners}
        self.size_bytes = sum(self._sizes.values()) + sum(self.closing.values())


_Key = tuple[int, str, int]
"""(epoch, path, row group)."""


def _last_needed(cursors: Collection[_Key], progress: Progress, position: int) -> list[_Key]:
    """Return cursors, those first whose next chunk is the farthest from a position: other epochs' before all."""
    found: dict[_Key, int] = {}
    for p in [*progress.skipped, *range(max(position, progress.next_read), progress.n_chunks)]:
        cursor = _cursor(progress, progress.plan.chunks[p])
        if cursor is not None and cursor in cursors:
            found.setdefault(cursor, p)
            if len(found) == len(cursors):
                break
    return sorted(cursors, key=lambda cursor: (-found.get(cursor, progress.n_chunks), cursor))


def _cursor(progress: Progress, chunk: Chunk) -> _Key | None:
    group = chunk.row_group
    return (progress.plan.epoch, chunk.path, group) if group is not None and chunk.is_part else None
