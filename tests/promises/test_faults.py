"""Files that go away, a budget too small, a pass ended by another thread. What else may fail is in tests/faults."""

import threading
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from fakes import AsIs, Numbers, Through, number_files, numbers, text_of, until_error, xs
from writing import number_table

from pyloader_delta import (
    BudgetError,
    DataLoader,
    DeltaDataReader,
    NumpyDataCollator,
    ReadError,
    TableError,
)

# Files ---------------------------------------------------------------------------------------------------------------


@pytest.fixture
def table(tmp_path):
    """Twelve files of one row group each."""
    return number_table(tmp_path / "table", [3] * 12)


def data_files(root: str) -> list[Path]:
    """In the order in which they are read."""
    by = [("modification_time", "ascending"), ("path", "ascending")]
    actions = pa.table(DeltaTable(root).get_add_actions()).sort_by(by)
    return [Path(root) / path for path in actions["path"].to_pylist()]


def test_a_file_deleted_during_the_epoch_is_an_error_naming_file_and_version(table, executor):
    options = {"max_queue_size": 1, "num_epoch": 2} | executor
    last = data_files(table)[-1]
    reader = DeltaDataReader(batch_size=3)
    with (
        mock.patch("pyloader_delta.plan.epoch.UNIT_FILES", 1),
        DataLoader(reader, Through(), NumpyDataCollator(), table, **options) as loader,
    ):
        batches = iter(loader)
        found = [next(batches)]
        last.unlink()
        more, error = until_error(batches)
        assert xs(found + more) == [[3 * i, 3 * i + 1, 3 * i + 2] for i in range(11)]
        assert isinstance(error, ReadError)
        assert last.name in str(error)
        assert "version 11" in str(error)
        assert list(batches) == []


def test_a_missing_data_file_is_found_before_anything_is_read(table):
    data_files(table)[5].unlink()
    with pytest.raises((ReadError, TableError), match=data_files(table)[5].name):
        DataLoader(DeltaDataReader(), Through(), AsIs(), table)


@pytest.mark.parametrize("content", [b"", b"PAR1", b"no parquet at all, but some bytes"])
def test_a_corrupt_data_file_is_named(table, content):
    path = data_files(table)[5]
    path.write_bytes(content)
    with pytest.raises(ReadError, match=path.name):
        DataLoader(DeltaDataReader(), Through(), AsIs(), table)


@pytest.mark.parametrize("broken", [(0,), (5, 9), (11,)])
def test_files_that_are_read_together_come_up_to_the_first_one_that_is_corrupt(table, executor, broken):
    spoiled = [data_files(table)[number] for number in broken]
    for path in spoiled:
        content = bytearray(path.read_bytes())
        content[4:40] = b"\xff" * 36
        path.write_bytes(content)
    with DataLoader(DeltaDataReader(batch_size=3), Through(), NumpyDataCollator(), table, **executor) as loader:
        delivered, error = until_error(loader)
    assert xs(delivered) == [[3 * i, 3 * i + 1, 3 * i + 2] for i in range(broken[0])]
    assert isinstance(error, ReadError)
    assert spoiled[0].name in str(error)


def test_a_chunk_file_deleted_during_the_epoch_is_an_error_naming_it(tmp_path, executor):
    root = number_files(tmp_path / "n", [2] * 12)
    options = {"max_queue_size": 1} | executor
    with numbers(root, reader=Numbers(batch_size=2), **options) as loader:
        batches = iter(loader)
        first = next(batches)
        (tmp_path / "n" / "11.txt").unlink()
        more, error = until_error(batches)
    assert xs([first, *more])[:10] == [[2 * i, 2 * i + 1] for i in range(10)]
    assert isinstance(error, ReadError)
    assert "11.txt" in str(error)


# A budget too small --------------------------------------------------------------------------------------------------


class Swells(Numbers):
    """Files of a few bytes give 4 MB each."""

    def read_file(self, path: str) -> Any:
        return {"x": [b"x" * 1_000_000] * 4}


def test_chunks_that_are_larger_than_estimated_are_an_error_or_are_read_one_by_one(tmp_path, executor):
    root = number_files(tmp_path / "n", [4] * 6)
    reader = Swells(batch_size=8, shuffle=True)
    options = {"memory_budget": "2MiB", "shuffle_window": "1KiB"} | executor
    with numbers(root, reader=reader, **options) as loader:
        delivered, error = until_error(loader)
        assert error is None or isinstance(error, BudgetError), text_of(error)
    assert error is not None or len(delivered) == 3


# Ending from outside -------------------------------------------------------------------------------------------------


RELEASE, STARTED = threading.Event(), threading.Event()


class WaitsToRead(Numbers):
    batch_size = 2

    def read_file(self, path: str) -> Any:
        STARTED.set()
        RELEASE.wait(60)
        return super().read_file(path)


@pytest.mark.parametrize("end", ["close", "iter"])
def test_a_thread_that_waits_for_a_batch_is_woken_when_another_ends_its_pass(tmp_path, end):
    root = number_files(tmp_path / "n", [4])
    RELEASE.clear()
    STARTED.clear()
    loader = numbers(root, reader=WaitsToRead(), num_workers=1, workers="thread")
    errors: list[BaseException | None] = []
    batches = iter(loader)
    waiting = threading.Thread(target=lambda: errors.append(until_error(batches)[1]))
    waiting.start()
    STARTED.wait(60)
    ending = threading.Thread(target=loader.close if end == "close" else lambda: iter(loader))
    ending.start()
    waiting.join(20)
    assert not waiting.is_alive()
    assert isinstance(errors[0], RuntimeError)
    RELEASE.set()
    ending.join(20)
    if end == "iter":
        assert xs(loader) == [[0, 1], [2, 3]]
    loader.close()
