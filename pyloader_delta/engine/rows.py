"""Rows of bytes and lists of a shuffled window: each is copied once, from its block to its place.

Arrow's `take` is needed twice, of each block and once over all of them, and goes through lists value by value. But
Arrow also has texts as views, 16 bytes each that say where a row lies in one of several memories: rows are picked by
picking views, and to cast these to plain texts copies each row once.
https://arrow.apache.org/docs/format/Columnar.html#variable-size-binary-view-layout
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pyloader_delta.arrays import NUMBERS, OFFSET_LIMIT, leaf, list_parts, nulls, packed, row_array, text_parts
from pyloader_delta.columns import column_kind
from pyloader_delta.ragged import bounds_of

_LONG_BYTES = 96  # of a row, on average: below, views would add much to what a window takes
_AT_ONCE = 4 << 20  # bytes that are cast in one call, and then copied to their place
_MEMORY_BITS = 30  # a block is so many bytes, or several memories of these: places in views have 32 bits
_LENGTH, _TEXT, _PREFIX, _MEMORY, _START = 0, slice(1, 4), 1, 2, 3  # the words of a view
_INSIDE = 12  # bytes: a row that has no more lies in the view itself, and nulls behind it
_OF_ROW = np.where(np.arange(_INSIDE) < np.arange(_INSIDE + 1)[:, None], 0xFF, 0).astype(np.uint8).view(np.int32)


class RowsOfBlock(NamedTuple):
    """Rows of bytes, or lists of numbers."""

    values: NDArray[Any]
    """On the block's memory."""
    lengths: NDArray[np.int64]
    """Of the rows one after the other among the values, also of what lies under nulls."""
    valid: NDArray[np.bool_] | None
    """Which rows are not null; None where all are."""


class Rows:
    """A column of a window. See `of`.

    Args:
        field: That of its blocks, which are alike.
        parts: The rows of each.
    """

    def __init__(self, field: pa.Field, parts: Sequence[RowsOfBlock]):
        self.kind = field.type
        self.stands_for = column_kind(field)
        """What the values stand for: bytes as they are lie beside those that others are pickled to."""
        self.item_bytes = parts[0].values.itemsize
        self._memories: list[pa.Buffer] = []
        views = []
        for part in parts:
            views.append(_views(part, len(self._memories)))
            whole = pa.py_buffer(part.values.view(np.uint8))
            self._memories += [whole.slice(start) for start in range(0, max(whole.size, 1), 1 << _MEMORY_BITS)]
        self._views = np.concatenate(views)
        self._valid = _joined_valid([(len(part.lengths), part.valid) for part in parts])

    @classmethod
    def of(cls, pieces: Sequence[pa.Array], fields: Sequence[pa.Field]) -> Rows | None:
        """Return the rows of a column; None where Arrow is to take them: short ones, others or several types.

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
        n_rows, n_bytes = sum(len(part.lengths) for part in parts), sum(part.values.nbytes for part in parts)
        if not n_rows or n_bytes < _LONG_BYTES * n_rows:
            return None
        longest = max(int(part.lengths.max(initial=0)) * part.values.itemsize for part in parts)
        return cls(fields[0], parts) if longest <= OFFSET_LIMIT else None

    def is_like(self, other: Rows) -> bool:
        """Return whether rows of both may be in one column."""
        return self.kind == other.kind and self.stands_for == other.stands_for

    def picked(self, numbers: NDArray[np.int64] | slice) -> Picked:
        """Return some rows of the window, in this order."""
        views = self._views[numbers] if isinstance(numbers, slice) else self._views.take(numbers, axis=0)
        return Picked(self, views, None if self._valid is None else self._valid[numbers])

    def copied(self, views: NDArray[np.int32]) -> NDArray[np.uint8]:
        """Return the bytes of rows, one after the other, in memory of their own."""
        buffers = [None, pa.py_buffer(views), *self._memories]
        return text_parts(pa.Array.from_buffers(pa.binary_view(), len(views), buffers).cast(pa.binary()))[0]

    def lying(self, view: NDArray[np.int32]) -> NDArray[np.uint8]:
        """Return one long row where it lies."""
        length, _, memory, start = view.tolist()
        return np.frombuffer(self._memories[memory], np.uint8, length, start)


class Picked:
    """Some rows of a window, to be copied.

    Args:
        rows: The column.
        views: Where the rows are.
        valid: Which are not null; None where all are.
    """

    def __init__(self, rows: Rows, views: NDArray[np.int32], valid: NDArray[np.bool_] | None) -> None:
        self.rows, self.views, self.valid = rows, views, valid
        self.bounds = bounds_of(views[:, _LENGTH])
        """Bytes at which rows begin and end, one after the other."""

    @property
    def size_bytes(self) -> int:
        """Bytes that the rows' values take."""
        return int(self.bounds[-1])

    def copied_into(self, room: NDArray[np.uint8]) -> None:
        """Copy the rows, one after the other, into memory of just their size."""
        first, bounds = 0, self.bounds
        while first < len(self.views):
            stop = int(np.searchsorted(bounds, bounds[first] + _AT_ONCE, side="right")) - 1
            if stop > first:
                part = self.rows.copied(self.views[first:stop])
            else:
                stop, part = first + 1, self.rows.lying(self.views[first])
            room[bounds[first] : bounds[stop]] = part
            first = stop


def taken(chosen: Sequence[Picked], room: NDArray[np.uint8] | None) -> pa.Array:
    """Return rows of windows, one after the other.

    Args:
        chosen: Those of a column of one type in each window.
        room: Where their values go, memory of just their size; None: in memory of their own.
    """
    rows, places = chosen[0].rows, bounds_of(np.array([one.size_bytes for one in chosen]))
    if room is None and len(chosen) == 1 and places[-1] <= _AT_ONCE:  # Arrow keeps much of what it frees
        room = rows.copied(chosen[0].views)
    else:
        room = np.empty(int(places[-1]), np.uint8) if room is None else room
        for one, start, stop in zip(chosen, places[:-1], places[1:], strict=True):
            one.copied_into(room[start:stop])
    bounds = chosen[0].bounds if len(chosen) == 1 else bounds_of(np.concatenate([np.diff(c.bounds) for c in chosen]))
    valid = _joined_valid([(len(one.views), one.valid) for one in chosen])
    values = pa.py_buffer(room)
    if rows.kind.id in _LISTS:
        bounds = bounds // rows.item_bytes
        values = pa.Array.from_buffers(rows.kind.value_type, int(bounds[-1]), [None, values])
    return row_array(bounds, values, rows.kind, None if valid is None else packed(valid))


def _joined_valid(parts: Sequence[tuple[int, NDArray[np.bool_] | None]]) -> NDArray[np.bool_] | None:
    """Return which rows are not null, of parts with so many rows each; None where all are."""
    if all(valid is None for _, valid in parts):
        return None
    return np.concatenate([np.ones(n_rows, bool) if valid is None else valid for n_rows, valid in parts])


def values_of(array: pa.Array) -> RowsOfBlock | None:
    """Return rows of bytes, or lists of numbers, on their memory; None where a number is null, or for other types."""
    is_list = array.type.id in _LISTS
    dtype = NUMBERS.get(array.type.value_type.id) if is_list else None
    if dtype is None and array.type.id not in _TEXTS:
        return None
    valid = None
    if array.null_count:
        valid, children = ~nulls(array), [array.values] if is_list else None
        buffers = [None, *array.buffers()[1 : 2 if is_list else 3]]
        array = pa.Array.from_buffers(array.type, len(array), buffers, 0, array.offset, children)
    if dtype is None:
        values, lengths = text_parts(array)
    else:
        items, lengths = list_parts(array)
        if items.null_count:
            return None
        values = leaf(items, dtype)
    return RowsOfBlock(values, lengths, valid)


def _views(part: RowsOfBlock, memory: int) -> NDArray[np.int32]:
    """Return rows as Arrow's views, shape (rows, 4); they lie in the memory of this number, and those that follow."""
    raw, lengths = part.values.view(np.uint8), part.lengths * part.values.itemsize
    starts = bounds_of(lengths)[:-1]
    if part.valid is not None:
        lengths = np.where(part.valid, lengths, 0)
    views = np.empty((len(lengths), 4), np.int32)
    views[:, _LENGTH] = lengths
    views[:, _MEMORY] = memory + (starts >> _MEMORY_BITS)
    views[:, _START] = starts & ((1 << _MEMORY_BITS) - 1)
    words: NDArray[np.int32] = np.ndarray((max(len(raw) - _INSIDE + 1, 0), 3), np.int32, raw, strides=(1, 4))
    inside, late = lengths <= _INSIDE, starts >= len(words)
    views[:, _PREFIX] = 0  # it serves to compare rows: nobody does that with these
    if inside.any():
        views[inside, _TEXT] = 0
        near = np.flatnonzero(inside & ~late)
        views[near, _TEXT] = words[starts[near]] & _OF_ROW[lengths[near]]
        for row in np.flatnonzero(inside & late & (lengths > 0)):  # a few, at the memory's end
            text = raw[starts[row] : starts[row] + lengths[row]].tobytes()
            views[row, _TEXT] = np.frombuffer(text.ljust(_INSIDE, b"\0"), np.int32)
    return views


_TEXTS = {kind.id for kind in (pa.string(), pa.binary(), pa.large_string(), pa.large_binary())}
_LISTS = {kind.id for kind in (pa.list_(pa.null()), pa.large_list(pa.null()))}
