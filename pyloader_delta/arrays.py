"""Arrow arrays become NumPy ones of their own type, on the same memory where it fits. Nulls are the caller's."""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

NUMBERS = {kind.id: np.dtype(str(kind).replace("halffloat", "float16")) for kind in (
    pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64(), pa.float16(),
)} | {pa.float32().id: np.dtype(np.float32), pa.float64().id: np.dtype(np.float64)}  # fmt: skip
"""NumPy's types of numbers, by the id of Arrow's: a look at the type itself takes three times as long."""
ALIGNMENT = 64
"""Arrays of batches begin at a multiple of this many bytes: TensorFlow takes aligned memory without a copy."""
UNITS = {"s": "s", "ms": "ms", "us": "µs", "ns": "ns"}


def leaf_dtype(kind: pa.DataType, *, times: bool) -> np.dtype[Any] | None:
    """Return the dtype of `leaf`; None for a type that is no number, bool or time.

    Args:
        kind: The Arrow type.
        times: Give datetime64 and timedelta64; else the whole numbers that they are made of.
    """
    if pa.types.is_boolean(kind):
        return np.dtype(bool)
    if pa.types.is_date32(kind):
        return np.dtype("M8[D]" if times else "i4")
    if pa.types.is_timestamp(kind) or pa.types.is_duration(kind):
        word = "M8" if pa.types.is_timestamp(kind) else "m8"
        return np.dtype(f"{word}[{kind.unit}]" if times else "i8")
    return NUMBERS.get(kind.id)


def address(array: NDArray[Any]) -> int:
    """Return where an array begins."""
    if array.size and array.flags.c_contiguous:
        return int(pa.py_buffer(array).address)  # a fifth of what NumPy's own way takes
    return int(array.__array_interface__["data"][0])


def empty_aligned(shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return an array of undefined values, C-contiguous, that begins at a multiple of `ALIGNMENT`."""
    size = math.prod(shape) * dtype.itemsize
    room = np.empty(size + ALIGNMENT, np.uint8)
    start = -address(room) % ALIGNMENT
    return room[start : start + size].view(dtype).reshape(shape)


def text_array(values: Sequence[bytes], kind: pa.DataType, valid: pa.Buffer | None = None) -> pa.Array:
    """Return texts, given in UTF-8, or bytes as an Arrow array; the large one of its kind beyond 2 GiB.

    Args:
        values: One for each row; of a null one any.
        kind: string or binary.
        valid: Bits of the rows that are not null; None where all are.
    """
    ends = np.zeros(len(values) + 1, dtype=np.int64)
    np.cumsum(np.fromiter(map(len, values), np.int64, len(values)), out=ends[1:])
    return row_array(ends, pa.py_buffer(b"".join(values)), kind, valid)


def row_array(
    bounds: NDArray[np.int64], values: pa.Buffer | pa.Array, kind: pa.DataType, valid: pa.Buffer | None = None
) -> pa.Array:
    """Return rows that lie one after the other as an Arrow array; of the large type of its kind beyond 2 GiB.

    Args:
        bounds: Where rows begin and end, shape (rows + 1,).
        values: Memory of texts or bytes; values of lists.
        kind: string, binary, list, or the large one of these.
        valid: As `text_array`.
    """
    if bounds[-1] > OFFSET_LIMIT:
        kind = _large(kind)
    offsets = pa.py_buffer(bounds if kind == _large(kind) else bounds.astype(np.int32))
    if isinstance(values, pa.Array):
        return pa.Array.from_buffers(kind, len(bounds) - 1, [valid, offsets], children=[values])
    return pa.Array.from_buffers(kind, len(bounds) - 1, [valid, offsets, values])


def _large(kind: pa.DataType) -> pa.DataType:
    """Return the type with offsets of 64 bits of a type of texts, bytes or lists."""
    if is_list(kind):
        return pa.large_list(kind.value_field)
    return pa.large_string() if is_text(kind) else pa.large_binary()


OFFSET_LIMIT = 2**31 - 1
"""Bytes, or values, up to which offsets of 32 bits reach."""


def packed(flags: NDArray[np.bool_]) -> pa.Buffer:
    """Return flags as Arrow has them: bits, the lowest first."""
    return pa.py_buffer(np.packbits(flags, bitorder="little"))


def leaf(array: pa.Array, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return numbers, bools or times, shape (rows,); undefined where they are null. Read-only unless copied.

    Bools are copied, and dates as datetime64; all else stays on the array's memory.

    Args:
        array: Of a type that has a `leaf_dtype`.
        dtype: That.
    """
    n_rows, start = len(array), array.offset
    data = array.buffers()[1]
    if data is None or not n_rows:
        return np.zeros(n_rows, dtype)
    if dtype.kind == "b":
        return _bits(data, start, n_rows)
    if dtype == np.dtype("M8[D]"):
        return np.frombuffer(data, np.int32, n_rows, start * 4).astype(dtype)
    return np.frombuffer(data, dtype, n_rows, start * dtype.itemsize)


def nulls(array: pa.Array) -> NDArray[np.bool_]:
    """Return where an array is null, shape (rows,)."""
    if pa.types.is_null(array.type):
        return np.ones(len(array), dtype=bool)
    validity = array.buffers()[0]
    if validity is None or not array.null_count:
        return np.zeros(len(array), dtype=bool)
    return ~_bits(validity, array.offset, len(array))


def list_parts(array: pa.Array) -> tuple[pa.Array, NDArray[np.int64]]:
    """Return the elements of a list column, without what lies under nulls, and the lengths of its rows."""
    return array.flatten(), list_lengths(array)


def list_lengths(array: pa.Array) -> NDArray[np.int64]:
    """Return the lengths of the rows of a list column, int64; a null row is an empty one."""
    if pa.types.is_fixed_size_list(array.type):
        lengths = np.full(len(array), array.type.list_size, dtype=np.int64)
    else:
        offsets = _offsets(array, np.dtype(np.int64 if pa.types.is_large_list(array.type) else np.int32))
        lengths = np.diff(offsets).astype(np.int64)
    if array.null_count:
        lengths[nulls(array)] = 0
    return lengths


def text_parts(array: pa.Array) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return the bytes of a string or binary column without nulls, on its memory, and the lengths of its rows."""
    if pa.types.is_fixed_size_binary(array.type):
        width = array.type.byte_width
        lengths = np.full(len(array), width, dtype=np.int64)
        data, start, size = array.buffers()[1], array.offset * width, len(array) * width
    else:
        large = pa.types.is_large_string(array.type) or pa.types.is_large_binary(array.type)
        offsets = _offsets(array, np.dtype(np.int64 if large else np.int32))
        lengths = np.diff(offsets).astype(np.int64)
        data, start, size = array.buffers()[2], int(offsets[0]), int(offsets[-1] - offsets[0])
    if data is None or not size:
        return np.zeros(0, np.uint8), lengths
    return np.frombuffer(data, np.uint8, size, start), lengths


def unscaled(array: pa.Array) -> NDArray[np.int64]:
    """Return decimals of at most 18 digits as int64, in units of their last digit; undefined where they are null."""
    words = array.type.byte_width // 8
    data = array.buffers()[1]
    if words == 1 or data is None or not len(array):
        return np.zeros(len(array), np.int64) if data is None else leaf(array, np.dtype(np.int64))
    # the first word of each; the others are its sign once more
    return np.frombuffer(data, np.int64, words * len(array), array.offset * words * 8)[::words]


def floats_of_decimals(array: pa.Array) -> NDArray[np.float64]:
    """Return decimals as the float64 nearest to each; undefined where they are null."""
    values = array.to_pylist()
    return np.fromiter((0.0 if value is None else float(value) for value in values), np.float64, len(values))


def objects(values: list[Any]) -> NDArray[Any]:
    """Return an array of objects, shape (rows,)."""
    array = np.empty(len(values), dtype=object)
    for row, value in enumerate(values):  # at once, NumPy would take lists and arrays apart
        array[row] = value
    return array


def is_text(kind: pa.DataType) -> bool:
    """Return whether a type is strings."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def is_binary(kind: pa.DataType) -> bool:
    """Return whether a type is byte strings."""
    types = pa.types
    return bool(types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind))


def is_list(kind: pa.DataType) -> bool:
    """Return whether a type is lists."""
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def zero(kind: pa.DataType) -> Any:
    """Return what stands where a value of a type is null and nothing else is said."""
    if is_text(kind):
        return ""
    if is_binary(kind):
        return b"\0" * kind.byte_width if pa.types.is_fixed_size_binary(kind) else b""
    if pa.types.is_decimal(kind):
        return Decimal(0)
    return None if pa.types.is_nested(kind) else 0


def _offsets(array: pa.Array, dtype: np.dtype[Any]) -> NDArray[Any]:
    data = array.buffers()[1]
    if data is None or not len(array):
        return np.zeros(1, dtype)
    return np.frombuffer(data, dtype, len(array) + 1, array.offset * dtype.itemsize)


def _bits(data: pa.Buffer, start: int, n_rows: int) -> NDArray[np.bool_]:
    raw = np.frombuffer(data, np.uint8, (start + n_rows + 7) // 8 - start // 8, start // 8)
    bits = np.unpackbits(raw, count=start % 8 + n_rows, bitorder="little")
    return bits[start % 8 :].view(bool)


def storable_type(kind: pa.DataType) -> pa.DataType:
    """Return the type of the same values whose rows Arrow can pick: views of text and bytes become plain ones."""
    types = pa.types
    if types.is_string_view(kind):
        return pa.large_string()
    if types.is_binary_view(kind):
        return pa.large_binary()
    if types.is_dictionary(kind):
        return pa.dictionary(kind.index_type, storable_type(kind.value_type), kind.ordered)
    if types.is_map(kind):
        return pa.map_(_storable_field(kind.key_field), _storable_field(kind.item_field), kind.keys_sorted)
    if types.is_struct(kind):
        return pa.struct([_storable_field(kind.field(i)) for i in range(kind.num_fields)])
    if types.is_fixed_size_list(kind):
        return pa.list_(_storable_field(kind.value_field), kind.list_size)
    if types.is_list(kind):
        return pa.list_(_storable_field(kind.value_field))
    if types.is_large_list(kind):
        return pa.large_list(_storable_field(kind.value_field))
    return kind  # views of lists too: rows can be picked from them, but Arrow 26 casts them wrongly


def storable_table(table: pa.Table) -> pa.Table:
    """Return a table of which Arrow can pick rows: each column is of its `storable_type`."""
    return table if is_storable(table.schema) else table.cast(pa.schema(map(_storable_field, table.schema)))


def is_storable(schema: pa.Schema) -> bool:
    """Return whether each column is of its `storable_type`."""
    return bool(list(map(storable_type, schema.types)) == schema.types)


def _storable_field(field: pa.Field) -> pa.Field:
    return field.with_type(storable_type(field.type))
