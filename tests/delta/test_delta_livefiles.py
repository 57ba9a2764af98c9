"""The live files of a snapshot: a sequence, with statistics that are read from the log when they are wanted."""

import copy
import json
import pickle

import numpy as np
import pytest

from pyloader_delta.delta import load_snapshot
from pyloader_delta.errors import TableError


@pytest.fixture
def files(hand):
    """Files a..e: two of a checkpoint with statistics as a struct or as text, one without, two of a commit."""
    table = hand.table()
    listed = {name: hand.add(name, p=value) for name, value in zip("abcde", ["1", "é", None, "1", "2"], strict=True)}
    parsed = {"numRecords": 3, "minValues": {"x": 1, "y": 2}, "nullCount": {"x": 0}}
    listed["a"]["add"] |= {"stats_parsed": parsed, "stats": '{"numRecords":3,"minValues":{"x":99}}'}
    listed["b"]["add"]["stats"] = '{"numRecords":4,"minValues":{"x":5}}'
    listed["d"]["add"]["stats"] = json.dumps({"numRecords": 6, "tightBounds": True})
    head = [hand.protocol, hand.metadata(("p",), x="long", p="string")]
    table.checkpoint(0, *head, listed["c"], listed["b"], listed["a"], row_group_size=2)
    table.commit(1, listed["e"], listed["d"])
    return load_snapshot(str(table)).files


def names(files) -> str:
    return "".join(file.path[-1] for file in files)


def test_files_are_a_sequence(files):
    assert len(files) == 5
    assert names(files) == names(list(files)) == "abcde"
    assert files[0].path.endswith("/a")
    assert files[-1] == files[4]
    assert names(files[1:3]) == "bc"
    assert names(files[::2]) == "ace"
    assert len(files[3:3]) == 0
    assert list(files[3:3]) == []
    assert files[2] in files
    with pytest.raises(IndexError):
        files[5]
    assert repr(files).startswith("<5 files of /")


def test_files_equal_any_sequence_of_the_same(files):
    assert files == list(files)
    assert files == tuple(files)
    assert files != list(files)[1:]
    assert files != files[:4]
    assert files != 5


@pytest.mark.parametrize("copied", [lambda files: pickle.loads(pickle.dumps(files)), copy.copy, copy.deepcopy])
def test_a_copy_has_the_same_files_but_no_way_to_the_store(files, copied):
    other = copied(files)
    assert other == files
    statistics = other.statistics(np.arange(5), ["x"])
    assert statistics[:3] == [None] * 3
    assert json.loads(statistics[3])["numRecords"] == 6  # a commit's


def test_partition_values_are_those_of_the_file(files):
    assert [dict(file.partition_values) for file in files] == [{"p": v} for v in ["1", "é", None, "1", "2"]]
    assert files.partition_values("p").to_pylist() == ["1", "é", None, "1", "2"]
    assert files.take(np.array([1, 4])).partition_values("p").to_pylist() == ["é", "2"]


def test_statistics_are_read_when_they_are_wanted(files):
    found = files.statistics(np.arange(5), ["x"])
    assert found[0]["numRecords"] == 3
    assert found[0]["minValues"] == {"x": 1}  # only what was asked for
    assert json.loads(found[1]) == {"numRecords": 4, "minValues": {"x": 5}}
    assert json.loads(found[3]) == {"numRecords": 6, "tightBounds": True}
    assert found[2] is found[4] is None
    assert files.statistics(np.array([3, 1]), ["x"]) == [found[3], found[1]]
    assert files.take(np.array([1, 3])).statistics(np.array([1]), []) == [found[3]]
    assert files.statistics(np.array([], dtype=np.int64), ["x"]) == []


def test_statistics_of_a_checkpoint_that_is_gone_are_none(hand, files):
    checkpoint = next(path for path in (hand.folder / "table" / "_delta_log").iterdir() if "checkpoint" in path.name)
    checkpoint.unlink()
    found = files.statistics(np.arange(5), ["x"])
    assert found[:3] == [None] * 3
    assert json.loads(found[3])["numRecords"] == 6


@pytest.mark.parametrize(
    "broken",
    [
        {"size": "1"},
        {"size": 2**63},
        {"size": True},
        {"modificationTime": 1.5},
        {"baseRowId": []},
        {"partitionValues": ["p"]},
        {"deletionVector": "u"},
        {"deletionVector": {"storageType": "u", "pathOrInlineDv": "x"}},
        {"deletionVector": {"storageType": "u", "pathOrInlineDv": "x", "sizeInBytes": 2**31, "cardinality": 1}},
    ],
)
def test_an_add_that_is_none_is_refused_with_what_is_wrong(hand, broken):
    table = hand.table()
    file = hand.add("a")
    file["add"] |= broken
    table.commit(0, hand.protocol, hand.metadata(), file)
    with pytest.raises(TableError, match=rf"the log states .* as '{next(iter(broken))}' of a: it is broken"):
        load_snapshot(str(table))


def test_many_adds_of_one_commit_keep_their_order_and_their_statistics(hand):
    table = hand.table()
    n_files = 20_000
    table.commit(0, hand.protocol, hand.metadata(), *(hand.add(f"{i:05}", time=i, n_rows=i) for i in range(n_files)))
    files = load_snapshot(str(table)).files
    assert files.n_rows.to_pylist() == list(range(n_files))
    assert files[12_345].path == f"{table}/12345"
    some = np.array([19_999, 8192, 8191, 0])
    assert [json.loads(text)["numRecords"] for text in files.statistics(some, [])] == some.tolist()


def test_an_add_may_leave_out_what_has_a_default(hand):
    table = hand.table()
    table.commit(
        0, hand.protocol, hand.metadata(), {"add": {"path": "a"}}, {"add": {"path": "b", "deletionVector": {}}}
    )
    assert [(f.size_bytes, f.modification_time_ms, f.n_rows) for f in load_snapshot(str(table)).files] == [
        (0, 0, None)
    ] * 2


@pytest.mark.parametrize("kind", ["add", "remove"])
def test_an_action_without_a_path_is_refused(hand, kind):
    table = hand.table()
    table.commit(0, hand.protocol, hand.metadata(), {kind: {"size": 1}})
    with pytest.raises(TableError, match="an action without a path"):
        load_snapshot(str(table))


def test_texts_that_no_utf8_can_say_are_refused(hand):
    table = hand.table()
    table.commit(0, hand.protocol, hand.metadata(), hand.add("a\ud800"))
    with pytest.raises(TableError, match="holds a text that is none"):
        load_snapshot(str(table))
