"""Which rows of an epoch belong to one rank: a contiguous share of its order, cut to the row. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from pyloader_delta.values import Chunk

Uneven = Literal["pad", "mask", "drop"]


@dataclass(frozen=True, slots=True)
class Place:
    """One training process among those that share each epoch."""

    rank: int = 0
    """0 <= rank < world_size."""
    world_size: int = 1
    """Number of ranks, >= 1."""
    uneven: Uneven = "pad"
    """What is done where the rows are no multiple of the ranks: ranks with a row less repeat one ("pad", "mask"), or
    the rows left over are given to nobody ("drop")."""

    def rows(self, n_rows: int) -> range:
        """Return which rows of an epoch's order are this rank's own."""
        each, over = divmod(n_rows, self.world_size)
        if self.uneven == "drop":
            return range(self.rank * each, (self.rank + 1) * each)
        start = self.rank * each + min(self.rank, over)
        return range(start, start + each + (self.rank < over))

    def padded(self, n_rows: int) -> int:
        """Return how many rows this rank repeats, 0 or 1."""
        return self.steps(n_rows) - len(self.rows(n_rows))

    def steps(self, n_rows: int) -> int:
        """Return the rows that each rank delivers in an epoch, the repeated one included: the same on every rank."""
        whole, over = divmod(n_rows, self.world_size)
        return whole + (1 if over and self.uneven != "drop" else 0)

    def left_out(self, n_rows: int) -> int:
        """Return the rows that no rank delivers."""
        return n_rows % self.world_size if self.uneven == "drop" else 0


def share(units: Sequence[Sequence[Chunk]], place: Place) -> tuple[list[list[Chunk]], Chunk | None]:
    """Return a rank's part of an epoch's units, and the chunk of the one row that it repeats at its end, or None.

    Chunks are cut where shares meet, so each of two ranks reads its part of such a row group or file. The lengths of
    all chunks must be known.
    """
    n_rows = sum(chunk.n_rows or 0 for unit in units for chunk in unit)
    own = place.rows(n_rows)
    found, start = [], 0
    for unit in units:
        cut = []
        for chunk in unit:
            n = chunk.n_rows or 0
            low, high = max(own.start - start, 0), min(own.stop - start, n)
            start += n
            if low < high:
                cut.append(chunk if (low, high) == (0, n) else part_of(chunk, low, high))
        if cut:
            found.append(cut)
    return found, _repeated(found or units) if place.padded(n_rows) else None


def part_of(chunk: Chunk, start: int, stop: int) -> Chunk:
    """Return the rows `start..stop` of a chunk of known length as a chunk."""
    assert chunk.rows is not None
    size = chunk.size_bytes * (stop - start) // len(chunk.rows)
    return replace(
        chunk, rows=chunk.rows[start:stop], size_bytes=size, row_group_rows=chunk.row_group_rows or chunk.rows
    )


def _repeated(units: Sequence[Sequence[Chunk]]) -> Chunk:
    """Return the row with the fewest rows before it in its row group: these are decoded to get at it."""
    chunks = [chunk for unit in units for chunk in unit if chunk.n_rows]
    return part_of(min(chunks, key=_rows_before), 0, 1)


def _rows_before(chunk: Chunk) -> int:
    assert chunk.rows is not None
    return chunk.rows.start - (chunk.row_group_rows or chunk.rows).start
