"""Schema strings become Arrow schemas."""

import json

import pyarrow as pa
import pytest

from pyloader_delta.delta.schema import arrow_schema, mapping_mode, plain_fields, table_fields
from pyloader_delta.errors import TableError


def one(kind: object, *, nullable: bool = True, name: str = "x") -> pa.Schema:
    return arrow_schema(table_fields(text({"name": name, "type": kind, "nullable": nullable})))


def text(*fields: dict) -> str:
    return json.dumps({"type": "struct", "fields": fields})


@pytest.mark.parametrize(
    ("kind", "arrow"),
    [
        ("byte", pa.int8()),
        ("short", pa.int16()),
        ("integer", pa.int32()),
        ("long", pa.int64()),
        ("float", pa.float32()),
        ("double", pa.float64()),
        ("decimal(10,2)", pa.decimal128(10, 2)),
        ("decimal(38, 18)", pa.decimal128(38, 18)),
        ("string", pa.string()),
        ("binary", pa.binary()),
        ("boolean", pa.bool_()),
        ("date", pa.date32()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("timestamp_ntz", pa.timestamp("us")),
        ("void", pa.null()),
    ],
)
def test_each_primitive_type_has_its_arrow_type(kind, arrow):
    assert one(kind) == pa.schema([pa.field("x", arrow)])


def test_nested_types_keep_nullability_at_each_level():
    inner = {"type": "struct", "fields": [{"name": "k", "type": "long", "nullable": False, "metadata": {}}]}
    array = {"type": "array", "elementType": inner, "containsNull": False}
    kind = {"type": "map", "keyType": "string", "valueType": array, "valueContainsNull": False}
    struct = pa.struct([pa.field("k", pa.int64(), False)])
    value = pa.list_(pa.field("element", struct, False))
    assert one(kind, nullable=False) == pa.schema(
        [pa.field("x", pa.map_(pa.string(), pa.field("value", value, False)), False)]
    )


@pytest.mark.parametrize("kind", ["interval", "decimal(39,0)", "geometry", {"type": "union"}, 3, None])
def test_an_unknown_type_does_no_harm_until_its_column_is_selected(kind):
    nested = {"type": "array", "elementType": kind}
    known, unknown = table_fields(text({"name": "k", "type": "long"}, {"name": "x", "type": nested}))
    assert known.unreadable is None
    assert "column 'x.element' has type" in str(unknown.unreadable)


def test_a_variant_is_a_struct_of_two_binaries():
    (field,) = table_fields(text({"name": "v", "type": "variant"}))
    assert field.variant
    assert field.arrow == pa.field("v", pa.struct({"metadata": pa.binary(), "value": pa.binary()}))


def mapped(name: str, kind: object, number: int) -> dict:
    metadata = {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": f"col-{number}"}
    return {"name": name, "type": kind, "metadata": metadata}


@pytest.mark.parametrize(("mode", "names"), [("none", "abc"), ("name", ("col-1", "col-2", "col-3")), ("id", ...)])
def test_a_mapping_goes_down_into_nested_types(mode, names):
    inner = {"type": "struct", "fields": [mapped("b", "long", 2), mapped("c", "long", 3)]}
    (field,) = table_fields(text(mapped("a", {"type": "map", "keyType": inner, "valueType": inner}, 1)), mode)
    key, value = field.children
    if names is ...:
        names = ("col-1", "col-2", "col-3")
    assert [field.stored_name, *(child.stored_name for child in key.children)] == list(names)
    assert [child.stored_id for child in (field, *value.children)] == ([1, 2, 3] if mode == "id" else [None] * 3)
    assert (key.stored_name, value.stored_name) == ("key", "value")


def test_the_mode_of_a_mapping_is_the_tables_property():
    assert mapping_mode(None) == mapping_mode({}) == "none"
    assert mapping_mode({"delta.columnMapping.mode": "Name"}) == "name"
    with pytest.raises(TableError, match=r"delta\.columnMapping\.mode is 'other'"):
        mapping_mode({"delta.columnMapping.mode": "other"})


def test_plain_fields_are_found_by_their_names():
    schema = pa.schema({"a": pa.list_(pa.struct({"b": pa.int8()})), "m": pa.map_(pa.string(), pa.int32())})
    fields = plain_fields(schema)
    assert arrow_schema(fields) == schema
    assert fields[0].children[0].children[0].stored_name == "b"


@pytest.mark.parametrize("broken", ["", "{", "[]", '"long"', '{"type": "struct"}', '{"type": "struct", "fields": [1]}'])
def test_a_broken_schema_is_refused(broken):
    with pytest.raises(TableError, match="the table's schema"):
        table_fields(broken)


def test_columns_that_differ_only_in_case_are_refused():
    with pytest.raises(TableError, match="'id'"):
        table_fields(text({"name": "id", "type": "long"}, {"name": "ID", "type": "long"}))
