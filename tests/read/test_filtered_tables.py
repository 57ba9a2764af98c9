"""`filter=` of `DeltaDataReader`: exact rows and counts, what is left out unread, counts kept on disk."""

import contextlib
import json
import math
import pickle
import sqlite3
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, QueryBuilder, WriterProperties, write_deltalake
from reading import gather, in_parts, read
from vectors import delete_rows
from writing import number_table

from pyloader_delta import ConfigError, DataLoader, Dataset, DeltaDataReader, NumpyDataCollator, ReadError
from pyloader_delta.delta import files as delta_files
from pyloader_delta.delta.filters.cache import cache_folder

N = 240
WITHOUT_NAN = ["day", "i", "n", "s", "t", "st"]


def rows_of_table() -> pa.Table:
    rng = np.random.default_rng(7)
    i = np.arange(N)
    x = rng.normal(size=N).round(2)
    x[::17] = math.nan
    return pa.table(
        {
            "day": pa.array([None if n % 11 == 0 else f"d{n // 60}" for n in i]),
            "i": pa.array(i.tolist(), pa.int64()),
            "n": pa.array([None if n % 7 == 3 else int(n) % 5 for n in i], pa.int32()),
            "x": pa.array(x.tolist()),
            "s": pa.array([None if n % 5 == 1 else f"text {n % 13}" for n in i]),
            "t": pa.array([n * 3_600_000_017 for n in i.tolist()], pa.timestamp("us", "UTC")),
            "st": pa.array([None if n % 9 == 0 else {"a": int(n), "b": "u"} for n in i]),
        }
    )


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A table partitioned by `day`, several files a partition, several row groups a file."""
    root = str(tmp_path_factory.mktemp("filtered") / "table")
    whole = rows_of_table()
    for start in range(0, N, 80):
        write_deltalake(
            root,
            whole.slice(start, 80),
            mode="append",
            partition_by=["day"],
            writer_properties=WriterProperties(max_row_group_size=12),
        )
    return root


def oracle(root: str, sql: str) -> list[int]:
    """Return `i` of the rows that deltalake's own engine finds."""
    query = QueryBuilder().register("t", DeltaTable(root)).execute(f"select i from t where {sql} order by i")
    return pa.table(query.read_all()).column("i").to_pylist()


SQL = [
    "i < 100",
    "i >= 100 AND i < 101",
    "i IN (3, 5, 7, 1000)",
    "i NOT BETWEEN 10 AND 229",
    "n = 2",
    "n <> 2",
    "NOT (n = 2 OR n > 3)",
    "n IN (1, NULL)",
    "n IS NULL OR i = 5",
    "n IS NOT DISTINCT FROM 4",
    "n IS DISTINCT FROM 4",
    "day = 'd1'",
    "day <> 'd1'",
    "day IS NULL",
    "day IN ('d0', 'd3') AND n = 1",
    "day = 'd0' OR i > 200",
    "s LIKE 'text 1%'",
    "s NOT LIKE 'text _'",
    "s >= 'text 5'",
    "x <= 0.5",
    "t >= TIMESTAMP '1970-01-05 00:00:00'",
    "i < 0",
    "i >= 0",
    "n = n AND i < 20",
]


@pytest.mark.parametrize("sql", SQL)
def test_sql_gives_the_rows_that_deltalake_gives(table, sql):
    found = read(table, filter=sql, columns=["i"])  # chunks have as many rows as they say
    assert sorted(found.column("i").to_pylist()) == oracle(table, sql)


@pytest.mark.parametrize(
    ("sql", "keeps"),
    [
        ("x > 1", lambda x: not x <= 1),
        ("NOT (x < 1)", lambda x: not x < 1),
        ("isnan(x)", math.isnan),
        ("x = 'NaN'", math.isnan),
        ("x < 'NaN' AND x >= 0.5", lambda x: x >= 0.5),
    ],
)
def test_nan_is_above_all_numbers_in_sql(table, sql, keeps):  # deltalake's engine prunes some of them
    expected = [i for i, x in enumerate(rows_of_table().column("x").to_pylist()) if keeps(x)]
    assert sorted(read(table, filter=sql).column("i").to_pylist()) == expected


@pytest.mark.parametrize(
    "sql",
    [
        "n NOT IN (1, NULL)",
        "NOT (n IN (1, NULL))",
        "n <> 1 OR n IS NULL",
        "NOT (n > 1 AND i < 9)",
        "n = NULL",
        "n > 1 AND NOT n > 2",
    ],
)
def test_nulls_are_what_they_are_in_sqlite(table, sql):  # deltalake's engine gives rows for NOT IN with a NULL
    with contextlib.closing(sqlite3.connect(":memory:")) as database:
        database.execute("create table t (i, n)")
        database.executemany("insert into t values (:i, :n)", rows_of_table().select(["i", "n"]).to_pylist())
        expected = [i for (i,) in database.execute(f"select i from t where {sql} order by i")]
    assert sorted(read(table, filter=sql).column("i").to_pylist()) == expected


EXPRESSIONS = {
    "comparison": pc.field("n") > 2,
    "isin": pc.field("s").isin(["text 1", None]),
    "not isin": ~pc.field("n").isin([1, 2]),
    "nested field": pc.field("st", "a") >= 100,
    "function": pc.starts_with(pc.field("s"), "text 1"),
    "arithmetic": (pc.field("i") * 2) < 100,
    "NaN": pc.field("x").is_nan(),
    "partition and function": (pc.field("day") == "d2") & pc.is_valid(pc.field("st")),
    "all rows": pc.field("i") > -1,
}


@pytest.mark.parametrize("exact_length", [True, False])
@pytest.mark.parametrize("name", EXPRESSIONS)
def test_an_expression_gives_what_pyarrow_gives(table, name, exact_length):
    reader = DeltaDataReader(filter=EXPRESSIONS[name], exact_length=exact_length)
    tables = [reader.read_chunk(chunk) for chunk in reader.chunks(table)]
    reader.close()
    expected = rows_of_table().filter(EXPRESSIONS[name])
    key = {"sort_keys": [("i", "ascending")]}
    found = pa.concat_tables(tables) if tables else expected.slice(0, 0)
    found, expected = (t.take(pc.sort_indices(t, **key)).drop_columns("x") for t in (found, expected))
    assert found.select(expected.column_names).to_pylist() == expected.to_pylist()


TUPLES = [
    ([("n", "in", [1, 2]), ("i", "<", 50)], "n IN (1, 2) AND i < 50"),
    ([("day", "=", "d1")], "day = 'd1'"),
    ([[("day", "=", "d1")], [("n", "not in", [0, 1])]], "day = 'd1' OR n NOT IN (0, 1)"),
    ([("i", ">=", "200"), ("s", "is not", None)], "i >= 200 AND s IS NOT NULL"),
]


@pytest.mark.parametrize(("tuples", "sql"), TUPLES)
def test_tuples_give_the_same_as_sql(table, tuples, sql):
    assert sorted(read(table, filter=tuples).column("i").to_pylist()) == oracle(table, sql)


def test_parts_of_filtered_row_groups_are_read_by_one_cursor(table):
    reader = DeltaDataReader(filter="n >= 1", columns=WITHOUT_NAN)
    chunks = reader.chunks(table)
    whole = gather(reader, chunks)
    assert gather(reader, in_parts(chunks, 2)).equals(whole)
    assert gather(reader, in_parts(chunks, 2)[::-1]).num_rows == whole.num_rows


def test_large_row_groups_are_filtered_piece_by_piece(table, monkeypatch):
    expected = read(table, filter="n = 2", columns=WITHOUT_NAN)
    monkeypatch.setattr(delta_files, "_MAX_UNFILTERED_BYTES", 1)
    assert read(table, filter="n = 2", columns=WITHOUT_NAN).equals(expected)


@pytest.mark.parametrize("limit", [1 << 24, 1])
def test_tables_in_a_store_are_filtered_alike(table, monkeypatch, limit):
    filter_ = "day <> 'd2' AND n = 2 AND s LIKE 'text 1%'"
    expected = read(table, filter=filter_, columns=["i"])
    monkeypatch.setattr(delta_files, "_MAX_UNFILTERED_BYTES", limit)
    assert read(table, filter=filter_, columns=["i"], filesystem=pyarrow.fs.LocalFileSystem()).equals(expected)


def test_columns_of_the_filter_need_not_be_read(table):
    found = read(table, filter="day = 'd1' AND n = 2 AND x < 0", columns=["s"])
    assert found.column_names == ["s"]
    assert found.num_rows == len(oracle(table, "day = 'd1' AND n = 2 AND x < 0"))


def test_deleted_rows_are_neither_counted_nor_read_nor_evaluated(tmp_path):
    root = tmp_path / "table"
    data = pa.table({"x": pa.array([0, 1, 2, 3, 4, 5]), "y": [10, 20, 30, 40, 50, 60]})
    write_deltalake(root, data, writer_properties=WriterProperties(max_row_group_size=2))
    (file,) = (json.loads(line)["add"]["path"] for line in _lines(root) if "add" in json.loads(line))
    delete_rows(root, {file: [0, 3]})
    assert read(root, filter="x >= 2").column("y").to_pylist() == [30, 50, 60]
    by_zero = pc.divide(pc.scalar(12), pc.field("x")) >= 3  # an error in the deleted row
    assert read(root, filter=by_zero).column("y").to_pylist() == [20, 30, 50]
    assert read(root, filter="x = 0 OR x = 3").num_rows == 0


def _lines(root: Path) -> list[str]:
    return [line for log in sorted((root / "_delta_log").glob("*.json")) for line in log.read_text().splitlines()]


# What is left out ---------------------------------------------------------------------------------------------------


def explained(root: str, filter_: object, **options: object):
    reader = DeltaDataReader(filter=filter_, **options)
    found = reader.explain(root)
    reader.close()
    return found


def test_each_step_says_what_it_left_out(table):
    n_files = len(DeltaTable(table).file_uris())
    found = explained(table, "day = 'd1' AND i < 70 AND n = 2")
    partition, files, groups, rows = found.pruned.values()
    assert list(found.pruned) == ["partition values", "file statistics", "row group statistics", "rows"]
    assert found.table.n_files == n_files
    assert found.table.n_rows == N
    assert (partition.n_files, files.n_files) == (n_files - 2, 1)  # d1 is in two writes, i < 70 in one
    assert groups.n_row_groups >= 1
    assert found.left.n_rows == len(oracle(table, "day = 'd1' AND i < 70 AND n = 2"))
    steps = (partition, files, groups, rows)
    assert found.table.n_rows - sum(step.n_rows for step in steps) == found.left.n_rows
    sizes = sum(step.size_bytes or 0 for step in steps)
    assert found.table.size_bytes - sizes == found.left.size_bytes > 0
    assert str(found).splitlines()[0].split() == ["files", "row", "groups", "bytes", "rows"]
    assert f"-{partition.n_files}" in str(found)


def test_without_a_filter_nothing_is_left_out(table):
    found = explained(table, None)
    assert found.pruned == {}
    assert found.table == found.left
    assert found.left.n_rows == N


def test_with_unknown_lengths_the_rows_left_are_unknown(table):
    found = explained(table, "n = 2", exact_length=False)
    assert found.left.n_rows is None
    assert found.pruned["rows"].n_rows is None
    assert found.left.n_files


def test_before_chunks_there_is_nothing_to_explain():
    with pytest.raises(ConfigError, match=r"call chunks\(root\)"):
        DeltaDataReader(filter="a = 1").explain()


def test_files_that_are_left_out_are_not_opened(tmp_path):
    root = number_table(tmp_path / "table", [10, 10], column="i")
    for uri in DeltaTable(root).file_uris():
        if pq.read_table(uri).column("i")[0].as_py() == 0:
            Path(uri).unlink()
    assert read(root, filter="i >= 10").num_rows == 10


def test_statistics_beyond_pythons_dates_rule_out_nothing(tmp_path):
    when, longs = pa.timestamp("us", "UTC"), pa.struct({"t": pa.int64()})
    write_deltalake(str(tmp_path), pa.table({"t": pa.array([0], when)}))
    DeltaTable(str(tmp_path)).create_checkpoint()
    (checkpoint,) = (tmp_path / "_delta_log").glob("*.checkpoint.parquet")
    table = pq.read_table(checkpoint)
    add = table.column("add").combine_chunks()
    bound = pa.StructArray.from_arrays([pa.array([2**62] * len(add)).cast(when)], ["t"])
    nulls = pa.array([{"t": 0}] * len(add), longs)
    stats = [pa.array([1] * len(add)), bound, bound, nulls]
    parsed = pa.StructArray.from_arrays(stats, ["numRecords", "minValues", "maxValues", "nullCount"])
    names = [field.name for field in add.type if field.name not in ("stats", "stats_parsed")]
    kept = [add.field(name) for name in names]
    add = pa.StructArray.from_arrays([*kept, parsed], [*names, "stats_parsed"], mask=add.is_null())
    pq.write_table(table.set_column(table.schema.get_field_index("add"), "add", add), checkpoint)
    assert read(tmp_path, filter="t < '2024-01-01'").num_rows == 1


def test_dots_may_be_parts_of_names(tmp_path):
    inner = pa.StructArray.from_arrays([pa.array([1, 2])], ["b.c"])
    write_deltalake(str(tmp_path), pa.table({"a": inner, "a.b": pa.array([5, 6])}))
    assert read(tmp_path, filter=[("a.b.c", "=", 2)], columns=["a.b"]).to_pylist() == [{"a.b": 6}]
    assert read(tmp_path, filter=[("a.b", "=", 5)], columns=["a.b"]).to_pylist() == [{"a.b": 5}]
    assert read(tmp_path, filter='a."b.c" = 1 AND "a.b" = 5', columns=["a.b"]).to_pylist() == [{"a.b": 5}]


# Counts -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return cache_folder()


def counted(root: str, filter_: object) -> list[int | None]:
    reader = DeltaDataReader(filter=filter_)
    counts = [chunk.n_rows for chunk in reader.chunks(root)]
    reader.close()
    return counts


def forbid_counting(monkeypatch):
    def fail(self, row_group):
        raise AssertionError("counted again")

    monkeypatch.setattr("pyloader_delta.delta.filters.groups._Counter.count", fail)


def test_counts_are_kept_from_one_reader_to_the_next(table, cache, monkeypatch):
    first = counted(table, "n = 2")
    (kept,) = cache.iterdir()
    assert "text" not in kept.read_text()  # numbers alone
    forbid_counting(monkeypatch)
    assert counted(table, "n = 2") == first
    with pytest.raises(ReadError, match="counted again"):
        counted(table, "n = 3")


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: path.write_text("no JSON"),
        lambda path: path.write_bytes(b"\xff\x00"),
        lambda path: path.write_text(path.read_text()[:-10]),
        lambda path: path.write_text(path.read_text().replace("1", "2")),
        lambda path: path.write_text(json.dumps({"key": path.stem, "digest": "", "counts": [[1]]})),
        lambda path: path.write_text("[" * 100_000),
        lambda path: (path.unlink(), path.mkdir()),
    ],
    ids=["no JSON", "bytes", "cut", "other numbers", "wrong digest", "deep", "a folder"],
)
def test_damaged_counts_are_counted_again(table, cache, damage):
    first = counted(table, "n = 2")
    (kept,) = cache.iterdir()
    damage(kept)
    assert counted(table, "n = 2") == first


def test_counts_of_another_version_or_filter_are_not_taken(tmp_path, cache):
    root = str(tmp_path / "table")
    write_deltalake(root, pa.table({"i": [1, 2, 3, 4, 5]}))
    assert counted(root, [("i", "in", [2, 4])]) == [2]
    write_deltalake(root, pa.table({"i": [2, 3, 4, 9, 1]}), mode="overwrite")
    assert counted(root, [("i", "in", [2, 9])]) == [2]
    assert counted(root, [("i", "in", [2, 4, 9])]) == [3]
    assert len(list(cache.iterdir())) == 3


def test_a_cache_that_cannot_be_written_does_no_harm(table, tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert sum(counted(table, "n = 2")) == len(oracle(table, "n = 2"))


def test_only_the_newest_counts_are_kept(table, cache, monkeypatch):
    monkeypatch.setattr("pyloader_delta.delta.filters.cache._MAX_FILES", 2)
    for value in range(4):
        counted(table, f"n = {value}")
    assert len(list(cache.iterdir())) == 2


def test_without_o_tmpfile_counts_are_kept_as_well(table, cache, monkeypatch):
    monkeypatch.delattr("os.O_TMPFILE")
    counted(table, "n = 2")
    assert [path.suffix for path in cache.iterdir()] == [".json"]


# The loader ---------------------------------------------------------------------------------------------------------


class Numbers(Dataset):
    input_format = "arrow"

    def batch_encode(self, batch):
        return {"i": batch.column("i")}


def delivered(root: str, executor: dict, **options: object) -> list[int]:
    with DataLoader(DeltaDataReader(16, **options), Numbers(), NumpyDataCollator(), root, **executor) as loader:
        found = [value for batch in loader for value in batch["i"].tolist()]
        if options.get("exact_length", True):
            assert len(loader) == -(-len(found) // 16)
        else:
            with pytest.raises(TypeError, match="exact_length"):
                len(loader)
    return sorted(found)


@pytest.mark.parametrize("exact_length", [True, False])
@pytest.mark.parametrize("shuffle", [True, False])
def test_a_loader_delivers_exactly_the_rows_kept(table, executor, exact_length, shuffle):
    options = {"filter": "n = 2 OR s LIKE 'text 1%'", "exact_length": exact_length, "shuffle": shuffle}
    assert delivered(table, executor, **options) == oracle(table, options["filter"])


def test_an_expression_travels_to_workers(table, executor):
    found = delivered(table, executor, filter=pc.starts_with(pc.field("s"), "text 1"))
    assert found == oracle(table, "s LIKE 'text 1%'")


def test_a_filter_that_leaves_nothing_gives_no_batch_and_one_warning(table, executor):
    with pytest.warns(UserWarning, match="no rows"):
        assert delivered(table, executor, filter="i < 0") == []


# Settings -----------------------------------------------------------------------------------------------------------


class Filtered(DeltaDataReader):
    filter = "i < 5"


def test_a_filter_may_be_a_class_attribute_and_a_pickled_reader_keeps_it(table):
    reader = Filtered(columns=WITHOUT_NAN)
    chunks = reader.chunks(table)
    expected = gather(reader, chunks)
    assert expected.num_rows == 5
    assert gather(pickle.loads(pickle.dumps(reader)), chunks).equals(expected)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"filter": "I ="}, "at its end"),
        ({"filter": "nope = 1"}, r"at character 1 \('nope'\): there is no column 'nope'"),
        ({"filter": 5}, "filter must be a pyarrow expression"),
        ({"filter": []}, "empty list"),
        ({"filter": pc.field("nope") == 1}, "filter names 'nope'"),
        ({"filter": pc.field("i")}, "it is no predicate"),
        ({"filter": "i < 5", "exact_length": "no"}, "exact_length of DeltaDataReader must be True or False"),
    ],
)
def test_a_wrong_filter_is_refused_before_anything_is_read(table, options, text):
    with pytest.raises(ConfigError, match=text):
        DeltaDataReader(**options).chunks(table)


def test_a_filtered_chunk_needs_the_readers_filter(table):
    chunk = DeltaDataReader(filter="n = 2").chunks(table)[0]
    other = DeltaDataReader()
    other.chunks(table)
    with pytest.raises(ConfigError, match="listed by a reader with a filter"):
        other.read_chunk(chunk)
