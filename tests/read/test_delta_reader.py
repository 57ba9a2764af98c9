"""`DeltaDataReader`: chunks of one pinned version, and their rows."""

import copy
import datetime as dt
import decimal
import json
import os
from dataclasses import replace
from pathlib import Path

import cloudpickle
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, QueryBuilder, WriterProperties, write_deltalake
from programs import python
from reading import gather, in_parts, read
from writing import number_table

from pyloader_delta.errors import ConfigError, ReadError, TableError
from pyloader_delta.read.delta import DeltaDataReader

EVERY_TYPE = pa.table(
    {
        "byte": pa.array([1, None, -128], pa.int8()),
        "short": pa.array([1, None, -32768], pa.int16()),
        "integer": pa.array([1, None, -(1 << 31)], pa.int32()),
        "long": pa.array([1, None, (1 << 63) - 1], pa.int64()),
        "float": pa.array([1.5, None, float("inf")], pa.float32()),
        "double": pa.array([1.5, None, float("-inf")], pa.float64()),
        "decimal": pa.array([decimal.Decimal("1.50"), None, decimal.Decimal("-99.99")], pa.decimal128(4, 2)),
        "wide": pa.array([decimal.Decimal(10**37), None, decimal.Decimal(0)], pa.decimal128(38, 0)),
        "string": pa.array(["é", None, ""]),
        "binary": pa.array([b"\x00\xff", None, b""]),
        "boolean": pa.array([True, None, False]),
        "date": pa.array([dt.date(1, 1, 1), None, dt.date(9999, 12, 31)]),
        "timestamp": pa.array([dt.datetime(1969, 12, 31), None, dt.datetime(9999, 12, 31)], pa.timestamp("us", "UTC")),
        "array": pa.array([[1, None], None, []], pa.list_(pa.int32())),
        "struct": pa.array([{"a": 1, "b": ["x"]}, None, {"a": None, "b": None}]),
        "array of struct": pa.array([[{"a": 1}, None], None, []], pa.list_(pa.struct({"a": pa.int64()}))),
        "map": pa.array([[("k", 1), ("l", None)], None, []], pa.map_(pa.string(), pa.int64())),
    }
)


def oracle(root: object, by: str, version: int | None = None) -> list[dict]:
    """Return the rows of the table as deltalake's own engine has them, sorted."""
    table = DeltaTable(str(root), version=version)
    rows = pa.table(QueryBuilder().register("t", table).execute(f'select * from t order by "{by}"').read_all())
    return rows.to_pylist()


def rows(table: pa.Table, by: str) -> list[dict]:
    return table.sort_by(by).to_pylist()


@pytest.fixture
def numbers(tmp_path: Path) -> str:
    """A table of 10 rows in two files, row groups of 4 and 3 rows in the first, 3 in the second."""
    root = str(tmp_path / "numbers")
    small = WriterProperties(max_row_group_size=4, write_batch_size=1)
    first = pa.table({"x": list(range(7)), "name": [str(i) for i in range(7)]})
    write_deltalake(root, first, writer_properties=small)
    write_deltalake(root, pa.table({"x": [7, 8, 9], "name": ["7", None, "9"]}), mode="append")
    return root


# What is read --------------------------------------------------------------------------------------------------------


def test_every_type_is_read_as_deltalake_wrote_it(tmp_path):
    write_deltalake(str(tmp_path / "t"), EVERY_TYPE)
    table = read(tmp_path / "t")
    assert table.equals(EVERY_TYPE)
    assert rows(table, "long") == oracle(tmp_path / "t", "long")


def test_timestamps_without_a_zone_keep_none(tmp_path):
    table = pa.table({"t": pa.array([dt.datetime(2020, 1, 1), None], pa.timestamp("us"))})
    write_deltalake(str(tmp_path / "t"), table)
    assert read(tmp_path / "t").equals(table)


PARTITION_VALUES = {
    "string": ["a b", "a%20b", "a/b", "a=b&c?d#e", "é:+'\"\\", "..", "NULL", "__HIVE_DEFAULT_PARTITION__ ", None],
    "int32": [1, -(1 << 31), None],
    "date": [dt.date(1, 1, 1), dt.date(9999, 12, 31), None],
    "timestamp": [dt.datetime(1969, 12, 31, 23, 59, 59, 999999, dt.UTC), dt.datetime(2020, 1, 1, tzinfo=dt.UTC), None],
    "decimal": [decimal.Decimal("1.50"), decimal.Decimal("0.00"), None],
    "bool": [True, False, None],
    "double": [1.5, -0.25, 1e30, float("inf"), None],
    "binary": [b"\x00\xff", b"abc", None],
}


@pytest.mark.parametrize("kind", PARTITION_VALUES)
def test_partition_values_come_back_as_they_were_written(tmp_path, kind):
    values = PARTITION_VALUES[kind]
    table = pa.table({"x": list(range(len(values))), "p": values})
    if kind == "timestamp":
        table = table.set_column(1, "p", table["p"].cast(pa.timestamp("us", "UTC")))
    if kind == "int32":
        table = table.set_column(1, "p", table["p"].cast(pa.int32()))
    write_deltalake(str(tmp_path / "t"), table, partition_by=["p"])
    found = read(tmp_path / "t")
    assert found.schema.field("p").type == table.schema.field("p").type
    assert rows(found, "x") == table.to_pylist()
    assert rows(read(tmp_path / "t", columns=["p"]), "p") == rows(table.select(["p"]), "p")


def test_a_column_added_later_is_null_in_older_files(tmp_path):
    root = str(tmp_path / "t")
    write_deltalake(root, pa.table({"x": [1], "s": [{"a": 1}]}))
    write_deltalake(
        root, pa.table({"x": [2], "s": [{"a": 2, "b": "b"}], "y": ["y"]}), mode="append", schema_mode="merge"
    )
    assert rows(read(root), "x") == [
        {"x": 1, "s": {"a": 1, "b": None}, "y": None},
        {"x": 2, "s": {"a": 2, "b": "b"}, "y": "y"},
    ]


def test_each_version_is_read_as_it_was(tmp_path):
    root = str(tmp_path / "t")
    kept = {"delta.deletedFileRetentionDuration": "interval 30 days"}
    write_deltalake(root, pa.table({"x": [1, 2], "p": ["a", "b"]}), partition_by=["p"], configuration=kept)
    write_deltalake(root, pa.table({"x": [3], "p": ["a"]}), mode="append")
    DeltaTable(root).delete("x = 1")
    DeltaTable(root).create_checkpoint()
    DeltaTable(root).optimize.compact()
    write_deltalake(root, pa.table({"x": [9], "p": ["b"]}), mode="overwrite", predicate="p = 'b'")
    for version in range(DeltaTable(root).version() + 1):
        assert rows(read(root, version=version), "x") == oracle(root, "x", version)
    assert rows(read(root), "x") == oracle(root, "x")


def test_an_empty_table_has_a_schema_and_no_chunks(tmp_path):
    DeltaTable.create(str(tmp_path / "t"), pa.schema({"x": pa.int64()}))
    reader = DeltaDataReader()
    assert reader.chunks(str(tmp_path / "t")) == []
    assert reader.schema == pa.schema({"x": pa.int64()})


def test_a_table_whose_rows_are_all_deleted_has_no_chunks(numbers):
    DeltaTable(numbers).delete()
    assert DeltaDataReader().chunks(numbers) == []


# Chunks --------------------------------------------------------------------------------------------------------------


def test_there_is_one_chunk_a_row_group_in_the_order_of_the_files(numbers):
    chunks = DeltaDataReader().chunks(numbers)
    assert [(c.rows, c.row_group, c.row_group_rows, c.version) for c in chunks] == [
        (range(4), 0, range(4), 1),
        (range(4, 7), 1, range(4, 7), 1),
        (range(3), 0, range(3), 1),
    ]
    assert chunks[0].path == chunks[1].path != chunks[2].path
    assert read(numbers)["x"].to_pylist() == list(range(10))


def test_row_groups_without_rows_give_no_chunk(numbers):
    path = DeltaDataReader().chunks(numbers)[2].path
    table = pq.read_table(path)
    with pq.ParquetWriter(path, table.schema) as writer:
        for part in (table.slice(0, 0), table.slice(0, 1), table.slice(0, 0), table.slice(1)):
            writer.write_table(part)
    state_size(numbers, path)
    assert pq.ParquetFile(path).num_row_groups == 4
    reader = DeltaDataReader()
    chunks = reader.chunks(numbers)
    assert [(c.row_group, c.rows) for c in chunks if c.path == path] == [(1, range(1)), (3, range(1, 3))]
    assert gather(reader, chunks)["x"].to_pylist() == list(range(10))


@pytest.mark.parametrize("n_rows", [1, 2, 3])
def test_parts_of_a_row_group_are_read_in_order_and_out_of_order(numbers, n_rows):
    reader = DeltaDataReader()
    parts = in_parts(reader.chunks(numbers), n_rows)
    assert gather(reader, parts)["x"].to_pylist() == list(range(10))
    assert gather(reader, parts[::-1]).sort_by("x")["x"].to_pylist() == list(range(10))
    assert gather(reader, parts[::2] + parts[1::2]).sort_by("x")["x"].to_pylist() == list(range(10))
    assert gather(reader, [parts[-1]] * 3).num_rows == 3 * parts[-1].n_rows


def test_parts_of_more_row_groups_than_there_are_cursors_interleave(tmp_path):
    root = number_table(tmp_path / "t", [3000] * 10)
    reader = DeltaDataReader()
    parts = in_parts(reader.chunks(root), 1000)
    interleaved = [part for start in range(3) for part in parts[start::3]]
    assert gather(reader, interleaved).sort_by("x")["x"].to_pylist() == list(range(30000))


def test_open_files_and_cursors_are_few_and_close_closes_them(tmp_path):
    root = number_table(tmp_path / "t", [2] * 12)
    reader = DeltaDataReader()
    for part in in_parts(reader.chunks(root), 1)[::2]:
        reader.read_chunk(part)
    maps = Path("/proc/self/maps")
    if maps.exists():
        assert maps.read_text().count(f"{root}/") <= 8 + 4
        reader.close()
        assert maps.read_text().count(f"{root}/") == 0
    reader.close()


def test_after_close_reading_goes_on(numbers):
    reader = DeltaDataReader()
    parts = in_parts(reader.chunks(numbers), 2)
    first = reader.read_chunk(parts[0])
    reader.close()
    assert pa.concat_tables([first, reader.read_chunk(parts[1])])["x"].to_pylist() == [0, 1, 2, 3]
    reader.close()


# Settings ------------------------------------------------------------------------------------------------------------


def test_columns_are_read_in_the_order_given(numbers):
    table = read(numbers, columns=["name", "x"])
    assert table.schema == pa.schema({"name": pa.string(), "x": pa.int64()})
    assert read(numbers, columns=("name",)).column_names == ["name"]


def test_columns_of_several_leaves_are_read_in_the_order_given(tmp_path):
    write_deltalake(tmp_path, EVERY_TYPE)
    stored = read(tmp_path)
    for names in ([*EVERY_TYPE.column_names[::-1]], ["map", "byte", "array of struct", "date", "struct"]):
        assert read(tmp_path, columns=names).equals(stored.select(names))


def test_leaves_that_are_not_selected_are_not_read(numbers):
    path = DeltaDataReader().chunks(numbers)[2].path
    column = pq.ParquetFile(path).metadata.row_group(0).column(1)
    with open(path, "r+b") as file:
        file.seek(column.dictionary_page_offset)
        file.write(b"\xff" * column.total_compressed_size)
    assert read(numbers, columns=["x"])["x"].to_pylist() == list(range(10))
    with pytest.raises(ReadError):
        read(numbers, columns=["name"])


@pytest.mark.parametrize(
    ("columns", "text"),
    [
        (
            ["nmae"],
            "columns names 'nmae', which version 1 of .* does not have; did you mean 'name'\\? It has 'x', 'name'",
        ),
        (["X"], "did you mean 'x'"),
        (["quite other"], "does not have; It has"),
        (["x", "x"], "columns names 'x' twice"),
        ("name", "columns must be a list of names or None, got 'name'"),
        ([], "columns must be a list of names"),
        ([1], "columns must be a list of names"),
        ({"x"}, "columns must be a list of names"),
    ],
)
def test_wrong_columns_are_refused_before_anything_is_read(numbers, columns, text):
    with pytest.raises(ConfigError, match=text):
        DeltaDataReader(columns=columns).chunks(numbers)


@pytest.mark.parametrize("version", [-1, True, "1", 1.0])
def test_a_wrong_version_is_refused(numbers, version):
    with pytest.raises(ConfigError, match="version must be an int >= 0 or None"):
        DeltaDataReader(version=version).chunks(numbers)


@pytest.mark.parametrize("root", [None, 3, ["t"]])
def test_a_root_that_is_no_path_is_refused(root):
    with pytest.raises(ConfigError, match="root_dir must be the path or URI of a table or folder, got"):
        DeltaDataReader().chunks(root)


def test_a_path_object_names_a_table(numbers):
    assert DeltaDataReader().chunks(Path(numbers)) == DeltaDataReader().chunks(numbers)


def test_an_unknown_version_names_those_that_there_are(numbers):
    with pytest.raises(TableError, match=r"has no version 5; versions 0\.\.1 can be asked for"):
        DeltaDataReader(version=5).chunks(numbers)


class WithoutInit(DeltaDataReader):
    columns = ("x",)
    version = 0

    def __init__(self):
        pass


class LikePyLoader(DeltaDataReader):
    columns = ("x",)
    version = 0

    def __init__(self, batch_size, shuffle, random_seed):
        super().__init__(batch_size, shuffle=shuffle, random_seed=random_seed)


@pytest.mark.parametrize("make", [WithoutInit, lambda: LikePyLoader(4, True, 0)])
def test_settings_may_be_class_attributes(numbers, make):
    reader = make()
    assert gather(reader, reader.chunks(numbers)).to_pydict() == {"x": list(range(7))}


def test_arguments_beat_class_attributes(numbers):
    class Versioned(DeltaDataReader):
        version = 0

    reader = Versioned(8, True, 7, columns=["name"], version=1)
    assert (reader.batch_size, reader.shuffle, reader.random_seed) == (8, True, 7)
    assert gather(reader, reader.chunks(numbers)).num_rows == 10


def test_read_chunk_may_be_overridden(numbers):
    class Doubled(DeltaDataReader):
        def read_chunk(self, chunk):
            table = super().read_chunk(chunk)
            return table.append_column("twice", pa.array([2 * x for x in table["x"].to_pylist()]))

    reader = Doubled()
    assert reader.read_chunk(reader.chunks(numbers)[2])["twice"].to_pylist() == [14, 16, 18]
    reader.close()


def test_reading_single_files_is_refused_with_advice(numbers):
    with pytest.raises(ConfigError, match="use chunks"):
        DeltaDataReader().read_file("f.parquet")


def test_before_chunks_nothing_is_pinned(numbers):
    reader = DeltaDataReader()
    assert reader.snapshot is None
    chunk = DeltaDataReader().chunks(numbers)[0]
    with pytest.raises(ConfigError, match=r"call chunks\(root\) of DeltaDataReader first"):
        reader.read_chunk(chunk)
    with pytest.raises(ConfigError, match="first"):
        _ = reader.schema
    reader.close()


@pytest.mark.parametrize(
    "change", [{"row_group": None}, {"rows": None}, {"rows": range(3, 5)}, {"rows": range(0)}, {"rows": range(0, 4, 2)}]
)
def test_a_chunk_that_is_no_part_of_a_row_group_is_refused(numbers, change):
    reader = DeltaDataReader()
    chunk = reader.chunks(numbers)[0]
    with pytest.raises(ConfigError, match="take chunks from chunks"):
        reader.read_chunk(replace(chunk, **change))


def test_a_chunk_of_another_version_is_refused(numbers):
    reader = DeltaDataReader(version=0)
    reader.chunks(numbers)
    with pytest.raises(ConfigError, match="not of the pinned version 0"):
        reader.read_chunk(DeltaDataReader().chunks(numbers)[0])


# Pinning -------------------------------------------------------------------------------------------------------------


def append(root: str) -> None:
    write_deltalake(root, pa.table({"x": [99], "name": ["new"]}), mode="append")


def overwrite(root: str) -> None:
    write_deltalake(root, pa.table({"x": [99], "name": ["new"]}), mode="overwrite")


def delete(root: str) -> None:
    DeltaTable(root).delete("x < 8")


def optimize(root: str) -> None:
    DeltaTable(root).optimize.compact()


@pytest.mark.parametrize("change", [append, overwrite, delete, optimize])
def test_commits_after_pinning_change_nothing(numbers, change):
    reader = DeltaDataReader()
    chunks = reader.chunks(numbers)
    first = reader.read_chunk(chunks[0])
    before = DeltaTable(numbers).version()
    change(numbers)
    assert DeltaTable(numbers).version() > before
    assert reader.chunks(numbers) == chunks
    rest = gather(reader, chunks[1:])
    assert pa.concat_tables([first, rest])["x"].to_pylist() == list(range(10))
    assert reader.snapshot.version == before
    new = DeltaDataReader()
    assert rows(gather(new, new.chunks(numbers)), "x") == oracle(numbers, "x")
    assert new.snapshot.version == DeltaTable(numbers).version()


def test_another_version_or_table_is_another_pin(numbers, tmp_path):
    write_deltalake(str(tmp_path / "other"), pa.table({"y": [1]}))
    reader = DeltaDataReader()
    reader.chunks(numbers)
    reader.version = 0
    assert gather(reader, reader.chunks(numbers)).num_rows == 7
    assert gather(reader, reader.chunks(f"file://{numbers}")).num_rows == 7
    assert gather(reader, reader.chunks(str(tmp_path / "other"))).to_pydict() == {"y": [1]}


# Copies --------------------------------------------------------------------------------------------------------------


class OwnState(DeltaDataReader):
    def __init__(self, note):
        self.note = note

    def __getstate__(self):
        return dict(self.__dict__)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda reader: cloudpickle.loads(cloudpickle.dumps(reader))])
def test_a_copy_reads_the_same_version_and_begins_with_nothing_open(numbers, copied):
    reader = OwnState("mine")
    parts = in_parts(reader.chunks(numbers), 2)
    reader.read_chunk(parts[0])
    append(numbers)
    other = copied(reader)
    assert other.note == "mine"
    assert gather(other, parts[1:])["x"].to_pylist() == list(range(2, 10))
    assert other.schema == reader.schema
    assert other.snapshot == reader.snapshot
    assert other.chunks(numbers) == reader.chunks(numbers)
    reader.close()


def test_a_copy_is_small_whatever_the_number_of_files(tmp_path):
    root = str(tmp_path / "t")
    values = [str(i) for i in range(200)]
    write_deltalake(root, pa.table({"x": list(range(200)), "p": values}), partition_by=["p"])
    reader = DeltaDataReader()
    assert len(reader.chunks(root)) == 200
    assert len(cloudpickle.dumps(reader)) < 2000


def test_a_copy_reads_in_another_process(numbers, tmp_path):
    reader = DeltaDataReader(columns=["x"])
    work = tmp_path / "work"
    work.write_bytes(cloudpickle.dumps((reader, in_parts(reader.chunks(numbers), 3))))
    program = (
        "import sys, cloudpickle\n"
        "with open(sys.argv[1], 'rb') as work:\n"
        "    reader, chunks = cloudpickle.load(work)\n"
        "print([x for chunk in chunks for x in reader.read_chunk(chunk)['x'].to_pylist()])\n"
        "assert 'deltalake' not in sys.modules\n"
    )
    assert python("-c", program, work).stdout.strip() == str(list(range(10)))


def test_a_copy_notices_that_the_table_was_replaced(numbers, tmp_path):
    reader = DeltaDataReader()
    reader.chunks(numbers)
    other = copy.deepcopy(reader)
    os.rename(numbers, tmp_path / "old")
    for _ in range(2):
        write_deltalake(numbers, pa.table({"x": [1]}), mode="append")
    with pytest.raises(TableError, match="is now another table"):
        _ = other.snapshot


def state_size(table: str, path: object) -> None:
    """Have the log state the size that a file now has."""
    for commit in Path(table, "_delta_log").glob("*.json"):
        actions = [json.loads(line) for line in commit.read_text().splitlines()]
        for action in actions:
            if os.path.basename(path) == action.get("add", {}).get("path"):
                action["add"]["size"] = os.path.getsize(path)
        commit.write_text("".join(f"{json.dumps(action)}\n" for action in actions))


# Files that went wrong -----------------------------------------------------------------------------------------------


def test_a_file_missing_at_the_start_is_named(numbers):
    os.unlink(DeltaDataReader().chunks(numbers)[2].path)
    with pytest.raises(ReadError, match=r"\.parquet of version 1 is missing; was the table vacuumed\?"):
        DeltaDataReader().chunks(numbers)


def test_a_file_that_vanishes_later_is_named(numbers):
    reader = DeltaDataReader()
    chunks = reader.chunks(numbers)
    os.unlink(chunks[2].path)
    assert gather(reader, chunks[:2]).num_rows == 7
    with pytest.raises(ReadError, match=f"{chunks[2].path} of version 1 is missing") as raised:
        reader.read_chunk(chunks[2])
    assert isinstance(raised.value.__cause__, FileNotFoundError)


@pytest.mark.parametrize(
    "content", [b"", b"PAR1", b"nonsense" * 100, b"PAR1" + b"\xff" * 100 + b"\x10\x00\x00\x00PAR1"]
)
def test_a_corrupt_footer_is_named_at_the_start(numbers, content):
    path = Path(DeltaDataReader().chunks(numbers)[2].path)
    path.write_bytes(content)
    state_size(numbers, path)
    with pytest.raises(ReadError, match=f"cannot read {path} of version 1: "):
        DeltaDataReader().chunks(numbers)


@pytest.mark.parametrize("n_rows", [4, 1])
def test_a_corrupt_page_is_named_with_its_rows(numbers, n_rows):
    reader = DeltaDataReader()
    chunk = in_parts(reader.chunks(numbers), n_rows)[0]
    footer = pq.ParquetFile(chunk.path).metadata.row_group(0)
    with open(chunk.path, "r+b") as file:
        file.seek(4)
        file.write(b"\xff" * (footer.column(0).total_compressed_size))
    with pytest.raises(ReadError, match=rf"cannot read {chunk.path} rows 0\.\.{n_rows - 1} of version 1: "):
        reader.read_chunk(chunk)


def test_a_file_with_other_rows_than_the_log_says_is_refused(numbers):
    path = DeltaDataReader().chunks(numbers)[2].path
    pq.write_table(pq.read_table(path).slice(0, 2), path)
    with pytest.raises(ReadError, match=rf"{path} of version 1 has \d+ bytes, but the log says \d+"):
        DeltaDataReader().chunks(numbers)
    state_size(numbers, path)
    with pytest.raises(ReadError, match=f"{path} of version 1 has 2 rows, but the log says 3"):
        DeltaDataReader().chunks(numbers)


def test_a_file_replaced_while_it_is_read_is_refused(numbers):
    reader = DeltaDataReader()
    chunk = reader.chunks(numbers)[2]
    pq.write_table(pq.read_table(chunk.path).slice(0, 2), chunk.path)
    with pytest.raises(ReadError, match=rf"{chunk.path} of version 1 has \d+ bytes, but the log says"):
        reader.read_chunk(chunk)
    with pytest.raises(ReadError, match="was changed while it was being read"):
        reader.read_chunk(replace(chunk, file_bytes=None))


def test_a_file_with_another_type_than_the_table_is_refused_with_the_column(numbers):
    reader = DeltaDataReader()
    chunk = reader.chunks(numbers)[2]
    pq.write_table(pa.table({"x": ["7", "8", "9"], "name": ["7", None, "9"]}), chunk.path)
    with pytest.raises(ReadError, match=f"cannot read {chunk.path} .*column 'x' is stored as string, but"):
        reader.read_chunk(replace(chunk, file_bytes=None))


def test_a_folder_that_is_no_table_is_refused(tmp_path):
    with pytest.raises(TableError, match="is no Delta table"):
        DeltaDataReader().chunks(str(tmp_path))
