"""Chunks of an epoch that cannot be read: which are read again one by one, and what stands in for a skipped one."""

from __future__ import annotations

from bisect import bisect_right

from pyloader_delta.errors import LoaderError, ReadError, StageError, WorkerDied
from pyloader_delta.values import Chunk, EpochLike

Lost = dict[tuple[int, int], BaseException]
"""(epoch, position) → error of each chunk that cannot be read and is skipped."""
_STAND_INS = 8  # chunks after one that cannot be read whose rows may stand in its place


class Losses:
    """What is lost of one epoch.

    Args:
        plan: The epoch.
        lost: Where chunks that are skipped are entered; None: what cannot be read is an error.
    """

    def __init__(self, plan: EpochLike, lost: Lost | None) -> None:
        self._plan, self._lost = plan, lost

    def again(self, positions: range, error: BaseException) -> bool:
        """Return whether the chunks of a read that failed are to be read again one by one, or others in their place.

        Not where that has failed already, or the error is of a kind that tells of more than a chunk. A mixed
        window is not read one by one where nothing is skipped: all of it fails.
        """
        alone = len(positions) == 1
        if not _of_a_chunk(error) or (self._lost is None and (alone or self._plan.row_seed is not None)):
            return False
        place = self._plan.epoch, positions.start
        if self._lost is not None and place in self._lost:
            error.__cause__ = self._lost.pop(place)
            return False
        if self._lost is not None and alone:
            self._lost[place] = error
        return True

    def instead(self, positions: range) -> tuple[Chunk, ...] | None:
        """Return the chunks that may stand in the place of a lost one; None where nothing is lost."""
        chunks, position = self._plan.chunks, positions.start
        if self._lost is None or (self._plan.epoch, position) not in self._lost:
            return None
        if chunks[position].n_rows is None:
            return ()
        return tuple(chunk for chunk in self._after(position, min(len(chunks) - 1, _STAND_INS)) if chunk.n_rows)

    def instead_of_rows(self, window: int) -> tuple[Chunk, ...]:
        """Return the chunks that may stand in for batches that end in a window; none where no rows are skipped.

        They are those after its unit, not after the window: this may depend on the budget, that is the plan's.
        """
        if self._lost is None:
            return ()
        units, windows = self._plan.units, self._plan.windows
        last = bisect_right(units, units[window]) - 1
        n_chunks = min(len(self._plan.chunks), _STAND_INS)
        return tuple(chunk for chunk in self._after(windows[last].stop - 1, n_chunks) if chunk.n_rows != 0)

    def _after(self, position: int, n: int) -> list[Chunk]:
        """Return the chunks after one, the first again after the last."""
        chunks = self._plan.chunks
        return [chunks[(position + i) % len(chunks)] for i in range(1, n + 1)]


def _of_a_chunk(error: BaseException) -> bool:
    ours = not isinstance(error, LoaderError) or isinstance(error, (ReadError, StageError, WorkerDied))
    return ours and isinstance(error, Exception)
