"""The limits of loaders that give batches of tensors in the table's order: decode, and make the tensors; nothing else.

`limit-batches` makes them where pyarrow has put the values, in the thread that decodes: what a loader with a worker
thread can hardly be below. `limit-sent` copies each column once before that, into memory that another process could
map, used again and again: the same for a loader with worker processes. Batches never go over two row groups, nothing is
checked, counted or bounded, and no thread or process waits for another.
"""

import mmap
import warnings
from collections.abc import Iterator
from itertools import cycle
from typing import Any

import numpy as np
import torch

from benchmarks.limit import on_each_core, row_groups, rows_of

Batch = dict[str, Any]


def batches(paths: list[str], workload: str, batch_size: int, *, sent: bool) -> Iterator[Batch]:
    """Yield the batches of all files; `sent`: their values are copied first."""
    warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
    slabs = cycle([Slab(), Slab(), Slab()]) if sent else None
    for path in on_each_core(paths):
        for table in row_groups([path]):
            columns = {}
            slab = None if slabs is None else next(slabs)
            if slab is not None:
                slab.clear(table.nbytes + 64 * table.num_columns)
            for name, column in zip(table.column_names, table.columns, strict=True):
                (chunk,) = column.chunks  # `combine_chunks` would copy it
                array = rows_of(chunk)
                assert array is not None
                columns[name] = shaped(array if slab is None else slab.copied(array), workload)
            yield from cut(columns, batch_size)


def shaped(array: np.ndarray, workload: str) -> np.ndarray:
    """Return rows as the workload wants them: numbers as they are, bytes as images."""
    is_image = workload == "images" and array.dtype.kind == "V"
    return array.view(np.uint8).reshape(-1, 28, 28) if is_image else array


def cut(columns: dict[str, np.ndarray], batch_size: int) -> Iterator[Batch]:
    """Yield tensors of `batch_size` rows, and of what is left."""
    n_rows = len(next(iter(columns.values())))
    whole = n_rows // batch_size
    if whole:
        many = [array[: whole * batch_size].reshape(whole, batch_size, *array.shape[1:]) for array in columns.values()]
        for arrays in zip(*many, strict=True):
            yield dict(zip(columns, map(torch.from_numpy, arrays), strict=True))
    if n_rows % batch_size:
        yield {name: torch.from_numpy(array[whole * batch_size :]) for name, array in columns.items()}


class Slab:
    """Memory that another process could map."""

    def __init__(self) -> None:
        self._memory = np.empty(0, np.uint8)
        self._used = 0

    def clear(self, size_bytes: int) -> None:
        """Make room for so many bytes, in the same memory where it is enough."""
        self._used = 0
        if size_bytes > len(self._memory):
            self._memory = np.frombuffer(mmap.mmap(-1, size_bytes), np.uint8)

    def copied(self, array: np.ndarray) -> np.ndarray:
        """Return a copy of an array."""
        room = self._memory[self._used : self._used + array.nbytes].view(array.dtype)
        room[:] = array
        self._used += -(-array.nbytes // 64) * 64
        return room
