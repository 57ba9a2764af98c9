"""Ragged rows and Python values of a batch become what a framework has for them, in the training process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pyloader_delta.collate.nested import map_arrays
from pyloader_delta.ragged import ListedBatch, RaggedBatch, length_names, padded


class Kinds(NamedTuple):
    """What a framework makes of the parts of a batch."""

    array: Callable[[NDArray[Any]], Any] | None
    """Of an array; None: it stays one."""
    jagged: Callable[[RaggedBatch], Any]
    """Of ragged rows that are not padded."""
    text: Callable[[RaggedBatch], Any]
    """Of texts."""


def finished(batch: Any, kinds: Kinds) -> Any:
    """Return a batch as the training loop gets it.

    Entries of a dict that are padded have their lengths beside them. Elsewhere in nested batches, rows that are padded
    become a tuple of the array and their lengths.
    """
    there = set(map(type, batch.values())) if type(batch) is dict else set()
    if there == {np.ndarray} and kinds.array is not None:
        return dict(zip(batch, map(kinds.array, batch.values()), strict=True))  # most batches: no Python for each array
    if not there.isdisjoint(_ROWS):
        found: dict[str, Any] = {}
        for name, value in batch.items():
            if type(value) is RaggedBatch and value.form == "pad":
                parts = _padded(value, kinds)
                found |= zip([name, *length_names(name, len(parts) - 1)], parts, strict=True)
            elif type(value) is np.ndarray and kinds.array is not None:
                found[name] = kinds.array(value)
            else:
                found[name] = finished(value, kinds)
        return found
    if type(batch) in _ROWS:
        return _rows(batch, kinds)
    return batch if kinds.array is None else map_arrays(kinds.array, batch)


def arrays_of(entries: dict[str, Any]) -> Iterator[tuple[str, NDArray[Any]]]:
    """Yield the arrays of collated entries with their names: those of ragged rows' values, none of Python values."""
    for name, entry in entries.items():
        if type(entry) is RaggedBatch:
            yield name, entry.values
        elif type(entry) is not ListedBatch:
            yield name, entry


def is_number(dtype: np.dtype[Any]) -> bool:
    """Return whether torch and JAX have a number like it: a text, a time, a long double is none."""
    return dtype.char in "?bBhHiIlLqQefdFD"


_ROWS = (RaggedBatch, ListedBatch)


def _rows(batch: Any, kinds: Kinds) -> Any:
    if type(batch) is ListedBatch:
        return batch.values.tolist()
    if batch.form == "pad":
        return tuple(_padded(batch, kinds))
    return kinds.jagged(batch) if batch.form == "jagged" else kinds.text(batch)


def _padded(batch: RaggedBatch, kinds: Kinds) -> list[Any]:
    array, lengths = padded(batch)
    parts = [array, *lengths]
    return parts if kinds.array is None else [kinds.array(part) for part in parts]
