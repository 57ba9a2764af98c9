"""`ArrowDataCollator`: record batches, of any type, with nulls."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pyloader_delta.arrays import row_array, text_array
from pyloader_delta.collate.base import T_co
from pyloader_delta.collate.numpy import NumpyDataCollator
from pyloader_delta.columns import as_arrow
from pyloader_delta.errors import ContractError, ValueTypeError
from pyloader_delta.ragged import Listed, RaggedBatch, bounds_of


class Message(NamedTuple):
    """Arrow columns of one batch as they cross to the training process."""

    bytes: NDArray[np.uint8] | None
    """Arrow's IPC stream of all of them, under the first one's name; None under the others'."""


class ArrowDataCollator(NumpyDataCollator[T_co]):
    """Makes a pyarrow.RecordBatch: a column of each entry, of the entry's own type, with its nulls.

    Arrays and texts reach the record batch without a copy of what the loader delivers. Arrow arrays (columns with nulls
    or of types that NumPy lacks) are written to one message in the worker, which the record batch then lies on. Arrays
    of more than one axis become fixed-shape tensors, lists of numbers of unequal length lists.
    """

    def collate_batch(self, features: Any) -> Any:
        """Return name → array, first axis rows, or what stands for an Arrow array.

        Raises:
            ValueTypeError: An entry holds Python objects or numbers that Arrow has no type for.
        """
        kept = {name: _whole(values) for name, values in features.items() if isinstance(values, _ARROW)}
        others = {name: values for name, values in features.items() if name not in kept}
        entries = super().collate_batch(others)
        for name, entry in entries.items():
            _check(name, features[name], entry)
        if not kept:
            return entries
        message = _written(kept)
        first = next(iter(kept))
        return {
            name: Message(message if name == first else None) if name in kept else entries[name]
            for name, values in features.items()
            if values is not None
        }

    def finalize(self, batch: Any) -> Any:
        """Return the batch as a pyarrow.RecordBatch.

        Raises:
            ContractError: It is no dict whose keys are str.
        """
        return pa.RecordBatch.from_arrays(self.columns(batch), names=list(batch))

    def columns(self, batch: Any) -> list[pa.Array]:
        """Return the columns of a batch, by its own order.

        Raises:
            ContractError: It is no dict whose keys are str.
        """
        if type(batch) is not dict or not all(isinstance(name, str) for name in batch):
            raise ContractError(f"{type(self).__name__}: a batch must be a dict of columns by their names, of str")
        kept: Any = None
        found = []
        for name, value in batch.items():
            if type(value) is not Message:
                found.append(_column(value))
                continue
            kept = kept or pa.ipc.open_stream(pa.py_buffer(value.bytes)).read_next_batch()
            found.append(kept.column(name))
        return found


_ARROW = (pa.Array, pa.ChunkedArray)


def _whole(values: Any) -> pa.Array:
    return values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values


def _written(columns: dict[str, pa.Array]) -> NDArray[np.uint8]:
    """Return an IPC stream of columns: of slices, no more than their rows."""
    rows = pa.RecordBatch.from_arrays(list(columns.values()), names=list(map(str, columns)))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_batch(rows)
    return np.frombuffer(sink.getvalue(), np.uint8)


def _check(name: str, given: Any, entry: Any) -> None:
    """Raise ValueTypeError where Arrow has no column for an entry."""
    if isinstance(given, Listed):
        raise ValueTypeError(
            f"{name!r} is a list of Python values: give it as an Arrow array, or leave FieldSpec's as_list out"
        )
    array = entry.values if isinstance(entry, RaggedBatch) else entry
    if array.dtype.kind not in "biufmMUS" or array.dtype == np.longdouble or not array.dtype.isnative:
        raise ValueTypeError(
            f"{name!r} has dtype {array.dtype}, which Arrow has no column for: turn it into numbers, times or texts in "
            "batch_encode, or give it as an Arrow array"
        )
    if 0 in array.shape[1:]:
        raise ValueTypeError(f"{name!r} has rows of shape {array.shape[1:]}, and Arrow has no tensors of no values")
    if array.dtype.kind in "mM" and np.datetime_data(array.dtype) not in _UNITS:
        raise ValueTypeError(f"{name!r} has dtype {array.dtype}: Arrow counts times in s, ms, us or ns, and dates in D")


_UNITS = {("s", 1), ("ms", 1), ("us", 1), ("ns", 1), ("D", 1)}


def _column(value: Any) -> pa.Array:
    """Return an array, texts or lists of a batch as an Arrow column, on their memory where Arrow has them so."""
    if type(value) is not RaggedBatch:
        return _flat(value) if value.ndim == 1 else _tensors(value)
    if value.form in ("str", "bytes"):
        return _text(value)
    column = _flat(value.values)
    for lengths in reversed(value.lengths):
        column = row_array(bounds_of(lengths), column, pa.list_(column.type))
    return column


def _text(batch: RaggedBatch) -> pa.Array:
    (lengths,) = batch.lengths
    kind = pa.string() if batch.form == "str" else pa.binary()
    return row_array(bounds_of(lengths), pa.py_buffer(batch.values), kind)


def _flat(values: NDArray[Any]) -> pa.Array:
    kind = values.dtype.kind
    if kind in "US":
        raw = np.char.encode(values, "utf-8") if kind == "U" else values
        return text_array(raw.tolist(), pa.string() if kind == "U" else pa.binary())
    if values.dtype == np.dtype("M8[D]") or values.dtype == np.dtype("m8[D]"):
        return as_arrow(values.astype(f"{kind}8[s]"), _ANY).cast(pa.date32() if kind == "M" else pa.duration("s"))
    return as_arrow(values, _ANY)


_ANY = pa.field("", pa.null())


def _tensors(values: NDArray[Any]) -> pa.Array:
    """Return an array of several axes as Arrow's tensors of one shape."""
    size = math.prod(values.shape[1:])
    flat = _flat(np.ascontiguousarray(values).reshape(-1))
    kind = pa.fixed_shape_tensor(flat.type, values.shape[1:])
    return pa.ExtensionArray.from_storage(kind, pa.FixedSizeListArray.from_arrays(flat, size))
