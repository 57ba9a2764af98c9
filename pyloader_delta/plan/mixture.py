"""How many row groups a shuffled window mixes, and an order of them that mixes far parts of a table. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from pyloader_delta.permute import permuted
from pyloader_delta.values import Chunk, WindowSize

NAME = "spread-2"
"""Name and version of what stands here: another result is another order for everybody."""

MIN_LANES, MAX_LANES = 4, 16
"""Where rows are mixed, the chunks of so many large row groups alternate: at least 4, at most 16, and no more between
than `OPEN_WINDOWS` windows hold, as a row group that is read in parts keeps up to half its size while it is open."""
OPEN_WINDOWS = 12


def size_of(chunks: Sequence[Chunk], window: WindowSize) -> int:
    """Return the size of chunks as a window counts it: rows, or decoded bytes."""
    return sum((chunk.n_rows or 0) if window.unit == "rows" else chunk.size_bytes for chunk in chunks)


def lanes(units: Sequence[Sequence[Chunk]], window: WindowSize) -> int:
    """Return how many row groups alternate, >= 1: in equal turns, so that not few are left for the end."""
    largest = max((size_of(unit, window) for unit in units if len(unit) > 1), default=0)
    most = min(max(OPEN_WINDOWS * window.amount // max(largest, 1), MIN_LANES), MAX_LANES)
    turns = -(-len(units) // most)
    return -(-len(units) // max(turns, 1)) or 1


def together(units: Sequence[Sequence[Chunk]], window: WindowSize) -> int:
    """Return about how many row groups or files a window mixes, >= 1."""
    n_chunks = sum(map(len, units))
    size = sum(size_of(unit, window) for unit in units)
    in_window = max(n_chunks * window.amount // max(size, 1), 1)
    cut = n_chunks > len(units)
    return max(min(in_window, len(units), lanes(units, window) if cut else in_window), 1)


def spread(sizes: Sequence[int], n_strata: int, key: tuple[int | str, ...]) -> NDArray[np.int64]:
    """Return a permutation in which about any `n_strata` neighbours come from all over the table.

    The table is cut into strata of equal size. Inside each the order is a permutation of its own; the strata take
    turns, in an order of their own that is the same in each round. One stratum is a plain permutation.

    Args:
        sizes: Of each row group or file, in the table's order, >= 0.
        n_strata: Number of strata, >= 1.
        key: What the permutation depends on besides.

    Returns:
        int64 array of shape (len(sizes),): a permutation of 0..len(sizes)-1.
    """
    n = len(sizes)
    chance = permuted(n, key)
    if n_strata == 1:
        return chance
    ends = np.cumsum(np.maximum(np.asarray(sizes, dtype=np.int64), 1))
    middles = (ends - np.diff(ends, prepend=0) / 2) / (ends[-1] if n else 1)
    stratum = np.minimum((middles * n_strata).astype(np.int64), n_strata - 1)
    grouped = np.lexsort((chance, stratum))  # by stratum, inside it by chance
    counts = np.bincount(stratum, minlength=n_strata)
    turn = np.arange(n) - (np.cumsum(counts) - counts)[stratum[grouped]]
    phase = (permuted(n_strata, (*key, "strata")) + 0.5) / n_strata
    moment = (turn + phase[stratum[grouped]]) / counts[stratum[grouped]]
    return grouped[np.argsort(moment, kind="stable")].astype(np.int64)
