"""Resume within an epoch by another number of ranks: each row once, equal steps, whatever has happened before."""

import json
from collections import Counter

import numpy as np
import pytest
from deltalake import WriterProperties
from fakes import CountedNumbers, NumpyThrough, Through, number_files, xs
from writing import number_table

from pyloader_delta import DataLoader, DeltaDataReader, NumpyDataCollator, StateError

ROWS = 400


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """Three files; row groups of 50 rows, above an eighth of the windows here, so that they are read in parts."""
    properties = WriterProperties(max_row_group_size=50, write_batch_size=50)
    return number_table(tmp_path_factory.mktemp("table") / "t", [230, 20, 150], writer_properties=properties)


def loader(root, rank=0, world_size=1, *, dataset=None, **options):
    options = {"shuffle": True, "num_workers": 0, "shuffle_window": 60, "workers": "thread"} | options
    mixed = options.pop("mixed", True)
    return DataLoader(
        DeltaDataReader(7, shuffle=mixed), dataset or NumpyThrough(), NumpyDataCollator(), root,
        rank=rank, world_size=world_size, **options,
    )  # fmt: skip


def restarted(root, restarts, **options):
    """Deliver one epoch by one set of ranks after the other; return the batches of all, and the last loaders' lengths.

    Args:
        restarts: (world_size, batches to take, uneven) of each; None for all that are left.
    """
    seen, state, taken = [], None, 0
    for world_size, batches, uneven in restarts:
        states, found = [], []
        for rank in range(world_size):
            with loader(root, rank, world_size, uneven=uneven, **options) as one:
                if state is not None:
                    one.load_state_dict(json.loads(json.dumps(state)))
                    assert one.state_dict() == state
                whole = len(one)
                live = iter(one)
                mine = [next(live) for _ in range(batches)] if batches is not None else list(live)
                states.append(one.state_dict())
                found.append([{name: values.copy() for name, values in batch.items()} for batch in mine])
                if batches is None:
                    assert whole == taken + len(mine)
        assert len({json.dumps(one) for one in states}) == 1
        assert len({tuple(len(batch["x"]) for batch in mine) for mine in found}) == 1
        state, taken = states[0], taken + len(found[0])
        seen += found
    return seen, state


def state_after(one, n_batches):
    """Return the state of a loader of which a loop has taken so many batches."""
    live = iter(one)
    for _ in range(n_batches):
        next(live)
    return one.state_dict()


def counted(seen):
    rows = Counter()
    for batches in seen:
        for batch in batches:
            rows.update(batch["x"][batch["_valid"]].tolist() if "_valid" in batch else batch["x"].tolist())
    return rows


@pytest.mark.parametrize(("mixed", "window"), [(True, 60), (True, "chunk"), (True, None), (False, 60)])
@pytest.mark.parametrize(
    "worlds", [[(1, 11), (2, None)], [(4, 3), (1, None)], [(2, 5), (3, 4), (1, 9), (5, 1), (2, None)]]
)
def test_T4_what_is_left_is_shared_out_anew_and_each_row_comes_once(table, worlds, mixed, window):
    restarts = [(n, batches, "mask") for n, batches in worlds]
    seen, state = restarted(table, restarts, shuffle_window=window, mixed=mixed)
    assert counted(seen) == Counter(range(ROWS))
    assert (state["epoch"], state["history"]) == (1, [])


def test_a_full_shuffle_is_shared_out_anew_too(table):
    seen, _ = restarted(table, [(2, 5, "mask"), (3, 4, "mask"), (1, 9, "mask"), (2, None, "mask")], shuffle="full")
    assert counted(seen) == Counter(range(ROWS))


@pytest.mark.parametrize("workers", ["thread", "process"])
def test_T4_other_workers_change_nothing_of_what_is_shared_out_anew(table, workers):
    restarts = [(3, 4, "pad"), (2, 5, "pad"), (1, None, "pad")]
    expected, _ = restarted(table, restarts)
    n_workers = 2 if workers == "thread" else 1
    seen, _ = restarted(table, restarts[:1], num_workers=0)
    assert [xs(one) for one in seen] == [xs(one) for one in expected[:3]]
    state = None
    for (world_size, batches, _), mine in zip(restarts, (expected[:3], expected[3:5], expected[5:]), strict=True):
        options = {"num_workers": n_workers, "workers": workers} if world_size == 1 or workers == "thread" else {}
        with loader(table, world_size - 1, world_size, **options) as one:
            if state is not None:
                one.load_state_dict(state)
            live = iter(one)
            found = [next(live)["x"].tolist() for _ in range(batches)] if batches else xs(live)
            state = one.state_dict()
        assert found == xs(mine[-1])


@pytest.mark.parametrize(("before", "after"), [("drop", "pad"), ("pad", "drop"), ("drop", "drop")])
def test_another_uneven_shares_out_anew_and_rows_that_were_dropped_are_there_again(table, before, after):
    seen, _ = restarted(table, [(3, 2, before), (3 if before != after else 7, None, after)])
    rows = counted(seen)
    left = ROWS - 3 * 2 * 7
    if after == "pad":
        assert set(rows) == set(range(ROWS))
        assert sum(rows.values()) == ROWS + -left % 3
    else:
        ranks = 3 if before != after else 7
        assert set(rows.values()) == {1}
        assert len(rows) == ROWS - left % ranks


def test_pad_and_mask_have_the_same_shares_so_the_order_stays(table):
    padded = [xs(loader(table, rank, 3)) for rank in range(3)]
    seen, _ = restarted(table, [(3, 4, "pad"), (3, None, "mask")])
    assert [xs(seen[rank]) + xs(seen[3 + rank]) for rank in range(3)] == padded


def test_each_epoch_after_the_one_that_was_shared_out_anew_is_as_ever(table):
    with loader(table, num_epoch=3) as one:
        state = state_after(one, 70)
    assert (state["epoch"], state["history"]) == (1, [[1, 12, "pad"]])
    for rank in range(2):
        with loader(table, rank, 2, num_epoch=3, num_workers=2) as one:
            one.load_state_dict(state)
            n = len(one)
            batches = xs(one)
            rest = -(-(ROWS - 12 * 7 + 1) // 2 // 7)  # of each rank
            assert n == 29 + (12 + rest) + 29
            assert len(batches) == rest + 29
            with loader(table, rank, 2) as expected:
                expected.set_epoch(2)
                assert xs(expected) == batches[rest:]
            assert len(one) == 3 * 29
            assert one.state_dict()["epoch"] == 3


def test_ranks_for_which_nothing_is_left_begin_the_next_epoch(tmp_path):
    root = number_files(tmp_path / "t", [9])
    options = {"num_workers": 0, "drop_last": True, "uneven": "drop"}

    def numbers(rank, world_size, **more):
        return DataLoader(
            CountedNumbers(batch_size=2), Through(), NumpyDataCollator(), root, rank=rank, world_size=world_size,
            **options, **more,
        )  # fmt: skip

    with numbers(0, 1) as one:
        state = state_after(one, 3)
    for rank in range(4):
        with numbers(rank, 4, num_epoch=2) as many:
            many.load_state_dict(state)
            assert len(many) == 3 + 1
            assert len(xs(many)) == 1  # of the second epoch
            assert many.get_epoch() == 2
            assert many.state_dict()["epoch"] == 2


def test_a_table_smaller_than_the_ranks_goes_on(tmp_path):
    root = number_files(tmp_path / "t", [5])

    def numbers(rank, world_size):
        return DataLoader(
            CountedNumbers(batch_size=1, shuffle=True), Through(), NumpyDataCollator(), root, rank=rank,
            world_size=world_size, num_workers=0, uneven="mask",
        )  # fmt: skip

    with numbers(0, 1) as one:
        first = [next(iter(one))]
        state = one.state_dict()
    found = [list(numbers(rank, 7)) for rank in range(7)]
    for rank in range(7):
        with numbers(rank, 7) as one:
            one.load_state_dict(state)
            found[rank] = list(one)
    assert {len(batches) for batches in found} == {1}
    assert counted([first, *found]) == Counter(range(5))


def test_an_epoch_that_ends_early_counts_the_batches_of_all_restarts(table):
    with loader(table, limit=10) as one:
        state = state_after(one, 4)
    with loader(table, 1, 2, limit=10) as one:
        one.load_state_dict(state)
        assert len(one) == 10
        assert len(xs(one)) == 6


def test_batches_that_were_used_are_counted_back_into_the_epoch_that_was_shared_out_anew(table):
    with loader(table, 0, 3) as one:
        state = state_after(one, 5)
    with loader(table, 1, 2, num_epoch=2) as one:
        one.load_state_dict(state)
        live, states = iter(one), [state]
        for _ in range(25):
            next(live)
            states.append(one.state_dict())
        assert states[-1]["epoch"] == 1
        assert [one.state_dict(batches=n) for n in range(26)] == states
        one.load_state_dict(states[7])
        assert one.state_dict() == states[7]


class Noisy(NumpyThrough):
    rowwise = True

    def batch_encode(self, batch_data):
        return {"x": batch_data["x"], "noise": self.rng.random(len(batch_data["x"]))}


def test_no_two_ranks_or_restarts_draw_the_same_random_numbers(table):
    seen, _ = restarted(table, [(3, 4, "drop"), (2, 3, "drop"), (3, None, "drop")], dataset=Noisy())
    drawn = [float(noise) for batches in seen for batch in batches for noise in batch["noise"]]
    assert len(drawn) == len(set(drawn)) == ROWS - (ROWS - 3 * 28 - 2 * 21) % 3


def test_random_numbers_of_one_rank_are_those_of_its_batches_whatever_the_workers(table):
    def noise(**options):
        with loader(table, 2, 3, dataset=Noisy(), **options) as one:
            return np.concatenate([batch["noise"] for batch in one]).tolist()

    assert noise() == noise(num_workers=3)


@pytest.mark.parametrize(
    "history",
    [
        [[0, 1, "pad"]], [[2, -1, "pad"]], [[2, 1, "repeat"]], [[2, True, "pad"]], [[2, 28, "pad"], [1, 2, "pad"]],
        [[2, 29, "pad"]], "abc", [["2", 1, "pad"]], [[1, 40, "pad"], [1, 20, "pad"]], [None],
    ],
)  # fmt: skip
def test_a_history_that_cannot_be_is_refused(table, history):
    with loader(table) as one:
        state = one.state_dict()
        with pytest.raises(StateError):
            one.load_state_dict(state | {"history": history})
        assert len(xs(one)) == len(one)


def test_receipts_of_all_ranks_before_and_after_a_restart_add_up_to_the_whole_table(table):
    """By the digest of each row's number; and each loader's own books are proved at the epoch's end."""
    state, receipts = None, []
    for world_size, batches in ((2, 9), (3, 4), (1, None)):
        states = []
        for rank in range(world_size):
            with loader(table, rank, world_size, audit=True, uneven="drop") as one:
                if state is not None:
                    one.load_state_dict(state)
                live = iter(one)
                for _ in range(batches or len(one) - 13):
                    next(live)
                states.append(one.state_dict())
                receipts.append(one.receipt())
        state = states[0]
    with loader(table, audit=True) as one:
        assert len(xs(one)) == len(one)
        whole = one.receipt()
    total = sum(receipts)
    assert (total.digest, total.delivered, total.padded) == (whole.digest, ROWS, 0)
    assert total.whole


def test_batches_that_are_made_once_more_are_no_rows_that_are_missing(tmp_path):
    """They may lie in a later window than the first that is read again."""
    root = number_files(tmp_path / "t", [20, 5, 5, 5, 1])

    def numbers():
        return DataLoader(
            CountedNumbers(batch_size=7, shuffle=True), Noisy(), NumpyDataCollator(), root, shuffle=True,
            shuffle_window=5, num_workers=0, audit=True,
        )  # fmt: skip

    with numbers() as one:
        states = [one.state_dict() for _ in one]
    for state in states[:-1]:
        with numbers() as one:
            one.load_state_dict(state)
            assert len(xs(one)) == len(one) - state["history"][0][1]
            assert one.receipt().complete
