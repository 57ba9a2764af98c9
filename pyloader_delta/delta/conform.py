"""Arrow arrays as a file holds them become arrays of the table's logical types; buffers are shared where they fit.

How is settled once a file, from its schema. What would change a value is an error. A field that a file lacks, at any
depth, is NULL.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cached_property, partial

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as kinds

from pyloader_delta.delta.widen import caster
from pyloader_delta.errors import TableError
from pyloader_delta.values import TableField

Conversion = Callable[[pa.Array], pa.Array]


def conversion(stored: pa.DataType, field: TableField, place: str) -> Conversion | None:
    """Return what makes an array of a file one of the table's schema; None where it is one already.

    Args:
        stored: The array's type.
        field: What the table makes of it.
        place: Where it is, such as `orders.element.name`, for errors.

    Raises:
        TypeError: The stored type has no lossless way to the logical one.
        TableError: It is of a kind that is not supported.

    The conversion itself raises ValueError where a value does not fit.
    """
    if isinstance(stored, pa.BaseExtensionType):
        return _after_storage(conversion(stored.storage_type, field, place))
    wanted = field.type
    if kinds.is_null(wanted) and kinds.is_null(stored):
        return None
    if kinds.is_null(stored) or kinds.is_null(wanted):
        return lambda array: pa.nulls(len(array), wanted)
    if kinds.is_struct(wanted) and kinds.is_struct(stored):
        return _struct(stored, field, place)
    if kinds.is_map(wanted) and kinds.is_map(stored):
        return _map(stored, field, place)
    if kinds.is_list(wanted) and kinds.is_list(stored):
        element = conversion(stored.value_type, field.children[0], f"{place}.element")
        if element is None and _same(stored, wanted):
            return None
        return partial(_nested, wanted, lambda array: _converted(array.values, element))
    if kinds.is_list(wanted) and (kinds.is_large_list(stored) or kinds.is_fixed_size_list(stored)):
        as_list = pa.list_(stored.value_field)
        rest = conversion(as_list, field, place)
        return lambda array: _converted(array.cast(as_list), rest)
    return None if stored == wanted else caster(stored, wanted, place)


def _same(stored: pa.DataType, wanted: pa.DataType) -> bool:
    """Return whether types agree also in what equality passes over: metadata, and names inside lists and maps."""
    return bool(stored.equals(wanted, check_metadata=True))


class Siblings:
    """The fields of a file, or those of one of its structs, to be found by what a table knows of them.

    Args:
        stored: The fields.
    """

    def __init__(self, stored: Iterable[pa.Field]) -> None:
        self.fields = list(stored)
        """The fields themselves."""

    @cached_property
    def _by_name(self) -> dict[str, int]:
        return {field.name: i for i, field in reversed(list(enumerate(self.fields)))}

    @cached_property
    def _by_lower(self) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        for i, field in enumerate(self.fields):
            found.setdefault(field.name.lower(), []).append(i)
        return found

    @cached_property
    def _by_id(self) -> dict[int, int]:
        numbers = [(field.metadata or {}).get(b"PARQUET:field_id") for field in self.fields]
        return {int(number): i for i, number in enumerate(numbers) if number is not None}

    def find(self, field: TableField) -> int | None:
        """Return which of them is a field of the table.

        By id, if any of them has one. Else by its very name, or by the only name that differs from it in case.
        """
        if field.stored_id is not None and self._by_id:
            return self._by_id.get(field.stored_id)
        found = self._by_name.get(field.stored_name)
        if found is not None:
            return found
        similar = self._by_lower.get(field.stored_name.lower(), ())
        return similar[0] if len(similar) == 1 else None


def _converted(array: pa.Array, convert: Conversion | None) -> pa.Array:
    return array if convert is None else convert(array)


def _after_storage(convert: Conversion | None) -> Conversion:
    return lambda array: _converted(array.storage, convert)


def _struct(stored: pa.StructType, field: TableField, place: str) -> Conversion | None:
    siblings = Siblings(stored)
    fields = siblings.fields
    if field.variant and any(child.name == "typed_value" for child in fields):
        raise TableError(
            f"column {place!r} is a variant that is shredded (feature 'variantShredding'), which is not supported; "
            "leave it out by columns=[…], or write a copy of the table without shredding"
        )
    found = [siblings.find(child) for child in field.children]
    children = [
        None if i is None else conversion(fields[i].type, child, f"{place}.{child.name}")
        for i, child in zip(found, field.children, strict=True)
    ]
    in_place = found == list(range(len(fields))) and not any(children)
    if in_place and _same(stored, field.type):
        return None
    wanted = list(field.type)

    def convert(array: pa.StructArray) -> pa.Array:
        arrays = [
            pa.nulls(len(array), kind.type) if i is None else _converted(array.field(i), child)
            for i, child, kind in zip(found, children, wanted, strict=True)
        ]
        mask = array.is_null() if array.null_count else None
        if not arrays:  # which say no length
            validity = None if mask is None else pc.invert(mask).buffers()[1]
            return pa.Array.from_buffers(field.type, len(array), [validity])
        return pa.StructArray.from_arrays(arrays, fields=wanted, mask=mask)

    return convert


def _map(stored: pa.MapType, field: TableField, place: str) -> Conversion | None:
    key = conversion(stored.key_type, field.children[0], f"{place}.key")
    value = conversion(stored.item_type, field.children[1], f"{place}.value")
    if key is None and value is None and _same(stored, field.type):
        return None
    entry = list(field.type.field(0).type)  # its fields' names and nullability are the type's own

    def entries(array: pa.MapArray) -> pa.Array:
        pair = [_converted(array.keys, key), _converted(array.items, value)]
        return pa.StructArray.from_arrays(pair, fields=entry)

    return partial(_nested, field.type, entries)


def _nested(wanted: pa.DataType, child: Callable[[pa.Array], pa.Array], array: pa.Array) -> pa.Array:
    """Return a list or map with the offsets and the validity of `array` over other children."""
    validity, offsets = array.buffers()[:2]
    return pa.Array.from_buffers(
        wanted, len(array), [validity, offsets], array.null_count, array.offset, children=[child(array)]
    )
