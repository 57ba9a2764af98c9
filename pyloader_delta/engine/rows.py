"""Long rows of bytes and lists of a shuffled window: each is copied once, from its block to its place.

Arrow's `take` goes through lists value by value, and is needed twice: of each block, and once over all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pyloader_delta.arrays import NUMBERS, leaf, list_parts, row_array, text_parts
from pyloader_delta.columns import column_kind
from pyloader_delta.ragged import bounds_of

_LONG_BYTES, _LONG_LIST = 512, 24  # bytes and values of a row, on average, from which this is faster than Arrow
_LARGE_BYTES = 1 << 16
_AT_ONCE = 256  # rows: joined, they stay in the cache until they are copied to their place


class Rows:
    """A column of a window. See `of`.

    Args:
        field: That of its blocks, which are alike.
        parts: (values, lengths of the rows) of each.
    """

    def __init__(self, field: pa.Field, parts: Sequence[tuple[NDArray[Any], NDArray[np.int64]]]):
        self.kind = field.type
        self.stands_for = column_kind(field)
        """What the values stand for: bytes as they are lie beside those that others are pickled to."""
        self.item_bytes = parts[0][0].itemsize
        self.blocks = [values.view(np.uint8).data for values, _ in parts]
        self.block = np.repeat(np.arange(len(parts)), [len(lengths) for _, lengths in parts])
        self.lengths = np.concatenate([lengths for _, lengths in parts])
        self.starts = np.concatenate([bounds_of(lengths)[:-1] for _, lengths in parts])

    @classmethod
    def of(cls, pieces: Sequence[pa.Array], fields: Sequence[pa.Field]) -> Rows | None:
        """Return the rows of a column; None where Arrow is to take them: short ones, nulls, others or several types.

        Args:
            pieces: The column in each block of the window.
            fields: The field of each.
        """
        kind = fields[0].type if pieces and all(isinstance(piece, pa.Array) for piece in pieces) else None
        if kind is None or not all(piece.type == kind for piece in pieces):
            return None
        stands_for = column_kind(fields[0])
        if any(column_kind(field) != stands_for for field in fields[1:]):
            return None
        parts = [part for part in map(values_of, pieces) if part is not None]
        if len(parts) < len(pieces):
            return None
        n_rows, n_values = (sum(map(len, side)) for side in ((p[1] for p in parts), (p[0] for p in parts)))
        long = _LONG_LIST if kind.id in _LISTS else _LONG_BYTES
        return cls(fields[0], parts) if n_rows and n_values >= long * n_rows else None

    @property
    def are_large(self) -> bool:
        """Whether each row is worth a copy of its own also where many lie in order."""
        return sum(map(len, self.blocks)) >= _LARGE_BYTES * len(self.lengths)

    def size_bytes(self, rows: NDArray[np.int64] | slice) -> int:
        """Return the bytes that the values of some rows of the window take."""
        return int(self.lengths[rows].sum()) * self.item_bytes

    def is_like(self, other: Rows) -> bool:
        """Return whether rows of both may be in one column."""
        return self.kind == other.kind and self.stands_for == other.stands_for


def taken(chosen: Sequence[tuple[Rows, NDArray[np.int64] | slice]], room: NDArray[np.uint8]) -> pa.Array:
    """Return some rows of windows, in this order, their values in memory of just their size.

    Args:
        chosen: A column of one type in each window, and numbers of its rows.
        room: Where the values go.
    """
    into, end = room.data, 0
    for rows, numbers in chosen:
        starts = rows.starts[numbers]
        places = rows.block[numbers], starts * rows.item_bytes, (starts + rows.lengths[numbers]) * rows.item_bytes
        at_once = 1 if rows.are_large else _AT_ONCE
        for first in range(0, len(starts), at_once):
            some = zip(*(values[first : first + at_once].tolist() for values in places), strict=True)
            parts = [rows.blocks[i][start:stop] for i, start, stop in some]
            there = parts[0] if at_once == 1 else b"".join(parts)
            into[end : end + len(there)] = there
            end += len(there)
    kind = chosen[0][0].kind
    bounds = bounds_of(np.concatenate([rows.lengths[numbers] for rows, numbers in chosen]))
    values = pa.py_buffer(room)
    if kind.id in _LISTS:
        values = pa.Array.from_buffers(kind.value_type, int(bounds[-1]), [None, values])
    return row_array(bounds, values, kind)


def values_of(array: pa.Array) -> tuple[NDArray[Any], NDArray[np.int64]] | None:
    """Return the values of rows of bytes, or lists of numbers, on their memory, and the rows' lengths.

    None where one is null, or for other types.
    """
    if array.null_count:
        return None
    if array.type.id in _TEXTS:
        return text_parts(array)
    if array.type.id not in _LISTS or (dtype := NUMBERS.get(array.type.value_type.id)) is None:
        return None
    values, lengths = list_parts(array)
    return None if values.null_count else (leaf(values, dtype), lengths)


_TEXTS = {kind.id for kind in (pa.string(), pa.binary(), pa.large_string(), pa.large_binary())}
_LISTS = {kind.id for kind in (pa.list_(pa.null()), pa.large_list(pa.null()))}
