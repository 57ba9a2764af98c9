"""Long rows of bytes and lists of a shuffled window: each is copied once, from its block to its place.

Arrow's `take` goes through lists value by value, and is needed twice: of each block, and once over all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pyloader_delta.arrays import NUMBERS, leaf, list_parts, text_parts
from pyloader_delta.ragged import bounds_of

_LONG_BYTES, _LONG_LIST = 512, 24  # bytes and values of a row, on average, from which this is faster than Arrow
_AT_ONCE = 256  # rows: joined, they stay in the cache until they are copied to their place
MOST_BYTES = 2**31 - 1
"""What can be taken at once: the offsets of most types are int32."""


class Rows:
    """A column of a window. See `of`.

    Args:
        pieces: Its blocks, of one type.
        parts: (values, lengths of the rows) of each.
    """

    def __init__(self, pieces: Sequence[pa.Array], parts: Sequence[tuple[NDArray[Any], NDArray[np.int64]]]):
        self._kind = pieces[0].type
        self._item_bytes = parts[0][0].itemsize
        self._blocks = [values.view(np.uint8).data for values, _ in parts]
        self._block = np.repeat(np.arange(len(parts)), [len(lengths) for _, lengths in parts])
        self._lengths = np.concatenate([lengths for _, lengths in parts])
        self._starts = np.concatenate([bounds_of(lengths)[:-1] for _, lengths in parts])

    @classmethod
    def of(cls, pieces: Sequence[pa.Array]) -> Rows | None:
        """Return the rows of a column; None where Arrow is to take them: short ones, nulls, others or several types.

        Args:
            pieces: The column in each block of the window.
        """
        kind = pieces[0].type if pieces and all(isinstance(piece, pa.Array) for piece in pieces) else None
        if kind is None or not all(piece.type == kind for piece in pieces):
            return None
        parts = [part for part in map(values_of, pieces) if part is not None]
        if len(parts) < len(pieces):
            return None
        n_rows, n_values = (sum(map(len, side)) for side in ((p[1] for p in parts), (p[0] for p in parts)))
        long = _LONG_LIST if kind.id in _LISTS else _LONG_BYTES
        return cls(pieces, parts) if n_rows and n_values >= long * n_rows else None

    def size_bytes(self, rows: NDArray[np.int64]) -> int:
        """Return the bytes that the values of some rows of the window take."""
        return int(self._lengths.take(rows).sum()) * self._item_bytes

    def taken(self, rows: NDArray[np.int64], room: NDArray[np.uint8]) -> pa.Array:
        """Return some rows, in this order, their values in memory of just their size."""
        bounds = bounds_of(self._lengths.take(rows))
        starts = self._starts.take(rows)
        stops = ((starts + np.diff(bounds)) * self._item_bytes).tolist()
        places = list(zip(self._block.take(rows).tolist(), (starts * self._item_bytes).tolist(), stops, strict=True))
        into, end = room.data, 0
        for first in range(0, len(places), _AT_ONCE):
            there = b"".join([self._blocks[i][start:stop] for i, start, stop in places[first : first + _AT_ONCE]])
            into[end : end + len(there)] = there
            end += len(there)
        return self._on(room, bounds)

    def _on(self, room: NDArray[np.uint8], bounds: NDArray[np.int64]) -> pa.Array:
        kind, n_rows = self._kind, len(bounds) - 1
        offsets = pa.py_buffer(bounds if kind.id in _LARGE else bounds.astype(np.int32))
        if kind.id in _TEXTS:
            return pa.Array.from_buffers(kind, n_rows, [None, offsets, pa.py_buffer(room)])
        values = pa.Array.from_buffers(kind.value_type, int(bounds[-1]), [None, pa.py_buffer(room)])
        return pa.Array.from_buffers(kind, n_rows, [None, offsets], children=[values])


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
_LARGE = {kind.id for kind in (pa.large_string(), pa.large_binary(), pa.large_list(pa.null()))}
