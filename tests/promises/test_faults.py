"""Lost workers, files that go away, user code that never comes back: each ends in the same batches or in an error."""

import os
import signal
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from fakes import AsIs, CountedNumbers, Numbers, NumpyThrough, Through, number_files, numbers, text_of, until_error, xs

from pyloader_delta import (
    BudgetError,
    DataLoader,
    DeltaDataReader,
    LoaderTimeout,
    NumpyDataCollator,
    ReadError,
    TableError,
    WorkerDied,
)

LENGTHS = [4, 4, 4, 4]
ALL = [[0, 1, 2], [3, 4, 5], [6, 7, 8], [9, 10, 11], [12, 13, 14], [15]]


def die(mark: Path, n: int = 1) -> None:
    """End this process by SIGKILL, the first n times."""
    done = len(mark.read_text()) if mark.exists() else 0
    if done < n:
        mark.write_text("x" * (done + 1))
        os.kill(os.getpid(), signal.SIGKILL)


class DiesReading(CountedNumbers):
    batch_size = 3

    def __init__(self, mark: Path, n: int = 1) -> None:
        self.mark, self.n = mark, n

    def read_file(self, path: str) -> Any:
        if path.endswith("02.txt"):
            die(self.mark, self.n)
        return super().read_file(path)


class DiesEncoding(NumpyThrough):
    def __init__(self, mark: Path, n: int = 1) -> None:
        self.mark, self.n = mark, n

    def batch_encode(self, batch_data: Any) -> Any:
        if 9 in batch_data["x"]:
            die(self.mark, self.n)
        return batch_data


def dying(stage: str, root: str, mark: Path, n: int, **options: Any) -> DataLoader:
    if stage == "reading":
        return numbers(root, reader=DiesReading(mark, n), **options)
    return numbers(root, reader=CountedNumbers(batch_size=3), dataset=DiesEncoding(mark, n), **options)


@pytest.mark.parametrize("stage", ["reading", "encoding"])
@pytest.mark.parametrize("n_workers", [1, 2])
def test_a_dead_worker_is_replaced_and_the_batches_are_the_same(tmp_path, stage, n_workers):
    root = number_files(tmp_path / "n", LENGTHS)
    mark = tmp_path / "mark"
    with dying(stage, root, mark, 1, num_workers=n_workers, workers="process", num_epoch=2) as loader:
        assert xs(loader) == ALL + ALL
        assert mark.read_text() == "x"
        assert xs(loader) == ALL + ALL


def test_a_dead_worker_in_a_shuffled_window_changes_nothing(tmp_path):
    root = number_files(tmp_path / "n", LENGTHS)

    def rows(**options: Any) -> list[list[int]]:
        reader = DiesReading(tmp_path / "mark", options.pop("n"))
        reader.shuffle = True
        with numbers(root, reader=reader, shuffle_window=8, num_epoch=2, **options) as loader:
            return xs(loader)

    assert rows(n=1, num_workers=2, workers="process") == rows(n=0, num_workers=0)


@pytest.mark.parametrize("stage", ["reading", "encoding"])
def test_a_task_that_kills_two_workers_is_an_error_naming_it(tmp_path, stage):
    root = number_files(tmp_path / "n", LENGTHS)
    with dying(stage, root, tmp_path / "mark", 2, num_workers=1, workers="process") as loader:
        delivered, error = until_error(loader)
        assert isinstance(error, WorkerDied)
        assert "worker 0 was ended by signal SIGKILL while" in str(error)
        if stage == "reading":
            assert "reading " in str(error)
            assert "02.txt rows 0..3" in str(error)
            assert xs(delivered) == ALL[:2]
        else:
            assert "rows 9..11" in str(error) or "rows 3..11" in str(error) or "of epoch 0" in str(error)
        assert xs(loader) == ALL  # it goes on: the third try lives


class EndsItself(Through):
    def batch_encode(self, batch_data: Any) -> Any:
        os._exit(7)


def test_the_exit_code_of_a_worker_is_named(tmp_path):
    root = number_files(tmp_path / "n", [3])
    text = "worker 0 ended with exit code 7 while encoding batches 0"
    with (
        numbers(root, dataset=EndsItself(), num_workers=1, workers="process") as loader,
        pytest.raises(WorkerDied, match=text),
    ):
        next(loader)


def test_a_worker_killed_between_two_passes_is_replaced(tmp_path):
    import psutil

    root = number_files(tmp_path / "n", LENGTHS)
    with numbers(root, reader=CountedNumbers(batch_size=3), num_workers=1, workers="process") as loader:
        assert xs(loader) == ALL
        (worker,) = psutil.Process().children()
        worker.kill()
        assert xs(loader) == ALL


# Mixing in place: a worker that dies in the middle of it has spoilt what others read -------------------------------


class DiesMixing(DeltaDataReader):
    """Its first worker to mix a window dies in the middle of the second column."""

    mark: Path

    def open(self) -> None:
        import pyloader_delta.engine.worker as worker
        from pyloader_delta.engine.region import mix

        def half(arrays: Any, names: Any, *rest: Any) -> None:
            if not self.mark.exists():
                mix(arrays, sorted(names)[:1], *rest)
                die(self.mark)
            mix(arrays, names, *rest)

        worker.mix = half


def test_a_worker_that_dies_while_it_mixes_a_window_changes_nothing(tmp_path):
    root = str(tmp_path / "table")
    n = 300_000
    for start in (0, n):
        rows = {name: pa.array(range(start, start + n), pa.int64()) for name in ("x", "y", "z")}
        write_deltalake(root, pa.table(rows), mode="append")
    reader = DiesMixing(batch_size=50_000, shuffle=True)
    reader.mark = tmp_path / "mark"
    with DataLoader(
        reader, NumpyThrough(), NumpyDataCollator(), root, num_workers=1, workers="process", memory_budget="200MiB"
    ) as loader:
        found = list(loader)
    assert reader.mark.exists()
    assert all((b["x"] == b["y"]).all() and (b["x"] == b["z"]).all() for b in found)
    reader = DeltaDataReader(batch_size=50_000, shuffle=True)
    with DataLoader(reader, NumpyThrough(), NumpyDataCollator(), root, num_workers=0) as loader:
        assert all((a["x"] == b["x"]).all() for a, b in zip(found, loader, strict=True))


# Files ---------------------------------------------------------------------------------------------------------------


@pytest.fixture
def table(tmp_path):
    """Twelve files of one row group each."""
    root = str(tmp_path / "table")
    for start in range(0, 36, 3):
        write_deltalake(root, pa.table({"x": [start, start + 1, start + 2]}), mode="append")
    return root


def data_files(root: str) -> list[Path]:
    """In the order in which they are read."""
    by = [("modification_time", "ascending"), ("path", "ascending")]
    actions = pa.table(DeltaTable(root).get_add_actions()).sort_by(by)
    return [Path(root) / path for path in actions["path"].to_pylist()]


def test_a_file_deleted_during_the_epoch_is_an_error_naming_file_and_version(table, executor):
    options = {"max_queue_size": 1, "num_epoch": 2} | executor
    last = data_files(table)[-1]
    reader = DeltaDataReader(batch_size=3)
    with DataLoader(reader, Through(), NumpyDataCollator(), table, **options) as loader:
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


def test_data_pages_that_are_corrupt_are_found_when_they_are_read(table, executor):
    path = data_files(table)[-1]
    content = bytearray(path.read_bytes())
    content[4:40] = b"\xff" * 36
    path.write_bytes(content)
    with DataLoader(DeltaDataReader(batch_size=3), Through(), NumpyDataCollator(), table, **executor) as loader:
        delivered, error = until_error(loader)
    assert len(delivered) == 11
    assert isinstance(error, ReadError)
    assert path.name in str(error)


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


# User code that never comes back -------------------------------------------------------------------------------------


RELEASE = threading.Event()


class NeverComesBack(Through):
    def batch_encode(self, batch_data: Any) -> Any:
        if 2 in batch_data["x"]:
            RELEASE.wait(60)
        return batch_data


@pytest.mark.parametrize("workers", ["thread", "process"])
def test_user_code_that_takes_too_long_is_an_error_naming_its_task(tmp_path, workers):
    root = number_files(tmp_path / "n", [4])
    RELEASE.clear()
    with numbers(root, dataset=NeverComesBack(), num_workers=1, workers=workers, timeout=3) as loader:
        batches = iter(loader)
        assert xs([next(batches)]) == [[0, 1]]
        with pytest.raises(LoaderTimeout, match=r"worker 0 took longer than timeout=3.0 s, encoding batches 1"):
            next(batches)
        assert list(batches) == []
        with pytest.raises(LoaderTimeout):
            list(loader)
        RELEASE.set()


def test_a_timeout_is_not_of_the_training_loop(tmp_path):
    root = number_files(tmp_path / "n", [8])
    with numbers(root, num_workers=1, workers="thread", timeout=0.3, prefetch_factor=1) as loader:
        batches = iter(loader)
        found = [next(batches)]
        threading.Event().wait(0.5)
        assert len([*found, *batches]) == 4


# Ending from outside -------------------------------------------------------------------------------------------------


class WaitsToRead(Numbers):
    batch_size = 2

    def read_file(self, path: str) -> Any:
        STARTED.set()
        RELEASE.wait(60)
        return super().read_file(path)


STARTED = threading.Event()


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


class Interrupted(Numbers):
    batch_size = 1

    def read_file(self, path: str) -> Any:
        if path.endswith("03.txt"):
            raise KeyboardInterrupt
        return super().read_file(path)


def test_ctrl_c_in_the_callers_own_thread_is_raised_at_once(tmp_path):
    root = number_files(tmp_path / "n", [1] * 8)
    with numbers(root, reader=Interrupted(), num_workers=0) as loader:
        delivered, error = until_error(loader)
    assert isinstance(error, KeyboardInterrupt)
    assert len(delivered) < 4
