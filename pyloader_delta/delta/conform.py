"""Arrow arrays as a file holds them become arrays of the table's logical types; buffers are shared where they fit.

What would change a value is an error. A field that a file lacks, at any depth, is NULL.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as kinds


def conform(column: pa.ChunkedArray, field: pa.Field) -> pa.ChunkedArray:
    """Return a column of a file as the table's schema has it.

    Raises:
        TypeError: The stored type has no lossless way to the logical one; the text names the column.
        ValueError: A value does not fit the logical type.
    """
    if column.type == field.type:
        return column
    return pa.chunked_array([_conform(chunk, field.type, field.name) for chunk in column.chunks], type=field.type)


def find(name: str, names: Sequence[str]) -> int | None:
    """Return where a file has a field: under its very name, else under the only one that differs in case."""
    if name in names:
        return names.index(name)
    similar = [i for i, other in enumerate(names) if other.lower() == name.lower()]
    return similar[0] if len(similar) == 1 else None


def _conform(array: pa.Array, wanted: pa.DataType, place: str) -> pa.Array:
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    stored = array.type
    if stored == wanted:
        return array
    if kinds.is_null(stored) or kinds.is_null(wanted):
        return pa.nulls(len(array), wanted)
    if kinds.is_struct(wanted) and kinds.is_struct(stored):
        return _struct(array, wanted, place)
    if kinds.is_map(wanted) and kinds.is_map(stored):
        entry = wanted.field(0).type  # its fields' names and nullability are the type's own
        keys = _conform(array.keys, wanted.key_type, f"{place}.key")
        items = _conform(array.items, wanted.item_type, f"{place}.value")
        return _nested(array, wanted, pa.StructArray.from_arrays([keys, items], fields=list(entry)))
    if kinds.is_list(wanted) and kinds.is_list(stored):
        return _nested(array, wanted, _conform(array.values, wanted.value_type, f"{place}.element"))
    if kinds.is_list(wanted) and (kinds.is_large_list(stored) or kinds.is_fixed_size_list(stored)):
        return _conform(array.cast(pa.list_(stored.value_field)), wanted, place)
    if not _lossless(stored, wanted):
        raise TypeError(f"column {place!r} is stored as {stored}, but the table's type is {wanted}")
    try:
        return _cast(array, wanted)
    except pa.ArrowException as error:
        raise ValueError(
            f"column {place!r} is stored as {stored}, but the table's type is {wanted}: {error}"
        ) from error


def _struct(array: pa.StructArray, wanted: pa.StructType, place: str) -> pa.Array:
    stored = [array.type.field(i).name for i in range(array.type.num_fields)]
    children = []
    for field in wanted:
        i = find(field.name, stored)
        if i is None:
            children.append(pa.nulls(len(array), field.type))
        else:
            children.append(_conform(array.field(i), field.type, f"{place}.{field.name}"))
    return pa.StructArray.from_arrays(children, fields=list(wanted), mask=array.is_null() if array.null_count else None)


def _nested(array: pa.Array, wanted: pa.DataType, child: pa.Array) -> pa.Array:
    """Return a list or map with the offsets and the validity of `array` over other children."""
    validity, offsets = array.buffers()[:2]
    return pa.Array.from_buffers(
        wanted, len(array), [validity, offsets], array.null_count, array.offset, children=[child]
    )


def _lossless(stored: pa.DataType, wanted: pa.DataType) -> bool:
    """Return whether a cast keeps every value or fails; Arrow would also parse texts and round floats."""
    if kinds.is_dictionary(stored):
        return _lossless(stored.value_type, wanted) or stored.value_type == wanted
    if kinds.is_string(wanted) or kinds.is_binary(wanted):
        return _is_bytes(stored)
    if kinds.is_integer(wanted):
        return bool(kinds.is_integer(stored))
    if kinds.is_floating(wanted):
        return bool(kinds.is_floating(stored) and stored.bit_width <= wanted.bit_width)
    if kinds.is_timestamp(wanted):
        return bool(kinds.is_timestamp(stored))
    if kinds.is_decimal(wanted):
        return bool(kinds.is_decimal(stored))
    return bool(kinds.is_date(wanted) and kinds.is_date(stored))


def _is_bytes(kind: pa.DataType) -> bool:
    return any(
        is_kind(kind)
        for is_kind in (
            kinds.is_string,
            kinds.is_large_string,
            kinds.is_string_view,
            kinds.is_binary,
            kinds.is_large_binary,
            kinds.is_binary_view,
            kinds.is_fixed_size_binary,
        )
    ) and not kinds.is_decimal(kind)


def _cast(array: pa.Array, wanted: pa.DataType) -> pa.Array:
    if not kinds.is_timestamp(wanted):
        return array.cast(wanted)
    # A time without a zone is UTC. Delta knows microseconds; what is finer is cut off, downwards as Spark does.
    plain = array.view(pa.timestamp(array.type.unit))
    if array.type.unit == "ns":
        plain = pc.floor_temporal(plain, unit="microsecond")
    return plain.cast(pa.timestamp("us")).view(wanted)
