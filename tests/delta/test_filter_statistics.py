"""Bounds from footers and from the log rule out no row, and say something where they can."""

import datetime
import json
import math
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from filter_cases import NAN, SCHEMA, VALUES, plain, rows_strategy, sql, sql_leaves, table_of, trees
from hypothesis import given, settings

from pyloader_delta.delta.filters.footers import row_group_bounds
from pyloader_delta.delta.filters.log import file_bounds
from pyloader_delta.delta.filters.outcomes import FALSE, NULL, TRUE, outcomes
from pyloader_delta.delta.filters.rows import row_filter
from pyloader_delta.delta.filters.tree import Column, columns
from pyloader_delta.delta.schema import plain_fields

BIT = {True: TRUE, False: FALSE, None: NULL}
FIELDS = plain_fields(SCHEMA)


# Footers ------------------------------------------------------------------------------------------------------------


def footer_outcomes(table, filter_, *, fields=None, schema=None, **options):
    """Return the possible outcomes in each row group of a file that holds the table."""
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, **options)
    file = pq.ParquetFile(sink.getvalue())
    schema = schema or table.schema
    found = row_filter(filter_, schema)
    known = row_group_bounds(
        file.metadata, file.schema_arrow, fields or plain_fields(schema), list(columns(found.node))
    )
    return outcomes(found.node, known, file.metadata.num_row_groups).tolist()


@settings(deadline=None, max_examples=50)
@given(trees(sql_leaves), rows_strategy.filter(bool))
def test_a_footer_rules_out_no_row(predicate, rows):
    possible = footer_outcomes(table_of(rows), sql(predicate), row_group_size=2)
    assert len(possible) == -(-len(rows) // 2)
    for i, row in enumerate(rows):
        assert possible[i // 2] & BIT[plain(predicate, row, sql_nan=True)]


@pytest.mark.parametrize(
    ("stored", "wanted", "filter_", "expected"),
    [
        (pa.array([1, 2], pa.int8()), pa.int64(), "c > 2", FALSE),
        (pa.array([1, 2], pa.int32()), pa.float64(), "c < 1", FALSE),
        (pa.array([1, 2], pa.int16()), pa.decimal128(7, 2), "c <= 2", TRUE),
        (pa.array([200, 2], pa.uint8()), pa.uint8(), "c > 200", FALSE),
        (pa.array([2**64 - 1, 2], pa.uint64()), pa.uint64(), "c >= 2", TRUE),
        (pa.array([Decimal("1.5")], pa.decimal128(3, 1)), pa.decimal128(20, 4), "c = 1.5", TRUE),
        (pa.array([Decimal("-1.5")], pa.decimal128(30, 1)), pa.decimal128(38, 1), "c > -1.5", FALSE),
        (pa.array([1, 2], pa.date32()), pa.timestamp("us"), "c < '1970-01-02'", FALSE),
        (
            pa.array([1_999, -1], pa.timestamp("ns")),
            pa.timestamp("us", "UTC"),
            "c > '1970-01-01T00:00:00.000001'",
            FALSE,
        ),
        (pa.array([1_999, -1], pa.timestamp("ns")), pa.timestamp("us", "UTC"), "c < '1970-01-01'", TRUE | FALSE),
        (pa.array([5], pa.timestamp("ms")), pa.timestamp("us"), "c = '1970-01-01 00:00:00.005'", TRUE),
        (pa.array(["a", "b"]).dictionary_encode(), pa.string(), "c >= 'a'", TRUE),
        (pa.array(["ü"], pa.large_string()), pa.string(), "c = 'ü'", TRUE),
        (pa.array([None, None], pa.int32()), pa.int32(), "c = 1", NULL),
        (pa.array([1, None], pa.int32()), pa.int32(), "c IS NULL", TRUE | FALSE),
        (pa.array([1.0, NAN]), pa.float64(), "c <= 1", TRUE | FALSE),
        (pa.array([1.0, NAN]), pa.float64(), "c < 1", FALSE),
        (pa.array([NAN, NAN]), pa.float64(), "c > 5", TRUE | FALSE),
    ],
)
def test_a_footer_is_read_as_the_tables_type(stored, wanted, filter_, expected):
    schema = pa.schema([pa.field("c", wanted)])
    table = pa.table({"c": stored})
    assert footer_outcomes(table, filter_, schema=schema, store_schema=True) == [expected]


def test_a_column_that_a_file_lacks_is_null_and_fields_of_structs_have_statistics():
    schema = pa.schema({"new": pa.int64(), "s": pa.struct({"a": pa.int64(), "b": pa.int64(), "c": pa.int64()})})
    table = pa.table({"first": [[0], [0]], "s": [{"a": 1, "b": 5}, {"a": 2, "b": 6}]})
    for filter_, expected in [
        ("new = 1", NULL),
        ("new IS NULL", TRUE),
        ("s.b > 6", FALSE),
        ("s.b > 4", TRUE),
        ("s.c = 1", NULL),
        ("s IS NULL", TRUE | FALSE | NULL),
    ]:
        assert footer_outcomes(table, filter_, schema=schema) == [expected], filter_


def test_without_statistics_all_is_possible():
    table = pa.table({"c": [1, 2]})
    assert footer_outcomes(table, "c > 5", write_statistics=False) == [TRUE | FALSE | NULL]


# The log ------------------------------------------------------------------------------------------------------------


def log_outcomes(statistics, filter_, schema):
    found = row_filter(filter_, schema)
    known = file_bounds(statistics, plain_fields(schema), list(columns(found.node)))
    return outcomes(found.node, known, len(statistics)).tolist()


def as_spark_writes(value, upper):
    """Return a value as statistics have it: texts cut to 32 characters, times to milliseconds."""
    if isinstance(value, str) and len(value) > 32:
        return value[:32] + ("\U0010ffff" if upper else "")
    if isinstance(value, datetime.datetime):
        return value.isoformat(timespec="milliseconds")
    if isinstance(value, float):
        return value if math.isfinite(value) else {NAN: "NaN"}.get(value, str(value).replace("inf", "Infinity"))
    if isinstance(value, Decimal):
        return float(value)
    return value.isoformat() if isinstance(value, datetime.date) else value


def statistics_of(rows):
    """Return what Spark would say of rows."""
    found = {"numRecords": len(rows), "minValues": {}, "maxValues": {}, "nullCount": {}}
    for name in set(VALUES) - {"x", "b"}:
        there = [row[name] for row in rows if row[name] is not None]
        found["nullCount"][name] = len(rows) - len(there)
        if there:
            order = {"key": (lambda x: (math.isnan(x), x))} if name in "fg" else {}
            order = {"key": str.encode} if name == "s" else order
            for kind, choose in (("minValues", min), ("maxValues", max)):
                found[kind][name] = as_spark_writes(choose(there, **order), kind == "maxValues")
    return json.dumps(found)


@settings(deadline=None, max_examples=50)
@given(trees(sql_leaves), rows_strategy.filter(bool))
def test_the_log_rules_out_no_row(predicate, rows):
    (possible,) = log_outcomes([statistics_of(rows)], sql(predicate), SCHEMA)
    for row in rows:
        assert possible & BIT[plain(predicate, row, sql_nan=True)]


def stated(low, high=None, n_nulls=0, n_rows=2):
    high = low if high is None else high
    values = {"minValues": {"c": low}, "maxValues": {"c": high}, "nullCount": {"c": n_nulls}}
    return json.dumps({"numRecords": n_rows, **values})


UTC_TIME, LONG = pa.timestamp("us", "UTC"), "x" * 32
MAYBE = TRUE | FALSE


@pytest.mark.parametrize(
    ("kind", "statistics", "filter_", "expected"),
    [
        (pa.int64(), stated(1, 5), "c > 5", FALSE),
        (pa.int64(), stated(1, 5), "c >= 5", MAYBE),
        (pa.int64(), stated(1, 5), "c >= 1", TRUE),
        (pa.int64(), stated(1, 5, 1), "c >= 1", TRUE | NULL),
        (pa.int64(), stated(None, None, 2), "c >= 1", NULL),
        (pa.int64(), stated(5, 1), "c > 9", MAYBE),
        (pa.int64(), stated("1", "5"), "c > 9", MAYBE),
        (pa.int64(), stated(True, True), "c > 9", MAYBE),
        (pa.int64(), stated(1, 5, 7), "c IS NULL", TRUE),
        (pa.int64(), stated(1, 5, -1), "c IS NULL", MAYBE),
        (pa.int64(), "no JSON", "c = 1", MAYBE | NULL),
        (pa.int64(), "[" * 100_000, "c = 1", MAYBE | NULL),
        (pa.int64(), "[]", "c = 1", MAYBE | NULL),
        (pa.int64(), None, "c = 1", MAYBE | NULL),
        (pa.int64(), '{"numRecords": 2, "minValues": 7}', "c = 1", MAYBE | NULL),
        (pa.int64(), '{"numRecords": 2, "nullCount": {"c": 2}}', "c = 1", NULL),
        (pa.string(), stated("a", "b"), "c > 'b'", FALSE),
        (pa.string(), stated(1.5, 2.5), "c > 'b'", MAYBE),
        (pa.string(), stated(LONG, LONG + "\U0010ffff"), f"c > '{LONG}'", MAYBE),
        (pa.string(), stated(LONG, LONG), f"c = '{LONG}\U0010ffff\U0010ffff'", MAYBE),
        (pa.string(), stated(LONG, LONG + "\ufffd"), f"c > '{LONG}\U0001f600'", MAYBE),
        (pa.string(), stated(LONG, LONG + "\x7f"), "c > 'y'", FALSE),
        (pa.string(), stated(LONG, LONG), f"c < '{LONG}'", FALSE),
        (pa.string(), stated("\ud800", "\ud800"), "c = 'x'", MAYBE),
        (pa.string(), stated("abc", "abd"), "c LIKE 'ab%'", MAYBE),
        (pa.string(), stated("abc", "abd"), "c LIKE 'ac%'", FALSE),
        (pa.string(), stated("abc", "abd"), "c NOT LIKE 'ac%'", TRUE),
        (UTC_TIME, stated("2024-01-01T00:00:00.000Z"), "c > '2024-01-01T00:00:00.0009'", MAYBE),
        (UTC_TIME, stated("2024-01-01T00:00:00.000Z"), "c > '2024-01-01T00:00:00.002'", FALSE),
        (UTC_TIME, stated("2024-01-01T01:00:00.000+01:00"), "c > '2024-01-01T00:00:00.002'", FALSE),
        (UTC_TIME, stated("2024-01-01T00:00:00.000"), "c > '2024-01-02'", MAYBE),
        (pa.timestamp("us"), stated("2024-01-01T00:00:00.000"), "c > '2024-01-02'", FALSE),
        (pa.timestamp("us"), stated("0001-01-01T00:00:00.000"), "c > '2024-01-02'", MAYBE),
        (pa.timestamp("us"), stated("2024-01-01"), "c > '2024-01-02'", FALSE),
        (pa.date32(), stated("2024-01-01", "2024-01-31"), "c >= DATE '2024-02-01'", FALSE),
        (pa.date32(), stated("0001-01-01", "1500-01-31"), "c >= DATE '2024-02-01'", MAYBE),
        (pa.date32(), stated("+10000-01-01", "+10000-01-01"), "c < DATE '2024-02-01'", MAYBE),
        (pa.float64(), stated(0.5, 1.5), "c < 0.5", FALSE),
        (pa.float64(), stated(0.5, 1.5), "c > 1.5", MAYBE),  # NaN is above all
        (pa.float64(), stated(0.5, 1.5), "c > 1.5 AND NOT isnan(c)", FALSE),
        (pa.float64(), stated(0.5, 1.5), "c BETWEEN 2 AND 3", FALSE),
        (pa.float64(), stated(0.5, 1.5), "c > 1.5 AND (c < 7 AND c <> 3)", FALSE),
        (pa.float64(), stated(0.5, 1.5), "c > 1.5 AND c <> 3", MAYBE),
        (pa.float64(), stated("NaN", "NaN"), "c < 0", MAYBE),
        (pa.float64(), stated("-Infinity", "Infinity"), "c < 0", MAYBE),
        (pa.float64(), stated(0.1, 0.1), f"c <= {Decimal(float(np.float32(0.1)))}", MAYBE),
        (pa.float64(), stated(0.1, 0.1), "c < 0.1", FALSE),
        (pa.float32(), stated(0.1, 0.1), f"c < {Decimal(float(np.float32(0.1)))}", FALSE),
        (pa.float32(), stated(1e300, 1e301), "c < 5", FALSE),
        (pa.float64(), stated(-0.0, -0.0), "c < 0", FALSE),
        (pa.float64(), stated(-0.0, -0.0), "c = 0.0", MAYBE),
        (pa.decimal128(5, 2), stated(1.5, 2.25), "c > 2.25", FALSE),
        (pa.decimal128(5, 2), stated("1.5", "2.25"), "c < 1.5", FALSE),
        (pa.decimal128(38, 2), stated(1e20, 12345678901234567.89), "c > 12345678901234567.89", MAYBE),
        (pa.decimal128(38, 2), stated(0, 12345678901234567.89), "c > 12345678901234570.00", MAYBE),
        (pa.decimal128(38, 2), stated(0, 12345678901234567.89), "c > 12345678901235000.00", FALSE),
        (pa.decimal128(5, 2), stated("-2342342.-23423", 5), "c < -1", MAYBE),
        (pa.decimal128(5, 2), stated("1e999999", "1e999999"), "c = 1", MAYBE),
    ],
)
def test_a_statistic_says_what_its_writer_meant(kind, statistics, filter_, expected):
    assert log_outcomes([statistics], filter_, pa.schema({"c": kind})) == [expected]


def test_statistics_are_found_under_the_stored_names():
    schema = pa.schema({"c": pa.struct({"d": pa.int64()})})
    (inner,) = plain_fields(schema)
    stored = type(inner)("c", "col-1", None, inner.type, True, (type(inner)("d", "col-2", None, pa.int64(), True),))
    statistics = ['{"numRecords": 1, "maxValues": {"col-1": {"col-2": 3}}, "nullCount": {"col-1": {"col-2": 0}}}']
    found = file_bounds(statistics, (stored,), [Column(("c", "d"), pa.int64())])
    assert found[("c", "d")].high.tolist() == [3]
    assert found[("c", "d")].some_null.tolist() == [False]
