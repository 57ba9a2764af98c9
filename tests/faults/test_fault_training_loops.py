"""A training loop that sleeps, that keeps every batch, that takes one and forgets the loader: bounded, and no leak."""

import gc
import weakref
from typing import Any

import numpy as np
import pytest
from fakes import NumpyThrough, number_files, numbers, xs
from leaks import idle, until
from under_fire import AsNumbers, descriptors, numbered, numbered_files, seen, workers

BUDGET = 32 << 20


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return numbered_files(tmp_path_factory.mktemp("loops") / "n", 40)


def test_while_it_sleeps_what_is_held_is_bounded_and_nothing_is_done(root, executor):
    with numbered(root, memory_budget=BUDGET, max_queue_size=1, **executor) as loader:
        batches = iter(loader)
        found = [next(batches)]
        assert not executor["num_workers"] or idle(loader)
        held = loader.memory()
        assert held.chunks + held.batches + held.lent <= BUDGET
        assert loader.stats()["rows_delivered_total"] == 20_000
        again = loader.memory()
        assert (again.chunks, again.batches, again.slabs) == (held.chunks, held.batches, held.slabs)
        found += batches
    assert (np.sort(np.concatenate([batch["x"] for batch in found])) == np.arange(2_000_000)).all()


class Slow(NumpyThrough):
    """Reports that a batch has taken long, so that each is a run of its own."""

    def batch_encode(self, batch_data: Any) -> Any:
        import time

        end = time.perf_counter() + 0.004
        while time.perf_counter() < end:
            pass
        return batch_data


def test_it_may_keep_every_batch_of_many_small_runs(tmp_path, executor):
    """Each run lies in memory of its own: neither descriptors nor maps of the system's may be used up by them."""
    root = number_files(tmp_path / "n", [6] * 100)
    with numbers(root, dataset=Slow(), **executor) as loader:
        next(iter(loader))
        before = descriptors()
        kept = list(loader)
        assert descriptors() <= before + 150
        assert xs(kept) == [[2 * i, 2 * i + 1] for i in range(300)]
        assert len({batch["x"].ctypes.data for batch in kept}) == 300


def test_it_may_keep_every_batch_and_may_write_into_it(root, executor):
    with numbered(root, memory_budget=BUDGET, num_epoch=2, **executor) as loader:
        kept = list(loader)
        before = seen(kept)
        for batch in kept[::2]:
            batch["x"][:] = -1
            batch["y"][:] = -2
        assert seen(kept)[1::2] == before[1::2]
        assert held_by(loader)
    assert seen(kept)[1::2] == before[1::2]


def held_by(loader: Any) -> bool:
    held = loader.memory()
    return held.lent <= BUDGET * 0.1


def test_it_takes_one_batch_and_forgets_the_loader(root, executor):
    before = descriptors()
    made = numbered(root, dataset=AsNumbers(), num_epoch=None, **executor)
    gone = weakref.ref(made)
    batch = next(iter(made))
    del made
    gc.collect()
    assert gone() is None
    assert until(lambda: not workers())
    assert (batch["y"] == 2 * batch["x"]).all()
    del batch
    assert until(lambda: descriptors() <= before)
