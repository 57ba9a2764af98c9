"""A Delta schema string becomes the fields of a table: Arrow types for the reader, names and ids for its files."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa

from pyloader_delta.errors import TableError
from pyloader_delta.values import TableField

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
_VARIANT = pa.struct({"metadata": pa.binary(), "value": pa.binary()})
ROW_ID = "_row_id"
"""Name under which the row ids of a table that tracks rows can be selected."""
_ROW_ID_COLUMN = "delta.rowTracking.materializedRowIdColumnName"
_MAPPING = "delta.columnMapping"
_ARROW = "ARROW:extension"
_EXTENSION = f"{_ARROW}:name"
_MODES = ("none", "name", "id")


def mapping_mode(configuration: Mapping[str, str] | None) -> str:
    """Return how a table maps columns to those of its files: `none`, `name` or `id`.

    Spark honours the property whatever the protocol says, and writes the files accordingly.

    Args:
        configuration: `configuration` of the table's metadata.

    Raises:
        TableError: The mode is none of those.
    """
    mode = str((configuration or {}).get(f"{_MAPPING}.mode") or "none")
    if mode.lower() not in _MODES:
        raise TableError(
            f"the table's property {_MAPPING}.mode is {mode!r}, which is not supported; known: {', '.join(_MODES)}"
        )
    return mode.lower()


def table_fields(schema_string: str, mapping: str = "none") -> tuple[TableField, ...]:
    """Return the columns of a `schemaString`. A type that cannot be read does no harm until its column is selected.

    Args:
        schema_string: The schema, as JSON.
        mapping: What `mapping_mode` gave.

    Raises:
        TableError: It is no valid schema, or two columns differ only in case.
    """
    try:
        parsed = json.loads(schema_string)
    except ValueError as error:
        raise TableError(f"the table's schema is no valid JSON: {error}") from error
    if not isinstance(parsed, dict) or parsed.get("type") != "struct":
        raise TableError(f"the table's schema must be a struct, got {schema_string[:100]!r}")
    fields = _fields(parsed, (), mapping)
    counts = Counter(field.name.lower() for field in fields)
    if twice := sorted(name for name, n in counts.items() if n > 1):
        raise TableError(f"the table has two columns named {twice[0]!r}, which differ at most in case")
    return fields


def arrow_schema(fields: Iterable[TableField]) -> pa.Schema:
    """Return the logical schema of columns."""
    return pa.schema([field.arrow for field in fields])


def row_id_field(protocol: Mapping[str, Any], configuration: Mapping[str, str] | None) -> TableField | None:
    """Return the hidden column of row ids, or None for a table that does not track rows.

    Its stored name is that of the column in which rewritten files keep the ids of their rows, or empty.
    """
    if "rowTracking" not in (protocol.get("writerFeatures") or ()):
        return None
    return TableField(ROW_ID, str((configuration or {}).get(_ROW_ID_COLUMN) or ""), None, pa.int64(), False)


def plain_fields(schema: pa.Schema) -> tuple[TableField, ...]:
    """Return the columns of files that are spelled as the schema has them."""
    return tuple(map(_plain, schema))


def _plain(field: pa.Field) -> TableField:
    kind = field.type
    children: tuple[TableField, ...] = ()
    if pa.types.is_struct(kind):
        children = tuple(map(_plain, kind))
    elif pa.types.is_map(kind):
        children = (_plain(kind.key_field), _plain(kind.item_field))
    elif pa.types.is_list(kind):
        children = (_plain(kind.value_field),)
    return TableField(field.name, field.name, None, kind, field.nullable, children)


def _fields(struct: Mapping[str, Any], place: tuple[str, ...], mapping: str) -> tuple[TableField, ...]:
    try:
        described = [
            (str(field["name"]), field["type"], bool(field.get("nullable", True)), dict(field.get("metadata") or {}))
            for field in struct["fields"]
        ]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise TableError(f"the table's schema is broken at {'.'.join(place) or 'its top'}: {error!r}") from error
    found = []
    for name, kind, nullable, metadata in described:
        stored_name, stored_id = name, None
        if mapping != "none":
            stored_name = str(metadata.get(f"{_MAPPING}.physicalName") or name)
        if mapping == "id":
            stored_id = _field_id(metadata.get(f"{_MAPPING}.id"), (*place, name))
        field = _field(kind, (*place, name), nullable, mapping, stored_name, stored_id)
        found.append(replace(field, tensor=_tensor(metadata)) if _EXTENSION in metadata else field)
    return tuple(found)


def _tensor(metadata: Mapping[str, Any]) -> str | None:
    """Return what Arrow's metadata, which writers pass on, say of a column of tensors; None where they say nothing."""
    if metadata[_EXTENSION] != "arrow.fixed_shape_tensor":
        return None
    try:
        stated = json.loads(metadata[f"{_ARROW}:metadata"])
        shape = [int(size) for size in stated["shape"]]
        order = [int(axis) for axis in stated.get("permutation") or range(len(shape))]
    except (KeyError, TypeError, ValueError, AttributeError):
        return None  # then it is lists of numbers, as other readers see it
    if min(shape, default=0) < 0 or sorted(order) != list(range(len(shape))):
        return None
    return json.dumps({"shape": shape, "permutation": order})


def _field_id(number: Any, place: tuple[str, ...]) -> int | None:
    try:
        return None if number is None else int(number)
    except (TypeError, ValueError) as error:
        raise TableError(
            f"the table's schema is broken at {'.'.join(place)!r}: no id of a column: {number!r}"
        ) from error


def _field(
    kind: Any,
    place: tuple[str, ...],
    nullable: bool,
    mapping: str,
    stored_name: str | None = None,
    stored_id: int | None = None,
) -> TableField:
    """Return a field of any type.

    Args:
        kind: Its type as JSON has it.
        place: Names of the fields around it and its own.
        nullable: Whether it may be NULL.
        mapping: What `mapping_mode` gave.
        stored_name: Its name in files; None: its own.
        stored_id: Its id in files.
    """
    name = place[-1]
    stored_name = name if stored_name is None else stored_name
    nested = kind.get("type") if isinstance(kind, dict) else None
    children: tuple[TableField, ...]
    try:
        if nested == "struct":
            children = _fields(kind, place, mapping)
            arrow = pa.struct([child.arrow for child in children])
        elif nested == "array":
            children = (
                _field(kind["elementType"], (*place, "element"), bool(kind.get("containsNull", True)), mapping),
            )
            arrow = pa.list_(children[0].arrow)
        elif nested == "map":
            key = _field(kind["keyType"], (*place, "key"), False, mapping)
            value = _field(kind["valueType"], (*place, "value"), bool(kind.get("valueContainsNull", True)), mapping)
            children = (key, value)
            arrow = pa.map_(key.type, value.arrow)
        else:
            return _leaf(kind, place, nullable, stored_name, stored_id)
    except KeyError as error:
        raise TableError(f"the table's schema is broken at {'.'.join(place)!r}: no {error}") from error
    reasons = [child.unreadable for child in children if child.unreadable]
    return TableField(
        name, stored_name, stored_id, arrow, nullable, children, unreadable=reasons[0] if reasons else None
    )


def _leaf(kind: Any, place: tuple[str, ...], nullable: bool, stored_name: str, stored_id: int | None) -> TableField:
    if kind == "variant":
        parts = tuple(map(_plain, _VARIANT))
        return TableField(place[-1], stored_name, stored_id, _VARIANT, nullable, parts, variant=True)
    arrow = _PRIMITIVES.get(kind) if isinstance(kind, str) else None
    if arrow is None and isinstance(kind, str) and (found := _DECIMAL.fullmatch(kind)) and 1 <= int(found[1]) <= 38:
        arrow = pa.decimal128(int(found[1]), int(found[2]))
    if arrow is None:
        reason = f"column {'.'.join(place)!r} has type {kind!r}, which is not supported"
        return TableField(place[-1], stored_name, stored_id, pa.null(), nullable, unreadable=reason)
    return TableField(place[-1], stored_name, stored_id, arrow, nullable)
