"""Rows of one file in the table's logical schema, whatever the file holds."""

import datetime as dt
import decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pyloader_delta.delta.cursor import Cursor
from pyloader_delta.delta.parquet import DataParquet, read_errors
from pyloader_delta.delta.schema import plain_fields
from pyloader_delta.delta.selection import Selection
from pyloader_delta.delta.store import Store
from pyloader_delta.errors import ReadError
from pyloader_delta.values import DataFile


def opened(path: str, schema: pa.Schema, partition_values: dict | None = None) -> DataParquet:
    file = DataFile(path, 0, 0, None, tuple((partition_values or {}).items()))
    return DataParquet(Store("/"), file, Selection(plain_fields(schema)), 0)


@pytest.fixture
def read(tmp_path):
    """Write a file and read its only row group back in a logical schema."""

    def through(
        stored: pa.Table, schema: pa.Schema, partition_values: dict | None = None, **options: object
    ) -> pa.Table:
        path = str(tmp_path / "f.parquet")
        pq.write_table(stored, path, **options)
        file = opened(path, schema, partition_values)
        table = file.row_groups(range(1))
        file.close()
        assert table.schema.equals(schema, check_metadata=True)
        assert all(
            col.type.equals(field.type, check_metadata=True) for col, field in zip(table.columns, schema, strict=True)
        )
        table.validate(full=True)
        return table

    return through


def column(values: list, kind: pa.DataType | None = None) -> pa.Table:
    return pa.table({"x": pa.array(values, kind)})


def x(kind: pa.DataType, *, nullable: bool = True) -> pa.Schema:
    return pa.schema([pa.field("x", kind, nullable)])


STRUCT = pa.struct({"a": pa.int64(), "b": pa.string()})


# Types ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stored", "kind"),
    [
        (column([1, None], pa.int8()), pa.int32()),
        (column([1, None], pa.int32()), pa.int64()),
        (column([1.5, None], pa.float32()), pa.float64()),
        (column(["a", None], pa.large_string()), pa.string()),
        (column(["a", None, "a"], pa.dictionary(pa.int32(), pa.string())), pa.string()),
        (column([b"a", None], pa.binary()), pa.string()),
        (column([b"ab", None], pa.binary(2)), pa.binary()),
        (column([decimal.Decimal("1.5"), None], pa.decimal128(4, 1)), pa.decimal128(10, 3)),
        (column([None, None], pa.null()), pa.string()),
        (column([[1, None], None, []], pa.large_list(pa.int32())), pa.list_(pa.int64())),
        (column([[1, 2], None], pa.list_(pa.int64(), 2)), pa.list_(pa.int64())),
        (column([-128, None], pa.int8()), pa.float64()),
        (column([-(1 << 31), None], pa.int32()), pa.float64()),
        (column([127, None], pa.int8()), pa.decimal128(4, 1)),
        (column([9, None], pa.int32()), pa.decimal128(3, 2)),  # what the type could hold would not fit
        (column([-(1 << 63), None], pa.int64()), pa.decimal128(38, 18)),
        (column([decimal.Decimal("1.5"), None], pa.decimal128(4, 1)), pa.decimal128(38, 37)),
        (column([3, None, 3]).cast(x(pa.int32())), pa.int64()),
        (column([[3, None], None, []], pa.list_(pa.int8())), pa.list_(pa.decimal128(5, 1))),
        (column([[(1, 2)], None], pa.map_(pa.int8(), pa.int8())), pa.map_(pa.int64(), pa.float64())),
    ],
)
def test_a_narrower_or_other_spelling_of_a_type_is_read_as_the_tables(read, stored, kind):
    as_it_is = [v.decode() if isinstance(v, bytes) and pa.types.is_string(kind) else v for v in stored["x"].to_pylist()]
    assert read(stored, x(kind))["x"].to_pylist() == as_it_is


@pytest.mark.parametrize(
    ("stored", "kind"),
    [
        (column([1.5]), pa.int64()),
        (column([1.5]), pa.float32()),
        (column(["1"]), pa.int64()),
        (column([1]), pa.string()),
        (column([True]), pa.int32()),
        (column([1]), pa.float64()),
        (column([1], pa.int8()), pa.float32()),
        (column([1.5]), pa.decimal128(5, 2)),
        (column([dt.date(2020, 1, 1)]), pa.timestamp("us", "UTC")),
        (column([dt.datetime(2020, 1, 1)], pa.timestamp("us")), pa.date32()),
        (column([1]), pa.timestamp("us")),
        (column([[1]]), pa.int64()),
        (column([1]), pa.list_(pa.int64())),
        (column([{"a": 1}]), pa.map_(pa.string(), pa.int64())),
    ],
)
def test_a_type_that_would_have_to_be_guessed_is_refused_with_the_column(read, stored, kind):
    with pytest.raises(TypeError, match="column 'x' is stored as"):
        read(stored, x(kind))


@pytest.mark.parametrize(
    ("stored", "kind"),
    [
        (column([1 << 40]), pa.int32()),
        (column([b"\xff"]), pa.string()),
        (column([decimal.Decimal("1.55")]), pa.decimal128(4, 1)),
        (column([1000]), pa.decimal128(4, 1)),
    ],
)
def test_a_value_that_does_not_fit_is_refused(read, stored, kind):
    with pytest.raises(ValueError, match="column 'x' is stored as"):
        read(stored, x(kind))


MOMENT = dt.datetime(1969, 12, 31, 23, 59, 59, 999999)


@pytest.mark.parametrize("tz", ["UTC", None])
@pytest.mark.parametrize(
    ("stored", "options"),
    [
        (column([MOMENT, None], pa.timestamp("us")), {}),
        (column([MOMENT, None], pa.timestamp("us", "UTC")), {}),
        (column([-1, None], pa.int64()).cast(x(pa.timestamp("ns"))), {}),  # a nanosecond before: floor, as Spark does
        (column([MOMENT, None], pa.timestamp("us")), {"use_deprecated_int96_timestamps": True}),
    ],
)
def test_times_become_microseconds_and_those_without_a_zone_are_utc(read, stored, options, tz):
    table = read(stored, x(pa.timestamp("us", tz)), **options)
    assert table["x"].to_pylist() == [MOMENT.replace(tzinfo=dt.UTC if tz else None), None]


def test_int96_reaches_beyond_the_years_of_nanoseconds(read, tmp_path):
    times = [dt.datetime(1, 1, 1), dt.datetime(9999, 12, 31, 23, 59, 59)]
    table = read(column(times, pa.timestamp("us")), x(pa.timestamp("us")), use_deprecated_int96_timestamps=True)
    assert table["x"].to_pylist() == times


def test_days_become_times_without_a_zone(read):
    days = [dt.date(1, 1, 1), dt.date(9999, 12, 31), None]
    found = read(column(days), x(pa.timestamp("us")))["x"].to_pylist()
    assert found == [day and dt.datetime.combine(day, dt.time()) for day in days]


# Evolution -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [pa.int8(), pa.string(), pa.decimal128(5, 2), pa.list_(pa.int8()), STRUCT, pa.null()])
def test_a_column_that_the_file_lacks_is_null(read, kind):
    table = read(pa.table({"y": [1, 2]}), pa.schema([pa.field("x", kind), pa.field("y", pa.int64())]))
    assert table.to_pylist() == [{"x": None, "y": 1}, {"x": None, "y": 2}]


def test_a_field_that_a_nested_struct_lacks_is_null(read):
    rows = [{"a": 1}, None, {"a": None}]
    table = read(column(rows), x(STRUCT))
    assert table["x"].to_pylist() == [{"a": 1, "b": None}, None, {"a": None, "b": None}]


def test_a_field_that_structs_in_a_list_lack_is_null(read):
    table = read(column([[{"a": 1}, None], None, []]), x(pa.list_(STRUCT)))
    assert table["x"].to_pylist() == [[{"a": 1, "b": None}, None], None, []]


def test_a_field_that_structs_in_a_map_lack_is_null(read):
    stored = column([[("k", {"a": 1}), ("l", None)], None, []], pa.map_(pa.string(), pa.struct({"a": pa.int32()})))
    table = read(stored, x(pa.map_(pa.string(), STRUCT)))
    assert table["x"].to_pylist() == [[("k", {"a": 1, "b": None}), ("l", None)], None, []]


def test_fields_come_in_the_tables_order_and_others_are_left_out(read):
    table = read(column([{"c": 0, "b": "s", "a": 1}]), x(STRUCT))
    assert table["x"].to_pylist() == [{"a": 1, "b": "s"}]


def test_a_name_that_differs_only_in_case_is_the_same(read):
    assert read(pa.table({"X": [1]}), x(pa.int64())).to_pylist() == [{"x": 1}]


def test_of_two_such_names_none_is_guessed(read):
    assert read(pa.table({"X": [1], "Y": [2]}).rename_columns(["X", "X"]), x(pa.int64()))["x"].to_pylist() == [None]


@pytest.mark.parametrize("stored", [{"a": 1}, {"other": 1}])
def test_a_struct_none_of_whose_fields_is_stored_is_a_struct_of_nulls(read, stored):
    kind = pa.struct({"b": pa.string(), "c": pa.struct({"d": pa.int8()})})
    rows = read(column([stored, None]), x(kind))["x"].to_pylist()
    assert rows == [{"b": None, "c": None}, None]


def test_a_struct_without_fields_keeps_its_nulls(read):
    assert read(column([{"a": 1}, None]), x(pa.struct([])))["x"].to_pylist() == [{}, None]


def test_nullability_is_the_tables(read):
    read(column([1]), x(pa.int64(), nullable=False))
    kind = pa.list_(pa.field("element", pa.struct([pa.field("a", pa.int64(), False)]), False))
    assert read(column([[{"a": 1}], None]), x(kind))["x"].to_pylist() == [[{"a": 1}], None]


# Names and partition columns -----------------------------------------------------------------------------------------


def test_names_with_dots_and_signs_select_their_own_leaves(read):
    stored = pa.table({"a": [{"b": 1, "c": 2}], "a.b": [3], "é ;{}": [4], "a.b.c": [[5]], "": [6]})
    for name in stored.column_names:
        picked = stored.select([name])
        assert read(stored, picked.schema).equals(picked)
    assert read(stored, stored.schema).equals(stored)
    backwards = stored.select(stored.column_names[::-1])
    assert read(stored, backwards.schema).equals(backwards)


def test_partition_columns_come_from_the_log_even_if_the_file_has_them_too(read):
    schema = pa.schema({"p": pa.int32(), "x": pa.int64(), "q": pa.string()})
    stored = pa.table({"x": [1, 2], "p": ["wrong", "wrong"]})
    table = read(stored, schema, {"p": "7", "q": None, "not selected": "1"})
    assert table.to_pylist() == [{"p": 7, "x": 1, "q": None}, {"p": 7, "x": 2, "q": None}]


def test_partition_columns_alone_read_no_leaf(read):
    assert read(pa.table({"x": [1, 2]}), pa.schema({"p": pa.string()}), {"p": "v"}).to_pylist() == [{"p": "v"}] * 2


def test_metadata_of_the_file_stays_there(read):
    field = pa.field("x", pa.int64(), metadata={"PARQUET:field_id": "3"})
    read(pa.table({"x": [1]}, schema=pa.schema([field])), x(pa.int64()))
    read(column([1]).replace_schema_metadata({"pandas": "{}"}), x(pa.int64()))


# Cursors -------------------------------------------------------------------------------------------------------------

NESTED = pa.table(
    {
        "i": pa.array(range(5000), pa.int64()),
        "l": pa.array([None if i % 7 == 0 else [i] * (i % 3) for i in range(5000)], pa.list_(pa.int32())),
        "m": pa.array([[(str(i), {"a": i})] for i in range(5000)], pa.map_(pa.string(), pa.struct({"a": pa.int64()}))),
        "s": pa.array([None if i % 5 == 0 else {"a": i} for i in range(5000)], pa.struct({"a": pa.int64()})),
    }
)
WIDER = pa.schema(
    {
        "l": pa.list_(pa.int64()),
        "p": pa.string(),
        "m": pa.map_(pa.string(), STRUCT),
        "i": pa.int64(),
        "s": STRUCT,
    }
)


def test_a_cursor_gives_the_row_group_in_pieces_of_any_size(tmp_path):
    path = str(tmp_path / "f.parquet")
    pq.write_table(NESTED, path, data_page_size=2000)
    whole = opened(path, WIDER, {"p": "v"}).row_groups(range(1))
    cursor = Cursor(opened(path, WIDER, {"p": "v"}), 0, 1500)
    sizes = [1500, 1, 2000, 0, 7, 1492]
    pieces = [cursor.take(n) for n in sizes if n]
    assert [piece.num_rows for piece in pieces] == [n for n in sizes if n]
    assert cursor.position == 5000
    table = pa.concat_tables(pieces)
    table.validate(full=True)
    assert table.equals(whole)
    cursor.close()


def test_a_cursor_skips_forward(tmp_path):
    path = str(tmp_path / "f.parquet")
    pq.write_table(NESTED, path)
    cursor = Cursor(opened(path, NESTED.schema), 0, 100)
    cursor.skip(2049)
    assert cursor.take(3).equals(NESTED.slice(2049, 3))
    cursor.skip(0)
    assert cursor.take(3).equals(NESTED.slice(2052, 3))
    cursor.close()


# Errors --------------------------------------------------------------------------------------------------------------


def test_whatever_goes_wrong_with_a_file_is_a_read_error_that_names_it():
    with pytest.raises(ReadError, match=r"/f of version 3 is missing; was the table vacuumed\?"):  # noqa: SIM117
        with read_errors("/f", 3):
            raise FileNotFoundError
    with pytest.raises(ReadError, match=r"cannot read /f rows 1\.\.2 of version 3: no") as raised:  # noqa: SIM117
        with read_errors("/f", 3, place=" rows 1..2"):
            raise pa.ArrowInvalid("no")
    assert isinstance(raised.value.__cause__, pa.ArrowInvalid)
