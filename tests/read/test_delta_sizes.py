"""What a chunk of a Delta table takes in memory, estimated from footers and a sample."""

import decimal
import json
import os

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Schema, WriterProperties, write_deltalake
from vectors import delete_rows

from pyloader_delta.read.delta import DeltaDataReader


def sizes(root: object, **options: object) -> int:
    return sum(chunk.size_bytes for chunk in DeltaDataReader(**options).chunks(str(root)))


def test_fixed_widths_are_rows_times_width(tmp_path):
    n = 1000
    table = pa.table(
        {
            "a": pa.array(range(n), pa.int64()),
            "b": pa.array([i % 2 == 0 for i in range(n)]),
            "c": pa.array([None] * n, pa.float32()),
            "d": pa.array([decimal.Decimal(i) for i in range(n)], pa.decimal128(9, 0)),
            "s": pa.array([{"x": i, "y": 7} for i in range(n)], pa.struct({"x": pa.int16(), "y": pa.int8()})),
        }
    )
    write_deltalake(str(tmp_path / "t"), table)
    assert sizes(tmp_path / "t") == n * 8 + n // 8 + n * 4 + n * 16 + n * 3
    assert sizes(tmp_path / "t", columns=["a"]) == n * 8


def test_lists_are_values_times_width_and_offsets(tmp_path):
    table = pa.table({"l": pa.array([list(range(i % 4)) or [0] for i in range(400)], pa.list_(pa.int32()))})
    write_deltalake(str(tmp_path / "t"), table)
    assert sizes(tmp_path / "t") == 4 * 400 + 4 * (100 * (1 + 1 + 2 + 3))


@pytest.mark.parametrize("kind", [pa.string(), pa.binary()])
def test_texts_that_the_file_keeps_as_a_dictionary_are_sized_as_decoded(tmp_path, kind):
    table = pa.table({"s": pa.array(["x" * 1000, "y" * 1000, None, "z" * 1000] * 2500, pa.string()).cast(kind)})
    write_deltalake(str(tmp_path / "t"), table)
    assert sizes(tmp_path / "t") == 10000 * 750 + 4 * 10000


def test_texts_longer_than_the_sample_are_sized_by_the_footer(tmp_path):
    table = pa.table({"s": ["x"] * 2000 + [os.urandom(50000).hex()]})
    write_deltalake(str(tmp_path / "t"), table)
    assert sizes(tmp_path / "t") > 100_000


@pytest.mark.parametrize("column", ["list", "map", "struct"])
def test_nested_texts_are_sized_as_decoded(tmp_path, column):
    text = "x" * 500
    kinds = {
        "list": pa.array([[text, text], None, [], [text]] * 1000),
        "map": pa.array([[(text, text)], None, []] * 1000, pa.map_(pa.string(), pa.string())),
        "struct": pa.array([{"a": [{"b": text}]}, None] * 1000),
    }
    table = pa.table({"x": kinds[column]})
    write_deltalake(str(tmp_path / "t"), table)
    assert 0.9 * table.nbytes < sizes(tmp_path / "t") < 1.2 * table.nbytes


def test_partition_columns_and_columns_of_nulls_count_too(tmp_path):
    root = str(tmp_path / "t")
    write_deltalake(root, pa.table({"x": pa.array([1] * 100, pa.int64()), "p": ["abcdef"] * 100}), partition_by=["p"])
    assert sizes(root) == 100 * (8 + 6 + 4)
    later = pa.schema({"y": pa.string(), "z": pa.int16()})
    DeltaTable(root).alter.add_columns(Schema.from_arrow(later).fields)
    assert sizes(root) == 100 * (8 + 6 + 4 + 4 + 2)


def test_texts_that_the_first_file_lacks_are_sampled_from_the_next(tmp_path):
    root = str(tmp_path / "t")
    write_deltalake(root, pa.table({"x": [1]}))
    later = pa.table({"x": [2] * 1000, "s": ["x" * 1000] * 1000})
    write_deltalake(root, later, mode="append", schema_mode="merge")
    assert sizes(root, columns=["s"]) == 4 + 1000 * (1000 + 4)


LONG = [os.urandom(512).hex() for _ in range(20)]  # of 1,024 characters each


def test_few_long_texts_that_a_file_keeps_once_are_sized_as_decoded(tmp_path):
    root, n = str(tmp_path / "t"), 31_250
    write_deltalake(root, pa.table({"s": [LONG[i * 7 % 20] for i in range(n)]}))
    assert os.path.getsize(DeltaTable(root).file_uris()[0]) < 200_000
    reader = DeltaDataReader()
    (chunk,) = reader.chunks(root)
    decoded = reader.read_chunk(chunk)
    assert decoded.nbytes > 32_000_000
    assert chunk.size_bytes == pytest.approx(decoded.nbytes, rel=0.01)
    reader.close()


def test_deleted_rows_take_nothing(tmp_path):
    root, n = str(tmp_path / "t"), 10_000
    small = WriterProperties(max_row_group_size=4_000, write_batch_size=1)
    write_deltalake(root, pa.table({"x": range(n), "s": [LONG[i % 20] for i in range(n)]}), writer_properties=small)
    (file,) = (os.path.basename(uri) for uri in DeltaTable(root).file_uris())
    delete_rows(root, {file: [*range(3_000), *range(4_000, 8_000)]})
    reader = DeltaDataReader()
    chunks = reader.chunks(root)
    assert [chunk.n_rows for chunk in chunks] == [1_000, 2_000]
    for chunk in chunks:
        assert chunk.size_bytes == pytest.approx(reader.read_chunk(chunk).nbytes, rel=0.02)
    reader.close()


def test_mapped_columns_are_sized_by_their_own_leaves(tmp_path):
    root = str(tmp_path / "t")
    inner = pa.struct({"n": pa.int64(), "t": pa.string()})
    table = pa.table({"l": pa.array([[{"n": 1, "t": "x" * 500}] * 3] * 1000, pa.list_(inner)), "x": range(1000)})
    write_deltalake(root, table)
    plain = sizes(root)
    assert plain == pytest.approx(table.nbytes, rel=0.05)
    commit = tmp_path / "t" / "_delta_log" / f"{0:020d}.json"
    actions = [json.loads(line) for line in commit.read_text().splitlines()]
    for metadata in (action["metaData"] for action in actions if "metaData" in action):
        schema = json.loads(metadata["schemaString"])
        for field in (*schema["fields"], *schema["fields"][0]["type"]["elementType"]["fields"]):
            field["metadata"] = {"delta.columnMapping.physicalName": field["name"]}
            field["name"] = f"new {field['name']}"
        metadata["schemaString"] = json.dumps(schema)
        metadata["configuration"] = {"delta.columnMapping.mode": "name"}
    commit.write_text("".join(f"{json.dumps(action)}\n" for action in actions))
    assert sizes(root) == plain
    assert sizes(root, columns=["new x"]) == 8_000


def test_texts_that_grow_over_the_table_are_measured_in_several_places(tmp_path):
    root = str(tmp_path / "t")
    for i in range(8):
        write_deltalake(root, pa.table({"s": ["x" * (1 + 100 * i)] * 1000}), mode="append")
    decoded = sum(1000 * (4 + 1 + 100 * i) for i in range(8))
    assert 0.6 * decoded < sizes(root) < 1.5 * decoded
