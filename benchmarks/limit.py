"""The limits: decode every row group with pyarrow in one thread, and drop it; no loader can be cheaper than this.

Shuffled: copy what was decoded into windows as well, and take each row of a window once, in random order, into memory
that is used again. Nothing else: no batches, no tensors, no other process. A loader that mixes so many rows with these
libraries can hardly be cheaper.

Where the work is not the loader's, as with JPEG images and texts, each row's is done as well.
"""

import os
from collections.abc import Iterator
from itertools import cycle

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks import handmade


def decoded(paths: list[str], workload: str = "tabular") -> Iterator[int]:
    """Yield the number of rows of each row group, after decoding all its columns."""
    for table in row_groups(paths):
        encoded(table, workload)
        yield table.num_rows


def row_groups(paths: list[str]) -> Iterator[pa.Table]:
    """Yield row groups as pyarrow decodes them."""
    for path in paths:
        file = pq.ParquetFile(path, memory_map=True)
        for group in range(file.num_row_groups):
            yield file.read_row_group(group, use_threads=False)


def encoded(table: pa.Table, workload: str) -> None:
    """Do what is not the loader's work."""
    if workload == "text":
        handmade.token_ids(table["text"])
    elif workload == "jpeg":
        for row in table["image"]:
            handmade.decoded([row.as_py()])


def mixed(paths: list[str], workload: str, window: "Window") -> Iterator[int]:
    """Yield the number of rows of each window that gets full, after mixing it; what is left stays in it."""
    for table in row_groups(paths):
        start = 0
        while start < table.num_rows:
            part = table.slice(start, window.most_rows - window.n_rows)
            window.place(part)
            start += part.num_rows
            if window.n_rows == window.most_rows:
                yield window.taken(workload)


class Window:
    """Rows that are mixed together, in memory that is used again for the next window."""

    def __init__(self, most_rows: int) -> None:
        self.n_rows, self.most_rows = 0, most_rows
        self._rng = np.random.default_rng(0)
        self._columns: dict[str, np.ndarray] = {}
        self._room, self._scratch = np.empty(_ROOM_BYTES, np.uint8), np.empty(8 * most_rows, np.uint8)
        self._tables: list[pa.Table] = []

    def place(self, table: pa.Table) -> None:
        """Copy rows behind those that are there."""
        others = []
        for name, column in zip(table.column_names, table.columns, strict=True):
            arrays = [rows_of(chunk) for chunk in column.chunks]
            if any(array is None for array in arrays):
                others.append(name)
                continue
            row = self.n_rows
            for array in arrays:
                if name not in self._columns:
                    self._columns[name] = np.empty(self.most_rows, array.dtype)
                self._columns[name][row : row + len(array)] = array
                row += len(array)
        if others:
            self._tables.append(table.select(others))
        self.n_rows += table.num_rows

    def taken(self, workload: str) -> int:
        """Take all rows once, in random order, and return their number; none are there then."""
        n_rows, self.n_rows = self.n_rows, 0
        order = self._rng.permutation(n_rows)
        for placed in self._columns.values():
            if placed.itemsize <= 8:  # values are taken from where they lie close together, not all over a window
                scratch = self._scratch[: placed.nbytes].view(placed.dtype)
                scratch[:n_rows] = placed[:n_rows]
                placed = scratch
            room = self._room[: _ROOM_BYTES // placed.itemsize * placed.itemsize].view(placed.dtype)
            for start in range(0, n_rows, len(room)):
                some = order[start : start + len(room)]
                placed.take(some, out=room[: len(some)], mode="clip")
        if self._tables:
            table, self._tables = pa.concat_tables(self._tables).combine_chunks(), []
            for start in range(0, n_rows, _AT_ONCE):  # a part at a time: new memory for a window costs more
                encoded(table.take(pa.array(order[start : start + _AT_ONCE])), workload)
        return n_rows


_AT_ONCE = 4096
_ROOM_BYTES = 1 << 20  # it stays in a processor's cache


def rows_of(array: pa.Array) -> np.ndarray | None:
    """Return a column of numbers, or of bytes that are equally many in each row, as an array; None for others."""
    if pa.types.is_primitive(array.type):
        return array.to_numpy(zero_copy_only=True)
    if not pa.types.is_binary(array.type) or not len(array):
        return None
    ends = np.frombuffer(array.buffers()[1], np.int32)[array.offset : array.offset + len(array) + 1]
    size = int(ends[1] - ends[0])
    if not size or not (np.diff(ends) == size).all():
        return None
    return np.frombuffer(array.buffers()[2], np.uint8)[ends[0] : ends[-1]].view(f"V{size}")


def decoded_on_each_core(paths: list[str], workload: str = "tabular", shuffle_rows: int = 0) -> Iterator[int]:
    """Do one or the other with each file, on each core in turn."""
    window = Window(shuffle_rows)
    for path in on_each_core(paths):
        yield from mixed([path], workload, window) if shuffle_rows else decoded([path], workload)
    if window.n_rows:
        yield window.taken(workload)


def on_each_core(paths: list[str]) -> Iterator[str]:
    """Yield the files, dealt to the cores in turn: this thread is on the next one until the next file.

    The cores of a virtual machine differ in speed: 0.10 and 0.15 CPU seconds a million rows were seen at the same time.
    A loader uses all of them, where one thread stays on the one that it happens to begin on.
    """
    cores = os.sched_getaffinity(0)
    try:
        for path, core in zip(paths, cycle(cores)):
            os.sched_setaffinity(0, {core})
            yield path
    finally:
        os.sched_setaffinity(0, cores)
