"""What the scheduler keeps account of for reading: bytes in the store, and which worker's cursor is where."""

from __future__ import annotations

from collections.abc import Iterable

from pyloader_delta.engine.progress import Progress
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
        return self.used + self.estimate(chunks) + self._cursors.opening(progress, chunks) <= self.max_bytes

    def beyond(self, progress: Progress, position: int) -> BudgetError | None:
        """Return an error where even an idle loader has no place for the chunk that the next batch needs."""
        chunk = progress.plan.chunks[position]
        held = self.held + self._cursors.size_bytes
        size = chunk.size_bytes + self._cursors.opening(progress, [chunk])
        if not held or held + size <= self.max_bytes:
            return None
        windows = f"windows {progress.freed}..{progress.window_of(position)} of epoch {progress.plan.epoch}"
        open_bytes = self._cursors.size_bytes
        return BudgetError(
            f"memory_budget is too small: the next batch needs {windows} at once; they hold {self.held} bytes, row "
            f"groups that are read piece by piece {open_bytes}, and {chunk} (about {size} bytes) is still to come, but "
            f"all may take {self.max_bytes} bytes. Raise memory_budget, or lower shuffle_window or batch_size"
        )

    def reserve(self, size_bytes: int) -> None:
        """Take space for a read."""
        self._reserved += size_bytes

    def release(self, size_bytes: int) -> None:
        """Give it back: the read has ended."""
        self._reserved -= size_bytes

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
        """What they hold, by estimates."""

    def __len__(self) -> int:
        return len(self._owners)

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
            cursor = _cursor(progress, progress.plan.chunks[position])
            if cursor is None or self._owners.get(cursor, worker) == worker:
                return int(position)
        return None

    def claim(self, worker: int, progress: Progress, chunks: Iterable[Chunk]) -> None:
        """Note that a worker reads chunks, and will read on in row groups that they do not end."""
        for chunk in chunks:
            cursor = _cursor(progress, chunk)
            if cursor is not None and chunk.rows is not None and chunk.row_group_rows is not None:
                self._owners[cursor], self._sizes[cursor] = worker, chunk.cursor_bytes
                if chunk.rows.stop == chunk.row_group_rows.stop:
                    del self._owners[cursor]
                self._count()

    def leave(self, worker: int) -> None:
        """Note that a worker is gone, and its cursors with it."""
        self._owners = {cursor: owner for cursor, owner in self._owners.items() if owner != worker}
        self._count()

    def end_epoch(self, epoch: int) -> None:
        """Note that nothing of an epoch will be read any more."""
        self._owners = {cursor: owner for cursor, owner in self._owners.items() if cursor[0] != epoch}
        self._count()

    def _count(self) -> None:
        self._sizes = {cursor: self._sizes[cursor] for cursor in self._owners}
        self.size_bytes = sum(self._sizes.values())


_Key = tuple[int, str, int]
"""(epoch, path, row group)."""


def whole(progress: Progress, position: int) -> bool:
    """Return whether a chunk is a whole row group or file, which needs no cursor."""
    return _cursor(progress, progress.plan.chunks[position]) is None


def _cursor(progress: Progress, chunk: Chunk) -> _Key | None:
    if chunk.row_group is None or chunk.rows is None or chunk.rows == chunk.row_group_rows:
        return None
    return progress.plan.epoch, chunk.path, chunk.row_group
