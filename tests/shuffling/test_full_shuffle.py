"""shuffle="full": a uniform permutation of all rows by way of a scratch file that nobody sees afterwards."""

import gc
import json
import os
import re
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pytest
from deltalake import WriterProperties, write_deltalake
from fakes import AsIs, CountedNumbers, Numbers, NumpyThrough, Through, number_files, numbers, until_error, xs
from programs import python

from pyloader_delta import (
    BudgetError,
    ConfigError,
    DataLoader,
    DataReader,
    DeltaDataReader,
    IncompleteEpochError,
    NumpyDataCollator,
    ScratchError,
    StateError,
)
from pyloader_delta.permute import permuted, places
from pyloader_delta.spill import scratch as scratch_module

ROWS = 6000


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """6,000 rows in 4 files, row groups of 500; numbers, texts with nulls, lists."""
    root = str(tmp_path_factory.mktemp("full") / "table")
    for start in range(0, ROWS, 1500):
        x = range(start, start + 1500)
        rows = pa.table({
            "x": pa.array(x, pa.int64()),
            "s": [None if i % 7 == 0 else f"ü{i}" for i in x],
            "l": pa.array([[i] * (i % 3) for i in x], pa.list_(pa.int32())),
        })  # fmt: skip
        write_deltalake(root, rows, mode="append", writer_properties=WriterProperties(max_row_group_size=500))
    return root


def loader(root: str, batch_size: int = 64, **options: Any) -> DataLoader[Any]:
    options = {"num_workers": 0, "shuffle_window": 1000, "framework": "numpy", "shuffle": "full"} | options
    return DataLoader.from_delta(root, batch_size, columns=["x"], **options)


def rows(one: DataLoader[Any]) -> list[int]:
    with one:
        return [x for batch in one for x in batch["x"].tolist()]


def test_every_column_of_each_row_comes_once_and_stays_with_it(table, executor):
    reader = DeltaDataReader(batch_size=50)
    options = executor | {"shuffle": "full", "shuffle_window": "20kB", "num_epoch": 2}
    with DataLoader(reader, Through(), AsIs(), table, **options) as one:
        batches = list(one)
        receipt = one.receipt()
    x = [int(value) for batch in batches for value in batch["x"]]
    assert sorted(x[:ROWS]) == sorted(x[ROWS:]) == list(range(ROWS))
    assert [len(batch["x"]) for batch in batches] == [50] * (2 * ROWS // 50)
    for batch in batches:
        for value, text, found in zip(batch["x"], batch["s"], batch["l"], strict=True):
            assert text == (None if value % 7 == 0 else f"ü{value}")
            assert list(found) == [value] * (value % 3)
    assert receipt.whole
    assert {n.planned for n in receipt.files.values()} == {1500}
    assert len(receipt.files) == 4


def test_the_order_is_the_same_for_any_workers_memory_and_folder(table, tmp_path):
    expected = rows(loader(table))
    assert expected != list(range(ROWS))
    for options in (
        {"num_workers": 3, "workers": "thread", "memory_budget": "2MiB", "max_queue_size": 1},
        {"num_workers": 2, "workers": "process", "scratch_dir": tmp_path},
    ):
        assert rows(loader(table, **options)) == expected
    assert os.listdir(tmp_path) == []
    assert rows(loader(table, random_seed=7)) != expected


def test_epochs_have_orders_of_their_own(table):
    with loader(table, num_epoch=3) as one:
        found = [x for batch in one for x in batch["x"].tolist()]
        fourth = [x for batch in one for x in batch["x"].tolist()][:ROWS]
    epochs = [found[i * ROWS : (i + 1) * ROWS] for i in range(3)] + [fourth]
    assert all(sorted(epoch) == list(range(ROWS)) for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) == 4


def test_positions_are_uniform(table):
    """Chi-square of (part of the table) x (part of the epoch), and of neighbours, over fixed seeds."""
    n_parts, counts, near = 12, np.zeros((12, 12)), 0
    seeds = range(8)
    for seed in seeds:
        found = np.array(rows(loader(table, 1000, random_seed=seed)))
        np.add.at(counts, (np.arange(ROWS) * n_parts // ROWS, found * n_parts // ROWS), 1)
        near += int((np.abs(np.diff(found)) <= 10).sum())
    expected = len(seeds) * ROWS / n_parts**2
    # margins are fixed, so (parts - 1)^2 degrees of freedom; a permutation varies a little less than independent draws
    chi_square = ((counts - expected) ** 2 / expected).sum()
    assert 70 < chi_square < 190  # 121 +- 4.4 sigma
    n_near = len(seeds) * ROWS * 20 / ROWS
    assert abs(near - n_near) < 5 * n_near**0.5


@pytest.mark.parametrize("n", [0, 1, 2, 3, 10, 1023, 1024, 1025, 4096, 99_991])
def test_places_are_the_inverse_of_the_permutation(n):
    forth = permuted(n, ("key", n))
    np.testing.assert_array_equal(places(n, ("key", n), 0, n), np.argsort(forth))
    np.testing.assert_array_equal(places(n, ("key", n), n // 3, n), np.argsort(forth)[n // 3 :])


def test_places_of_a_huge_domain_cost_what_is_asked_for():
    for n in (2**33, 2**40 + 1):
        (place,) = places(n, ("key",), n - 5, n - 4)
        assert permuted(n, ("key",), int(place), int(place) + 1).tolist() == [n - 5]


@pytest.mark.parametrize("uneven", ["pad", "mask", "drop"])
@pytest.mark.parametrize("world_size", [2, 7])
def test_ranks_share_the_rows(table, uneven, world_size):
    seen, steps, receipts = Counter(), set(), []
    for rank in range(world_size):
        with loader(table, rank=rank, world_size=world_size, uneven=uneven) as one:
            batches = list(one)
            assert len(batches) == len(one)
            receipts.append(one.receipt())
        steps.add(tuple(len(batch["x"]) for batch in batches))
        for batch in batches:
            seen.update(batch["x"][batch["_valid"]].tolist() if uneven == "mask" else batch["x"].tolist())
    assert len(steps) == 1
    assert len(seen) == (ROWS - ROWS % world_size if uneven == "drop" else ROWS)
    assert sum(seen.values()) == len(seen) + (-ROWS % world_size if uneven == "pad" else 0)
    assert sum(receipts).whole
    assert sum(n.planned for n in sum(receipts).files.values()) == len(seen)


def test_more_ranks_than_rows(tmp_path):
    root = number_files(tmp_path / "n", [1, 0, 2])
    found = []
    for rank in range(5):
        options = {"rank": rank, "world_size": 5, "shuffle": "full", "num_workers": 0}
        with numbers(root, reader=CountedNumbers(batch_size=2), **options) as one:
            found += [x for batch in xs(one) for x in batch]
    assert len(found) == 5
    assert set(found) == {0, 1, 2}


@pytest.mark.parametrize("batches", [1, 47, 93, 94, 100])
def test_resume_is_exact_and_deals_out_only_what_is_left(table, batches):
    options = {"num_epoch": 2, "num_workers": 0}
    with loader(table, **options) as one:
        found, state, state_text = [], None, ""
        for number, batch in enumerate(one, 1):
            found.append(batch["x"].tolist())
            if number == batches:
                state = one.state_dict()
                state_text = json.dumps(state)
    assert len(state_text) < 600
    with loader(table, **options | {"num_workers": 2, "workers": "thread"}) as other:
        other.load_state_dict(json.loads(state_text))
        iterator = iter(other)
        size = other._full._scratch.size_bytes
        rest = [batch["x"].tolist() for batch in iterator]
    assert rest == found[batches:]
    if batches == 93:
        assert size < 0.4 * 8 * ROWS  # the last bucket of six, and what Arrow adds


def test_other_ranks_go_on_in_the_middle_of_an_epoch(table):
    seen: list[int] = []
    for rank in range(3):
        with loader(table, rank=rank, world_size=3) as one:
            for number, batch in enumerate(one, 1):
                seen += batch["x"].tolist()
                if number == 20:
                    state = one.state_dict()
                    break
    for rank in range(2):
        with loader(table, rank=rank, world_size=2, num_workers=2, workers="thread") as one:
            one.load_state_dict(state)
            seen += [x for batch in one for x in batch["x"].tolist()]
    assert sorted(seen) == list(range(ROWS))


def test_a_state_of_another_way_of_shuffling_is_refused(table):
    with loader(table) as one:
        state = one.state_dict()
    for options in ({"shuffle": True}, {"shuffle_window": 999}, {"random_seed": 1}):
        with loader(table, **options) as other, pytest.raises(StateError, match=r"shuffle|random_seed"):
            other.load_state_dict(state)


class Mixed(DataReader):
    """Gives each file's column `v` a type of its own, as Python values; and dictionaries."""

    batch_size = 4

    def count_samples(self, path: str) -> int:
        return 5

    def read_file(self, path: str) -> dict[str, list[Any]]:
        number = int(Path(path).stem)
        values = [[1, 2, 3, 4, 5], ["a", None, "c", "d", "e"], [(1,), {"k": 2}, 2**80, 1.5, b"x"]][number % 3]
        return {"file": [number] * 5, "v": values}


def test_python_values_of_any_kind_survive_the_scratch_file(tmp_path):
    root = number_files(tmp_path / "n", [5] * 6)
    options = {"shuffle": "full", "shuffle_window": 7, "num_workers": 0}

    class Pairs(Through):
        def batch_encode(self, batch: Any) -> Any:
            return {"file": batch["file"], "v": [repr(value) for value in batch["v"]]}

    with DataLoader(Mixed(), Pairs(), NumpyDataCollator(), root, **options) as one:
        found = Counter((int(f), v) for batch in one for f, v in zip(batch["file"], batch["v"], strict=True))
    expected = Counter((n, repr(v)) for n in range(6) for v in Mixed().read_file(f"{n}.txt")["v"])
    assert found == expected
    for kind in ("2", "5"):
        os.remove(f"{root}/0{kind}.txt")
    with DataLoader(Mixed(), NumpyThrough(), NumpyDataCollator(), root, **options) as strict:
        _, error = until_error(strict)
    assert re.search(r"01.txt: column 'v' is string here and int64 in other files; cast it", str(error))


class Dictionaries(DataReader):
    batch_size = 8

    def count_samples(self, path: str) -> int:
        return 100

    def read_file(self, path: str) -> pa.Table:
        words = pa.array([f"word {i}" for i in range(5000)])
        codes = pa.array(np.arange(100, dtype=np.int16) * 7)
        return pa.table({"w": pa.DictionaryArray.from_arrays(codes, words), "x": np.arange(100)})


def test_dictionaries_do_not_swell_the_scratch_file(tmp_path):
    root = number_files(tmp_path / "n", [1] * 3)

    class Text(NumpyThrough):
        input_format = "arrow"

        def batch_encode(self, batch: Any) -> Any:
            assert pa.types.is_dictionary(batch.column("w").type)
            return {"w": np.array(batch.column("w").to_pylist()), "x": batch.column("x").to_numpy()}

    options = {"shuffle": "full", "shuffle_window": 10, "num_workers": 0}
    with DataLoader(Dictionaries(), Text(), NumpyDataCollator(), root, **options) as one:
        iterator = iter(one)
        assert one._full._scratch.size_bytes < 200_000  # each dictionary whole in each bucket: 6 MB
        found = Counter(
            (w, x) for batch in iterator for w, x in zip(batch["w"].tolist(), batch["x"].tolist(), strict=True)
        )
    assert found == {(f"word {7 * i}", i): 3 for i in range(100)}


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"shuffle": "half"}, "shuffle, if not 'full', must be True or False, got 'half'"),
        ({"shuffle_window": "chunk"}, "not 'chunk'"),
        ({"audit": True}, "audit=True"),
        ({"on_error": "skip"}, "on_error='skip'"),
        ({"scratch_dir": "/no/such/folder"}, "is no folder"),
        ({"scratch_dir": 3}, "scratch_dir must be the path"),
        ({"shuffle": True, "scratch_dir": "/tmp"}, "shuffle='full' alone"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_read(table, options, text):
    with pytest.raises(ConfigError, match=text):
        loader(table, **options)


def test_unknown_lengths_are_refused_naming_what_to_define(tmp_path):
    root = number_files(tmp_path / "n", [3])
    with pytest.raises(ConfigError, match="count_samples"):
        numbers(root, reader=Numbers(batch_size=2), shuffle="full")


def test_a_disk_without_room_is_an_error_before_anything_is_written(table, tmp_path, monkeypatch):
    monkeypatch.setattr(scratch_module, "free_bytes", lambda folder: 1000)
    with loader(table, scratch_dir=tmp_path) as one:
        with pytest.raises(ScratchError, match=rf"needs about \d+ bytes in {tmp_path}, 1000 are free; free some room"):
            next(one)
        assert one._full._scratch is None


_FULL_DISK = """
import resource, signal, sys
from pyloader_delta import DataLoader, ScratchError
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
with DataLoader.from_delta(sys.argv[1], 8, shuffle="full", framework="numpy", num_workers=2, workers="thread") as one:
    try:
        next(one)
    except ScratchError as error:
        print(error)
"""


def test_a_disk_that_gets_full_is_an_error_that_names_what_to_free(table):
    done = python("-c", _FULL_DISK, table)
    assert "could not write to" in done.stdout
    assert "name another folder by scratch_dir" in done.stdout


def test_buckets_beyond_the_budget_are_an_error_before_anything_is_read(table):
    with (
        loader(table, memory_budget="40kB", shuffle_window=3000) as one,
        pytest.raises(BudgetError, match="shuffle_window="),
    ):
        iter(one)


class Fails(CountedNumbers):
    def read_file(self, path: str) -> Any:
        if path.endswith("02.txt"):
            raise KeyError("no such key")
        return super().read_file(path)


class Longer(CountedNumbers):
    def count_samples(self, path: str) -> int:
        return 4


@pytest.mark.parametrize("workers", [{"num_workers": 0}, {"num_workers": 3, "workers": "thread"}])
def test_errors_of_reading_come_as_they_are_and_leave_nothing(tmp_path, workers):
    root = number_files(tmp_path / "n", [4, 4, 3, 4])
    options = workers | {"shuffle": "full", "scratch_dir": tmp_path}
    with numbers(root, reader=Fails(batch_size=2), **options) as one:
        with pytest.raises(KeyError, match="no such key") as caught:
            iter(one)
        assert one._full._scratch is None
    assert any("02.txt" in note for note in caught.value.__notes__)
    one = numbers(root, reader=Longer(batch_size=2), **options)
    with one, pytest.raises(IncompleteEpochError, match=r"02.txt rows 0..3: the plan has 4 rows, reading gave 3"):
        iter(one)
    assert sorted(os.listdir(tmp_path)) == ["n"]


def test_one_epoch_at_a_time_lies_on_the_disk_and_none_after_the_end(table, tmp_path):
    with loader(table, num_epoch=3, scratch_dir=tmp_path) as one:
        sizes = []
        for batch in one:
            assert len(batch["x"])
            sizes.append(one._full._scratch.size_bytes)
        assert os.listdir(tmp_path) == []  # the file has no name, so no end of a program can leave it behind
        assert max(sizes) < 2 * 8 * ROWS
        assert one._full._scratch is None
        kept = iter(one)
        next(kept)
        held = one._full._scratch
        assert held is not None
    assert one._full._scratch is None
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(held._fd)


def test_a_loader_that_is_garbage_gives_the_disk_back(table):
    one = loader(table)
    iterator = iter(one)
    next(iterator)
    descriptor = one._full._scratch._fd
    del one, iterator
    gc.collect()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)


class Counting(CountedNumbers):
    """Notes how often it was opened and closed."""

    calls: ClassVar[list[str]] = []

    def open(self) -> None:
        self.calls.append("open")

    def close(self) -> None:
        self.calls.append("close")


def test_a_reader_is_opened_once_a_thread_and_closed(tmp_path):
    root = number_files(tmp_path / "n", [50] * 20)
    Counting.calls.clear()
    options = {"shuffle": "full", "num_workers": 2, "workers": "thread", "memory_budget": "64kB", "shuffle_window": 100}
    with numbers(root, reader=Counting(batch_size=20), **options) as one:
        next(one)
        dealing = list(Counting.calls)
        assert sorted(x for batch in xs(one) for x in batch) == list(range(1000))
    assert 2 <= dealing.count("open") <= 4  # one or two to deal out, the engine's own beside them
    assert Counting.calls.count("open") == Counting.calls.count("close")


def test_a_peek_costs_no_second_deal_and_a_break_gives_the_disk_back_at_the_next_pass(table):
    with loader(table) as one:
        first = next(iter(one))["x"].tolist()
        held = one._full._scratch
        again = [batch["x"].tolist() for _, batch in zip(range(5), one, strict=False)]
        assert one._full._scratch is held
        assert again[0] == first
        assert len([0 for _ in one]) == len(one)  # the next epoch
        assert one._full._scratch is None
        assert one.get_epoch() == 2


def test_an_empty_table_ends_even_without_an_end_of_epochs(table):
    with loader(table, filter="x < 0", num_epoch=None) as one, pytest.warns(UserWarning, match="no rows"):
        assert list(one) == []


@pytest.mark.parametrize("limit", [1, 20])
def test_a_limit_deals_out_only_what_it_needs(table, limit):
    expected = rows(loader(table))[: 64 * limit]
    with loader(table, limit=limit) as one:
        iterator = iter(one)
        assert one._full._scratch.size_bytes < 8 * ROWS * (0.4 if limit == 1 else 0.7)
        assert [x for batch in iterator for x in batch["x"].tolist()] == expected


@pytest.mark.parametrize("options", [{}, {"rank": 1, "world_size": 3}], ids=str)
def test_a_preview_shows_what_a_full_shuffle_delivers(table, options):
    with loader(table, 100, drop_last=True, **options) as one:
        preview = one.preview_shuffle("s", batches=1000)
        delivered = np.stack([batch["x"] for batch in one])
    np.testing.assert_array_equal(preview.sources, delivered)
    assert preview.spread == pytest.approx(0.994, abs=0.03)


def test_runs_of_a_loader_in_two_threads_do_not_meet(table):
    with loader(table) as one, loader(table, random_seed=5) as other:
        pairs = [(a["x"].tolist(), b["x"].tolist()) for a, b in zip(one, other, strict=True)]
    for side in zip(*pairs, strict=True):
        assert sorted(x for batch in side for x in batch) == list(range(ROWS))
    assert all(one != other for one, other in pairwise(pairs))
