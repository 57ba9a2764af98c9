"""`check` finds what no longer is as the log says, and nothing else."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

from tests.vectors import delete_rows


@pytest.fixture
def table(tmp_path) -> Path:
    """Three files of 100 rows, in row groups of one; the first has deleted rows."""
    path = tmp_path / "t"
    for start in range(0, 300, 100):
        n = np.arange(start, start + 100)
        write_deltalake(path, pa.table({"n": n, "x": n / 7, "word": [f"word {i}" for i in n]}), mode="append")
    first = added(path, 0)
    delete_rows(path, {first.name: [3, 5, 7]})
    return path


def added(table: Path, version: int) -> Path:
    """Return the file that a version added."""
    log = (table / "_delta_log" / f"{version:020}.json").read_text()
    (add,) = (action["add"] for action in map(json.loads, log.splitlines()) if "add" in action)
    return table / add["path"]


def restate(table: Path, version: int, change) -> None:
    """Change the statistics that a commit states of its file."""
    path = table / "_delta_log" / f"{version:020}.json"
    actions = [json.loads(line) for line in path.read_text().splitlines()]
    for action in actions:
        if "add" in action:
            statistics = json.loads(action["add"]["stats"])
            change(statistics)
            action["add"]["stats"] = json.dumps(statistics)
    path.write_text("\n".join(map(json.dumps, actions)))


@pytest.mark.parametrize("options", [[], ["--full"]])
def test_a_whole_table_passes(run, table, options):
    ended = run("check", table, "--json", *options)
    assert ended.status == 0
    found = ended.document
    assert (found["n_files"], found["n_rows"], found["problems"], found["version"]) == (3, 297, [], 3)
    assert "3 files, all as the log says, 297 rows" in run("check", table, *options).out


def cut(table: Path) -> None:
    file = added(table, 1)
    file.write_bytes(file.read_bytes()[:-10])


def replaced(table: Path) -> None:
    """Put another file, of as many bytes and other rows, in the place of one."""
    file = added(table, 1)
    size = file.stat().st_size
    pq.write_table(pa.table({"n": [1], "x": [1.0], "word": ["w"]}), file)
    other = file.read_bytes()
    assert len(other) < size
    log = table / "_delta_log" / f"{1:020}.json"
    stated = log.read_text()
    assert f'"size":{size}' in stated
    log.write_text(stated.replace(f'"size":{size}', f'"size":{len(other)}'))


def without_vector(table: Path) -> None:
    (vectors,) = table.glob("*.bin")
    content = bytearray(vectors.read_bytes())
    content[-6] ^= 1
    vectors.write_bytes(content)


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda table: added(table, 1).unlink(), "is missing"),
        (cut, "the log says"),
        (replaced, "has 1 row, but the log says 100"),
        (without_vector, "deletion vector"),
    ],
    ids=["missing", "cut", "replaced", "vector"],
)
def test_damage_is_found_and_named_and_the_rest_is_checked_too(run, table, damage, words):
    damage(table)
    ended = run("check", table, "--json")
    assert ended.status == 1
    (problem,) = ended.document["problems"]
    assert words in problem["problem"]
    assert ended.document["n_bad_files"] == 1
    assert ended.document["n_rows"] == 297 - (97 if damage is without_vector else 100)
    plain = run("check", table)
    assert (plain.status, problem["problem"] in plain.err) == (1, True)
    assert "3 files, 1 with faults" in plain.out


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda stated: stated["minValues"].update(n=150), "values of 'n' beyond the bounds"),
        (lambda stated: stated["maxValues"].update(x=20.0), "values of 'x' beyond the bounds"),
        (lambda stated: stated["maxValues"].update(word="word 150"), "values of 'word' beyond the bounds"),
        (lambda stated: stated["nullCount"].update(word=2), "has 0 nulls in 'word', but the log says 2"),
    ],
)
def test_full_finds_statistics_by_which_filters_would_lose_rows(run, table, change, words):
    restate(table, 1, change)
    assert run("check", table).status == 0
    ended = run("check", table, "--full", "--json")
    assert ended.status == 1
    assert [words in problem["problem"] for problem in ended.document["problems"]] == [True]


def test_full_finds_a_byte_that_has_changed(run, tmp_path):
    write_deltalake(tmp_path / "t", pa.table({"word": [f"{i} {i * i}" for i in range(5000)]}))
    (file,) = (tmp_path / "t").glob("*.parquet")
    content = bytearray(file.read_bytes())
    content[len(content) // 3] ^= 0xFF
    file.write_bytes(content)
    assert run("check", tmp_path / "t").status == 0
    assert run("check", tmp_path / "t", "--full").status == 1


def test_full_passes_odd_values(run, tmp_path):
    nan = float("nan")
    write_deltalake(
        tmp_path / "t",
        pa.table(
            {
                "x": pa.array([nan, None, float("inf"), -0.0, 0.0], pa.float64()),
                "single": pa.array([0.1, 3e38, None, nan, -0.0], pa.float32()),
                "text": ["", "\U0010ffff" * 40, "ü" * 64, None, "a\x00b"],
                "time": pa.array([0, -(10**14), 10**15, None, 1], pa.timestamp("us", "UTC")),
                "list": [[1, None], [], None, [2], [3]],
                "blob": pa.array([b"\x00\xff", b"", None, b"a", b"b"], pa.binary()),
                "none": pa.array([None] * 5, pa.int16()),
            }
        ),
    )
    assert run("check", tmp_path / "t", "--full", "--json").document["problems"] == []
