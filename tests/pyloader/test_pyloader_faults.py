"""PyLoader's faults, by their numbers in our notes (L1 to L21): each a test that this loader is free of it."""

import os
import random
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from programs import python

import pyloader_delta
from pyloader_delta import (
    ConfigError,
    ContractError,
    DataLoader,
    DataReader,
    Dataset,
    NumpyDataCollator,
    ReadError,
    TableError,
)

ROWS = 10  # in each file of `folder`
EXECUTORS = {
    "inline": {"num_workers": 0},
    "thread": {"num_workers": 2, "workers": "thread"},
    "process": {"num_workers": 1, "workers": "process"},
}
on_every_executor = pytest.mark.parametrize("executor", EXECUTORS.values(), ids=EXECUTORS)
THREADS = EXECUTORS["thread"]


class Lines(DataReader):
    """Reads numbers, one a line."""

    def read_file(self, path):
        numbers = [int(line) for line in Path(path).read_text().split()]
        return {"n": numbers}, len(numbers)


class SlowLines(Lines):
    """Takes its time for each file, as a disk does."""

    seconds = 0.01

    def read_file(self, path):
        time.sleep(self.seconds)
        return super().read_file(path)


class AsTheyAre(Dataset):
    def batch_encode(self, batch_data):
        return batch_data


def write(folder: Path, n_files: int) -> str:
    folder.mkdir(exist_ok=True)
    for number in range(n_files):
        numbers = range(number * ROWS, (number + 1) * ROWS)
        (folder / f"{number:03}.txt").write_text("\n".join(map(str, numbers)))
    return str(folder)


@pytest.fixture
def folder(tmp_path: Path) -> str:
    """Return a folder of 12 files: 120 rows, numbered in path order."""
    return write(tmp_path / "files", 12)


def loader(folder: str, reader: DataReader | None = None, dataset: Dataset | None = None, **options) -> DataLoader:
    return DataLoader(reader or Lines(4), dataset or AsTheyAre(), NumpyDataCollator(), folder, **{**THREADS, **options})


def numbers(batches) -> list[int]:
    return [n for batch in batches for n in batch["n"].tolist()]


def drain(batches, into: list[int]) -> None:
    for batch in batches:
        into += batch["n"].tolist()


# Completeness -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("max_queue_size", [1, 3, 50])
@on_every_executor
def test_l1_l3_no_row_is_lost_where_reading_is_slower_than_training(folder, executor, max_queue_size):
    with loader(folder, SlowLines(4), num_epoch=2, max_queue_size=max_queue_size, **executor) as batches:
        assert numbers(batches) == [*range(120)] * 2


def test_l1_no_row_is_lost_where_training_is_slower_than_reading(folder):
    found = []
    with loader(folder, max_queue_size=1) as batches:
        for batch in batches:
            time.sleep(0.002)  # a training step
            found += batch["n"].tolist()
    assert found == [*range(120)]


class EmptySometimes(Lines):
    def read_file(self, path):
        return ({"n": []}, 0) if path.endswith(("0.txt", "5.txt")) else super().read_file(path)


@on_every_executor
def test_l1_an_empty_file_ends_nothing(folder, executor):
    with loader(folder, EmptySometimes(4), **executor) as batches:
        assert numbers(batches) == [*range(10, 50), *range(60, 100), *range(110, 120)]


class Broken(Lines):
    """Fails on one file in its own way."""

    def __init__(self, bad: str, error: Exception) -> None:
        super().__init__(4)
        self.bad, self.error = bad, error

    def read_file(self, path):
        if path.endswith(self.bad):
            raise self.error
        return super().read_file(path)


@pytest.mark.parametrize("bad", ["000.txt", "007.txt"])
@on_every_executor
def test_l2_an_error_in_read_file_reaches_the_training_loop_after_the_rows_before_it(folder, executor, bad):
    found = []
    batches = loader(folder, Broken(bad, ValueError("no good")), **executor)
    with batches, pytest.raises(ValueError, match="no good") as raised:
        drain(batches, found)
    assert f"in Broken.read_file, reading {folder}/{bad}" in raised.value.__notes__
    # whole batches of 4 that need no row of the bad file
    assert found == list(range(int(bad[:3]) * ROWS // 4 * 4))


@on_every_executor
def test_l2_an_error_of_the_disk_says_which_file_it_was(folder, executor):
    batches = loader(folder, Broken("003.txt", PermissionError("locked")), **executor)
    with batches, pytest.raises(ReadError, match=r"cannot read .*003\.txt: locked"):
        list(batches)


def test_l4_no_thread_of_ours_dies_and_the_next_epoch_has_its_workers(folder, monkeypatch):
    deaths = []
    monkeypatch.setattr(threading, "excepthook", deaths.append)
    with loader(folder) as batches:
        for _ in range(3):
            assert numbers(batches) == [*range(120)]
    assert deaths == []


class WithLock(Lines):
    def __init__(self, batch_size):
        super().__init__(batch_size)
        self.lock = threading.Lock()

    def read_file(self, path):
        with self.lock:
            return super().read_file(path)


class WithLockOfItsOwn(WithLock):
    """Makes in `open` what cannot travel, so that each worker has its own."""

    def __init__(self, batch_size):
        Lines.__init__(self, batch_size)

    def open(self):
        self.lock = threading.Lock()


@pytest.mark.parametrize("executor", [EXECUTORS["inline"], THREADS], ids=["inline", "thread"])
def test_l5_a_reader_may_hold_a_lock_in_threads(folder, executor):
    with loader(folder, WithLock(4), **executor) as batches:
        assert numbers(batches) == [*range(120)]


def test_l5_a_lock_that_cannot_travel_is_named_with_the_remedy(folder):
    batches = loader(folder, WithLock(4), **EXECUTORS["process"])
    with batches, pytest.raises(ConfigError, match=r"WithLock\.lock cannot be sent.*make it in open\(\)"):
        iter(batches)


@on_every_executor
def test_l5_the_remedy_works(folder, executor):
    with loader(folder, WithLockOfItsOwn(4), **executor) as batches:
        assert numbers(batches) == [*range(120)]


def test_l6_making_a_loader_reads_no_file_and_starts_nothing(folder):
    threads = threading.active_count()
    with loader(folder, Broken("", AssertionError("read"))):
        assert threading.active_count() == threads


# Passes and epochs --------------------------------------------------------------------------------------------------


def test_l7_a_second_pass_gives_every_row_again(folder):
    with loader(folder) as batches:
        assert numbers(batches) == numbers(batches) == [*range(120)]


@pytest.mark.parametrize("n_batches", [1, 2, 3, 29])
def test_l7_a_pass_after_a_break_is_whole(folder, n_batches):
    with loader(folder) as batches:
        for number, _ in enumerate(batches, 1):
            if number == n_batches:
                break
        assert numbers(batches) == [*range(120)]


def test_l7_a_closed_loader_says_so(folder):
    batches = loader(folder)
    next(batches)
    batches.close()
    with pytest.raises(RuntimeError, match="closed"):
        next(batches)


def test_l7_closing_in_mid_epoch_does_not_look_like_its_end(folder):
    batches = loader(folder)
    steps = iter(batches)
    next(steps)
    batches.close()
    with pytest.raises(RuntimeError, match="closed"):
        next(steps)


def test_l8_get_epoch_is_that_of_the_batch_in_hand(folder):
    with loader(folder, num_epoch=3, max_queue_size=50) as batches:
        assert batches.get_epoch() == 0
        epochs = [batches.get_epoch() for _ in batches]
    assert epochs == [1] * 30 + [2] * 30 + [3] * 30


def test_batches_are_full_across_files_and_never_across_epochs(folder):
    with loader(folder, Lines(32), num_epoch=2) as batches:
        assert [len(batch["n"]) for batch in batches] == [32, 32, 32, 24] * 2


# Bounds -------------------------------------------------------------------------------------------------------------

_files_read: list[str] = []


class Counted(Lines):
    def read_file(self, path):
        _files_read.append(path)  # in threads: this list is the test's
        return super().read_file(path)


class Large(Dataset):
    """Makes batches of 5 MiB, so that each is made and delivered alone."""

    def batch_encode(self, batch_data):
        n_rows = len(batch_data["n"])
        return {**batch_data, "large": np.zeros((n_rows, (5 << 20) // 8 // ROWS))}


@pytest.mark.parametrize("max_queue_size", [1, 4])
def test_l9_no_more_files_are_read_ahead_than_the_queue_holds(tmp_path, max_queue_size):
    folder = write(tmp_path / "many", 20)
    _files_read.clear()
    with loader(folder, Counted(ROWS), Large(), max_queue_size=max_queue_size, num_workers=1) as batches:
        for n_delivered, _ in enumerate(batches, 1):  # a batch is a file
            assert len(_files_read) <= n_delivered + 2 + max_queue_size  # the batch to come, the next, the queue
    assert len(_files_read) == 20


@pytest.mark.parametrize("max_queue_size", [0, -1, True, 2.5])
def test_l16_a_wrong_queue_size_is_refused(folder, max_queue_size):
    with pytest.raises(ConfigError, match="max_queue_size must be"):
        loader(folder, max_queue_size=max_queue_size)


def test_l16_a_long_queue_is_no_mistake(folder):
    with loader(folder, max_queue_size=5000) as batches:
        assert numbers(batches) == [*range(120)]


class Where(Lines):
    def read_file(self, path):
        return {"n": [os.getpid()] * ROWS, "thread": [threading.get_ident()] * ROWS}, ROWS


class WhereEncoded(Dataset):
    def batch_encode(self, batch_data):
        return {**batch_data, "encoded": [os.getpid()] * len(batch_data["n"])}


def test_l18_reading_and_encoding_leave_the_training_process(folder):
    # PyLoader's classes, which hold the GIL, go to processes without being told to
    with DataLoader(Where(4), WhereEncoded(), NumpyDataCollator(), folder, num_workers=1) as batches:
        batch = next(iter(batches))
    assert os.getpid() not in {*batch["n"].tolist(), *batch["encoded"].tolist()}


def test_l20_a_loader_that_waits_for_the_training_loop_takes_no_cpu(folder):
    with loader(folder, max_queue_size=1) as batches:
        steps = iter(batches)
        next(steps)
        before = time.process_time()
        threading.Event().wait(0.5)  # a long training step; nobody sets it
        assert time.process_time() - before < 0.25
        assert len(numbers(steps)) == 120 - 4


# Values -------------------------------------------------------------------------------------------------------------


def test_l10_the_numpy_collator_works_with_the_numpy_of_today():
    assert NumpyDataCollator().collate_batch({"label": [1, 2]})["label"].tolist() == [1, 2]


NAMES = ("a", "b", "be", "el", "label", "label2", "l", "lab")


class ManyNames(Lines):
    def read_file(self, path):
        return {name: [1.5] * ROWS for name in NAMES}, ROWS


@pytest.mark.parametrize(
    ("collator", "needs"),
    [("NumpyDataCollator", "numpy"), ("TorchDataCollator", "torch"), ("TFDataCollator", "tensorflow")],
)
def test_l11_features_of_any_name_arrive(folder, collator, needs):
    pytest.importorskip(needs)
    collate = getattr(pyloader_delta, collator)()
    with DataLoader(ManyNames(16), AsTheyAre(), collate, folder, **THREADS) as batches:
        for batch in batches:
            assert set(batch) == set(NAMES)


@pytest.mark.parametrize(
    ("values", "dtype"),
    [
        ([np.int64(2**60 + 1), np.int64(1)], np.int64),
        ([2**60 + 1, 1], np.int64),
        ([True, False], np.bool_),
        ([np.bool_(True), np.bool_(False)], np.bool_),
        ([np.float32(0.1), np.float32(0.2)], np.float32),
        ([0.1, 0.2], np.float64),
        ([[1, 2], [3, 4]], np.int64),
    ],
    ids=["numpy ints", "ints", "bools", "numpy bools", "float32", "floats", "lists of ints"],
)
def test_l12_values_keep_their_type(values, dtype):
    for name in ("label", "feature"):
        array = NumpyDataCollator().collate_batch({name: values})[name]
        assert array.dtype == dtype
        assert array.tolist() == np.array(values, dtype=dtype).tolist()


@pytest.mark.parametrize("executor", [EXECUTORS["inline"], THREADS], ids=["inline", "thread"])
def test_l13_the_callers_random_states_are_neither_read_nor_changed(folder, executor):
    orders = []
    for seed in (1, 2):
        random.seed(seed)
        np.random.seed(seed)
        state, numpy_state = random.getstate(), repr(np.random.get_state())
        with loader(folder, Lines(4, shuffle=True), shuffle=True, num_epoch=2, **executor) as batches:
            orders.append(numbers(batches))
        assert (random.getstate(), repr(np.random.get_state())) == (state, numpy_state)
    assert orders[0] == orders[1]


def test_l13_the_order_is_that_of_the_seeds_whoever_else_draws(folder):
    class Drawing(Lines):
        def read_file(self, path):
            random.random()
            np.random.random()
            return super().read_file(path)

    orders = [
        numbers(loader(folder, kind(4, shuffle=True, random_seed=seed), shuffle=True, random_seed=seed))
        for kind, seed in ((Lines, 0), (Drawing, 0), (Lines, 1))
    ]
    assert orders[0] == orders[1] != orders[2]
    assert sorted(orders[0]) == sorted(orders[2]) == [*range(120)]


# The folder ---------------------------------------------------------------------------------------------------------


def test_l14_files_come_in_path_order_without_those_that_hold_no_rows(tmp_path):
    for name in ("b/1.txt", "a/2.txt", "a/10.txt", "c.txt", "_SUCCESS", ".c.txt.crc", "c.txt.crc", "_temporary/0.txt",
                 ".hidden/0.txt", "a/_started", ".DS_Store"):  # fmt: skip
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("1\n2\n")
    names = [os.path.relpath(chunk.path, tmp_path) for chunk in Lines().chunks(str(tmp_path))]
    assert names == ["a/10.txt", "a/2.txt", "b/1.txt", "c.txt"]


def test_l14_a_table_is_refused_whose_log_would_have_been_read_as_chunks(tmp_path):
    (tmp_path / "_delta_log").mkdir()
    (tmp_path / "part.txt").write_text("1\n")
    with pytest.raises(TableError, match="is a Delta table: read it with DeltaDataReader"):
        loader(str(tmp_path))


class Uneven(Lines):
    def read_file(self, path):
        columns, n_sample = super().read_file(path)
        return {**columns, "m": columns["n"][:-1]}, n_sample


@on_every_executor
def test_l15_columns_of_other_lengths_are_an_error_that_names_them(folder, executor):
    with loader(folder, Uneven(4), **executor) as batches:  # noqa: SIM117
        with pytest.raises(
            ContractError, match=r"read_file of .*000\.txt: column 'm' has 9 rows, but column 'n' has 10"
        ):
            list(batches)


class Lacking(Lines):
    def read_file(self, path):
        columns, n_sample = super().read_file(path)
        return ({} if path.endswith("1.txt") else {"m": columns["n"]}) | columns, n_sample


def test_l15_a_column_that_a_file_lacks_is_an_error_that_names_both_files(folder):
    text = r"column 'm' is in .*\.txt but not in .*1\.txt"
    with loader(folder, Lacking(4)) as batches, pytest.raises(ContractError, match=text):
        list(batches)


def test_l17_an_empty_folder_is_an_error(tmp_path):
    with pytest.raises(ConfigError, match="holds no chunk file"):
        loader(str(tmp_path))


def test_l17_a_missing_folder_is_an_error(tmp_path):
    with pytest.raises(ConfigError, match="does not exist"):
        loader(str(tmp_path / "nowhere"))


def test_l19_the_import_leaves_logging_alone_and_warns_of_nothing():
    code = "import logging, pyloader_delta; print(logging.getLogger().handlers, logging.getLogger().level)"
    printed = python("-W", "error", "-c", code)
    assert (printed.stdout, printed.stderr) == ("[] 30\n", "")


class WithCounts(Lines):
    def count_samples(self, path):
        return len(Path(path).read_text().split())


def test_l21_there_is_a_length_where_counts_are_known_and_advice_where_they_are_not(folder):
    with loader(folder, WithCounts(32), num_epoch=2) as batches:
        assert len(batches) == 2 * batches.batches_per_epoch == 8
        assert len(list(batches)) == 8
    with loader(folder) as batches, pytest.raises(TypeError, match=r"define count_samples\(self, path\) in Lines"):
        len(batches)
