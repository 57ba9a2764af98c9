"""Batches joined along their rows: a few large arrays cross to another library in the place of many small ones."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyloader_delta.arrays import ALIGNMENT, empty_aligned
from pyloader_delta.outputs import leaves, map_leaves

_ENOUGH = 1 << 20  # bytes from which more would save nothing


def slabs(batches: Iterator[Any], batch_size: int) -> Iterator[Any]:
    """Yield batches joined along their rows, each but the last of a slab with `batch_size` rows; some as they are.

    Joined are batches of NumPy arrays alone, all with as many rows, and alike but for these. An error comes after the
    batches before it.
    """
    waiting: list[Any] = []
    size = 0
    shape: Any = None
    error: Exception | None = None
    while True:
        try:
            batch = next(batches, None)
        except Exception as raised:
            error = raised
            break
        if batch is None:
            break
        found = shape if waiting and _alike(batch, waiting[0]) else _shape(batch, batch_size)
        if waiting and (found is None or found[:2] != shape[:2]):
            yield _joined(waiting)
            waiting, size = [], 0
        if found is None:
            yield batch
            continue
        waiting.append(batch)
        size += found[2]
        shape = found
        if found[3] != batch_size or size >= _ENOUGH:
            yield _joined(waiting)
            waiting, size = [], 0
    if waiting:
        yield _joined(waiting)
    if error is not None:
        raise error


def aligned_array(value: Any) -> Any:
    """Return an array as TensorFlow takes it without a copy: in one piece, at an address it likes."""
    if type(value) is not np.ndarray or value.dtype.hasobject or value.dtype.kind in "SU":
        return value
    if value.flags.c_contiguous and value.__array_interface__["data"][0] % ALIGNMENT == 0:
        return value
    room = empty_aligned(value.shape, value.dtype)
    room[...] = value
    return room


def _alike(batch: Any, first: Any) -> bool:
    """Return whether two batches are dicts of arrays of the same shapes: found fast, for most are."""
    if type(batch) is not dict or type(first) is not dict or batch.keys() != first.keys():
        return False
    return all(
        type(value) is np.ndarray and value.shape == first[name].shape and value.dtype == first[name].dtype
        for name, value in batch.items()
    )


def _shape(batch: Any, batch_size: int) -> tuple[Any, Any, int, int] | None:
    """Return what must agree (names; dtypes and shapes of rows), bytes and rows; None of what cannot be joined."""
    names, rows, n_rows, size = [], [], None, 0
    for name, value in leaves(batch):
        if type(value) is not np.ndarray or value.ndim == 0 or len(value) != (n_rows := n_rows or len(value)):
            return None
        names.append(name)
        rows.append((value.dtype, value.shape[1:]))
        size += value.nbytes
    return (names, rows, size, n_rows) if n_rows and n_rows <= batch_size else None


def _joined(batches: list[Any]) -> Any:
    first = batches[0]
    if len(batches) == 1:
        return first
    if type(first) is dict and set(map(type, first.values())) == {np.ndarray}:
        return {name: _rows(tuple(batch[name] for batch in batches)) for name in first}
    return map_leaves(lambda *arrays: _rows(arrays), *batches)


def _rows(arrays: tuple[NDArray[Any], ...]) -> NDArray[Any]:
    if arrays[0].dtype.hasobject:
        return np.concatenate(arrays)
    room = empty_aligned((sum(map(len, arrays)), *arrays[0].shape[1:]), arrays[0].dtype)
    return np.concatenate(arrays, out=room)
