"""The log of a table becomes a snapshot: which files are live, and what stands in the way."""

import datetime as dt
import os
import shutil

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from pyloader_delta.delta import is_table, load_snapshot
from pyloader_delta.delta.schema import plain_fields
from pyloader_delta.errors import TableError
from pyloader_delta.values import DataFile, Snapshot


def names(snapshot: Snapshot) -> list[str]:
    return [os.path.relpath(file.path, snapshot.uri) for file in snapshot.files]


def live(table: object, version: int | None = None) -> list[str]:
    return names(load_snapshot(str(table), version))


# What a snapshot says ------------------------------------------------------------------------------------------------


def test_a_snapshot_states_the_table_as_the_log_does(hand):
    table = hand.table()
    table.commit(
        0,
        {"commitInfo": {"timestamp": 1234}},
        hand.protocol,
        hand.metadata(("p",), x="long", p="string"),
        hand.add("p=a%20b/1.parquet", time=5, n_rows=3, p="a b"),
    )
    snapshot = load_snapshot(str(table))
    assert snapshot == Snapshot(
        uri=str(table),
        table_id="the-id",
        version=0,
        timestamp_ms=1234,
        schema=pa.schema({"x": pa.int64(), "p": pa.string()}),
        fields=plain_fields(pa.schema({"x": pa.int64(), "p": pa.string()})),
        partition_columns=("p",),
        files=(DataFile(f"{table}/p=a b/1.parquet", 1, 5, 3, (("p", "a b"),)),),
    )


def test_files_are_sorted_by_modification_time_then_path(hand):
    table = hand.table()
    files = [hand.add("c", time=1), hand.add("b", time=2), hand.add("a", time=2), hand.add("d", time=0)]
    table.commit(0, hand.protocol, hand.metadata(), *files)
    assert live(table) == ["d", "c", "a", "b"]


def test_an_empty_table_has_no_files(hand):
    table = hand.table()
    table.commit(0, hand.protocol, hand.metadata())
    assert load_snapshot(str(table)).files == ()


def test_an_empty_table_may_be_partitioned_and_have_a_checkpoint(hand):
    table = hand.table()
    head = [hand.protocol, hand.metadata(("p",), x="long", p="string")]
    table.checkpoint(0, *head)
    for _ in range(2):
        files = load_snapshot(str(table)).files
        assert list(files) == []
        assert files.partition_values("p").to_pylist() == []
        assert files.n_rows.to_pylist() == []
        (table.log / f"{0:020d}.checkpoint.parquet").unlink(missing_ok=True)
        table.commit(0, *head)


def test_a_file_uri_is_a_path(hand):
    table = hand.table("a b")
    table.commit(0, hand.protocol, hand.metadata(), hand.add("f"))
    assert load_snapshot(f"file://{str(table).replace(' ', '%20')}") == load_snapshot(str(table))


def test_the_time_in_the_commit_counts_before_the_timestamp(hand):
    table = hand.table()
    table.commit(0, {"commitInfo": {"timestamp": 1, "inCommitTimestamp": 2}}, hand.protocol, hand.metadata())
    assert load_snapshot(str(table)).timestamp_ms == 2


def test_a_commit_without_time_has_none(hand):
    table = hand.table()
    table.commit(0, {"commitInfo": {"timestamp": 1}}, hand.protocol, hand.metadata())
    table.commit(1, hand.add("a"))
    assert load_snapshot(str(table)).timestamp_ms is None


@pytest.mark.parametrize(
    ("stats", "n_rows"),
    [
        ('{"numRecords":7,"minValues":{}}', 7),
        ('{"minValues":{"numRecords":9},"numRecords":7}', 7),
        ('{"minValues":{}}', None),
        ("", None),
        ("{broken", None),
        ('{"numRecords":"7"}', None),
        (None, None),
    ],
)
def test_statistics_give_the_number_of_rows_and_a_bad_one_does_no_harm(hand, stats, n_rows):
    table = hand.table()
    file = hand.add("a")
    file["add"]["stats"] = stats
    table.commit(0, hand.protocol, hand.metadata(), file)
    table.checkpoint(0, hand.protocol, hand.metadata(), file)
    (table.log / f"{0:020d}.json").rename(table.path / "commit")
    assert [f.n_rows for f in load_snapshot(str(table)).files] == [n_rows]
    (table.path / "commit").rename(table.log / f"{0:020d}.json")
    (table.log / f"{0:020d}.checkpoint.parquet").unlink()
    assert [f.n_rows for f in load_snapshot(str(table)).files] == [n_rows]


def test_is_table_tells_a_table_from_a_folder(hand, tmp_path):
    assert is_table(str(hand.table()))
    assert not is_table(str(tmp_path))
    assert not is_table(str(tmp_path / "missing"))


# Replay --------------------------------------------------------------------------------------------------------------


def test_each_version_has_its_own_files(hand):
    table = hand.table()
    table.commit(0, hand.protocol, hand.metadata(), hand.add("a"))
    table.commit(1, hand.add("b"), hand.remove("a"))
    table.commit(2, hand.add("a"))
    assert [live(table, v) for v in (0, 1, 2, None)] == [["a"], ["b"], ["a", "b"], ["a", "b"]]


def test_in_one_commit_an_add_beats_a_remove_of_the_same_file(hand):
    table = hand.table()
    table.commit(0, hand.protocol, hand.metadata(), hand.add("a"))
    table.commit(1, hand.add("a", time=9), hand.remove("a"))
    assert [(f.path, f.modification_time_ms) for f in load_snapshot(str(table)).files] == [(f"{table}/a", 9)]


@pytest.mark.parametrize("prefix", ["", "file:", "file://"])
def test_a_file_removed_under_another_spelling_is_gone(hand, prefix):
    table = hand.table()
    table.commit(0, hand.protocol, hand.metadata(), hand.add("a%20b"), hand.add("kept"))
    table.commit(1, hand.remove(f"{prefix}{table}/a%20b"))
    assert live(table) == ["kept"]


def test_the_newest_metadata_and_protocol_count(hand):
    table = hand.table()
    table.commit(0, {"protocol": {"minReaderVersion": 9}}, hand.metadata(x="long"))
    table.commit(1, hand.protocol, hand.metadata(y="string"))
    assert load_snapshot(str(table)).schema.names == ["y"]
    with pytest.raises(TableError, match="reader version 9"):
        load_snapshot(str(table), 0)


def test_a_pretty_printed_commit_is_read(hand):
    table = hand.table()
    table.commit(0, hand.protocol, hand.metadata(), hand.add("a"), indent=2)
    assert live(table) == ["a"]


def test_a_partition_column_may_differ_in_case(hand):
    table = hand.table()
    table.commit(0, hand.protocol, hand.metadata(("P",), x="long", p="string"), hand.add("a", P="v"))
    snapshot = load_snapshot(str(table))
    assert snapshot.partition_columns == ("p",)
    assert snapshot.files[0].partition_values == (("p", "v"),)


# Checkpoints ---------------------------------------------------------------------------------------------------------


def drop_commits(table: object, *versions: int) -> None:
    for version in versions:
        (table.log / f"{version:020d}.json").unlink()


@pytest.mark.parametrize("parts", [None, 1, 3])
def test_a_checkpoint_and_the_commits_after_it_give_the_version(hand, parts):
    table = hand.table()
    meta = hand.metadata(("p",), x="long", p="string")
    files = [hand.add("a%20b", n_rows=1, p="1"), hand.add("b", p=None), hand.add("c", p="3")]
    table.checkpoint(7, hand.protocol, meta, *files, hand.remove("d"), parts=parts)
    table.commit(8, {"commitInfo": {"timestamp": 8}}, hand.remove("b"), hand.add("d", p="4"))
    snapshot = load_snapshot(str(table))
    assert names(snapshot) == ["a b", "c", "d"]
    assert [dict(f.partition_values)["p"] for f in snapshot.files] == ["1", "3", "4"]
    assert (snapshot.version, snapshot.timestamp_ms, snapshot.table_id) == (8, 8, "the-id")


def test_a_checkpoint_of_the_version_itself_leaves_the_time_to_its_commit(hand):
    table = hand.table()
    table.commit(7, {"commitInfo": {"timestamp": 7}}, hand.add("a"))
    table.checkpoint(7, hand.protocol, hand.metadata(), hand.add("a"))
    assert load_snapshot(str(table)).timestamp_ms == 7


def test_struct_statistics_give_the_number_of_rows(hand):
    table = hand.table()
    file = hand.add("a")
    file["add"]["stats_parsed"] = {"numRecords": 5}
    table.checkpoint(0, hand.protocol, hand.metadata(), file)
    assert load_snapshot(str(table)).files[0].n_rows == 5


def test_a_checkpoint_written_by_deltalake_is_read(tmp_path):
    root = str(tmp_path / "t")
    for i in range(5):
        write_deltalake(root, pa.table({"x": [i], "p": [f"{i % 2} %"]}), mode="append", partition_by=["p"])
    table = DeltaTable(root)
    before = load_snapshot(root)
    table.create_checkpoint()
    for version in range(5):
        os.unlink(f"{root}/_delta_log/{version:020d}.json")
    after = load_snapshot(root)
    assert [f for f in after.files if f.n_rows == 1] == list(before.files)
    assert {os.path.realpath(f.path) for f in after.files} == {
        os.path.realpath(os.path.join(root, uri)) for uri in table.file_uris()
    }


@pytest.mark.parametrize("damage", ["empty", "garbage", "truncated"])
def test_a_bad_checkpoint_gives_way_to_the_commits(hand, damage):
    table = hand.table()
    table.commit(0, hand.protocol, hand.metadata(), hand.add("a"))
    table.commit(1, hand.add("b"))
    table.checkpoint(1, hand.protocol, hand.metadata(), hand.add("a"), hand.add("b"))
    path = table.log / f"{1:020d}.checkpoint.parquet"
    path.write_bytes({"empty": b"", "garbage": b"nonsense", "truncated": path.read_bytes()[:-20]}[damage])
    assert live(table) == ["a", "b"]


def test_a_bad_checkpoint_gives_way_to_an_older_one(hand):
    table = hand.table()
    table.checkpoint(3, hand.protocol, hand.metadata(), hand.add("a"))
    table.commit(4, hand.add("b"))
    (table.log / f"{4:020d}.checkpoint.parquet").write_bytes(b"nonsense")
    assert live(table) == ["a", "b"]


def test_a_bad_checkpoint_that_nothing_replaces_is_named(hand):
    table = hand.table()
    table.commit(1, hand.add("b"))
    (table.log / f"{1:020d}.checkpoint.parquet").write_bytes(b"nonsense")
    with pytest.raises(TableError, match=r"0001\.checkpoint\.parquet in the log of .* cannot be read: .*restore it"):
        live(table)


@pytest.mark.parametrize("hint", ['{"version":99,"size":1}', "nonsense", ""])
def test_the_hint_to_the_last_checkpoint_is_not_needed(hand, hint):
    table = hand.table()
    table.commit(0, hand.protocol, hand.metadata(), hand.add("a"))
    (table.log / "_last_checkpoint").write_text(hint)
    assert live(table) == ["a"]


# What is refused -----------------------------------------------------------------------------------------------------


def test_a_missing_folder_is_named(tmp_path):
    with pytest.raises(TableError, match=r"there is no table at .*/missing: the folder does not exist"):
        live(tmp_path / "missing")


def test_a_folder_without_a_log_is_no_table(tmp_path):
    with pytest.raises(TableError, match="is no Delta table: it has no folder _delta_log"):
        live(tmp_path)


def test_an_empty_log_is_no_table(hand):
    with pytest.raises(TableError, match="holds no commit"):
        live(hand.table())


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "is empty"),
        ("\n", "is empty"),
        ('{"add": {', "cannot be read"),
        ("[1]", "is no action"),
        ("{}{", "cannot be"),
    ],
)
def test_a_broken_commit_is_named(hand, text, reason):
    table = hand.table()
    table.commit(0, hand.protocol, hand.metadata())
    (table.log / f"{1:020d}.json").write_text(text)
    with pytest.raises(TableError, match=rf"0001\.json .*{reason}"):
        live(table)


def test_a_table_without_metadata_or_protocol_is_refused(hand):
    table = hand.table()
    table.commit(0, hand.protocol, hand.add("a"))
    table.commit(1, hand.metadata())
    with pytest.raises(TableError, match="no metadata, so no schema, at version 0"):
        live(table, 0)
    other = hand.table("other")
    other.commit(0, hand.metadata())
    with pytest.raises(TableError, match="no protocol at version 0"):
        live(other)


def test_a_live_file_in_a_place_that_is_not_reached_is_refused_and_a_removed_one_is_not(hand):
    table = hand.table()
    table.commit(0, hand.protocol, hand.metadata(), hand.add("hdfs://host/a"), hand.add("b"))
    table.commit(1, hand.remove("hdfs://host/a"))
    assert live(table, 1) == ["b"]
    with pytest.raises(TableError, match="has files at hdfs://host, which its store does not reach"):
        live(table, 0)


def test_a_file_that_is_listed_twice_is_refused(hand):
    table = hand.table()
    table.checkpoint(0, hand.protocol, hand.metadata(), hand.add("a"), hand.add("a"))
    with pytest.raises(TableError, match="lists a file twice"):
        live(table)


@pytest.mark.parametrize(("values", "text"), [({}, "states no"), ({"p": 1}, "the log states 1 as the")])
def test_a_file_without_its_partition_value_is_refused(hand, values, text):
    table = hand.table()
    table.commit(0, hand.protocol, hand.metadata(("p",), x="long", p="long"), hand.add("a", **values))
    with pytest.raises(TableError, match=f"{table}.* {text} value of partition column 'p' for a: "):
        live(table)


def test_a_partition_column_that_is_no_column_is_refused(hand):
    table = hand.table()
    table.commit(0, hand.protocol, hand.metadata(("q",)))
    with pytest.raises(TableError, match="partitioned by 'q'"):
        live(table)


# An independent witness ----------------------------------------------------------------------------------------------


def test_files_rows_and_times_equal_deltalakes_at_every_version(tmp_path):
    root = str(tmp_path / "t")
    write_deltalake(root, pa.table({"x": [1, 2, 3], "d": [dt.date(2020, 1, 1)] * 3}), partition_by=["d"])
    write_deltalake(
        root, pa.table({"x": [4], "d": [None]}, schema=pa.schema({"x": pa.int64(), "d": pa.date32()})), mode="append"
    )
    DeltaTable(root).create_checkpoint()
    DeltaTable(root).delete("x = 2")
    DeltaTable(root).optimize.compact()
    write_deltalake(root, pa.table({"x": [9], "d": [dt.date(2021, 1, 1)]}), mode="overwrite")
    shutil.move(root, str(tmp_path / "moved"))  # nothing depends on where the table lay
    root = str(tmp_path / "moved")
    latest = DeltaTable(root).version()
    assert latest == 3  # nothing to compact
    times = {commit["version"]: commit["timestamp"] for commit in DeltaTable(root).history()}
    for version in range(latest + 1):
        oracle = DeltaTable(root, version=version)
        snapshot = load_snapshot(root, version)
        adds = pa.table(oracle.get_add_actions(flatten=True))
        assert sorted(names(snapshot)) == sorted(adds["path"].to_pylist())
        assert sum(f.n_rows for f in snapshot.files) == sum(adds["num_records"].to_pylist())
        assert snapshot.timestamp_ms == times[version]
        assert snapshot.schema == pa.schema(oracle.schema().to_arrow())
        assert snapshot.table_id == str(oracle.metadata().id)
