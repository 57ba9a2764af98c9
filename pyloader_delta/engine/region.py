"""Where the numbers of a shuffled window lie: one array a column over all its rows, filled by readers, mixed in place.

Taking scattered rows run by run costs a cache miss a value; permuting a whole column, which stays in cache, does not.
Rows of many bytes, and the numbers beside them, are copied by readers to where they are delivered.
"""

from __future__ import annotations

import functools
import pickle
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pyloader_delta.columns import column_kind
from pyloader_delta.engine.opening import opening
from pyloader_delta.engine.slabs import aligned, put
from pyloader_delta.engine.wide import fixed, is_wide, width_of
from pyloader_delta.permute import permuted

SMALLEST_BYTES = 1 << 20
"""Of a window's numbers, from which on it has a region: smaller windows lie in a processor's cache as they are."""


@dataclass(frozen=True)
class Layout:
    """The columns of a window in a slab."""

    fields: tuple[pa.Field, ...]
    """All columns of the blocks, in order."""
    numbers: tuple[tuple[str, np.dtype[Any]], ...]
    """Columns that were numbers without nulls, rows of arrays, or bytes of one width, where this was learned."""

    @functools.cached_property
    def by_name(self) -> dict[str, pa.Field]:
        """The columns of the blocks by their names."""
        return {field.name: field for field in self.fields}

    @functools.cached_property
    def kinds(self) -> dict[str, dict[str, Any] | None]:
        """What the values of each column of the blocks stand for (see `columns.column_kind`)."""
        return {field.name: column_kind(field) for field in self.fields}

    @property
    def is_in_order(self) -> bool:
        """Whether readers copy rows to where they are delivered, as some are wide; else the window is mixed at last."""
        return any(is_wide(dtype) for _, dtype in self.numbers)

    def size_bytes(self, n_rows: int) -> int:
        """Return the bytes that the numbers of so many rows take."""
        return sum(aligned(n_rows * dtype.itemsize) for _, dtype in self.numbers)

    def arrays(self, memory: NDArray[np.uint8], n_rows: int) -> dict[str, NDArray[Any]]:
        """Return each column of numbers as a view of a slab's memory, shape (n_rows,)."""
        found, start = {}, 0
        for name, dtype in self.numbers:
            found[name] = memory[start : start + n_rows * dtype.itemsize].view(dtype)
            start += aligned(n_rows * dtype.itemsize)
        return found


@dataclass(slots=True)
class Region:
    """The numbers of one window, as the engine keeps account of them."""

    slab: int
    n_rows: int
    layout: bytes
    """A pickled Layout; workers open it once."""
    placed: frozenset[str] | None = None
    """Columns that every reader so far has placed; None before any."""
    reads: set[int] = field(default_factory=set)
    """Numbers of the read tasks that fill it and were not let go."""


@functools.lru_cache(maxsize=8)
def load_layout(text: bytes) -> Layout:
    """Return a layout that this process tree pickled."""
    return pickle.loads(text)  # type: ignore[no-any-return]


def learn(batches: list[pa.RecordBatch]) -> bytes | None:
    """Return the layout of blocks, pickled; None where they hold no numbers."""
    if not batches:
        return None
    dtypes = [(name, _dtype(array)) for name, array in _opened(batches[0])]
    numbers = tuple((name, dtype) for name, dtype in dtypes if dtype is not None)
    return pickle.dumps(Layout(tuple(batches[0].schema), numbers)) if numbers else None


def learn_more(layout: Layout, left: list[pa.RecordBatch]) -> bytes | None:
    """Return a layout, pickled, with columns of one width that were not placed; None where there are none."""
    wide = [(name, width_of(array)) for name, array in _opened(left[0])] if left else []
    names = layout.by_name.keys() - {name for name, _ in layout.numbers}
    more = tuple((name, dtype) for name, dtype in wide if dtype is not None and name in names)
    return pickle.dumps(Layout(layout.fields, layout.numbers + more)) if more else None


def without(text: bytes, names: frozenset[str]) -> bytes | None:
    """Return a pickled layout without some columns; None where no other is left."""
    layout = load_layout(text)
    numbers = tuple((name, dtype) for name, dtype in layout.numbers if name not in names)
    return pickle.dumps(Layout(layout.fields, numbers)) if numbers else None


def learn_schema(schema: pa.Schema) -> bytes | None:
    """Return the layout of blocks of a schema, pickled; None where it has no numbers."""
    return learn([pa.record_batch([pa.nulls(0, f.type) for f in schema], schema=schema)])


def wide_names(text: bytes) -> frozenset[str]:
    """Return the names of a pickled layout's wide columns."""
    return frozenset(name for name, dtype in load_layout(text).numbers if is_wide(dtype))


def place(
    batches: list[pa.RecordBatch],
    layout: Layout,
    arrays: dict[str, NDArray[Any]],
    first_row: int,
    to: NDArray[np.int64] | None,
) -> tuple[list[pa.RecordBatch], frozenset[str]]:
    """Copy the columns of numbers to their rows; return the blocks without them, perhaps without any, and their names.

    A column that has nulls, another type or another width in any of the blocks stays in them.

    Args:
        batches: The blocks.
        layout: The columns of the region.
        arrays: Its arrays, shape (rows of the window,).
        first_row: Number in the window of the blocks' first row.
        to: Each row's place in the order of delivery, shape (rows of the blocks,); None: as they come.
    """
    found: dict[str, list[NDArray[Any]]] = {name: [] for name, _ in layout.numbers}
    openings = [opening(batch.schema) for batch in batches]
    for known, batch in zip(openings, batches, strict=True):
        for name, column in zip(known.names, known.columns(batch), strict=True):
            if name not in arrays or known.kinds[name] != layout.kinds[name]:
                continue
            dtype = arrays[name].dtype
            array = fixed(column, dtype) if isinstance(column, pa.Array) and is_wide(dtype) else column
            if isinstance(array, np.ndarray) and array.dtype == dtype:
                found[name].append(array)
    placed = frozenset(name for name, parts in found.items() if len(parts) == len(batches))
    for name in placed:
        whole, row = arrays[name], 0
        for part in found[name]:
            if to is None:
                put(whole[first_row + row :][: len(part)], part)
            else:
                whole.put(to[row : row + len(part)], part, mode="clip")  # they are in bounds
            row += len(part)
    left = []
    for known, batch in zip(openings, batches, strict=True):
        lacking = [name for name in found if name not in known.kinds]
        left.append(_without(_with_nulls(batch, lacking), placed))
    return left, placed


class Scratch:
    """Memory that a worker works in, again and again: new pages cost more than what is done in them."""

    def __init__(self) -> None:
        self._kept: NDArray[np.uint8] = np.empty(0, dtype=np.uint8)

    def take(self, size_bytes: int) -> NDArray[np.uint8]:
        """Return memory of so many bytes, of undefined content; what was taken before is void."""
        if size_bytes > _MOST_KEPT:
            return np.empty(size_bytes, dtype=np.uint8)
        if size_bytes > len(self._kept):
            self._kept = np.empty(size_bytes, dtype=np.uint8)
        return self._kept[:size_bytes]


_MOST_KEPT = 16 << 20


def mix(
    arrays: dict[str, NDArray[Any]], names: Collection[str], n_rows: int, key: tuple[int | str, ...], scratch: Scratch
) -> None:
    """Permute columns in place. Not to be done twice: one that was cut short must be read again."""
    widest = max((arrays[name].itemsize for name in names), default=0)
    room = scratch.take(n_rows * (widest + 8))
    order = permuted(n_rows, key, out=room[: n_rows * 8].view(np.int64))
    for name in names:
        column = arrays[name]
        before = room[n_rows * 8 :][: column.nbytes].view(column.dtype)
        before[...] = column
        before.take(order, out=column, mode="clip")  # the order is in bounds; checking it would take half as long again


def _opened(batch: pa.RecordBatch) -> Iterable[tuple[str, Any]]:
    """Return the columns of a block opened, by name."""
    known = opening(batch.schema)
    return zip(known.names, known.columns(batch), strict=True)


def _dtype(array: Any) -> np.dtype[Any] | None:
    return array.dtype if isinstance(array, np.ndarray) else width_of(array)


def _with_nulls(batch: pa.RecordBatch, names: Iterable[str]) -> pa.RecordBatch:
    """Return a block with null columns for those that the layout has and it lacks: nothing was placed for them."""
    for name in names:
        batch = batch.append_column(pa.field(name, pa.null()), pa.nulls(batch.num_rows))
    return batch


def _without(batch: pa.RecordBatch, names: frozenset[str]) -> pa.RecordBatch:
    """Return a block without some columns."""
    return batch.select([name for name in batch.schema.names if name not in names])
