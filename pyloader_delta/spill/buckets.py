"""Buckets: runs of positions in a full shuffle's order. Which rows they hold is a keyed permutation. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from pyloader_delta.permute import permuted, places
from pyloader_delta.values import Chunk

Extent = tuple[int, int]
"""(offset in the scratch file, bytes) of rows of one bucket, as an Arrow stream."""
PART_BYTES = 4 << 20
"""A bucket is read in parts of about this size: what is read must be held beside the window that it goes to."""


@dataclass(frozen=True, slots=True)
class Bucket(Chunk):
    """A bucket, or part of one, of which the rows lie in a scratch file; `rows` are positions in the epoch's order."""

    scratch: str = ""
    """Path by which each process of this machine reaches the file."""
    extents: tuple[Extent, ...] = ()
    """Where its rows are, in the order of the table."""


@dataclass(frozen=True, slots=True)
class FullOrder:
    """A uniform permutation of the rows of one epoch: bucket by bucket, and inside each by its window's mixing."""

    n_rows: int
    """Rows of the epoch, of all ranks."""
    seed: int
    epoch: int
    """0-based."""

    @property
    def key(self) -> tuple[int | str, ...]:
        """Key of the permutation that deals rows out to buckets."""
        return "full", self.seed, self.epoch

    def positions(self, start: int, stop: int) -> NDArray[np.int64]:
        """Return where the rows start..stop of the table are put, int64 of shape (stop - start,)."""
        return places(self.n_rows, self.key, start, stop)

    def rows_of(self, chunk: Chunk) -> NDArray[np.int64]:
        """Return the rows of the table that a bucket, or part of one, holds: ascending, int64."""
        assert chunk.rows is not None
        return np.sort(permuted(self.n_rows, self.key, chunk.rows.start, chunk.rows.stop))


def bucket_units(n_rows: int, size_bytes: int, bucket_rows: int, name: str) -> list[list[Chunk]]:
    """Return the buckets of an epoch as units of a plan, before anything was dealt out to them.

    Args:
        n_rows: Rows of the table.
        size_bytes: Their decoded size, an estimate.
        bucket_rows: Rows of a bucket, >= 1; the last may have fewer.
        name: What stands for a path in errors.
    """
    found = []
    for number, start in enumerate(range(0, n_rows, bucket_rows)):
        rows = range(start, min(start + bucket_rows, n_rows))
        found.append([Chunk(name, size_bytes * len(rows) // n_rows, rows, number, rows)])
    return found


def filled(chunk: Chunk, scratch: str, extents: Sequence[tuple[Extent, int]]) -> list[Bucket]:
    """Return a planned bucket as the parts in which it is read.

    Args:
        chunk: The bucket.
        scratch: Path of the file.
        extents: Where its rows are and how many, in the order of the table; together as many as it has.
    """
    assert chunk.rows is not None
    parts: list[Bucket] = []
    start, held, size = chunk.rows.start, 0, 0
    run: list[Extent] = []
    for number, (extent, n_rows) in enumerate(extents, 1):
        run.append(extent)
        held, size = held + n_rows, size + extent[1]
        if size >= PART_BYTES or number == len(extents):
            rows = range(start, start + held)
            parts.append(Bucket(chunk.path, size, rows, chunk.row_group, rows, scratch=scratch, extents=tuple(run)))
            start, held, size, run = rows.stop, 0, 0, []
    assert start == chunk.rows.stop, (start, chunk)
    return parts


class Dealer:
    """Tells which buckets of a plan rows go to.

    Args:
        buckets: The plan's, by their place in it; no two of them share a position but for one that repeats a row.
    """

    def __init__(self, buckets: Sequence[tuple[int, Chunk]]) -> None:
        self._layers: list[tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]] = []
        """(starts, stops, places in the plan) of buckets that do not overlap."""
        left = sorted((chunk.rows.start, chunk.rows.stop, place) for place, chunk in buckets if chunk.rows)
        while left:
            layer: list[tuple[int, int, int]] = []
            over: list[tuple[int, int, int]] = []
            end = 0
            for start, stop, place in left:
                fits = start >= end or not layer
                (layer if fits else over).append((start, stop, place))
                end = stop if fits else end
            starts, stops, numbers = np.array(layer, dtype=np.int64).T
            self._layers.append((starts, stops, numbers))
            left = over

    def count(self, positions: NDArray[np.int64]) -> int:
        """Return how many rows go to a bucket, those that go to two counted twice."""
        return sum(int(np.count_nonzero(_inside(*layer[:2], positions)[1])) for layer in self._layers)

    def deal(self, positions: NDArray[np.int64]) -> list[tuple[int, NDArray[np.int64]]]:
        """Return (bucket, which of these rows it gets, ascending) for each bucket that gets some."""
        found = []
        for starts, stops, numbers in self._layers:
            bucket, inside = _inside(starts, stops, positions)
            rows = np.flatnonzero(inside)
            keys = bucket[rows].astype(np.uint16 if len(starts) < 1 << 16 else np.int64)  # few bits are sorted by radix
            order = rows[np.argsort(keys, kind="stable")]
            sorted_ = bucket[order]
            edges = np.flatnonzero(np.diff(sorted_, prepend=-1, append=len(starts))).tolist()
            found += [(int(numbers[sorted_[low]]), order[low:high]) for low, high in pairwise(edges)]
        return found


def _inside(
    starts: NDArray[np.int64], stops: NDArray[np.int64], positions: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return the last interval that begins at or before each position, and whether the position lies in it."""
    number = np.searchsorted(starts, positions, side="right") - 1
    return number, (number >= 0) & (positions < stops[number])
