"""`ParquetDataReader`: a folder of plain Parquet files, its hive partitions, and what it refuses."""

import datetime
import pickle

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.fs
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

from pyloader_delta import (
    ConfigError,
    DataLoader,
    Dataset,
    NumpyDataCollator,
    ParquetDataReader,
    ReadError,
    TableError,
)


def write(folder, name, table, **options):
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table if isinstance(table, pa.Table) else pa.table(table), path, **options)


def read(root, **options):
    reader = ParquetDataReader(**options)
    chunks = reader.chunks(str(root))
    tables = [reader.read_chunk(chunk) for chunk in chunks]
    assert [table.num_rows for table in tables] == [chunk.n_rows for chunk in chunks]
    assert all(table.schema.equals(reader.schema, check_metadata=True) for table in tables)
    reader.close()
    return pa.concat_tables([reader.schema.empty_table(), *tables])


def test_rows_are_those_of_pyarrow_in_path_order(tmp_path):
    for i, name in enumerate(["b/2.parquet", "a/1.parquet", "3.parquet"]):
        write(tmp_path, name, {"x": list(range(i * 10, i * 10 + 10)), "s": [str(i)] * 10}, row_group_size=3)
    (tmp_path / "_SUCCESS").touch()
    (tmp_path / ".hidden.parquet").touch()
    found = read(tmp_path)
    assert found.column("x").to_pylist() == [*range(20, 30), *range(10, 20), *range(10)]
    assert found.sort_by("x").equals(ds.dataset(tmp_path, exclude_invalid_files=True).to_table().sort_by("x"))


def test_a_chunk_is_a_row_group_and_can_be_read_by_a_copy(tmp_path):
    write(tmp_path, "f.parquet", {"x": list(range(10))}, row_group_size=4)
    reader = ParquetDataReader()
    chunks = reader.chunks(tmp_path)
    assert [chunk.rows for chunk in chunks] == [range(4), range(4, 8), range(8, 10)]
    copy = pickle.loads(pickle.dumps(reader))
    assert copy.read_chunk(chunks[1]).column("x").to_pylist() == [4, 5, 6, 7]
    copy.close()


def test_hive_partitions_are_columns_behind_those_of_the_files(tmp_path):
    write(tmp_path, "day=2024-01-01/n=01/f.parquet", {"x": [1]})
    write(tmp_path, "day=a%20b%2Fc/n=2/f.parquet", {"x": [2]})
    write(tmp_path, "day=__HIVE_DEFAULT_PARTITION__/n=__HIVE_DEFAULT_PARTITION__/f.parquet", {"x": [3]})
    found = read(tmp_path)
    assert found.schema == pa.schema({"x": pa.int64(), "day": pa.string(), "n": pa.int64()})
    assert sorted(map(tuple, (row.values() for row in found.to_pylist()))) == [
        (1, "2024-01-01", 1),
        (2, "a b/c", 2),
        (3, None, None),
    ]


def test_a_partition_column_may_begin_with_an_underscore(tmp_path):
    write(tmp_path, "_day=1/f.parquet", {"x": [1]})
    write(tmp_path, "_temporary/f.parquet", {"x": [2]})
    assert read(tmp_path).to_pylist() == [{"x": 1, "_day": 1}]


@pytest.mark.parametrize(
    "make",
    [lambda: pytest.importorskip("fsspec").filesystem("memory"), pyarrow.fs.LocalFileSystem],
    ids=["fsspec", "pyarrow"],
)
def test_folders_in_any_filesystem_are_read(tmp_path, make):
    filesystem = make()
    root = str(tmp_path / "folder")
    for n in range(2):
        write(tmp_path, f"folder/n={n}/f.parquet", {"x": list(range(10))}, row_group_size=4)
    write(tmp_path, "folder/_hidden/f.parquet", {"x": [99]})
    if not isinstance(filesystem, pyarrow.fs.FileSystem):
        filesystem.put(root, root, recursive=True)
    expected = read(root, filter="n = 1 AND x > 2")
    assert read(root, filter="n = 1 AND x > 2", filesystem=filesystem).equals(expected)
    with pytest.raises(ConfigError, match="does not exist or is empty"):
        read(root + "2", filesystem=filesystem)
    write_deltalake(root, pa.table({"x": [1]}))
    if not isinstance(filesystem, pyarrow.fs.FileSystem):
        filesystem.put(root, root, recursive=True)
    with pytest.raises(TableError, match="is a Delta table"):
        read(root, filesystem=filesystem)


def test_types_of_partitions_may_be_given(tmp_path):
    write(tmp_path, "day=2024-01-01/f.parquet", {"x": [1]})
    found = read(tmp_path, partition_types={"day": pa.date32()}, filter="day >= DATE '2024-01-01'")
    assert found.to_pylist() == [{"x": 1, "day": datetime.date(2024, 1, 1)}]


def test_a_partition_column_that_files_hold_too_is_the_folders(tmp_path):
    write(tmp_path, "n=7/f.parquet", {"n": [1, 2], "x": [3, 4]})
    assert read(tmp_path).to_pylist() == [{"x": 3, "n": 7}, {"x": 4, "n": 7}]


def test_filters_leave_files_and_row_groups_unread(tmp_path):
    for n in range(4):
        write(tmp_path, f"n={n}/f.parquet", {"x": list(range(12)), "y": [i % 3 for i in range(12)]}, row_group_size=4)
    (tmp_path / "n=0" / "f.parquet").write_bytes((tmp_path / "n=0" / "f.parquet").read_bytes())
    reader = ParquetDataReader(filter="n > 1 AND x >= 4 AND y = 0", columns=["x"])
    chunks = reader.chunks(tmp_path)
    assert [chunk.n_rows for chunk in chunks] == [1, 1, 1, 1]
    assert [reader.read_chunk(chunk).column("x")[0].as_py() for chunk in chunks] == [6, 9, 6, 9]
    explained = reader.explain()
    assert explained.pruned["partition values"].n_files == 2
    assert explained.pruned["row group statistics"].n_row_groups == 2
    reader.close()


@pytest.mark.parametrize(
    ("first", "second", "kind"),
    [
        (pa.array([1], pa.int32()), pa.array([2], pa.int64()), pa.int64()),
        (pa.array([1], pa.uint8()), pa.array([2], pa.int16()), pa.int16()),
        (pa.array([1.5], pa.float64()), pa.array([2.5], pa.float32()), pa.float64()),
        (pa.array([None]), pa.array(["x"]), pa.string()),
        (pa.array(["x"]).dictionary_encode(), pa.array(["y"]), pa.string()),
        (pa.array([1], pa.int8()), pa.array([2.5], pa.float64()), pa.float64()),
    ],
)
@pytest.mark.parametrize("swap", [False, True])
def test_where_types_differ_the_wider_one_is_read(tmp_path, first, second, kind, swap):
    arrays = [second, first] if swap else [first, second]
    for i, array in enumerate(arrays):
        write(tmp_path, f"{i}.parquet", {"x": array})
    found = read(tmp_path)
    assert found.schema == pa.schema({"x": kind})
    assert found.column("x").to_pylist() == [array[0].as_py() for array in arrays]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (pa.array([1]), pa.array(["x"])),
        (pa.array([1], pa.int8()), pa.array([1], pa.uint8())),
        (pa.array([1], pa.timestamp("us")), pa.array([1], pa.timestamp("ns"))),
        (pa.array([[1]]), pa.array([1])),
    ],
)
def test_types_that_differ_without_a_wider_one_are_refused_where_selected(tmp_path, first, second):
    write(tmp_path, "a.parquet", {"x": first, "y": [1]})
    write(tmp_path, "b.parquet", {"x": second, "y": [2]})
    with pytest.raises(
        TableError, match=r"'x' is .* in .*a\.parquet, but .* in .*b\.parquet.*leave it out by columns="
    ):
        read(tmp_path)
    assert read(tmp_path, columns=["y"]).column("y").to_pylist() == [1, 2]


class Lenient(ParquetDataReader):
    missing_as_none = True


def test_a_missing_column_is_refused_where_selected_or_read_as_null(tmp_path):
    write(tmp_path, "a.parquet", {"x": [1], "y": [1]})
    write(tmp_path, "b.parquet", {"y": [2], "z": [5]})
    with pytest.raises(TableError, match=r"b\.parquet has no column 'x', but .*a\.parquet has; set missing_as_none"):
        read(tmp_path)
    assert read(tmp_path, columns=["y"]).num_rows == 2
    with pytest.raises(TableError, match="has no column 'z'"):
        read(tmp_path, columns=["y"], filter="z = 5")
    reader = Lenient()
    rows = [row for chunk in reader.chunks(tmp_path) for row in reader.read_chunk(chunk).to_pylist()]
    reader.close()
    assert rows == [{"x": 1, "y": 1, "z": None}, {"x": None, "y": 2, "z": 5}]


def test_a_delta_table_is_refused_with_advice(tmp_path):
    write_deltalake(str(tmp_path / "table"), pa.table({"x": [1]}))
    for root in (tmp_path, tmp_path / "table"):
        with pytest.raises(TableError, match="is a Delta table: read it with DeltaDataReader"):
            read(root)


def test_folders_that_disagree_on_partitions_are_refused(tmp_path):
    write(tmp_path, "n=1/f.parquet", {"x": [1]})
    write(tmp_path, "g.parquet", {"x": [1]})
    with pytest.raises(TableError, match=r"f\.parquet has partition columns \['n'\], but .*g\.parquet has \[\]"):
        read(tmp_path)


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"columns": ["nope"]}, ConfigError, "columns names 'nope'"),
        ({"partition_types": {"nope": pa.int8()}}, ConfigError, "partition_types names 'nope'"),
        ({"partition_types": {"n": int}}, ConfigError, "partition_types must be a dict of Arrow types"),
        ({"partition_types": {"n": pa.date32()}}, TableError, "has the value '1'"),
        ({"filter": "n ="}, ConfigError, "at its end"),
    ],
)
def test_wrong_settings_are_refused(tmp_path, options, error, text):
    write(tmp_path, "n=1/f.parquet", {"x": [1]})
    with pytest.raises(error, match=text):
        read(tmp_path, **options)


def test_a_file_that_is_no_parquet_or_is_gone_is_named(tmp_path):
    write(tmp_path, "f.parquet", {"x": [1]})
    reader = ParquetDataReader()
    (chunk,) = reader.chunks(tmp_path)
    (tmp_path / "f.parquet").unlink()
    with pytest.raises(ReadError, match=r"f\.parquet is missing; it was there when the files were listed"):
        reader.read_chunk(chunk)
    (tmp_path / "notes.txt").write_text("no Parquet")
    with pytest.raises(ReadError, match=r"cannot read .*notes\.txt: "):
        reader.chunks(tmp_path)
    with pytest.raises(ConfigError, match="row groups, not whole files"):
        reader.read_file("f.parquet")


@pytest.mark.parametrize("make", [lambda root: root.mkdir(), lambda root: None])
def test_an_empty_or_missing_folder_is_refused(tmp_path, make):
    make(tmp_path / "folder")
    with pytest.raises(ConfigError, match="root_dir"):
        read(tmp_path / "folder")


class Numbers(Dataset):
    input_format = "arrow"

    def batch_encode(self, batch):
        return {"x": batch.column("x")}


def test_a_loader_delivers_each_row_once(tmp_path, executor):
    for n in range(3):
        write(tmp_path, f"n={n}/f.parquet", {"x": list(range(n * 100, n * 100 + 100))}, row_group_size=30)
    reader = ParquetDataReader(16, shuffle=True)
    with DataLoader(reader, Numbers(), NumpyDataCollator(), str(tmp_path), **executor) as loader:
        assert sorted(value for batch in loader for value in batch["x"].tolist()) == list(range(300))
        assert len(loader) == 19
        assert loader.snapshot is None
