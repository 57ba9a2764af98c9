"""Partition values as the log spells them become typed constants."""

import datetime as dt
import decimal
import math

import pyarrow as pa
import pytest

from pyloader_delta.delta.partition import partition_scalar
from pyloader_delta.errors import TableError

TIMESTAMP, TIMESTAMP_NTZ = pa.timestamp("us", tz="UTC"), pa.timestamp("us")


def value(text: str | None, kind: pa.DataType, *, nullable: bool = True) -> object:
    scalar = partition_scalar(text, pa.field("p", kind, nullable))
    assert scalar.type == kind
    return scalar.as_py()


@pytest.mark.parametrize(
    ("text", "kind", "expected"),
    [
        ("a b", pa.string(), "a b"),
        ("a%20b", pa.string(), "a%20b"),
        ("__HIVE_DEFAULT_PARTITION__", pa.string(), "__HIVE_DEFAULT_PARTITION__"),
        ("é\u0001", pa.binary(), b"\xc3\xa9\x01"),
        ("\\u0061\\u00ff", pa.binary(), b"a\xff"),
        ("true", pa.bool_(), True),
        ("FALSE", pa.bool_(), False),
        ("-128", pa.int8(), -128),
        ("9223372036854775807", pa.int64(), 9223372036854775807),
        ("1.5", pa.float32(), 1.5),
        ("1.0E10", pa.float64(), 1e10),
        ("-Infinity", pa.float64(), -math.inf),
        ("1.50", pa.decimal128(5, 1), decimal.Decimal("1.5")),
        ("1E+2", pa.decimal128(5, 2), decimal.Decimal("100.00")),
        ("0.000000000000000001", pa.decimal128(38, 18), decimal.Decimal("1E-18")),
        ("0001-01-01", pa.date32(), dt.date(1, 1, 1)),
        ("9999-12-31", pa.date32(), dt.date(9999, 12, 31)),
        ("2020-01-01 00:00:00", pa.date32(), dt.date(2020, 1, 1)),
        ("2020-01-02 03:04:05", TIMESTAMP_NTZ, dt.datetime(2020, 1, 2, 3, 4, 5)),
        ("2020-01-02", TIMESTAMP_NTZ, dt.datetime(2020, 1, 2)),
        ("1969-12-31 23:59:59.999999", TIMESTAMP_NTZ, dt.datetime(1969, 12, 31, 23, 59, 59, 999999)),
        ("2020-01-02 03:04:05.1", TIMESTAMP, dt.datetime(2020, 1, 2, 3, 4, 5, 100000, dt.UTC)),
        ("2020-01-02T03:04:05Z", TIMESTAMP, dt.datetime(2020, 1, 2, 3, 4, 5, tzinfo=dt.UTC)),
        ("2020-01-02T03:04:05.000006+01:30", TIMESTAMP, dt.datetime(2020, 1, 2, 1, 34, 5, 6, dt.UTC)),
        ("2020-01-02 03:04:05-0800", TIMESTAMP, dt.datetime(2020, 1, 2, 11, 4, 5, tzinfo=dt.UTC)),
    ],
)
def test_each_type_is_parsed_as_the_log_spells_it(text, kind, expected):
    assert value(text, kind) == expected


def test_not_a_number_is_a_number():
    assert math.isnan(value("NaN", pa.float64()))


@pytest.mark.parametrize("text", [None, ""])
@pytest.mark.parametrize("kind", [pa.string(), pa.binary(), pa.int32(), TIMESTAMP, pa.decimal128(5, 2)])
def test_none_and_the_empty_text_are_null(text, kind):
    assert value(text, kind) is None


def test_the_empty_text_is_itself_where_a_string_cannot_be_null():
    assert value("", pa.string(), nullable=False) == ""


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("a", pa.int32()),
        ("128", pa.int8()),
        ("1.5", pa.int32()),
        ("yes", pa.bool_()),
        ("one", pa.float64()),
        ("1.234", pa.decimal128(5, 2)),
        ("12345.6", pa.decimal128(5, 2)),
        ("2020-13-01", pa.date32()),
        ("2020-01-01 10:00:00", pa.date32()),
        ("yesterday", TIMESTAMP),
        ("2020-01-01 25:00:00", TIMESTAMP),
    ],
)
def test_a_text_that_is_no_value_is_refused_with_column_and_text(text, kind):
    with pytest.raises(TableError, match=f"'p' has the value '{text}'"):
        value(text, kind)
