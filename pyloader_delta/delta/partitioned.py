"""Partition values of adds: a map for each file becomes a column for each partition column."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pyloader_delta.columns import numbers
from pyloader_delta.delta.arrays import view
from pyloader_delta.errors import TableError


def partition_column(adds: pa.Table, spellings: Sequence[str], table: str) -> pa.ChunkedArray:
    """Return the values of one partition column, as the log spells them; null is NULL.

    Args:
        adds: With the columns of `ADDS`.
        spellings: Names of the column in the log, the best first; other cases of their letters serve as well.
        table: The table's path, for errors.

    Returns:
        Dictionary-encoded strings, one a row.

    Raises:
        TableError: The log states no value for a file.
    """
    chunks = [
        _chunk(adds.slice(start, len(maps)), maps, spellings, table)
        for maps, start in _with_starts(adds.column("partitionValues").chunks)
    ]
    return pa.chunked_array(chunks, pa.string()).dictionary_encode()


def _with_starts(chunks: Sequence[pa.Array]) -> list[tuple[pa.Array, int]]:
    starts = np.cumsum([0, *map(len, chunks)]).tolist()
    return list(zip(chunks, starts, strict=False))


def _chunk(adds: pa.Table, maps: pa.MapArray, spellings: Sequence[str], table: str) -> pa.Array:
    offsets = view(maps.offsets)
    rows = np.repeat(np.arange(len(maps)), np.diff(offsets))
    names = maps.keys.dictionary_encode()
    codes = view(names.indices)[offsets[0] : offsets[-1]]
    found = np.full(len(maps), -1, dtype=np.int64)
    for code in _ranked(names.dictionary.to_pylist(), spellings):
        places = np.flatnonzero(codes == code)
        unset = found[rows[places]] < 0
        found[rows[places][unset]] = offsets[0] + places[unset]
    missing: NDArray[np.int64] = np.flatnonzero(found < 0)
    if len(missing):
        path = adds.column("path")[int(missing[0])].as_py()
        raise TableError(f"{table} states no value of partition column {spellings[-1]!r} for {path}: its log is broken")
    return maps.items.take(numbers(found))


def _ranked(names: Sequence[str], spellings: Sequence[str]) -> list[int]:
    """Return the places of the names that mean a column, the best first."""
    ranks = [[name == spelling for name in names] for spelling in spellings]
    ranks += [[name.lower() == spelling.lower() for name in names] for spelling in spellings]
    return [i for rank in ranks for i, fits in enumerate(rank) if fits]
