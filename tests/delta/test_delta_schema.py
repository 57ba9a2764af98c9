"""Schema strings become Arrow schemas."""

import json

import pyarrow as pa
import pytest

from pyloader_delta.delta.schema import arrow_schema
from pyloader_delta.errors import TableError


def one(kind: object, *, nullable: bool = True, name: str = "x") -> pa.Schema:
    return arrow_schema(json.dumps({"type": "struct", "fields": [{"name": name, "type": kind, "nullable": nullable}]}))


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


@pytest.mark.parametrize("kind", ["variant", "interval", "decimal(39,0)", "geometry", {"type": "union"}, 3, None])
def test_an_unknown_type_is_refused_with_its_column(kind):
    with pytest.raises(TableError, match=r"column 'x.element' has type"):
        one({"type": "array", "elementType": kind})


@pytest.mark.parametrize("text", ["", "{", "[]", '"long"', '{"type": "struct"}', '{"type": "struct", "fields": [1]}'])
def test_a_broken_schema_is_refused(text):
    with pytest.raises(TableError, match="the table's schema"):
        arrow_schema(text)


def test_columns_that_differ_only_in_case_are_refused():
    fields = [{"name": name, "type": "long"} for name in ("id", "ID")]
    with pytest.raises(TableError, match="'id'"):
        arrow_schema(json.dumps({"type": "struct", "fields": fields}))
