"""A Delta schema string becomes an Arrow schema, nullability kept."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from pyloader_delta.errors import TableError

_PRIMITIVES: dict[str, pa.DataType] = {
    "byte": pa.int8(),
    "short": pa.int16(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "boolean": pa.bool_(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "void": pa.null(),
    "decimal": pa.decimal128(10, 0),
}
# Names that older writers used.
_PRIMITIVES |= {
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "null": pa.null(),
}
_DECIMAL = re.compile(r"decimal\(\s*(\d+)\s*,\s*(-?\d+)\s*\)")


def arrow_schema(schema_string: str) -> pa.Schema:
    """Return the Arrow schema of a `schemaString`.

    Raises:
        TableError: It is no valid schema, a column's type is not supported, or two columns differ only in case.
    """
    try:
        parsed = json.loads(schema_string)
    except ValueError as error:
        raise TableError(f"the table's schema is no valid JSON: {error}") from error
    if not isinstance(parsed, dict) or parsed.get("type") != "struct":
        raise TableError(f"the table's schema must be a struct, got {schema_string[:100]!r}")
    fields = _fields(parsed, ())
    lowered = [field.name.lower() for field in fields]
    if twice := sorted({name for name in lowered if lowered.count(name) > 1}):
        raise TableError(f"the table has two columns named {twice[0]!r}, which differ at most in case")
    return pa.schema(fields)


def _fields(struct: Mapping[str, Any], place: tuple[str, ...]) -> list[pa.Field]:
    try:
        described = [(str(field["name"]), field["type"], field.get("nullable", True)) for field in struct["fields"]]
    except (KeyError, TypeError, AttributeError) as error:
        raise TableError(f"the table's schema is broken at {'.'.join(place) or 'its top'}: {error!r}") from error
    return [pa.field(name, _type(kind, (*place, name)), bool(nullable)) for name, kind, nullable in described]


def _type(kind: Any, place: tuple[str, ...]) -> pa.DataType:
    if isinstance(kind, str):
        if kind in _PRIMITIVES:
            return _PRIMITIVES[kind]
        if (found := _DECIMAL.fullmatch(kind)) and 1 <= int(found[1]) <= 38:
            return pa.decimal128(int(found[1]), int(found[2]))
        raise TableError(f"column {'.'.join(place)!r} has type {kind!r}, which is not supported")
    name = kind.get("type") if isinstance(kind, dict) else None
    try:
        if name == "struct":
            return pa.struct(_fields(kind, place))
        if name == "array":
            element = _type(kind["elementType"], (*place, "element"))
            return pa.list_(pa.field("element", element, bool(kind.get("containsNull", True))))
        if name == "map":
            value = _type(kind["valueType"], (*place, "value"))
            nullable = bool(kind.get("valueContainsNull", True))
            return pa.map_(_type(kind["keyType"], (*place, "key")), pa.field("value", value, nullable))
    except KeyError as error:
        raise TableError(f"the table's schema is broken at {'.'.join(place)!r}: no {error}") from error
    raise TableError(f"column {'.'.join(place)!r} has type {kind!r}, which is not supported")
