"""Which rows of an epoch belong to one rank: a contiguous share of its order, cut to the row. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from pyloader_delta.permute import permuted
from pyloader_delta.values import Chunk, Rest

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


@dataclass(frozen=True, slots=True)
class Remnant:
    """A mixed window of which only some places are left."""

    chunks: tuple[Chunk, ...]
    """All of its chunks: each must be read."""
    rest: Rest

    def row(self) -> Chunk:
        """Return the row at the first place that is left."""
        rest = self.rest
        n_rows = sum(chunk.n_rows or 0 for chunk in self.chunks)
        number = int(permuted(n_rows, rest.key, rest.start, rest.start + 1)[0])
        for chunk in self.chunks:
            n = chunk.n_rows or 0
            if number < n:
                return part_of(chunk, number, number + 1)
            number -= n
        raise AssertionError("a place beyond the window")


Piece = Sequence[Chunk] | Remnant
"""The chunks of a row group or file, or some of them, in order; or what is left of a window."""


def rows_in(piece: Piece) -> int:
    """Return the rows of a piece; lengths are known."""
    if isinstance(piece, Remnant):
        return piece.rest.stop - piece.rest.start
    return sum(chunk.n_rows or 0 for chunk in piece)


def share(pieces: Sequence[Piece], place: Place) -> tuple[list[Piece], Chunk | None]:
    """Return a rank's part of what is left of an epoch, and the chunk of the one row that it repeats, or None.

    Chunks are cut where shares meet, so each of two ranks reads its part of such a row group or file. The lengths of
    all chunks must be known.
    """
    n_rows = sum(map(rows_in, pieces))
    own = place.rows(n_rows)
    _, found = cut(pieces, [own.start, own.stop])
    return found, _repeated(found or pieces) if place.padded(n_rows) else None


def cut(pieces: Iterable[Piece], ends: Sequence[int]) -> list[list[Piece]]:
    """Return the pieces' rows in runs: up to the first end, from there to the second, and so on.

    Args:
        pieces: In order.
        ends: Numbers of rows, ascending; rows from the last on are left out.
    """
    runs: list[list[Piece]] = [[] for _ in ends]
    number = row = 0
    for piece in pieces:
        n, low = rows_in(piece), 0
        while low < n and number < len(ends):
            high = min(n, ends[number] - row)
            if low < high:
                runs[number].append(rows_of(piece, low, high, n))
                low = high
            if low < n:
                number += 1
        row += n
    return runs


def rows_of(piece: Piece, start: int, stop: int, n_rows: int) -> Piece:
    """Return the rows `start..stop` of a piece of `n_rows`."""
    if (start, stop) == (0, n_rows):
        return piece
    if isinstance(piece, Remnant):
        first = piece.rest.start
        return replace(piece, rest=replace(piece.rest, start=first + start, stop=first + stop))
    found, row = [], 0
    for chunk in piece:
        n = chunk.n_rows or 0
        low, high = max(start - row, 0), min(stop - row, n)
        row += n
        if low < high:
            found.append(chunk if (low, high) == (0, n) else part_of(chunk, low, high))
    return found


def part_of(chunk: Chunk, start: int, stop: int) -> Chunk:
    """Return the rows `start..stop` of a chunk of known length as a chunk."""
    assert chunk.rows is not None
    size = chunk.size_bytes * (stop - start) // len(chunk.rows)
    return replace(
        chunk, rows=chunk.rows[start:stop], size_bytes=size, row_group_rows=chunk.row_group_rows or chunk.rows
    )


def _repeated(pieces: Sequence[Piece]) -> Chunk:
    """Return the row with the fewest rows before it in its row group: these are decoded to get at it."""
    chunks = [chunk for piece in pieces if not isinstance(piece, Remnant) for chunk in piece if chunk.n_rows]
    if chunks:
        return part_of(min(chunks, key=_rows_before), 0, 1)
    return next(piece.row() for piece in pieces if isinstance(piece, Remnant))


def _rows_before(chunk: Chunk) -> int:
    assert chunk.rows is not None
    return chunk.rows.start - (chunk.row_group_rows or chunk.rows).start
