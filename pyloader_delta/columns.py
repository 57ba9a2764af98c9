"""How one Arrow column stands for Python and NumPy values, and how it is turned into them. Exactly, or an error."""

from __future__ import annotations

import json
import pickle
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pyloader_delta.arrays import NUMBERS, leaf, leaf_dtype, list_parts, objects, packed
from pyloader_delta.errors import ContractError, ValueTypeError
from pyloader_delta.values import TENSOR

KIND = b"pyloader_delta"
"""Key of a field's metadata: how its Arrow values stand for Python or NumPy ones (see `column_kind`)."""
FILES = b"pyloader_delta.files"
"""Key of a block's metadata: JSON list of [path, rows] of the chunks that it holds, in order."""


def column_kind(field: pa.Field) -> dict[str, Any] | None:
    """Return how a field's Arrow values stand for others; None where they stand for themselves.

    {"kind": "pickle"}: each value pickled, by this process tree. {"kind": "numpy", "dtype", "shape"}: the rows of an
    array, as numbers or as fixed numbers of bytes. {"kind": "rows"}: no column at all, only a number of rows.
    """
    metadata = field.metadata
    text = metadata.get(KIND) if metadata else None
    if text is None:
        return None
    if text.startswith(_NUMPY):
        dtype, _, shape = text[len(_NUMPY) :].decode().partition(_ROWS)
        return {"kind": "numpy", "dtype": dtype, "shape": json.loads(shape or "[]")}
    found: dict[str, Any] = json.loads(text)
    return found


def rows_alone(n_rows: int) -> pa.RecordBatch:
    """Return rows without columns; Arrow counts rows by columns, so one of no width stands for them."""
    field = pa.field("", pa.null(), metadata={KIND: b'{"kind":"rows"}'})
    return pa.record_batch([pa.nulls(n_rows)], schema=pa.schema([field]))


_NUMPY, _ROWS = b"numpy ", ", rows of shape "


def tensor_shape(field: pa.Field) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Return (shape, permutation) of the rows of a column of tensors, as they lie in memory; None for other columns.

    The values' own axis `i` is axis `permutation[i]` of what lies in memory.
    """
    if isinstance(field.type, pa.FixedShapeTensorType):
        shape, order = field.type.shape, field.type.permutation
    else:
        text = (field.metadata or {}).get(TENSOR)
        if text is None:
            return None
        stated = json.loads(text)
        shape, order = stated["shape"], stated.get("permutation")
    return tuple(shape), tuple(range(len(shape))) if order is None else tuple(order)


def numpy_kind(dtype: np.dtype[Any], shape: Sequence[int]) -> bytes:
    """Return the metadata, readable for errors, of a column of rows of an array."""
    rows = f"{_ROWS}{list(shape)}" if shape else ""
    return _NUMPY + f"{dtype}{rows}".encode()


def opened_dtype(field: pa.Field) -> np.dtype[Any] | None:
    """Return the dtype of the NumPy view that `opened` gives where no row is null; None where it gives none."""
    kind = field.type
    dtype = NUMBERS.get(kind.id)
    if dtype is None and pa.types.is_fixed_size_binary(kind) and kind.byte_width and column_kind(field) is not None:
        return np.dtype(f"V{kind.byte_width}")
    return dtype


def opened(array: pa.Array, field: pa.Field, dtype: np.dtype[Any] | None = None) -> Any:
    """Return a NumPy view where a column is numbers without nulls or rows of arrays, else the Arrow array.

    Rows of arrays come as an array of one void value (dtype V, so many bytes) a row; `shaped` makes them what they are.

    Args:
        array: The column, of the field's type.
        field: Its field.
        dtype: What `opened_dtype` gives of it, if that is known.
    """
    dtype = opened_dtype(field) if dtype is None else dtype
    if dtype is None or array.null_count:
        return array
    data = array.buffers()[1]  # not array.to_numpy(): that imports pandas where it is installed, 0.4 s and 40 MiB
    if data is None or not len(array):
        return np.empty(0, dtype)
    view: NDArray[Any] = np.ndarray((len(array),), dtype, data, array.offset * dtype.itemsize)
    if dtype.kind != "V":
        view.flags.writeable = False
    return view


def shaped(values: Any, field: pa.Field) -> Any:
    """Return rows of arrays with their own dtype and shape, shape (rows, ...); all else as it is."""
    kind = column_kind(field)
    if kind is None or kind["kind"] != "numpy" or isinstance(values, list):
        return values
    shape = (len(values), *kind["shape"])
    if isinstance(values, np.ndarray):
        return values.view(kind["dtype"]).reshape(shape) if values.dtype.kind == "V" else values
    if pa.types.is_fixed_size_binary(values.type) and not values.type.byte_width and not values.null_count:
        return np.zeros(shape, dtype=kind["dtype"])
    return values


def as_python(values: Any, field: pa.Field) -> list[Any]:
    """Return a gathered column as the Python values that the reader returned."""
    if isinstance(values, list):
        return values
    kind = column_kind(field)
    if isinstance(values, np.ndarray):
        found: list[Any] = list(values) if kind is not None else values.tolist()
        return found
    found = values.to_pylist()
    if kind is None:
        return found
    if kind["kind"] == "pickle":  # made by this process tree (`read.columns`), never by a file
        return [None if text is None else pickle.loads(text) for text in found]
    return [None if value is None else _row(value, kind) for value in found]


def _row(value: Any, kind: dict[str, Any]) -> Any:
    """Return a row of an array of NumPy values, given as Arrow has it beside nulls."""
    dtype = np.dtype(kind["dtype"])
    if not isinstance(value, bytes):
        return dtype.type(value)
    array = np.frombuffer(value, dtype) if value else np.zeros(0, dtype)
    return array.reshape(kind["shape"]).copy() if kind["shape"] else array[0]


def as_numpy(values: Any, field: pa.Field) -> NDArray[Any]:
    """Return a gathered column as an array, first axis rows.

    Numbers and booleans keep their type; timestamps, dates and durations become datetime64 and timedelta64 of their own
    unit; lists of one fixed length become a second axis; strings, binary, decimals, structs, maps and lists become an
    object array (of arrays for lists of numbers).

    Raises:
        ValueTypeError: The column holds nulls, which NumPy cannot say.
    """
    if isinstance(values, np.ndarray):
        return values
    if isinstance(values, list):
        raise _several_types(field)
    kind = values.type
    if pa.types.is_dictionary(kind):
        return as_numpy(values.dictionary_decode(), field)
    if values.null_count or pa.types.is_null(kind):
        raise ValueTypeError(
            f"column {field.name!r} has {values.null_count or len(values)} nulls in {len(values)} rows, which a NumPy "
            "array cannot hold: set input_format = 'arrow' (or 'python') and fill them in batch_encode"
        )
    dtype = leaf_dtype(kind, times=True)
    if dtype is not None:
        return _private(leaf(values, dtype))
    if pa.types.is_fixed_size_list(kind) or pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _rows_of_lists(values)
    return objects(values.to_pylist())


def as_arrow(values: Any, field: pa.Field) -> pa.Array:
    """Return a gathered column as an Arrow array of the field's type."""
    if isinstance(values, list):
        raise _several_types(field)
    if not isinstance(values, np.ndarray):
        kind = column_kind(field)
        if kind is None or not pa.types.is_fixed_size_binary(values.type) or kind["shape"]:
            return values
        # rows of an array beside nulls
        rows = np.frombuffer(values.buffers()[1], kind["dtype"], len(values) + values.offset)[values.offset :]
        found = _flags_or_times(rows, np.array(values.is_valid().to_pylist(), dtype=bool))
        return values if found is None else found
    if values.ndim == 1 and values.dtype.kind in "iuf":
        return numbers(values)
    if values.ndim == 1 and (turned := _flags_or_times(values, None)) is not None:
        return turned
    raw = pa.py_buffer(np.ascontiguousarray(values))
    return pa.FixedSizeBinaryArray.from_buffers(field.type, len(values), [None, raw])


def _flags_or_times(values: NDArray[Any], valid: NDArray[np.bool_] | None) -> pa.Array | None:
    """Return bools, times or durations as Arrow has them, NaT as null; None for values of other types."""
    kind = values.dtype.kind
    if kind == "b":
        nulls = None if valid is None else packed(valid)
        return pa.Array.from_buffers(pa.bool_(), len(values), [nulls, packed(values)])
    if kind not in "mM":
        return None
    unit, step = np.datetime_data(values.dtype)
    if unit not in ("s", "ms", "us", "ns") or step != 1:
        return None
    there = ~np.isnat(values) if valid is None else valid & ~np.isnat(values)
    data = np.ascontiguousarray(values, dtype=values.dtype.newbyteorder("="))
    arrow = pa.timestamp(unit) if kind == "M" else pa.duration(unit)
    return pa.Array.from_buffers(arrow, len(values), [None if there.all() else packed(there), pa.py_buffer(data)])


def _several_types(field: pa.Field) -> ContractError:
    return ContractError(f"column {field.name!r} has other types in other files; input_format = 'python' takes them")


def joined(parts: Sequence[Any], fields: Sequence[pa.Field]) -> tuple[Any, pa.Field]:
    """Return the parts of one column, one after the other, and their field.

    They become a list of Python values where their types differ; the field says nothing then.
    """
    kinds = {str(field.type) + str(column_kind(field)) for field in fields if not pa.types.is_null(field.type)}
    if len(kinds) > 1 or any(isinstance(part, list) for part in parts):
        pairs = zip(parts, fields, strict=True)
        return [v for part, field in pairs for v in as_python(shaped(part, field), field)], fields[0]
    field = next((f for f in fields if not pa.types.is_null(f.type)), fields[0])
    if all(isinstance(part, np.ndarray) for part in parts):
        return np.concatenate(parts), field
    arrays = [part.cast(field.type) if pa.types.is_null(part.type) else part for part in map(_arrow_part, parts)]
    try:
        return pa.concat_arrays(arrays), field
    except pa.ArrowInvalid:  # more than 2 GiB of text in one column
        wide = pa.large_string() if pa.types.is_string(field.type) else pa.large_binary()
        return pa.concat_arrays([array.cast(wide) for array in arrays]), field


def numbers(values: NDArray[Any]) -> pa.Array:
    """Return an array of numbers, shape (n,), as an Arrow array on the same memory."""
    kind = pa.from_numpy_dtype(values.dtype)  # not pa.array(): see `opened`
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(np.ascontiguousarray(values))])


def _arrow_part(part: Any) -> pa.Array:
    if not isinstance(part, np.ndarray):
        return part
    if part.dtype.kind != "V":
        return numbers(part)
    return pa.FixedSizeBinaryArray.from_buffers(
        pa.binary(part.dtype.itemsize), len(part), [None, pa.py_buffer(np.ascontiguousarray(part))]
    )


def _rows_of_lists(values: pa.Array) -> NDArray[Any]:
    """Return lists of one fixed length as a second axis, others as an object array of arrays."""
    elements, lengths = list_parts(values)
    dtype = leaf_dtype(elements.type, times=True)
    if dtype is None or elements.null_count or not len(values):
        return objects(values.to_pylist())
    flat = _private(leaf(elements, dtype))
    if pa.types.is_fixed_size_list(values.type):
        return flat.reshape(len(values), values.type.list_size)
    return objects(np.split(flat, np.cumsum(lengths[:-1])))


def _private(array: NDArray[Any]) -> NDArray[Any]:
    return array if array.flags.writeable else array.copy()


def from_arrow(values: Any, name: str) -> NDArray[Any]:
    """Return an Arrow array that user code made as a NumPy array, by the rules of `as_numpy`."""
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    field = pa.field(name, values.type)
    return as_numpy(opened(values, field), field)
