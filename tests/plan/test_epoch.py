"""The plan of an epoch: every row once, windows of the asked size, an order of its own for each epoch."""

import tracemalloc
from dataclasses import replace
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from pyloader_delta.plan.epoch import PART_OF_WINDOW, UNIT_BYTES, WHOLE_OF_WINDOW, Order, plan_epoch, split, total_rows
from pyloader_delta.plan.mixture import MAX_LANES, MIN_LANES, lanes, spread
from pyloader_delta.values import Chunk, WindowSize

WINDOWS = st.one_of(
    st.builds(WindowSize, st.just("bytes"), st.integers(1, 3000)),
    st.builds(WindowSize, st.just("rows"), st.integers(1, 300)),
    st.just(WindowSize("chunk", 1)),
    st.just(WindowSize("table", 1 << 62)),
)


def row_groups(rows):
    """Return one chunk a row group, ten bytes a row, two row groups a file."""
    chunks, start = [], 0
    for number, n in enumerate(rows):
        start = 0 if number % 2 == 0 else start
        chunks.append(Chunk(f"f{number // 2}", 10 * n, range(start, start + n), number % 2, range(start, start + n)))
        start += n
    return chunks


def order(*, chunks=True, rows=True, window=WindowSize("rows", 50), seed=1):  # noqa: B008  # a frozen value
    return Order(chunks, seed, rows, seed, window)


@given(st.lists(st.integers(1, 100), max_size=12), st.integers(1, 500), WINDOWS, st.booleans(), st.booleans())
def test_every_row_is_planned_once_in_windows_that_follow_each_other(rows, max_bytes, window, shuffle, mix):
    chunks = row_groups(rows)
    plan = plan_epoch(split(chunks, max_bytes), order(chunks=shuffle, rows=mix, window=window), 3)
    planned = sorted((chunk.path, row) for chunk in plan.chunks for row in chunk.rows)
    assert planned == sorted((chunk.path, row) for chunk in chunks for row in chunk.rows)
    assert [position for part in plan.windows for position in part] == list(range(len(plan.chunks)))
    assert plan.n_rows == sum(rows)
    assert plan.row_seed == (1 if mix else None)
    sizes = [sum(len(plan.chunks[p].rows) for p in part) for part in plan.windows]
    if mix and window.unit != "chunk":
        for part in plan.windows:  # so that neighbours in a file are read together
            places = [(plan.chunks[p].path, plan.chunks[p].rows.start) for p in part]
            assert places == sorted(places)
    if mix and window.unit == "rows":
        largest = max((len(chunk.rows) for chunk in plan.chunks), default=0)
        assert all(window.amount <= size < window.amount + largest for size in sizes[:-1])


@given(st.lists(st.integers(1, 100), min_size=1, max_size=12), st.integers(1, 500))
def test_parts_of_a_row_group_are_alike_and_come_in_order(rows, max_bytes):
    for unit in split(row_groups(rows), max_bytes):
        lengths = [len(chunk.rows) for chunk in unit]
        assert all(length == lengths[0] for length in lengths[:-1])
        assert lengths[-1] <= lengths[0]
        assert lengths[0] * 10 <= max(max_bytes + 10, 10)
        assert [chunk.rows.start for chunk in unit] == sorted(chunk.rows.start for chunk in unit)
        assert {chunk.row_group_rows for chunk in unit} == {range(unit[0].rows.start, unit[-1].rows.stop)}


def test_unshuffled_the_order_is_that_of_the_chunks():
    plan = plan_epoch(split(row_groups([5, 6, 7]), 20), order(chunks=False, rows=False), 0)
    assert [(chunk.path, chunk.rows.start) for chunk in plan.chunks[:4]] == [("f0", 0), ("f0", 2), ("f0", 4), ("f0", 5)]


def one_file(sizes):
    """Return one row group of a file for each size in bytes, a row each."""
    return [[Chunk("f", size, range(n, n + 1), n, range(n, n + 1))] for n, size in enumerate(sizes)]


def units_of(sizes):
    """Return the sizes of the row groups of each unit."""
    plan = plan_epoch(one_file(sizes), replace(order(chunks=False, rows=False), window_bytes=1 << 40), 0)
    found = {}
    for number, window in zip(plan.units, plan.windows, strict=True):
        found.setdefault(number, []).extend(plan.chunks[position].size_bytes for position in window)
    return list(found.values())


def test_units_of_a_file_are_about_equally_large():
    assert units_of([3 << 20] * 16) == [[3 << 20] * 4] * 4  # 5, 5, 5 and 1 would be as few
    assert units_of([UNIT_BYTES, 1, UNIT_BYTES]) == [[UNIT_BYTES], [1], [UNIT_BYTES]]
    assert units_of([0, 0, 0]) == [[0, 0, 0]]


@given(st.lists(st.integers(0, 2 * UNIT_BYTES), min_size=1, max_size=40))
def test_units_are_as_few_as_their_size_allows(sizes):
    units = units_of(sizes)
    assert [size for unit in units for size in unit] == sizes
    assert len(units) <= len(sizes)
    assert all(sum(unit) <= UNIT_BYTES + 2 * max(sizes) for unit in units)
    neighbours = pairwise(units)
    assert all(sum(one) + sum(other) + max(sizes) > UNIT_BYTES for one, other in neighbours)


SIZES = st.one_of(st.integers(0, 2 * UNIT_BYTES), st.integers(0, 1000))
FILES = st.lists(st.lists(st.tuples(st.integers(1, 50), SIZES), min_size=1, max_size=4), min_size=1, max_size=40)


@given(FILES, st.booleans(), st.integers(1, UNIT_BYTES), st.integers(1, UNIT_BYTES))
def test_units_do_not_depend_on_the_parts_in_which_row_groups_are_read(files, shuffle, max_bytes, window_bytes):
    """They say what is encoded in one call; a memory budget, or a machine, must not change that."""
    chunks = []
    for number, groups in enumerate(files):
        start = 0
        for group, (n, size) in enumerate(groups):
            rows = range(start, start + n)
            chunks.append(Chunk(f"f{number}", size, rows, group, rows))
            start += n

    def units(max_bytes, window_bytes):
        kept = replace(order(chunks=shuffle, rows=False), joins_files=True, window_bytes=window_bytes)
        plan = plan_epoch(split(chunks, max_bytes), kept, 1)
        found = {}
        for unit, window in zip(plan.units, plan.windows, strict=True):
            there = [(plan.chunks[p].path, row) for p in window for row in plan.chunks[p].rows]
            found.setdefault(unit, []).extend(there)
        return list(found.values())

    assert units(max_bytes, window_bytes) == units(1 << 40, 1 << 40)


def test_epochs_differ_and_each_is_the_same_again():
    units = split(row_groups([10] * 12), 1000)
    orders = [[(c.path, c.row_group) for c in plan_epoch(units, order(), epoch).chunks] for epoch in (0, 1, 2, 0)]
    assert orders[0] == orders[3]
    assert orders[0] != orders[1] != orders[2] != orders[0]


def test_the_chunks_of_few_large_row_groups_alternate_so_that_a_window_mixes_files():
    units = split(row_groups([160] * 24), 200, 100)
    plan = plan_epoch(units, order(chunks=False, window=WindowSize("rows", 160)), 0)
    for window in plan.windows:  # 24 row groups in two equal turns of 12, of which each window has 16 chunks
        chunks = [plan.chunks[position] for position in window]
        assert len({(chunk.path, chunk.row_group) for chunk in chunks}) == 12
    for unit in units:
        positions = [plan.chunks.index(chunk) for chunk in unit]
        assert positions == sorted(positions)


def test_few_row_groups_alternate_where_they_are_much_larger_than_a_window():
    units = split(row_groups([1000] * 40), 100)
    assert lanes(units, WindowSize("rows", 10_000)) == lanes(units, WindowSize("bytes", 100_000)) == 14  # of 40 in 3
    assert lanes(units, WindowSize("rows", 1000)) == 10  # of at most 12
    assert lanes(units, WindowSize("rows", 1)) == MIN_LANES
    assert lanes(units[:MAX_LANES], WindowSize("rows", 10_000)) == MAX_LANES
    assert lanes([], WindowSize("rows", 1)) == 1


@given(st.lists(st.integers(0, 100), max_size=60), st.integers(1, 70), st.integers(0, 3))
def test_a_spread_order_has_everything_once(sizes, n_strata, epoch):
    found = spread(sizes, n_strata, ("chunks", 1, epoch))
    assert sorted(found.tolist()) == list(range(len(sizes)))


@given(st.integers(1, 12), st.integers(1, 12))
def test_neighbours_in_a_spread_order_come_from_all_over_the_table(n_strata, turns):
    found = spread([7] * (n_strata * turns), n_strata, ("chunks", 1, 1))
    for start in range(len(found) - n_strata + 1):
        assert sorted((found[start : start + n_strata] // turns).tolist()) == list(range(n_strata))


def test_spread_orders_of_a_release_are_those_of_every_other():
    """Golden values: another result here is another order for everybody, and needs another NAME."""
    found = spread([5, 9, 0, 4, 4, 4, 30, 1, 2, 3, 4, 5], 4, ("golden", 0))
    assert found.tolist() == [7, 1, 11, 5, 0, 10, 2, 9, 4, 8, 3, 6]


def test_ten_billion_rows_are_planned_at_the_cost_of_their_chunks():
    n_groups, n_rows = 3000, 3_400_000
    groups = [range(n_rows) for _ in range(n_groups)]
    chunks = [Chunk(f"f{i}", 8 * n_rows, rows, 0, rows) for i, rows in enumerate(groups)]
    window = WindowSize("bytes", 128 << 20)
    tracemalloc.start()
    units = split(chunks, window.amount // WHOLE_OF_WINDOW, window.amount // PART_OF_WINDOW)
    plan = plan_epoch(units, order(window=window), 0)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert plan.n_rows == n_groups * n_rows > 10**10
    assert 3000 <= len(plan.chunks) <= 4 * n_groups
    assert peak < 2000 * len(plan.chunks)  # 10 billion numbers of rows would be 80 GB


def test_a_window_of_one_chunk_is_a_whole_row_group_or_file():
    plan = plan_epoch(split(row_groups([100, 30]), 100), order(window=WindowSize("chunk", 1)), 0)
    assert sorted(sum(len(plan.chunks[p].rows) for p in part) for part in plan.windows) == [30, 100]


def test_unknown_lengths_have_no_total():
    assert total_rows([Chunk("f", 1, range(3)), Chunk("g", 1)]) is None
    assert total_rows([]) == 0
