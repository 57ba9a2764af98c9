"""Where the rows of a planned epoch come from: positions in order of delivery → rows of the table. Reads nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from pyloader_delta.permute import permuted, row_key
from pyloader_delta.plan.epoch import EpochPlan
from pyloader_delta.plan.resume import window_starts
from pyloader_delta.values import Chunk

RowsOf = Callable[[Chunk], NDArray[np.int64]]
"""The rows of the table that a chunk of a plan holds, in its order."""


class Table:
    """The rows of a table, numbered in its own order from 0.

    Args:
        units: Its row groups or files, each as chunks of known length.
    """

    def __init__(self, units: Sequence[Sequence[Chunk]]) -> None:
        self.units = units
        lengths = [sum(chunk.n_rows or 0 for chunk in unit) for unit in units]
        self.starts = np.cumsum([0, *lengths], dtype=np.int64)
        """First row of each unit, and the end of the last."""
        self._numbers = {(unit[0].path, unit[0].row_group): number for number, unit in enumerate(units)}

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return int(self.starts[-1])

    def rows_of(self, chunk: Chunk) -> NDArray[np.int64]:
        """Return the rows of a chunk that is a unit, or part of one."""
        number = self._numbers[chunk.path, chunk.row_group]
        before = 0 if chunk.rows is None else chunk.rows.start - _start(self.units[number][0])
        start = int(self.starts[number]) + before
        return np.arange(start, start + (chunk.n_rows or 0))

    def units_of(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the number of the unit that each row lies in."""
        return np.searchsorted(self.starts, rows, side="right") - 1


def delivered(plan: EpochPlan, rows_of: RowsOf, start: int, stop: int) -> NDArray[np.int64]:
    """Return the rows of the table at the positions start..stop of an epoch, int64 of shape (stop - start,)."""
    found = np.empty(stop - start, dtype=np.int64)
    starts = window_starts(plan)
    first, last = np.searchsorted(starts, [start, stop - 1], side="right") - 1
    for window in range(int(first), int(last) + 1):
        begin, end = starts[window], starts[window + 1]
        low, high = max(start, begin), min(stop, end)
        if low >= high:
            continue
        places = np.arange(low - begin, high - begin)
        if plan.row_seed is not None:
            key = row_key(plan.row_seed, plan.epoch, plan.origin + begin)
            places = permuted(end - begin, key, low - begin, high - begin)
        found[low - start : high - start] = _at(
            plan.chunks[plan.windows[window].start : plan.windows[window].stop], rows_of, places
        )
    return found


def _at(chunks: Sequence[Chunk], rows_of: RowsOf, places: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the rows at some places among the rows of chunks."""
    found = np.empty(len(places), dtype=np.int64)
    starts = np.cumsum([0, *(chunk.n_rows or 0 for chunk in chunks)])
    chosen = np.searchsorted(starts, places, side="right") - 1
    for number in np.unique(chosen).tolist():
        here = np.flatnonzero(chosen == number)
        found[here] = rows_of(chunks[number])[places[here] - starts[number]]
    return found


def _start(chunk: Chunk) -> int:
    return 0 if chunk.rows is None else chunk.rows.start
