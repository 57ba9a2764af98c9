"""Deleted rows are gone, whatever pieces a table is read in; what contradicts the log is refused."""

import json
import os
from dataclasses import replace
from pathlib import Path
from unittest import mock

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, QueryBuilder, WriterProperties, write_deltalake
from fakes import NumpyThrough
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from reading import gather, in_parts, read
from vectors import delete_rows, protocol, write_vectors

from pyloader_delta import DataLoader, NumpyDataCollator
from pyloader_delta.delta.files import OpenFiles
from pyloader_delta.delta.footers import chunks_of, read_footers
from pyloader_delta.delta.parquet import DataParquet
from pyloader_delta.delta.schema import plain_fields
from pyloader_delta.delta.selection import Selection
from pyloader_delta.delta.store import Store
from pyloader_delta.errors import ReadError
from pyloader_delta.read.delta import DeltaDataReader
from pyloader_delta.values import DataFile, DeletionVector, Snapshot


@pytest.fixture
def twenty(tmp_path: Path) -> Path:
    """Two partitions of ten rows each, in row groups of three."""
    root = tmp_path / "twenty"
    small = WriterProperties(max_row_group_size=3, write_batch_size=1)
    for p in ("a b", "é%/="):
        table = pa.table({"x": range(10), "s": [f"{p}{i}" * 9 for i in range(10)], "p": [p] * 10})
        write_deltalake(str(root), table, mode="append", partition_by=["p"], writer_properties=small)
    return root


def files_of(root: Path) -> dict[str, str]:
    """Return partition value → file, as the log spells it."""
    adds = [
        action["add"]
        for commit in sorted((root / "_delta_log").glob("*.json"))
        for action in map(json.loads, commit.read_text().splitlines())
        if "add" in action
    ]
    return {add["partitionValues"]["p"]: add["path"] for add in adds}


DELETED = {"a b": [0, 1, 2, 4, 9], "é%/=": [3, 5, 8]}


@pytest.mark.parametrize(("kind", "folder"), [("i", ""), ("u", ""), ("u", "ab"), ("p", "")])
def test_deleted_rows_are_gone_whatever_the_pieces(twenty, kind, folder):
    paths = files_of(twenty)
    delete_rows(twenty, {paths[p]: rows for p, rows in DELETED.items()}, kind, folder)
    expected = {(p, i) for p, rows in DELETED.items() for i in set(range(10)) - set(rows)}
    reader = DeltaDataReader()
    chunks = reader.chunks(str(twenty))
    assert [len(chunk.rows) for chunk in chunks] == [2, 3, 3, 1, 2, 1]  # a row group without live rows gives none
    table = gather(reader, chunks)
    assert table.num_rows == 12
    assert {(row["p"], row["x"]) for row in table.to_pylist()} == expected
    assert all(row["s"] == f"{row['p']}{row['x']}" * 9 for row in table.to_pylist())
    for n_rows in (1, 2):
        parts = in_parts(chunks, n_rows)
        assert gather(reader, parts).equals(table)
        backwards = gather(reader, parts[::-1])
        assert sorted(map(str, backwards.to_pylist())) == sorted(map(str, table.to_pylist()))
    oracle = QueryBuilder().register("t", DeltaTable(str(twenty))).execute("select x, s, p from t order by p, x")
    assert (
        table.sort_by([("p", "ascending"), ("x", "ascending")]).to_pylist() == pa.table(oracle.read_all()).to_pylist()
    )


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.integers(0, 9), min_size=1, max_size=5),
    st.sets(st.integers(0, 45)),
    st.booleans(),
    st.lists(st.tuples(st.integers(0, 45), st.integers(1, 9)), max_size=12),
)
def test_any_rows_may_be_deleted_and_any_parts_read_in_any_order(tmp_path_factory, sizes, deleted, inline, parts):
    folder = tmp_path_factory.mktemp("t")
    n_rows = sum(sizes)
    gone = sorted(row for row in deleted if row < n_rows)
    x = pa.table({"x": range(n_rows), "s": [str(i) if i % 3 else None for i in range(n_rows)]})
    with pq.ParquetWriter(folder / "f", x.schema) as writer:
        for i, size in enumerate(sizes):
            writer.write_table(x.slice(sum(sizes[:i]), size))
    (vector,) = write_vectors(folder, {"f": gone}, "i" if inline else "u").values()
    described = DeletionVector(*(vector.get(name) for name in _DESCRIPTOR))
    file = DataFile(str(folder / "f"), 0, 0, n_rows - len(gone), (), described)
    fields = plain_fields(x.schema)
    snapshot = Snapshot(str(folder), "", 3, None, x.schema, fields, (), [file])
    store, selection = Store(str(folder)), Selection(fields)
    chunks = chunks_of(store, snapshot, [file], selection, read_footers(store, snapshot, [file], selection))
    left = x.filter(pa.array([row not in gone for row in range(n_rows)], pa.bool_()))
    assert [chunk.rows.start for chunk in chunks] == [0, *(chunk.rows.stop for chunk in chunks)][: len(chunks)]
    files = OpenFiles(store, selection)
    for chunk in chunks:
        assert files.read(chunk).equals(left.slice(chunk.rows.start, len(chunk.rows)))
    for start, size in parts:
        for chunk in chunks:
            if chunk.rows.start <= start < chunk.rows.stop:
                part = range(start, min(start + size, chunk.rows.stop))
                assert files.read(replace(chunk, rows=part)).equals(left.slice(part.start, len(part)))
    for chosen in (chunks, chunks[::2]):
        runs = files.together(chosen)
        assert [chunk for run in runs for chunk in run] == chosen
        for run in runs:
            parts_of_run = [left.slice(chunk.rows.start, len(chunk.rows)) for chunk in run]
            assert len(run) == 1 or files.read_together(run).equals(pa.concat_tables(parts_of_run))
    files.close()


@pytest.mark.parametrize(("texts", "deleted", "n_reads"), [(False, [], 1), (True, [], 3), (False, [13], 3)])
def test_row_groups_that_are_no_neighbours_are_read_together_where_that_is_cheaper(tmp_path, texts, deleted, n_reads):
    x = pa.table({"x": range(60)} | ({"s": [str(i) for i in range(60)]} if texts else {}))
    pq.write_table(x, tmp_path / "f", row_group_size=10)
    vectors = write_vectors(tmp_path, {"f": deleted}, "i") if deleted else {"f": None}
    described = None if not deleted else DeletionVector(*(vectors["f"].get(name) for name in _DESCRIPTOR))
    file, fields = DataFile(str(tmp_path / "f"), 0, 0, 60 - len(deleted), (), described), plain_fields(x.schema)
    snapshot = Snapshot(str(tmp_path), "", 3, None, x.schema, fields, (), [file])
    store, selection = Store(str(tmp_path)), Selection(fields)
    chunks = chunks_of(store, snapshot, [file], selection, read_footers(store, snapshot, [file], selection))[1::2]
    files, left = OpenFiles(store, selection), x.filter(pa.array([row not in deleted for row in range(60)]))
    runs = files.together(chunks)
    assert [chunk for run in runs for chunk in run] == chunks
    with mock.patch.object(DataParquet, "row_groups", autospec=True, side_effect=DataParquet.row_groups) as reads:
        for run in runs:
            found = files.read_together(run) if len(run) > 1 else files.read(run[0])
            assert found.equals(pa.concat_tables([left.slice(chunk.rows.start, len(chunk.rows)) for chunk in run]))
    assert reads.call_count == n_reads
    files.close()


_DESCRIPTOR = ("storageType", "pathOrInlineDv", "offset", "sizeInBytes", "cardinality")


def test_a_loader_delivers_the_rows_that_are_left_of_row_groups_larger_than_its_window(tmp_path):
    root, n_rows = str(tmp_path / "t"), 20_000
    writer = WriterProperties(max_row_group_size=15_000)
    write_deltalake(root, pa.table({"x": range(n_rows)}), writer_properties=writer)
    gone = range(0, n_rows, 3)
    delete_rows(root, {os.path.basename(DeltaTable(root).file_uris()[0]): gone})
    reader = DeltaDataReader(batch_size=100, shuffle=True)
    with DataLoader(
        reader,
        NumpyThrough(),
        NumpyDataCollator(),
        root,
        shuffle=True,
        num_workers=2,
        workers="thread",
        shuffle_window=3000,
    ) as loader:
        epochs = [np.concatenate([batch["x"] for batch in loader]) for _ in range(2)]
        assert len(loader) == -(-(n_rows - len(gone)) // 100)
    for rows in epochs:
        np.testing.assert_array_equal(np.sort(rows), np.setdiff1d(np.arange(n_rows), gone))
    assert not np.array_equal(*epochs)


@pytest.mark.filterwarnings("ignore:VACUUM may delete")
def test_a_later_vector_replaces_an_earlier_one(twenty):
    path = files_of(twenty)["a b"]
    delete_rows(twenty, {path: [1]})
    delete_rows(twenty, {path: [1, 2]}, "i")
    assert read(twenty).num_rows == 18
    assert [read(twenty, version=v).num_rows for v in (1, 2)] == [20, 19]


def test_a_file_all_of_whose_rows_are_deleted_gives_no_chunk(twenty):
    delete_rows(twenty, {files_of(twenty)["a b"]: range(10)})
    assert {chunk.partition_values for chunk in DeltaDataReader().chunks(str(twenty))} == {(("p", "é%/="),)}


def test_columns_that_no_file_holds_have_as_many_rows_as_are_left(twenty):
    delete_rows(twenty, {files_of(twenty)["a b"]: DELETED["a b"]})
    assert read(twenty, columns=["p"])["p"].value_counts().to_pylist() == [
        {"values": "a b", "counts": 5},
        {"values": "é%/=", "counts": 10},
    ]


def test_a_vector_lost_or_exchanged_later_is_named(twenty):
    paths = files_of(twenty)
    delete_rows(twenty, {paths["a b"]: [0]})
    reader = DeltaDataReader()
    chunks = reader.chunks(str(twenty))
    (vector,) = twenty.glob("*.bin")
    content = vector.read_bytes()
    vector.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(
        ReadError, match=r"the deletion vector of .*a%20b.* version 2 cannot be read .*checksum is wrong"
    ):
        reader.read_chunk(chunks[0])
    vector.unlink()
    with pytest.raises(ReadError, match=r"the deletion vector of .*\.parquet at version 2 is missing"):
        reader.read_chunk(chunks[0])
    assert gather(reader, chunks[-3:]).num_rows == 7  # of the other file


def test_a_vector_that_contradicts_the_counts_is_refused_at_the_start(hand):
    table = hand.table()
    file = table.data("f", {"x": [1, 2, 3]})
    (descriptor,) = write_vectors(table.path, {"f": [0, 5]}).values()
    file["add"] |= {"deletionVector": descriptor, "stats": None}
    table.commit(0, protocol("deletionVectors"), hand.metadata(), file)
    reader = DeltaDataReader()
    (chunk,) = reader.chunks(str(table))
    with pytest.raises(ReadError, match="it deletes row 5 of a file with 3 rows"):
        reader.read_chunk(chunk)
    file["add"]["deletionVector"]["cardinality"] = 4
    table.commit(0, protocol("deletionVectors"), hand.metadata(), file)
    with pytest.raises(ReadError, match="has 3 rows, but the log deletes 4 of them"):
        DeltaDataReader().chunks(str(table))


@pytest.mark.parametrize("stated", [2, 4])
def test_a_log_that_counts_other_rows_than_the_file_has_is_refused(hand, stated):
    table = hand.table()
    file = table.data("f", {"x": [1, 2, 3]})
    (descriptor,) = write_vectors(table.path, {"f": [1]}, "i").values()
    file["add"] |= {"deletionVector": descriptor, "stats": json.dumps({"numRecords": stated})}
    table.commit(0, protocol("deletionVectors"), hand.metadata(), file)
    with pytest.raises(ReadError, match=f"/f of version 0 has 3 rows, but the log says {stated}"):
        DeltaDataReader().chunks(str(table))
