"""Rows of windows as columns: the same ones whether they stay where they lie or are copied."""

from queue import SimpleQueue

import numpy as np
import pyarrow as pa
import pytest

from pyloader_delta.engine.gather import gather
from pyloader_delta.engine.leases import Lease
from pyloader_delta.engine.pack import Tray
from pyloader_delta.engine.tasks import Segment
from pyloader_delta.engine.window import WindowBlocks
from pyloader_delta.permute import permuted

NAMES = ("a", "b", "text")


def block(start, n_rows):
    rows = np.arange(start, start + n_rows)
    text = [None if i % 3 else str(i) for i in rows]
    return pa.record_batch({"a": rows, "b": rows.astype(np.float32), "text": pa.array(text, pa.string())})


def window(start, *sizes, own=True):
    starts = np.cumsum([start, *sizes])
    return WindowBlocks([block(int(at), n) for at, n in zip(starts, sizes, strict=False)], own=own)


def a_tray():
    return Tray(lambda size_bytes: np.zeros(size_bytes + 64, np.uint8))


def segment(n_rows, start, stop, key=None):
    return Segment(0, n_rows, start, stop, key, (0,))


def expected(first, taken):
    places = np.arange(taken.n_rows) if taken.key is None else permuted(taken.n_rows, taken.key)
    return [first + int(i) for i in places[taken.start : taken.stop]]


@pytest.mark.parametrize("key", [None, ("rows", 1)])
@pytest.mark.parametrize("sizes", [(40,), (10, 20, 10)])
@pytest.mark.parametrize("second", [False, True])
@pytest.mark.parametrize("copied", [(), ("a",), ("a", "b")])
@pytest.mark.parametrize("leased", [False, True])
def test_gathered_rows_are_those_of_the_segments(key, sizes, second, copied, leased):
    windows, segments = [window(100, *sizes)], [segment(40, 12, 29, key)]
    rows = expected(100, segments[0])
    if second:
        windows.append(window(500, 7, 8))
        segments.append(segment(15, 0, 9, key))
        rows += expected(500, segments[1])
    lease = Lease(1, SimpleQueue()) if leased and not second else None
    columns = gather(windows, segments, (a_tray(), True), NAMES, lease, copied=copied)
    assert columns.schema.names == list(NAMES)
    a, b, text = columns.arrays
    assert a.tolist() == rows
    assert b.tolist() == rows
    assert text.to_pylist() == [None if i % 3 else str(i) for i in rows]
    assert (a.dtype, b.dtype) == (np.int64, np.float32)


@pytest.mark.parametrize("limit", [40 * 12, 40 * 12 - 1])
def test_numbers_of_small_windows_are_joined_once_for_all_runs_that_mix_them(monkeypatch, limit):
    """All columns of numbers together count, 12 bytes a row here: each alone would be small in any window."""
    monkeypatch.setattr("pyloader_delta.engine.window.SMALLEST_BYTES", limit)
    there, found = window(100, 10, 20, 10), []
    for start, stop in ((0, 25), (25, 40)):
        found += gather([there], [segment(40, start, stop, ("rows", 1))], names=NAMES).arrays[0].tolist()
    assert found == expected(100, segment(40, 0, 40, ("rows", 1)))
    assert len(there.column("a")[0]) == (1 if limit == 40 * 12 else 3)
    assert len(there.column("text")[0]) == 3
    assert gather([there], [segment(40, 5, 35)], names=NAMES).arrays[1].tolist() == list(range(105, 135))


@pytest.mark.parametrize("leased", [False, True])
def test_what_is_copied_anyway_is_a_view_without_a_lease(leased):
    """Of hundreds of columns that become one matrix, a lease for each costs more than the matrix."""
    ended = SimpleQueue()
    there, tray = window(0, 40), a_tray()
    lease = Lease(1, ended) if leased else None
    columns = gather([there], [segment(40, 5, 25)], (tray, True), NAMES, lease, copied=("a",))
    a, b, _ = columns.arrays
    assert np.shares_memory(a, there.column("a")[0][0])
    assert np.shares_memory(b, there.column("b")[0][0]) == leased
    del columns, b, tray, lease
    assert ended.empty() != leased  # what is left holds none


def test_rows_that_a_window_lacks_are_counted_and_nothing_else_is_gathered_for_them():
    columns = gather([window(0, 30)], [segment(40, 20, 40)], (a_tray(), True), NAMES, copied=NAMES)
    assert columns.n_rows == 10
