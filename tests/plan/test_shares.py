"""Shares of an epoch: every row once over all ranks, equally many on each, whatever the files look like."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyloader_delta.plan.epoch import Order, plan_epoch, split
from pyloader_delta.plan.ranks import Place
from pyloader_delta.values import Chunk, WindowSize

WINDOWS = st.one_of(
    st.builds(WindowSize, st.just("bytes"), st.integers(1, 3000)),
    st.builds(WindowSize, st.just("rows"), st.integers(1, 300)),
    st.just(WindowSize("chunk", 1)),
)


def row_groups(rows, *, plain=False):
    """Return one chunk a row group, or a file without row groups; ten bytes a row."""
    return [
        Chunk(f"f{i}", 10 * n, range(n), None if plain else 0, None if plain else range(n)) for i, n in enumerate(rows)
    ]


def rows_of(plan):
    return [(chunk.path, row) for chunk in plan.chunks for row in chunk.rows]


@given(
    st.lists(st.integers(0, 100), max_size=12), st.integers(1, 500), WINDOWS, st.booleans(), st.booleans(),
    st.integers(1, 9), st.sampled_from(["pad", "mask", "drop"]), st.booleans(),
)  # fmt: skip
def test_every_row_is_on_one_rank_and_all_ranks_have_as_many(
    lengths, max_bytes, window, chunks, rows, ranks, uneven, plain
):
    order = Order(chunks, 1, rows, 2, window)
    units = split(row_groups(lengths, plain=plain), max_bytes)
    plans = [plan_epoch(units, order, 3, Place(rank, ranks, uneven)) for rank in range(ranks)]
    total = sum(lengths)
    steps = total // ranks if uneven == "drop" else -(-total // ranks)
    own, repeated = Counter(), []
    for rank, plan in enumerate(plans):
        assert plan.n_rows == steps == Place(rank, ranks, uneven).steps(total)
        assert plan.padded <= 1
        assert plan.padded == Place(rank, ranks, uneven).padded(total)
        assert [position for part in plan.windows for position in part] == list(range(len(plan.chunks)))
        found = rows_of(plan)
        if plan.padded:
            assert len(plan.windows[-1]) == plan.chunks[-1].n_rows == 1
            repeated.append(found.pop())
        own.update(found)
    whole = {(chunk.path, row) for chunk in row_groups(lengths) for row in chunk.rows}
    assert set(own.values()) <= {1}
    assert set(own) <= whole
    assert set(repeated) <= whole
    assert (
        len(whole) - len(own) == (total % ranks if uneven == "drop" else 0) == Place(0, ranks, uneven).left_out(total)
    )
    assert len(repeated) == (-total % ranks if uneven != "drop" else 0)


@given(st.lists(st.integers(1, 60), min_size=1, max_size=9), st.integers(1, 500), st.integers(1, 9))
def test_shares_follow_each_other_in_the_order_of_row_groups(lengths, max_bytes, ranks):
    units = split(row_groups(lengths), max_bytes)
    order = Order(True, 1, False, 2, WindowSize("chunk", 1))
    found = []
    for rank in range(ranks):
        plan = plan_epoch(units, order, 0, Place(rank, ranks))
        found += rows_of(plan)[: plan.n_rows - plan.padded]
    assert found == rows_of(plan_epoch(units, order, 0))


@given(st.lists(st.integers(1, 60), min_size=1, max_size=9), st.integers(2, 9), st.booleans())
def test_a_cut_chunk_knows_its_whole_row_group_or_file(lengths, ranks, plain):
    units = split(row_groups(lengths, plain=plain), 10**6)
    for rank in range(ranks):
        for chunk in plan_epoch(units, Order(False, 0, False, 0, WindowSize("chunk", 1)), 0, Place(rank, ranks)).chunks:
            whole = range(lengths[int(chunk.path[1:])])
            assert chunk.rows == whole or chunk.row_group_rows == whole
            assert chunk.size_bytes == 10 * len(chunk.rows)


def test_one_rank_is_the_whole_epoch():
    units = split(row_groups([5, 0, 7]), 20)
    order = Order(True, 1, True, 2, WindowSize("rows", 4))
    assert plan_epoch(units, order, 1, Place(0, 1, "drop")) == plan_epoch(units, order, 1)


@pytest.mark.parametrize("uneven", ["pad", "mask", "drop"])
def test_a_table_without_rows_gives_no_rank_a_row(uneven):
    for rank in range(3):
        plan = plan_epoch([], Order(True, 1, True, 2, WindowSize("rows", 4)), 0, Place(rank, 3, uneven))
        assert plan.n_rows == 0
        assert plan.chunks == ()


def test_where_rows_are_fewer_than_ranks_an_empty_share_repeats_the_first_row_of_the_epoch():
    units = split(row_groups([2]), 100)
    order = Order(False, 0, False, 0, WindowSize("chunk", 1))
    found = [rows_of(plan_epoch(units, order, 0, Place(rank, 4))) for rank in range(4)]
    assert found == [[("f0", 0)], [("f0", 1)], [("f0", 0)], [("f0", 0)]]
