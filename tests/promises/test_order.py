"""One order: of version, reader options, seeds, epoch and window alone. Each row exactly once, batches exact."""

import random
from collections import Counter
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from deltalake import DeltaTable, WriterProperties, write_deltalake
from fakes import CountedNumbers, Numbers, NumpyThrough, Through, number_files, numbers, until_error, xs
from writing import number_table

from pyloader_delta import DataLoader, DeltaDataReader, IncompleteEpochError, NumpyDataCollator
from pyloader_delta.permute import NAME, permuted

LENGTHS = [5, 1, 0, 9, 2, 7, 3, 4]


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return number_files(tmp_path_factory.mktemp("order") / "numbers", LENGTHS)


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """1000 rows in 4 files, row groups of 100."""
    root = str(tmp_path_factory.mktemp("order") / "table")
    for start in range(0, 1000, 250):
        values = range(start, start + 250)
        rows = pa.table({"x": pa.array(values, pa.int64()), "s": [str(value) for value in values]})
        write_deltalake(root, rows, mode="append", writer_properties=WriterProperties(max_row_group_size=100))
    return root


WORKERS = [(0, "thread"), (1, "thread"), (2, "thread"), (4, "thread"), (1, "process"), (3, "process")]
READERS = {
    "plain": (False, False, "128MiB"),
    "rows of chunks": (True, False, "chunk"),
    "rows and chunks": (True, True, "chunk"),
    "rows of a window of rows": (True, True, 12),
    "rows of a window of bytes": (True, True, "20B"),
    "rows of everything": (True, False, "128MiB"),
    "chunks": (False, True, "128MiB"),
}


def order(root: str, mixing: str, dataset: Any = None, **options: Any) -> list[list[int]]:
    mix_rows, mix_chunks, window = READERS[mixing]
    reader = CountedNumbers(batch_size=4, shuffle=mix_rows, random_seed=0)
    options |= {"shuffle": mix_chunks, "shuffle_window": window, "num_epoch": 2, "random_seed": 0}
    with numbers(root, reader=reader, dataset=dataset, **options) as loader:
        return xs(loader)


@pytest.mark.parametrize("mixing", READERS)
def test_the_order_is_the_same_for_any_threads_queue_budget_and_prefetch(root, mixing):
    expected = order(root, mixing, num_workers=0)
    for n_workers, kind in WORKERS:
        if kind == "thread":
            for queue in (1, 50):
                for budget in ("2MiB", "1GiB"):
                    options = {"max_queue_size": queue, "memory_budget": budget, "prefetch_factor": 1 + queue % 2}
                    assert order(root, mixing, num_workers=n_workers, workers=kind, **options) == expected
    assert order(root, mixing, NumpyThrough(), num_workers=2, workers="thread") == expected


@pytest.mark.parametrize(("mixing", "queue", "n_workers"), [("plain", 1, 2), ("rows of a window of rows", 50, 4)])
def test_the_order_is_the_same_in_processes(root, mixing, queue, n_workers):
    expected = order(root, mixing, num_workers=0)
    for budget in ("2MiB", "1GiB"):
        options = {"max_queue_size": queue, "memory_budget": budget, "workers": "process"}
        assert order(root, mixing, num_workers=n_workers, **options) == expected


def test_the_order_of_a_table_is_the_same_for_any_workers_queue_and_budget(table):
    def rows(batch_size: int, **options: Any) -> list[list[int]]:
        reader = DeltaDataReader(batch_size=batch_size, shuffle=True)
        with DataLoader(
            reader, NumpyThrough(), NumpyDataCollator(), table, shuffle=True, shuffle_window="4KiB", **options
        ) as loader:
            batches = list(loader)
        assert all(b["s"].tolist() == [str(x) for x in b["x"]] for b in batches)
        return xs(batches)

    for size in (7, 64, 1000):
        expected = rows(size, num_workers=0)
        assert sorted(x for batch in expected for x in batch) == [*range(1000)]
        for n_workers, kind, queue, budget in ((1, "thread", 1, "1MiB"), (4, "thread", 50, "1GiB")):
            options = {"num_workers": n_workers, "workers": kind, "max_queue_size": queue, "memory_budget": budget}
            assert rows(size, **options) == expected
    assert rows(64, num_workers=2, workers="process", max_queue_size=1) == rows(64, num_workers=0)


@pytest.mark.parametrize("mixing", READERS)
@pytest.mark.parametrize("batch_size", [1, 3, 31, 100])
def test_each_row_comes_once_in_exact_batches_over_chunk_and_window_borders(root, mixing, batch_size):
    mix_rows, mix_chunks, window = READERS[mixing]
    for drop_last in (False, True):
        reader = CountedNumbers(batch_size=batch_size, shuffle=mix_rows)
        options = {"shuffle": mix_chunks, "shuffle_window": window, "drop_last": drop_last, "num_workers": 0}
        if drop_last and batch_size > 31:
            continue
        with numbers(root, reader=reader, **options) as loader:
            batches = xs(loader)
            stats = loader.stats()
        whole, rest = divmod(31, batch_size)
        lengths = [batch_size] * whole + ([rest] if rest and not drop_last else [])
        assert [len(batch) for batch in batches] == lengths
        seen = Counter(x for batch in batches for x in batch)
        assert set(seen.values()) == {1}
        assert len(seen) == sum(lengths)
        assert (stats["rows_planned_total"], stats["rows_delivered_total"]) == (31, sum(lengths))
        assert stats["rows_dropped_total"] == 31 - sum(lengths)


def test_without_mixing_rows_come_as_they_lie(root):
    assert [x for batch in order(root, "plain", num_workers=2, workers="thread") for x in batch] == [*range(31)] * 2


def test_a_chunk_window_mixes_rows_within_their_file_alone(root):
    rows = [x for batch in order(root, "rows of chunks", num_workers=0)[:8] for x in batch]
    start = 0
    for n in LENGTHS:
        assert sorted(rows[start : start + n]) == [*range(start, start + n)]
        start += n
    assert rows != [*range(31)]


def test_unmixed_rows_of_mixed_chunks_keep_their_order_in_each_file(root):
    rows = [x for batch in order(root, "chunks", num_workers=0)[:8] for x in batch]
    assert sorted(rows) == [*range(31)]
    assert sum(b != a + 1 for a, b in pairwise(rows)) < len(LENGTHS)
    assert rows != [*range(31)]


def test_seeds_and_epochs_have_orders_of_their_own(root):
    def rows(row_seed: int, chunk_seed: int) -> tuple[list[int], ...]:
        reader = CountedNumbers(batch_size=31, shuffle=True, random_seed=row_seed)
        options = {"random_seed": chunk_seed, "shuffle": True, "shuffle_window": "chunk", "num_epoch": 3}
        with numbers(root, reader=reader, num_workers=0, **options) as loader:
            return tuple(map(tuple, xs(loader)))

    found = [rows(row_seed, chunk_seed) for row_seed in (0, 1, 42, -1, 2**70) for chunk_seed in (0, 1, 42)]
    assert len({epoch for epochs in found for epoch in epochs}) == 5 * 3 * 3  # 0 is a seed like any other
    assert rows(0, 0) == found[0]


def test_the_row_seed_and_the_chunk_seed_do_one_thing_each(root):
    def rows(mixing: tuple[bool, bool], row_seed: int, chunk_seed: int) -> list[list[int]]:
        reader = CountedNumbers(batch_size=31, shuffle=mixing[0], random_seed=row_seed)
        with numbers(root, reader=reader, shuffle=mixing[1], random_seed=chunk_seed, num_workers=0) as loader:
            return xs(loader)

    assert rows((True, False), 1, 1) == rows((True, False), 1, 2) != rows((True, False), 2, 1)
    assert rows((False, True), 1, 1) == rows((False, True), 2, 1) != rows((False, True), 1, 2)


def test_the_callers_random_states_are_neither_read_nor_changed(root, executor):
    import torch

    def states() -> tuple[Any, ...]:
        return random.getstate(), [str(part) for part in np.random.get_state()], torch.get_rng_state().tolist()

    found = []
    for seed in (1, 2):
        random.seed(seed)
        np.random.seed(seed)
        torch.manual_seed(seed)
        before = states()
        found.append(order(root, "rows and chunks", **executor))
        assert states() == before
    assert found[0] == found[1]


class Lies(Numbers):
    """Says that each file has one row more, or less, than it has."""

    def __init__(self, by: int) -> None:
        super().__init__(batch_size=2)
        self.by = by

    def count_samples(self, path: str) -> int:
        n = len(self.read_file(path)["x"])
        return n if path.endswith("00.txt") else n + self.by


@pytest.mark.parametrize("by", [1, -1])
def test_rows_that_are_not_as_planned_are_an_error_naming_the_file(tmp_path, executor, by):
    root = number_files(tmp_path / "n", [4, 4])
    with numbers(root, reader=Lies(by), **executor) as loader:
        found, error = until_error(loader)
    assert xs(found) == [[0, 1], [2, 3]]
    assert isinstance(error, IncompleteEpochError)
    assert f"01.txt rows 0..{3 + by}: the plan has {4 + by} rows, reading gave 4" in str(error)


# The permutations ----------------------------------------------------------------------------------------------------


def test_the_permutations_of_a_release_are_those_of_every_other():
    """Golden values: another result here is another order for everybody, and needs another NAME."""
    assert NAME == "feistel-1"
    assert permuted(10, ("golden", 0)).tolist() == [4, 2, 7, 9, 1, 0, 3, 8, 6, 5]
    assert permuted(5000, ("golden", 1), 0, 8).tolist() == [559, 1866, 182, 2186, 30, 2767, 2259, 603]
    huge = [779510956071, 917082563466, 103586831343, 505697107120]
    assert permuted(2**40, ("golden", 2), 123, 127).tolist() == huge


@pytest.mark.parametrize("n", [0, 1, 2, 3, 10, 1023, 1024, 1025, 4096, 99_991])
def test_permuted_is_a_permutation_in_parts_as_in_whole(n):
    whole = permuted(n, ("key", 1))
    assert sorted(whole.tolist()) == [*range(n)]
    parts = [permuted(n, ("key", 1), start, min(start + 777, n)) for start in range(0, n, 777)]
    assert [x for part in parts for x in part.tolist()] == whole.tolist()


def test_permuted_of_a_huge_domain_costs_what_is_taken():
    for n in (2**33, 2**40 + 1):
        found = permuted(n, ("key",), n - 1000, n)
        assert len(set(found.tolist())) == 1000
        assert (found >= 0).all()
        assert (found < n).all()
        assert found.dtype == np.int64


@pytest.mark.parametrize("n", [8, 1000, 1024, 5000])
def test_permuted_is_even(n):
    """Each value comes at the first place, and each place after another, about equally often over many keys."""
    n_keys = 4000
    first = Counter(int(permuted(n, ("even", key), 0, 1)[0]) * 8 // n for key in range(n_keys))
    assert len(first) == 8
    assert all(abs(count - n_keys / 8) < 6 * (n_keys / 8) ** 0.5 for count in first.values())
    rows = np.stack([permuted(n, ("even", key)) for key in range(400)])
    ascents = (rows[:, 1:] > rows[:, :-1]).mean()
    assert abs(ascents - 0.5) < 6 * (1 / 12 / (400 * n)) ** 0.5 + 1e-3
    fixed = (rows == np.arange(n)).sum(axis=1).mean()
    assert 0.6 < fixed < 1.4  # a random permutation has one fixed point on average
    correlation = np.corrcoef(rows.ravel(), np.tile(np.arange(n), 400))[0, 1]
    assert abs(correlation) < 6 / (400 * n) ** 0.5 + 1e-3


def test_keys_of_neighbouring_seeds_give_unrelated_permutations():
    one, other = permuted(10_000, (1, 0)), permuted(10_000, (2, 0))
    assert (one == other).sum() < 12
    assert permuted(100, (1, 23)).tolist() != permuted(100, (12, 3)).tolist()
    assert permuted(100, ("1",)).tolist() != permuted(100, (1,)).tolist()


# One snapshot --------------------------------------------------------------------------------------------------------


def append(root: str) -> None:
    write_deltalake(root, pa.table({"x": [100, 101]}), mode="append")


def overwrite(root: str) -> None:
    write_deltalake(root, pa.table({"x": [100, 101]}), mode="overwrite")


def delete(root: str) -> None:
    DeltaTable(root).delete("x >= 10")


def optimize(root: str) -> None:
    assert DeltaTable(root).optimize.compact()["numFilesRemoved"] == 12


def evolve(root: str) -> None:
    write_deltalake(root, pa.table({"x": [1], "new": [2]}), mode="append", schema_mode="merge")


INLINE, THREADS, PROCESSES = {"num_workers": 0}, {"num_workers": 2}, {"num_workers": 1, "workers": "process"}
COMMITS = [
    *((change, mix_rows, executor) for change in (append, overwrite, delete, optimize, evolve)
      for mix_rows in (False, True) for executor in (INLINE, THREADS | {"workers": "thread"})),
    (optimize, False, PROCESSES),
]  # fmt: skip


@pytest.mark.parametrize(("change", "mix_rows", "executor"), COMMITS)
def test_what_is_committed_in_mid_epoch_changes_nothing(tmp_path, change, mix_rows, executor):
    root = number_table(tmp_path / "table", [3] * 12)
    reader = DeltaDataReader(batch_size=4, shuffle=mix_rows)
    options = {"shuffle_window": "chunk", "max_queue_size": 1, "num_epoch": 2} | executor
    with DataLoader(reader, Through(), NumpyDataCollator(), root, **options) as loader:
        batches = iter(loader)
        rows = next(batches)["x"].tolist()
        change(root)
        rows += [x for batch in batches for x in batch["x"].tolist()]
        again = [x for batch in loader for x in batch["x"].tolist()]
        assert loader.snapshot.version == 11
    assert sorted(rows[:36]) == sorted(rows[36:]) == sorted(again[:36]) == sorted(again[36:]) == [*range(36)]
    now = sorted(DeltaTable(root).to_pyarrow_table()["x"].to_pylist())
    with DataLoader(DeltaDataReader(batch_size=4), Through(), NumpyDataCollator(), root, num_workers=0) as loader:
        if change is not evolve:
            assert sorted(x for batch in loader for x in batch["x"].tolist()) == now
        assert loader.snapshot.version == 12
