"""`inspect` tells what a table is made of, and what to do about it."""

import json
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, WriterProperties, write_deltalake

from pyloader_delta import __version__
from pyloader_delta.cli.advice import advice
from pyloader_delta.delta.report import ColumnReport, RowGroupReport, Spread, TableReport
from tests.cli.conftest import SCRIPT
from tests.vectors import delete_rows

ROWS = {
    "n": [1, 2, None, 4, 5, 6],
    "word": ["a", None, None, "d", "ü", "f"],
    "pair": [{"x": 1, "y": None}] * 6,
    "day": ["mon", "mon", "tue", "tue", None, None],
}
SCHEMA = pa.schema(
    [
        ("n", pa.int64()),
        ("word", pa.string()),
        ("pair", pa.struct([("x", pa.int64()), ("y", pa.float64())])),
        ("day", pa.string()),
    ]
)


@pytest.fixture(scope="module")
def table(tmp_path_factory) -> str:
    """A partitioned table with a dead file: half of it was written twice."""
    path = str(tmp_path_factory.mktemp("tables") / "tä ble")
    rows = pa.table(ROWS, schema=SCHEMA)
    write_deltalake(path, rows, partition_by=["day"], writer_properties=WriterProperties(max_row_group_size=1))
    write_deltalake(path, rows.slice(0, 2), mode="overwrite", predicate="day = 'mon'")
    return path


def test_inspect_counts_what_the_table_holds(run, table):
    found = run("inspect", table, "--json").document
    assert (found["version"], found["n_rows"], found["n_files"]) == (1, 6, 3)
    assert (found["n_partitions"], found["partition_columns"]) == (3, ["day"])
    assert found["n_dead_files"] == 1
    sizes = [path.stat().st_size for path in Path(table).rglob("*.parquet")]
    assert found["size_bytes"] + found["dead_bytes"] == sum(sizes)
    assert found["n_small_files"] == 3
    nulls = {column["name"]: column["n_nulls"] for column in found["columns"]}
    assert nulls == {"n": 1, "word": 2, "pair.x": 0, "pair.y": 6, "day": 2}
    assert found["row_groups"]["n_files"] == 3
    assert found["row_groups"]["n_groups"] == 5  # four of a row each, and the newest file's one
    assert found["row_groups"]["n_rows"] == {"smallest": 1, "median": 1, "largest": 2}
    assert (found["reader_version"], found["features"]) == (1, [])


def test_inspect_of_an_older_version_calls_newer_files_dead(run, table):
    found = run("inspect", table, "--version", 0, "--footers", 0, "--no-folder", "--json").document
    assert (found["version"], found["n_files"]) == (0, 3)
    assert (found["row_groups"], found["n_dead_files"], found["decoded_bytes"]) == (None, None, None)
    assert any("VACUUM may delete" in line for line in found["advice"])


def test_inspect_prints_facts_columns_and_advice(run, table):
    ended = run("inspect", table, "--footers", 1)
    assert ended.status == 0
    lines = [" ".join(line.split()) for line in ended.out.splitlines()]
    assert "partitions 3 by day" in lines
    assert "word string 2" in lines
    assert "advice" in lines
    assert "of 1 of 3 files" in ended.err


def test_inspect_of_an_empty_table(run, tmp_path):
    DeltaTable.create(str(tmp_path / "t"), pa.schema([("a", pa.int32())]))
    found = run("inspect", tmp_path / "t", "--json").document
    assert (found["n_rows"], found["n_files"], found["row_groups"], found["file_bytes"]) == (0, 0, None, None)
    assert [line.split(":")[0] for line in found["advice"]] == ["The table has no row at this version"]
    assert run("inspect", tmp_path / "t").status == 0


def test_inspect_tells_what_the_log_says_where_a_file_is_missing(run, table, tmp_path):
    write_deltalake(tmp_path / "t", pa.table({"a": [1, 2]}))
    (file,) = (tmp_path / "t").glob("*.parquet")
    file.unlink()
    found = run("inspect", tmp_path / "t", "--json").document
    assert (found["n_rows"], found["row_groups"]) == (2, None)
    assert file.name in found["footer_problem"]
    assert "pyloader-delta check" in found["advice"][0]


@pytest.mark.parametrize("kind", ["i", "u"])
def test_features_are_named_and_deleted_rows_counted(run, tmp_path, kind):
    write_deltalake(tmp_path / "t", pa.table({"a": [1, 2, 3, 4]}))
    (file,) = (tmp_path / "t").glob("*.parquet")
    delete_rows(tmp_path / "t", {file.name: [0]}, kind)
    found = run("inspect", tmp_path / "t", "--json").document
    assert found["features"] == ["deletionVectors"]
    assert (found["n_rows"], found["n_deleted_rows"]) == (3, 1)
    assert (found["n_dead_files"], found["dead_bytes"]) == (0, 0)  # the file of vectors is live too
    assert any("PURGE" in line for line in found["advice"])


def test_column_mapping_is_named_where_the_protocol_has_no_names_of_features(run, tmp_path):
    write_deltalake(tmp_path / "t", pa.table({"a": [1]}))
    (commit,) = (tmp_path / "t" / "_delta_log").glob("*.json")
    lines = [json.loads(line) for line in commit.read_text().splitlines()]
    for line in lines:
        if "protocol" in line:
            line["protocol"] = {"minReaderVersion": 2, "minWriterVersion": 5}
        if "metaData" in line:
            line["metaData"]["configuration"] = {"delta.columnMapping.mode": "name"}
    commit.write_text("\n".join(map(json.dumps, lines)))
    assert run("inspect", tmp_path / "t", "--json").document["features"] == ["columnMapping"]


# Errors and usage ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["inspect", "check", "bench", "preview"])
def test_no_table_is_status_1_and_one_line(run, name, tmp_path):
    ended = run(name, tmp_path / "none")
    assert (ended.status, ended.out) == (1, "")
    assert ended.err.startswith("error: there is no table at")
    assert run(name, tmp_path / "none", "--json").document["error"]["type"] == "TableError"


@pytest.mark.parametrize(
    "wrong",
    [["inspect"], ["inspect", "t", "--version", "-1"], ["nothing"], ["check", "t", "--storage-option", "s3cr3t"]],
)
def test_wrong_usage_is_status_2_and_shows_no_secret(run, wrong):
    ended = run(*wrong)
    assert ended.status == 2
    assert "s3cr3t" not in ended.err


def test_a_storage_option_is_not_shown(run, tmp_path):
    ended = run("inspect", "s3://", "--storage-option", "aws_secret_access_key=s3cr3t", "--json")
    assert ended.status == 1
    assert "s3cr3t" not in ended.out + ended.err


@pytest.mark.parametrize("name", ["inspect", "check", "bench", "convert", "preview"])
def test_each_command_has_help_with_examples(run, name):
    ended = run(name, "--help")
    assert ended.status == 0
    assert "Examples:" in ended.out
    assert "--json" in ended.out
    assert name in run("--help").out


def test_the_script_and_the_module_run_the_same_commands(table):
    for command in ([str(SCRIPT)], [sys.executable, "-m", "pyloader_delta"]):
        done = subprocess.run([*command, "--version"], capture_output=True, text=True, check=True)
        assert __version__ in done.stdout
    done = subprocess.run([str(SCRIPT), "inspect", table, "--json"], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["n_rows"] == 6
    done = subprocess.run([str(SCRIPT), "inspect", table], capture_output=True, text=True, check=True)
    assert "\x1b" not in done.stdout  # no colours where there is no terminal


def test_without_the_extra_the_message_says_what_to_install(monkeypatch):
    from pyloader_delta import cli

    monkeypatch.setitem(sys.modules, "click", None)
    monkeypatch.delitem(sys.modules, "pyloader_delta.cli.commands", raising=False)
    with pytest.raises(SystemExit, match=r"needs click: pip install 'pyloader_delta\[cli\]'"):
        cli.main(["--help"])


# Advice -------------------------------------------------------------------------------------------------------------


def made(**changes) -> TableReport:
    """A good table of 1 GiB, but for what is changed."""
    groups = RowGroupReport(8, 128, Spread(80_000, 80_000, 80_000), Spread(8 << 20, 8 << 20, 8 << 20), 100)
    good = {
        "uri": "t", "table_id": "", "version": 3, "timestamp_ms": None, "reader_version": 1, "writer_version": 2,
        "features": (), "columns": (), "partition_columns": (), "n_partitions": None, "n_files": 8,
        "n_rows": 10_000_000, "size_bytes": 1 << 30, "file_bytes": Spread(1 << 27, 1 << 27, 1 << 27),
        "n_small_files": 0, "n_deleted_rows": 0, "n_files_without_counts": 0, "row_groups": groups,
        "footer_problem": None, "n_dead_files": 0, "dead_bytes": 0, "retention_risk": None,
    }  # fmt: skip
    return TableReport(**good | changes)


def test_a_good_table_gets_its_window_told_and_nothing_else():
    (line,) = advice(made(), 16 << 30)
    assert "128 MiB mixes 13.4% of the table at a time, 16 row groups" in line


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"n_small_files": 8, "n_files": 12}, "OPTIMIZE: 8 of 12 files"),
        ({"n_deleted_rows": 2_000_000}, "2,000,000 deleted rows"),
        ({"n_dead_files": 3, "dead_bytes": 2 << 30}, "VACUUM: 3 files, 2.0 GiB"),
        ({"n_dead_files": 1, "dead_bytes": 2 << 30}, "VACUUM: 1 file, 2.0 GiB"),
        ({"columns": (ColumnReport("v", "variant", 0, "shredded"),)}, "1 column cannot be read, such as 'v'"),
        ({"n_files_without_counts": 2}, "no row count of 2 of 8 files"),
        ({"file_bytes": Spread(1, 10, 1000)}, "100 times the median"),
        ({"retention_risk": "soon gone"}, "soon gone."),
        ({"row_groups": RowGroupReport(8, 9, Spread(1, 1, 1), Spread(1, 1 << 19, 1), 100)}, "about 83,886 rows"),
        ({"row_groups": RowGroupReport(8, 9, Spread(1, 1, 1), Spread(1, 1 << 28, 1), 100)}, "read in parts"),
        (
            {"row_groups": RowGroupReport(8, 9, Spread(1, 1, 1), Spread(1, 1 << 25, 1), 100)},
            'shuffle_window="512MiB"',
        ),
        ({"n_rows": 1000}, "mixes the whole table"),
    ],
)
def test_each_fault_has_its_advice(changes, words):
    assert any(words in line for line in advice(made(**changes), 16 << 30))


def test_a_larger_window_is_not_advised_beyond_the_memory_there_is():
    groups = RowGroupReport(8, 9, Spread(1, 1, 1), Spread(1, 1 << 25, 1), 100)
    assert not any("Take shuffle_window" in line for line in advice(made(row_groups=groups), 1 << 30))
