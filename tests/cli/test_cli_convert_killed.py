"""`convert` killed at any moment goes on when it is run again: each record once, nothing left over."""

import json
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from pyloader_delta.cli import writing
from pyloader_delta.cli.leftovers import Leftovers
from tests.cli.conftest import SCRIPT

N_FILES, ROWS = 40, 50
BAD = range(7, N_FILES * ROWS, 100)
"""Rows whose number is none, in every second file."""


def made_csv(folder: Path) -> Path:
    """Each file is a piece of its own, and so a commit."""
    (folder / "in").mkdir()
    for file in range(N_FILES):
        rows = range(file * ROWS, (file + 1) * ROWS)
        lines = [f"{'bad' if i in BAD else i},{i}\n" for i in rows]
        (folder / "in" / f"{file:02}.csv").write_text("n,word\n" + "".join(lines))
    return folder / "in"


def made_parquet(folder: Path) -> Path:
    (folder / "in").mkdir()
    for file in range(N_FILES):
        rows = range(file * ROWS, (file + 1) * ROWS)
        pq.write_table(pa.table({"n": rows, "word": [str(i) for i in rows]}), folder / "in" / f"{file:02}.parquet")
    return folder / "in"


def made_images(folder: Path) -> Path:
    image = pytest.importorskip("PIL.Image", reason="Pillow is not installed")
    (folder / "in" / "cat").mkdir(parents=True)
    image.new("L", (4, 4)).save(folder / "one.png")
    whole = (folder / "one.png").read_bytes()
    for i in range(1100):
        (folder / "in" / "cat" / f"{i:04}.png").write_bytes(b"none" if i % 400 == 0 else whole)
    return folder / "in"


def committed(table: Path) -> int:
    return len(list((table / "_delta_log").glob("*.json")))


def begun(table: Path) -> int:
    return len(list(table.glob("part-*")))


def listed(table: Path) -> int:
    path = table.with_name("t.rejects.jsonl")
    return path.stat().st_size if path.exists() else 0


MOMENTS: dict[str, Callable[[Path], int]] = {
    "before the first commit": lambda table: table.exists(),
    "while rejects are written": listed,
    "in the middle of a file": begun,
    "between commits": committed,
}
"""What is counted: the process is killed as soon as there is more of it than when it started."""


def killed(command: list[str], table: Path, count: Callable[[Path], int]) -> bool:
    """Start a command and kill it as soon as a number has grown; return whether it had not ended before."""
    before = count(table)
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        while count(table) == before and process.poll() is None:
            time.sleep(0.001)
        process.kill()
        return process.wait() == -signal.SIGKILL


def assert_whole(table: Path, kind: str) -> None:
    """Each record stands in the table once, or in the list; no file lies about."""
    found = DeltaTable(table)
    names = {uri.rsplit("/", 1)[-1] for uri in found.file_uris()}
    assert {path.name for path in table.iterdir()} == names | {"_delta_log"}
    assert all(path.suffix == ".json" for path in (table / "_delta_log").iterdir())
    rejects = table.with_name("t.rejects.jsonl")
    places = [json.loads(line)["place"] for line in rejects.read_text().splitlines()] if rejects.exists() else []
    assert len(places) == len(set(places)) == {"images": 3, "parquet": 0}.get(kind, len(BAD))
    columns = found.to_pyarrow_table().to_pydict()
    if kind == "images":
        assert sorted([*columns["path"], *places]) == [f"cat/{i:04}.png" for i in range(1100)]
        return
    assert sorted(map(int, columns["word"])) == [i for i in range(N_FILES * ROWS) if i not in BAD or not places]
    assert list(map(int, columns["n"])) == list(map(int, columns["word"]))


@pytest.mark.parametrize(
    ("made", "moments"),
    [
        (made_csv, list(MOMENTS)),
        (made_parquet, ["in the middle of a file"]),
        (made_images, ["between commits"]),
    ],
    ids=["csv", "parquet", "images"],
)
def test_a_killed_conversion_goes_on(tmp_path, made, moments):
    kind, source, table = made.__name__.removeprefix("made_"), made(tmp_path), tmp_path / "t"
    typed = ["--type", "n=int64"] if kind == "csv" else []
    command = [str(SCRIPT), "convert", str(source), str(table), "--commit-size", "100B", *typed]
    deaths = [killed(command, table, MOMENTS[moment]) for moment in moments]
    assert sum(deaths) >= 0.75 * len(moments)  # the last may have come too late
    had = committed(table)
    done = subprocess.run([*command, "--json"], capture_output=True, text=True, check=False)
    assert done.returncode == (0 if kind == "parquet" else 3), done.stderr
    assert (json.loads(done.stdout)["n_records_before"] > 0) == (had > 0)
    assert_whole(table, kind)


def test_what_is_left_over_is_told_by_what_it_holds(run, tmp_path):
    (tmp_path / "a.csv").write_text("n\n" + "".join(f"{i}\n" for i in range(10_000)))
    run("convert", tmp_path / "a.csv", tmp_path / "once")
    (whole,) = (tmp_path / "once").glob("*.parquet")
    log = tmp_path / "t" / "_delta_log"
    log.mkdir(parents=True)
    shutil.copy(whole, tmp_path / "t" / "part-00000-a.snappy.parquet")
    (tmp_path / "t" / "part-00000-b.snappy.parquet#1").write_bytes(whole.read_bytes()[:5000] + bytes(1000))
    other = tmp_path / "t" / "part-00000-c.snappy.parquet"
    pq.write_table(pa.table({"n": range(10)}), other)
    (log / f"{0:020}.json#1").touch()
    (log / f"{0:020}.json#2").write_text('{"txn": {"appId": "of another program"}}')
    assert run("convert", tmp_path / "a.csv", tmp_path / "t").status == 0
    (name,) = (uri.rsplit("/", 1)[-1] for uri in DeltaTable(tmp_path / "t").file_uris())
    assert {path.name for path in (tmp_path / "t").glob("part-*")} == {name, other.name}
    assert {path.name for path in log.iterdir()} == {f"{0:020}.json", f"{0:020}.json#2"}


@pytest.mark.parametrize("cut", [1, 20])
def test_a_line_of_a_reject_that_was_cut_off_is_written_again(run, tmp_path, cut):
    (tmp_path / "a.csv").write_text("n\n1\nx\ny\n2\n")
    command = ("convert", tmp_path / "a.csv", tmp_path / "t", "--type", "n=int64")
    assert run(*command).status == 3
    rejects = tmp_path / "t.rejects.jsonl"
    before = rejects.read_bytes()
    shutil.rmtree(tmp_path / "t")
    rejects.write_bytes(before[:-cut])
    assert run(*command).status == 3
    assert rejects.read_bytes() == before


def test_two_conversions_at_once_are_refused(run, tmp_path):
    (tmp_path / "a.csv").write_text("n\n1\n")
    held = Leftovers(tmp_path / "t")
    ended = run("convert", tmp_path / "a.csv", tmp_path / "t")
    assert (ended.status, "another conversion writes to" in ended.err) == (1, True)
    held.close()
    assert run("convert", tmp_path / "a.csv", tmp_path / "t").status == 0


def test_a_commit_of_the_same_conversion_elsewhere_is_no_second_one(run, tmp_path, monkeypatch):
    (tmp_path / "a.csv").write_text("n\n" + "".join(f"{i}\n" for i in range(2000)))
    for name in ("base.PIECE_BYTES", "csv._BLOCK_BYTES"):
        monkeypatch.setattr(f"pyloader_delta.cli.sources.{name}", 2000)

    def overtaken(table, rows, **options):
        if isinstance(table, DeltaTable):
            (action,) = options["commit_properties"].app_transactions
            same = CommitProperties(app_transactions=[Transaction(action.app_id, action.version)])
            write_deltalake(tmp_path / "t", rows, mode="append", commit_properties=same)
        write_deltalake(table, rows, **options)

    with monkeypatch.context() as patch:
        patch.setattr(writing, "write_deltalake", overtaken)
        ended = run("convert", tmp_path / "a.csv", tmp_path / "t", "--commit-size", "1KB")
    assert (ended.status, "run the command again" in ended.err) == (1, True)
    assert run("convert", tmp_path / "a.csv", tmp_path / "t", "--commit-size", "1KB").status == 0
    numbers = DeltaTable(tmp_path / "t").to_pyarrow_table()["n"].to_numpy()
    assert np.array_equal(np.sort(numbers), np.arange(2000))
