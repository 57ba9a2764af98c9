"""Shuffled windows large enough for a region: rows stay whole and in the plan's order, whatever kinds columns are."""

import datetime
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fakes import NumpyThrough

from pyloader_delta import DataLoader, Dataset, DeltaDataReader, NumpyDataCollator
from pyloader_delta.engine.blocks import Blocks
from pyloader_delta.permute import permuted
from pyloader_delta.plan.epoch import plan_epoch

ROWS = 40_000  # a file; its numbers take 0.8 MB


class AsIs(Dataset):
    input_format = "arrow"

    def batch_encode(self, batch):
        return {
            "id": batch["id"],
            "half": batch["half"].fill_null(-1),
            "never": batch["never"].fill_null(-1),
            "small": batch["small"],
            "text": [int(text) for text in batch["text"].to_pylist()],
        }


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """Three files; `half` has nulls in the second alone, `never` may have some and has none."""
    from deltalake import write_deltalake  # not above: workers import this module

    root = tmp_path_factory.mktemp("regions") / "t"
    for number in range(3):
        ids = np.arange(number * ROWS, (number + 1) * ROWS)
        half = pa.array(ids * 2, mask=(ids % 7 == 0) if number == 1 else np.zeros(ROWS, bool))
        rows = {"id": ids, "half": half, "never": ids * 3, "small": ids.astype(np.int32), "text": ids.astype(str)}
        write_deltalake(root, pa.table(rows), mode="append")
    return str(root)


def _ids(chunk):
    """Return the ids of a chunk: files are in the order of their commits, and ids count over them."""
    first = pq.read_table(chunk.path, columns=["id"])["id"][0].as_py()
    return np.arange(first + chunk.rows.start, first + chunk.rows.stop)


@pytest.mark.parametrize(("num_workers", "workers"), [(0, "auto"), (2, "thread"), (2, "process")])
def test_rows_of_mixed_windows_stay_whole_and_in_the_planned_order(table, num_workers, workers):
    reader = DeltaDataReader(batch_size=1000, shuffle=True, random_seed=5)
    options = {"shuffle_window": 80_000, "num_workers": num_workers, "workers": workers}
    with DataLoader(reader, AsIs(), NumpyDataCollator(), table, **options) as loader:
        batches = list(loader)
    ids = np.concatenate([batch["id"] for batch in batches])
    plan = plan_epoch(loader._units, loader._order, 0)
    expected, start = [], 0
    for window in plan.windows:
        held = np.concatenate([_ids(plan.chunks[position]) for position in window])
        expected.append(held[permuted(len(held), ("rows", 5, 0, start))])
        start += len(held)
    assert len(plan.windows) == 2
    assert np.array_equal(ids, np.concatenate(expected))
    is_null = (ids // ROWS == 1) & (ids % 7 == 0)
    assert np.array_equal(np.concatenate([batch["half"] for batch in batches]), np.where(is_null, -1, ids * 2))
    assert np.array_equal(np.concatenate([batch["never"] for batch in batches]), ids * 3)
    assert np.array_equal(np.concatenate([batch["small"] for batch in batches]), ids)
    assert np.array_equal(np.concatenate([batch["text"] for batch in batches]), ids)
    assert all(batch["small"].dtype == np.int32 for batch in batches)


class Modules(Dataset):
    def __init__(self, input_format):
        self.input_format = input_format

    def batch_encode(self, batch):
        heavy = sorted({"deltalake", "pandas", "tensorflow", "torch"} & sys.modules.keys())
        return {"heavy": [",".join(heavy)] * len(batch["id"])}


def test_files_that_are_read_together_are_not_joined_before_their_rows_are_placed(tmp_path, monkeypatch):
    """It would be a copy of all for nothing."""
    from deltalake import write_deltalake

    per_file, n_files, root = 80_000, 9, str(tmp_path / "t")
    for number in range(n_files):  # of 1.3 MB each: smaller ones are read as one
        ids = np.arange(number * per_file, (number + 1) * per_file)
        noise = np.random.default_rng(number).integers(0, 2**60, per_file)
        write_deltalake(root, pa.table({"id": ids, "noise": noise, "sum": ids + noise}), mode="append")
    read = []

    class Noted(Blocks):
        def add(self, batches, chunks):
            read.append((len(chunks), len(batches), self._region is not None))
            super().add(batches, chunks)

    monkeypatch.setattr("pyloader_delta.engine.work.Blocks", Noted)
    reader, rows = DeltaDataReader(batch_size=1000, shuffle=True), per_file * n_files
    with DataLoader(reader, NumpyThrough(), NumpyDataCollator(), root, shuffle_window=rows, num_workers=0) as loader:
        batches = list(loader)
    assert sorted(np.concatenate([batch["id"] for batch in batches])) == list(range(rows))
    assert all((batch["sum"] == batch["id"] + batch["noise"]).all() for batch in batches)
    assert sum(n_chunks for n_chunks, _, _ in read) == n_files
    assert max(n_chunks for n_chunks, _, _ in read) > 1
    assert all(n_blocks == n_chunks and placed for n_chunks, n_blocks, placed in read), read


@pytest.mark.parametrize("input_format", ["python", "numpy"])
def test_workers_import_no_framework_of_their_own(table, input_format):
    reader = DeltaDataReader(batch_size=ROWS, columns=["id", "text", "small"], shuffle=True)
    options = {"shuffle_window": 80_000, "num_workers": 1, "workers": "process"}
    with DataLoader(reader, Modules(input_format), NumpyDataCollator(), table, **options) as loader:
        assert {name for batch in loader for name in batch["heavy"]} == {""}


def test_workers_import_no_framework_for_partition_values_and_filters(tmp_path):
    from deltalake import write_deltalake  # not above: workers import this module

    days = [datetime.date(2026, 1, 1 + i % 2) for i in range(100)]
    rows = {"id": range(100), "day": days, "p": [str(i % 3) for i in range(100)], "n": [i % 5 for i in range(100)]}
    write_deltalake(str(tmp_path / "t"), pa.table(rows), partition_by=["day", "p", "n"])
    reader = DeltaDataReader(batch_size=20, filter="id >= 10 AND day > '2026-01-01'")
    with DataLoader(
        reader, Modules("python"), NumpyDataCollator(), str(tmp_path / "t"), num_workers=1, workers="process"
    ) as loader:
        assert {name for batch in loader for name in batch["heavy"]} == {""}
