"""Programs written for PyLoader, run as their users run them with only the import changed: every row of every epoch."""

import importlib.util
import json
from pathlib import Path

import pytest
from programs import QUIET, python

PROGRAMS = Path(__file__).parent / "programs"
N_EPOCHS, BATCH_SIZE = 5, 16


def run(program: str, *arguments: str, report: Path) -> list[tuple[int, int, list[int], list[int]]]:
    """Run a program and return (step, epoch, rows, second column) of each batch that it was given."""
    python(PROGRAMS / program, *arguments, report, env=QUIET)
    return [tuple(batch) for batch in json.loads(report.read_text())]


def assert_each_epoch_is_complete(batches, n_rows: int, first_row: int = 0) -> None:
    assert [step for step, *_ in batches] == list(range(len(batches)))
    orders = []
    for epoch in range(1, N_EPOCHS + 1):
        rows = [rows for _, number, rows, _ in batches if number == epoch]
        assert [len(part) for part in rows] == [BATCH_SIZE] * (n_rows // BATCH_SIZE) + [n_rows % BATCH_SIZE]
        orders.append([row for part in rows for row in part])
        assert sorted(orders[-1]) == list(range(first_row, first_row + n_rows))
    assert len(set(map(tuple, orders))) == N_EPOCHS  # each epoch is shuffled anew


def test_the_readme_program_gets_every_row_of_every_epoch(chunk_files, n_rows, tmp_path):
    batches = run("readme.py", chunk_files, report=tmp_path / "seen.json")
    assert_each_epoch_is_complete(batches, n_rows, first_row=100)
    assert all(label == row % 2 for _, _, rows, labels in batches for row, label in zip(rows, labels, strict=True))


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")
def test_the_pytorch_program_gets_every_row_of_every_epoch(chunk_files, vocab_file, n_rows, tmp_path):
    batches = run("pytorch.py", chunk_files, vocab_file, report=tmp_path / "seen.json")
    assert_each_epoch_is_complete(batches, n_rows)
    assert all(label == row % 2 for _, _, rows, labels in batches for row, label in zip(rows, labels, strict=True))


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("tensorflow") is None, reason="TensorFlow is not installed")
def test_the_tensorflow_program_gets_every_row_of_every_epoch(chunk_files, vocab_file, n_rows, tmp_path):
    batches = run("tensorflow2.py", chunk_files, vocab_file, report=tmp_path / "seen.json")
    assert_each_epoch_is_complete(batches, n_rows)
    assert all(rows == answers for _, _, rows, answers in batches)
