"""Arrow types that rows can be picked from. Views of text and run-end encoded columns become plain ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from pyloader_delta.columns import numbers
from pyloader_delta.errors import ContractError


def storable(column: Any, name: str, place: str) -> Any:
    """Return a column (an Array or a ChunkedArray) of a type whose rows Arrow can pick; the values are the same.

    Raises:
        ContractError: There is no such type; names the column and its type.
    """
    kind = column.type
    if pa.types.is_primitive(kind):
        return column
    try:
        if pa.types.is_run_end_encoded(kind):
            import pyarrow.compute as pc

            column = pc.run_end_decode(column)
        wanted = _storable_type(column.type)
        if wanted != column.type:
            column = column.cast(wanted)
        if pa.types.is_nested(wanted) or isinstance(wanted, pa.BaseExtensionType):
            column.slice(0, 1).take(numbers(np.arange(min(len(column), 1))))
    except pa.ArrowException as error:
        raise ContractError(
            f"{place}: rows cannot be picked from column {name!r} of type {kind}; cast it to another type there"
        ) from error
    return column


def _storable_type(kind: pa.DataType) -> pa.DataType:
    types = pa.types
    if types.is_string_view(kind):
        return pa.large_string()
    if types.is_binary_view(kind):
        return pa.large_binary()
    if types.is_dictionary(kind):
        return pa.dictionary(kind.index_type, _storable_type(kind.value_type), kind.ordered)
    if types.is_map(kind):
        return pa.map_(_field(kind.key_field), _field(kind.item_field), kind.keys_sorted)
    if types.is_struct(kind):
        return pa.struct([_field(kind.field(i)) for i in range(kind.num_fields)])
    if types.is_fixed_size_list(kind):
        return pa.list_(_field(kind.value_field), kind.list_size)
    if types.is_list(kind):
        return pa.list_(_field(kind.value_field))
    if types.is_large_list(kind):
        return pa.large_list(_field(kind.value_field))
    return kind  # views of lists too: rows can be picked from them, but Arrow 26 casts them wrongly


def _field(field: pa.Field) -> pa.Field:
    return field.with_type(_storable_type(field.type))
