"""The plan of an epoch: every row once, windows of the asked size, an order of its own for each epoch."""

from hypothesis import given
from hypothesis import strategies as st

from pyloader_delta.plan.epoch import INTERLEAVED, Order, plan_epoch, split, total_rows
from pyloader_delta.values import Chunk, WindowSize

WINDOWS = st.one_of(
    st.builds(WindowSize, st.just("bytes"), st.integers(1, 3000)),
    st.builds(WindowSize, st.just("rows"), st.integers(1, 300)),
    st.just(WindowSize("chunk", 1)),
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


def test_epochs_differ_and_each_is_the_same_again():
    units = split(row_groups([10] * 12), 1000)
    orders = [[(c.path, c.row_group) for c in plan_epoch(units, order(), epoch).chunks] for epoch in (0, 1, 2, 0)]
    assert orders[0] == orders[3]
    assert orders[0] != orders[1] != orders[2] != orders[0]


def test_the_chunks_of_few_large_row_groups_alternate_so_that_a_window_mixes_files():
    units = split(row_groups([100] * 12), 100)
    plan = plan_epoch(units, order(chunks=False, window=WindowSize("rows", 80)), 0)
    window = [plan.chunks[position] for position in plan.windows[0]]
    assert len({(chunk.path, chunk.row_group) for chunk in window}) == INTERLEAVED
    for unit in units:
        positions = [plan.chunks.index(chunk) for chunk in unit]
        assert positions == sorted(positions)


def test_a_window_of_one_chunk_is_a_whole_row_group_or_file():
    plan = plan_epoch(split(row_groups([100, 30]), 100), order(window=WindowSize("chunk", 1)), 0)
    assert sorted(sum(len(plan.chunks[p].rows) for p in part) for part in plan.windows) == [30, 100]


def test_unknown_lengths_have_no_total():
    assert total_rows([Chunk("f", 1, range(3)), Chunk("g", 1)]) is None
    assert total_rows([]) == 0
