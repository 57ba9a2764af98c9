"""What is left of an epoch for other ranks: over up to four restarts each row once, equal steps, the order kept."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyloader_delta.permute import permuted, row_key
from pyloader_delta.plan.epoch import Order, plan_epoch, split
from pyloader_delta.plan.limit import limited
from pyloader_delta.plan.ranks import Place
from pyloader_delta.plan.recut import Past, plan_rest
from pyloader_delta.plan.resume import resumed, window_starts
from pyloader_delta.values import Chunk, WindowSize

WINDOWS = st.one_of(
    st.builds(WindowSize, st.just("bytes"), st.integers(1, 3000)),
    st.builds(WindowSize, st.just("rows"), st.integers(1, 300)),
    st.just(WindowSize("chunk", 1)),
    st.just(WindowSize("table", 1 << 62)),
)
UNEVEN = st.sampled_from(["pad", "mask", "drop"])
SMALL = st.lists(st.integers(0, 100), max_size=10)
HUGE = st.lists(st.integers(0, 800), max_size=3)
RESTARTS = st.lists(st.tuples(st.integers(1, 9), UNEVEN, st.floats(0, 1)), min_size=1, max_size=5)


def row_groups(lengths, *, plain=False):
    """Return one chunk a row group, or a file without row groups; ten bytes a row."""
    return [
        Chunk(f"f{i}", 10 * n, range(n), None if plain else 0, None if plain else range(n))
        for i, n in enumerate(lengths)
    ]


def delivered(plan):
    """Return the rows of a plan in the order in which the engine delivers them, with its padding."""
    found = []
    starts = window_starts(plan)
    for number, window in enumerate(plan.windows):
        rows = [(plan.chunks[p].path, row) for p in window for row in plan.chunks[p].rows]
        rest = plan.rests.get(number)
        if plan.row_seed is not None:
            key = row_key(plan.row_seed, plan.epoch, plan.origin + starts[number]) if rest is None else rest.key
            rows = [rows[i] for i in permuted(len(rows), key)]
        found += rows if rest is None else rows[rest.start : rest.stop]
    return found


def run(units, order, restarts, batch_size, epoch=3):
    """Deliver an epoch over restarts; yield (place, history, plans, rows of each rank) of each."""
    history = []
    n_left = sum(chunk.n_rows for unit in units for chunk in unit)
    for number, (world_size, uneven, part) in enumerate(restarts):
        plans = [
            plan_rest(units, order, epoch, Place(rank, world_size, uneven), tuple(history))
            for rank in range(world_size)
        ]
        steps = Place(0, world_size, uneven).steps(n_left)
        last = number == len(restarts) - 1 or steps <= batch_size
        rows = steps if last else int(part * ((steps - 1) // batch_size)) * batch_size  # always within the epoch
        yield history, plans, [delivered(plan)[:rows] for plan in plans], steps, last
        if last:
            return
        history = [*history, Past(world_size, rows, uneven)]
        n_left -= world_size * rows


@settings(max_examples=150, deadline=None)
@given(
    st.one_of(SMALL, HUGE), st.integers(1, 500), WINDOWS, st.booleans(), st.booleans(), st.booleans(), RESTARTS,
    st.integers(1, 40),
)  # fmt: skip
def test_over_restarts_with_other_ranks_each_row_is_delivered_once_in_equal_steps(
    lengths, max_bytes, window, chunks, rows, plain, restarts, batch_size
):
    order = Order(chunks, 1, rows, 2, window, window_bytes=max_bytes)
    units = split(row_groups(lengths, plain=plain), max_bytes)
    whole = {(chunk.path, row) for chunk in row_groups(lengths) for row in chunk.rows}
    seen, left_out, padding = Counter(), 0, []
    for _, plans, found, steps, last in run(units, order, restarts, batch_size):
        assert {plan.n_rows for plan in plans} == {steps}
        assert len({plan.left_out for plan in plans}) == 1
        for plan, mine in zip(plans, found, strict=True):
            assert [position for part in plan.windows for position in part] == list(range(len(plan.chunks)))
            assert len(delivered(plan)) == steps
            if plan.padded and last:
                padding.append(mine[-1])
                mine = mine[:-1]
            seen.update(mine)
        left_out = plans[0].left_out if last else 0
    assert not seen or max(seen.values()) == 1
    assert set(seen) <= whole
    assert len(whole) - len(seen) == left_out
    assert set(padding) <= whole


@settings(max_examples=60, deadline=None)
@given(st.one_of(SMALL, HUGE), st.integers(1, 500), WINDOWS, st.booleans(), st.booleans(), RESTARTS, st.integers(1, 40))
def test_no_two_ranks_and_restarts_share_a_number_of_a_row(lengths, max_bytes, window, chunks, rows, restarts, size):
    units = split(row_groups(lengths), max_bytes)
    used = Counter()
    for _, plans, found, steps, _ in run(
        units, Order(chunks, 1, rows, 2, window, window_bytes=max_bytes), restarts, size
    ):
        for plan, mine in zip(plans, found, strict=True):
            used.update(range(plan.origin, plan.origin + len(mine)))
            assert len(mine) <= steps
    assert not used or max(used.values()) == 1


@settings(max_examples=60, deadline=None)
@given(SMALL, st.integers(1, 500), WINDOWS, st.integers(1, 5), UNEVEN, RESTARTS)
def test_with_as_many_ranks_as_before_what_is_left_is_the_rest_of_the_same_order(
    lengths, max_bytes, window, ranks, uneven, restarts
):
    """The last ranks are interrupted, and go on: their plan is the same, so nothing of the order changes."""
    units, order = split(row_groups(lengths), max_bytes), Order(True, 1, True, 2, window)
    for history, plans, _, steps, last in run(units, order, [*restarts[:3], (ranks, uneven, 1.0)], 7):
        if not last or steps < 8:
            continue
        for rank, plan in enumerate(plans):
            place = Place(rank, len(plans), uneven)
            again, n_more = resumed(plan, 1, batch_size=7, group=1)
            assert (n_more, again.first_row) == (0, 7)
            assert delivered(again)[7:] == delivered(plan)[7:]
            if not history:
                assert plan == plan_epoch(units, order, 3, place)


@settings(max_examples=60, deadline=None)
@given(SMALL, st.integers(1, 500), st.booleans(), RESTARTS)
def test_without_mixing_no_window_is_read_for_a_part_of_it(lengths, max_bytes, chunks, restarts):
    units = split(row_groups(lengths), max_bytes)
    for _, plans, _, _, _ in run(units, Order(chunks, 1, False, 2, WindowSize("chunk", 1)), restarts, 3):
        assert all(not plan.rests for plan in plans)


@pytest.mark.parametrize("world_size", [1, 2, 5])
def test_what_is_left_of_windows_comes_rank_by_rank_and_in_their_order(world_size):
    """Two ranks with four windows of 10 rows each stop after 13 rows."""
    units, order = split(row_groups([10] * 8), 1000), Order(True, 1, True, 2, WindowSize("rows", 10))
    before = [delivered(plan_epoch(units, order, 0, Place(rank, 2))) for rank in range(2)]
    found = []
    for rank in range(world_size):
        plan = plan_rest(units, order, 0, Place(rank, world_size, "drop"), [Past(2, 13, "pad")])
        found += delivered(plan)
        assert all(len(plan.windows[number]) == 1 for number in plan.rests)  # of one row group: no more is read again
    n = len(found)
    assert found[:7] == before[0][13:20]
    assert found[27:34] == before[1][13:20][: n - 27]
    assert sorted(found[7:27]) == sorted(before[0][20:])


def test_a_rank_that_has_only_rests_of_windows_repeats_a_row_of_its_own():
    units, order = split(row_groups([7]), 1000), Order(False, 1, True, 2, WindowSize("table", 1 << 62))
    plans = [plan_rest(units, order, 0, Place(rank, 3), [Past(1, 2, "pad")]) for rank in range(3)]
    found = [delivered(plan) for plan in plans]
    assert [plan.padded for plan in plans] == [0, 0, 1]
    assert [len(rows) for rows in found] == [2, 2, 2]
    assert found[2][1] == found[2][0]
    assert len({*found[0], *found[1], *found[2]}) == 5


def test_an_epoch_that_ends_early_ends_after_as_many_rows_of_rests_too():
    units, order = split(row_groups([10] * 6), 1000), Order(True, 1, True, 2, WindowSize("rows", 20))
    whole = plan_rest(units, order, 0, Place(0, 2), [Past(3, 5, "pad")])
    assert whole.rests
    for most in (1, 4, 5, 6, 16):
        plan = limited(whole, most)
        assert delivered(plan)[:most] == delivered(whole)[:most]
        assert set(plan.rests) <= set(range(len(plan.windows)))


def test_the_plan_of_many_ranks_takes_time_by_chunks_and_ranks_not_by_their_product(monkeypatch):
    """Counted by the chunks that are looked at, as time would depend on the machine."""
    looked = 0
    real = Chunk.n_rows.fget

    def counted(chunk):
        nonlocal looked
        looked += 1
        return real(chunk)

    monkeypatch.setattr(Chunk, "n_rows", property(counted))
    units = [[chunk] for chunk in row_groups([10] * 2000)]
    order = Order(True, 1, True, 2, WindowSize("rows", 40))
    plan_rest(units, order, 0, Place(3, 64), [Past(500, 20, "pad"), Past(100, 100, "pad")])
    assert looked < 40 * len(units)
