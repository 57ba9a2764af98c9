"""Checkpoints of every kind give what the commits before them gave."""

import json

import pytest

from pyloader_delta.delta import load_snapshot
from pyloader_delta.errors import TableError
from pyloader_delta.values import DeletionVector

UUID = "80a083e8-7026-4e79-81be-64bd76c43a11"
VECTOR = {
    "storageType": "u",
    "pathOrInlineDv": "vBn[lx{q8@P<9BNH/isA",
    "offset": 1,
    "sizeInBytes": 36,
    "cardinality": 2,
}


def live(table, version=None):
    return [file.path.removeprefix(f"{table}/") for file in load_snapshot(str(table), version).files]


def deleted_from(add: dict, **vector: object) -> dict:
    return {"add": add["add"] | {"deletionVector": VECTOR | vector}}


def write(table, kind: str, version: int, *actions: dict, sidecars: dict[str, list[dict]] | None = None) -> None:
    """Write a checkpoint named by a UUID, as JSON or Parquet, with files that hold more of its actions."""
    described = []
    for name, adds in (sidecars or {}).items():
        table.checkpoint(version, *adds, name=f"_sidecars/{name}", leave_out=("protocol", "metaData", "sidecar"))
        described.append({"sidecar": {"path": name, "sizeInBytes": (table.log / "_sidecars" / name).stat().st_size}})
    name = f"{version:020d}.checkpoint.{UUID}.{kind}"
    actions = (*({"checkpointMetadata": {"version": version}},) * (kind == "json"), *actions, *described)
    if kind == "parquet":
        table.checkpoint(version, *actions, name=name)
    else:
        (table.log / name).write_text("".join(f"{json.dumps(action)}\n" for action in actions))


@pytest.mark.parametrize("kind", ["json", "parquet"])
@pytest.mark.parametrize("sidecars", [False, True])
def test_a_checkpoint_named_by_a_uuid_is_read_with_its_sidecars(hand, kind, sidecars):
    table = hand.table()
    head = [hand.protocol, hand.metadata()]
    files = [deleted_from(hand.add("a%20b", n_rows=9)), hand.add("b", n_rows=5), hand.add("c")]
    if sidecars:
        write(table, kind, 3, *head, files[0], sidecars={"s 1.parquet": [files[1]], "s2.parquet": [files[2]]})
        path = table.log / f"{3:020d}.checkpoint.{UUID}.{kind}"
        if kind == "json":
            path.write_text(path.read_text().replace("s 1", "s%201"))  # a path in the log is a URI
    else:
        write(table, kind, 3, *head, *files)
    table.commit(4, hand.remove("c"), hand.add("d"))
    snapshot = load_snapshot(str(table))
    assert live(table) == ["a b", "b", "d"]
    assert [file.n_rows for file in snapshot.files] == [7, 5, None]
    assert snapshot.files[0].deletion_vector == DeletionVector("u", VECTOR["pathOrInlineDv"], 1, 36, 2)
    assert live(table, 3) == ["a b", "b", "c"]


def test_a_sidecar_may_lie_at_an_absolute_path(hand):
    table = hand.table()
    table.checkpoint(0, hand.add("a"), name="_sidecars/far.parquet", leave_out=("protocol", "metaData", "sidecar"))
    (table.log / "_sidecars" / "far.parquet").rename(table.path / "far away.parquet")
    sidecar = {"sidecar": {"path": f"file://{table}/far%20away.parquet", "sizeInBytes": 1}}
    table.checkpoint(0, hand.protocol, hand.metadata(), sidecar)
    assert live(table) == ["a"]


@pytest.mark.parametrize("kind", ["json", "parquet"])
@pytest.mark.parametrize("damage", ["gone", "garbage", "empty"])
def test_a_bad_sidecar_makes_the_checkpoint_unreadable_and_the_commits_serve(hand, kind, damage):
    table = hand.table()
    table.commit(0, hand.protocol, hand.metadata(), hand.add("a"))
    table.commit(1, hand.add("b"))
    write(table, kind, 1, hand.protocol, hand.metadata(), sidecars={"s.parquet": [hand.add("a"), hand.add("b")]})
    path = table.log / "_sidecars" / "s.parquet"
    if damage == "gone":
        path.unlink()
    else:
        path.write_bytes(b"nonsense" if damage == "garbage" else b"")
    assert live(table) == ["a", "b"]
    (table.log / f"{0:020d}.json").unlink()
    with pytest.raises(TableError, match=r"_sidecars/s\.parquet in the log of .* no complete run of commits"):
        live(table)


@pytest.mark.parametrize("text", ["", "nonsense", "{", '{"add": 5}'])
def test_a_bad_json_checkpoint_gives_way_to_the_commits(hand, text):
    table = hand.table()
    table.commit(0, hand.protocol, hand.metadata(), hand.add("a"))
    (table.log / f"{0:020d}.checkpoint.{UUID}.json").write_text(text)
    assert live(table) == ["a"]


@pytest.mark.parametrize("kind", ["json", "parquet"])
def test_removes_in_a_checkpoint_are_no_removes(hand, kind):
    table = hand.table()
    sidecars = {"s.parquet": [hand.add("a")]}
    write(table, kind, 1, hand.protocol, hand.metadata(), hand.remove("a"), sidecars=sidecars)
    assert live(table) == ["a"]


def test_adds_are_told_apart_by_path_and_deletion_vector(hand):
    table = hand.table()
    first, second = deleted_from(hand.add("a", n_rows=9)), deleted_from(hand.add("a", n_rows=9), offset=99)
    table.checkpoint(0, hand.protocol, hand.metadata(), first, hand.add("b"))
    removed = {"remove": hand.remove("a")["remove"] | {"deletionVector": VECTOR}}
    table.commit(1, removed, second)
    assert [file.deletion_vector and file.deletion_vector.offset for file in load_snapshot(str(table)).files] == [
        99,
        None,
    ]
    table.commit(2, removed)  # of an add that has gone already
    assert live(table) == ["a", "b"]


def test_a_file_with_two_deletion_vectors_is_refused(hand):
    table = hand.table()
    both = deleted_from(hand.add("a", n_rows=9)), deleted_from(hand.add("a", n_rows=9), offset=99)
    table.checkpoint(0, hand.protocol, hand.metadata(), *both)
    with pytest.raises(TableError, match="lists a file twice"):
        live(table)


def test_more_deleted_rows_than_rows_are_refused(hand):
    table = hand.table()
    table.checkpoint(0, hand.protocol, hand.metadata(), deleted_from(hand.add("a", n_rows=1)))
    with pytest.raises(TableError, match="more deleted rows of a than it has"):
        live(table)


@pytest.mark.parametrize("row_group_size", [1, 2, 100])
def test_row_groups_of_any_size_keep_rows_and_statistics_together(hand, row_group_size):
    table = hand.table()
    counts = [None, 3, 1, None, 4, 1, 5, 9]
    files = [hand.add(f"f{i}", n_rows=n) for i, n in enumerate(counts)]
    for i in (2, 3, 5):
        files[i]["add"]["stats_parsed"] = {"numRecords": 100 + i, "minValues": {"x": i, "y": -i}, "nullCount": {"x": 0}}
    mixed = [hand.metadata(), *files[:3], hand.remove("z"), *files[3:], hand.protocol]
    table.checkpoint(0, *mixed, row_group_size=row_group_size)
    found = load_snapshot(str(table)).files
    assert [file.n_rows for file in found] == [None, 3, 102, 103, 4, 105, 5, 9]


def test_row_ids_are_those_of_the_log(hand):
    table = hand.table()
    file = hand.add("a")
    file["add"]["baseRowId"] = 7
    table.checkpoint(0, hand.protocol, hand.metadata(), file, hand.add("b"))
    other = hand.add("c")
    other["add"]["baseRowId"] = 2**40
    table.commit(1, other)
    assert [file.base_row_id for file in load_snapshot(str(table)).files] == [7, None, 2**40]
