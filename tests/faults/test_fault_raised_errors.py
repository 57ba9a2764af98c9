"""An exception in any of the user's methods: its own type, its place, and the batches before it first."""

import threading
from pathlib import Path
from typing import Any

import psutil
import pytest
from fakes import (
    CountedNumbers,
    FalseError,
    Numbers,
    OwnError,
    Scripted,
    ScriptedCollator,
    ScriptedDataset,
    Through,
    number_files,
    numbers,
    script,
    text_of,
    until_error,
    xs,
)

from pyloader_delta import ConfigError, ContractError, DataLoader, NumpyDataCollator, ReadError, StageError
from pyloader_delta.audit import Audit

EXECUTORS = {
    "inline": {"num_workers": 0},
    "threads": {"num_workers": 2, "workers": "thread"},
    "processes": {"num_workers": 2, "workers": "process"},
}


@pytest.fixture(scope="module", params=EXECUTORS)
def scripted(request, tmp_path_factory):
    """One loader for many errors: it must go on after each of them."""
    folder = tmp_path_factory.mktemp("script")
    root = script(folder, a=[0, 1, 2], b=[3, 4, 5], c=[6, 7])
    before = psutil.Process().children()
    with DataLoader(Scripted(), ScriptedDataset(), ScriptedCollator(), root, **EXECUTORS[request.param]) as loader:
        loader.folder, loader.executor = folder, request.param
        list(loader)  # the workers are there before the first test
        yield loader
    assert psutil.Process().children() == before


def play(loader: Any, b: list[Any]) -> tuple[list[Any], BaseException]:
    script(loader.folder, b=b)
    delivered, error = until_error(loader)
    assert error is not None
    script(loader.folder, b=[3, 4, 5])
    assert list(loader) == [[0, 1], [2, 3], [4, 5], [6, 7]]  # it goes on
    return delivered, error


STAGES = ["read_file", "batch_encode", "collate_batch", "finalize"]


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("error", [ValueError, KeyError, MemoryError, OwnError, FalseError])
def test_an_error_keeps_its_type_and_gains_its_place(scripted, stage, error):
    delivered, found = play(scripted, [3, 4, [stage, error.__name__]])
    assert type(found) is error
    assert delivered == ([[0, 1]] if stage == "read_file" else [[0, 1], [2, 3]])
    text = text_of(found)
    owner = {"read_file": "Scripted", "batch_encode": "ScriptedDataset"}.get(stage, "ScriptedCollator")
    assert f"{owner}.{stage}" in text
    if stage == "read_file":
        assert "b.json" in text
    else:
        assert "epoch" in text
        assert "batch 2, rows 4..5 of the epoch's order" in text
        assert stage == "finalize" or "b.json" in text
        assert "a.json" not in text


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, GeneratorExit])
def test_an_error_that_is_no_exception_is_raised_too(scripted, stage, error):
    _, found = play(scripted, [3, 4, [stage, error.__name__]])
    assert type(found) is error


@pytest.mark.parametrize("stage", STAGES)
def test_stop_iteration_does_not_pass_for_the_end_of_the_data(scripted, stage):
    delivered, found = play(scripted, [3, 4, [stage, "StopIteration"]])
    assert type(found) is RuntimeError
    assert "StopIteration" in str(found)
    assert delivered == ([[0, 1]] if stage == "read_file" else [[0, 1], [2, 3]])


@pytest.mark.parametrize("stage", STAGES)
def test_an_error_of_the_system_while_reading_is_a_read_error(scripted, stage):
    _, found = play(scripted, [3, 4, [stage, "FileNotFoundError"]])
    assert type(found) is (ReadError if stage == "read_file" else FileNotFoundError)
    assert "as the row says" in str(found)


@pytest.mark.parametrize("stage", STAGES)
def test_an_error_for_want_of_memory_says_what_to_raise(scripted, stage):
    _, found = play(scripted, [3, 4, [stage, "MemoryError"]])
    assert "raise the limit on memory (`ulimit -v`" in str(found.__notes__)


def test_so_does_one_in_the_books_that_the_loop_keeps(tmp_path, monkeypatch):
    def full(self, numbers):
        raise MemoryError

    monkeypatch.setattr(Audit, "add", full)
    with numbers(number_files(tmp_path / "n", [3]), audit=True) as loader, pytest.raises(MemoryError) as raised:
        list(loader)
    assert "raise the limit on memory (`ulimit -v`" in str(raised.value.__notes__)


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize(
    ("name", "text"),
    [("UnpicklableError", "cannot cross"), ("TwoArgumentsError", "7: two arguments"), ("NoTextError", "")],
)
def test_an_error_that_cannot_be_pickled_arrives_as_text(scripted, stage, name, text):
    delivered, found = play(scripted, [3, 4, [stage, name]])
    crossed = scripted.executor == "processes" and stage != "finalize" and name != "NoTextError"
    assert type(found).__name__ == ("StageError" if crossed else name)
    if crossed:
        assert isinstance(found, StageError)
        assert str(found) == f"{name}: {text}"
    assert any("epoch" in note or "b.json" in note for note in found.__notes__)
    assert delivered[0] == [0, 1]


def test_the_traceback_of_a_worker_process_arrives_as_a_note(tmp_path):
    root = script(tmp_path, a=[0, ["batch_encode", "ValueError"]])
    options = {"num_workers": 1, "workers": "process"}
    with DataLoader(Scripted(), ScriptedDataset(), ScriptedCollator(), root, **options) as loader:
        _, error = until_error(loader)
    assert "in worker process" in text_of(error)
    assert "raise _error(row[1])" in text_of(error)


# open, close, count_samples, chunks ----------------------------------------------------------------------------------


class FailsToOpen(CountedNumbers):
    batch_size = 2
    error: type[Exception] = OwnError

    def open(self) -> None:
        raise self.error("no connection")


class FailsFalsely(FailsToOpen):
    error = FalseError


class DatasetFailsToOpen(Through):
    def open(self) -> None:
        raise OwnError("no connection")


@pytest.mark.parametrize(
    ("reader", "dataset", "error"),
    [
        (FailsToOpen(), Through(), OwnError),
        (FailsFalsely(), Through(), FalseError),
        (CountedNumbers(), DatasetFailsToOpen(), OwnError),
    ],
)
def test_an_error_in_open_names_it_and_comes_again_with_the_next_pass(tmp_path, executor, reader, dataset, error):
    with numbers(number_files(tmp_path / "n", [3]), reader=reader, dataset=dataset, **executor) as loader:
        for _ in range(2):
            with pytest.raises(error, match="no connection") as raised:
                next(iter(loader))
            assert ".open" in text_of(raised.value)


class FailsToClose(CountedNumbers):
    def close(self) -> None:
        raise OwnError("cannot say goodbye")


class ClosesWithAMark(Through):
    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def close(self) -> None:
        self.mark.touch()


def test_an_error_in_close_is_a_warning_and_the_others_are_closed(tmp_path, executor, capfd):
    mark = tmp_path / "closed"
    loader = numbers(
        number_files(tmp_path / "n", [3]), reader=FailsToClose(), dataset=ClosesWithAMark(mark), **executor
    )
    assert len(list(loader)) == 1
    if executor.get("workers") == "process":
        loader.close()
        assert "FailsToClose.close raised OwnError: cannot say goodbye" in capfd.readouterr().err
    else:
        with pytest.warns(RuntimeWarning, match="FailsToClose.close raised OwnError: cannot say goodbye"):
            loader.close()
    assert mark.exists()


def test_an_error_in_count_samples_or_chunks_names_the_method(tmp_path):
    class Counts(Numbers):
        def count_samples(self, path):
            raise OwnError("no count")

    class Lists(Numbers):
        def chunks(self, root):
            raise OwnError("no list")

    root = number_files(tmp_path / "n", [3])
    for reader, text in ((Counts(), "Counts.count_samples"), (Lists(), "Lists.chunks")):
        with pytest.raises(OwnError) as raised:
            numbers(root, reader=reader)
        assert text in text_of(raised.value)


def test_chunks_that_are_none_are_named(tmp_path):
    class Lists(Numbers):
        def chunks(self, root):
            return [root]

    with pytest.raises(ContractError, match=r"Lists.chunks must return a list of Chunk, got .* in it"):
        numbers(number_files(tmp_path / "n", [3]), reader=Lists())


# What cannot be sent or copied ---------------------------------------------------------------------------------------


class HoldsALock(Through):
    def __init__(self) -> None:
        self.names = ["a"]
        self.lock = threading.Lock()

    def batch_encode(self, batch_data):
        with self.lock:
            self.names.append("b")
        return {"x": batch_data["x"], "same": [id(self.lock)] * len(batch_data["x"])}


def test_what_cannot_be_pickled_is_named_with_its_attribute(tmp_path):
    loader = numbers(number_files(tmp_path / "n", [3]), dataset=HoldsALock(), num_workers=1, workers="process")
    with pytest.raises(ConfigError, match=r"HoldsALock.lock cannot be sent to worker processes .* make it in open\(\)"):
        iter(loader)
    with pytest.raises(ConfigError, match=r"HoldsALock\.lock"):
        next(loader)


def test_threads_share_what_cannot_be_copied_and_copy_the_rest(tmp_path):
    dataset = HoldsALock()
    with numbers(number_files(tmp_path / "n", [3]), dataset=dataset, num_workers=2, workers="thread") as loader:
        batches = list(loader)
    assert xs(batches) == [[0, 1], [2]]
    assert batches[0]["same"][0] == id(dataset.lock)
    assert dataset.names == ["a"]


class RefusesCopies(Through):
    def __reduce__(self):
        raise OwnError("no copies")


def test_threads_share_an_object_that_refuses_to_be_copied(tmp_path):
    with numbers(number_files(tmp_path / "n", [3]), dataset=RefusesCopies(), num_workers=1, workers="thread") as loader:
        assert xs(loader) == [[0, 1], [2]]
    loader = numbers(number_files(tmp_path / "n", [3]), dataset=RefusesCopies(), num_workers=1, workers="process")
    with pytest.raises(ConfigError, match=r"RefusesCopies cannot be sent to worker processes .*no copies"):
        iter(loader)


class DoesNotArrive(Through):
    def __getstate__(self):
        return {"x": 1}

    def __setstate__(self, state):
        raise OwnError("does not arrive")


def test_what_does_not_arrive_in_a_worker_is_an_error_each_time(tmp_path):
    with numbers(
        number_files(tmp_path / "n", [3]), dataset=DoesNotArrive(), num_workers=2, workers="process"
    ) as loader:
        for _ in range(2):
            with pytest.raises(OwnError, match="does not arrive"):
                next(iter(loader))


class EndsItsProcess(Through):
    def __getstate__(self):
        return {"x": 1}

    def __setstate__(self, state):
        import os

        os._exit(3)


def test_workers_that_die_while_they_start_are_an_error_each_time(tmp_path):
    from pyloader_delta import WorkerDied

    with numbers(
        number_files(tmp_path / "n", [3]), dataset=EndsItsProcess(), num_workers=1, workers="process"
    ) as loader:
        for _ in range(2):
            with pytest.raises(WorkerDied, match="worker 0 ended with exit code 3 while it started"):
                next(iter(loader))


def test_a_collator_of_the_package_takes_what_dataset_returns(tmp_path, executor):
    with DataLoader(
        CountedNumbers(), Through(), NumpyDataCollator(), number_files(tmp_path / "n", [2]), **executor
    ) as it:
        assert xs(it) == [[0, 1]]
