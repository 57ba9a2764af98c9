"""Rows of unequal length, as values one after the other and lengths: how they are cut, sent and padded. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import pairwise
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

Form = Literal["pad", "jagged", "str", "bytes"]
"""What a batch of them becomes in the training process: a padded array and lengths, the framework's own kind of ragged
tensor, or texts."""


class RaggedBatch(NamedTuple):
    """The ragged rows of one batch as they cross to the training process: unpadded."""

    values: NDArray[Any]
    """Values of all rows, first axis values."""
    lengths: tuple[NDArray[np.int64], ...]
    """Lengths of the rows, shape (rows,); then of the lists inside them, one after the other; and so on inwards."""
    form: Form
    pad_value: Any


class Ragged:
    """Rows that are lists of values, or lists of lists, or texts. Cut like an array: by slices of rows.

    Args:
        values: Values of all rows, first axis values.
        lengths: As in `RaggedBatch`.
        form: What batches of it become.
        pad_value: What a padded batch is filled with.
    """

    def __init__(
        self, values: NDArray[Any], lengths: tuple[NDArray[np.int64], ...], form: Form, pad_value: Any = 0
    ) -> None:
        self.values, self.lengths, self.form, self.pad_value = values, lengths, form, pad_value

    def __len__(self) -> int:
        return len(self.lengths[0])

    def __getitem__(self, rows: slice) -> Ragged:
        batch = self.batch(rows)
        return Ragged(*batch)

    def batch(self, rows: slice = slice(None)) -> RaggedBatch:
        """Return some rows, next to each other, on the same memory."""
        start, stop, _ = rows.indices(len(self))
        stop = max(start, stop)
        lengths = []
        for level, bounds in zip(self.lengths, self._bounds, strict=True):
            lengths.append(level[start:stop])
            start, stop = int(bounds[start]), int(bounds[stop])
        return RaggedBatch(self.values[start:stop], tuple(lengths), self.form, self.pad_value)

    @cached_property
    def _bounds(self) -> list[NDArray[np.int64]]:
        return [bounds_of(level) for level in self.lengths]


def cuts(batch: RaggedBatch, rows: Sequence[int]) -> dict[int, Sequence[int]]:
    """Return where batches of so many rows each, one after the other, begin and end in each array, by its id."""
    places = np.concatenate(([0], np.cumsum(rows)))
    found: dict[int, Sequence[int]] = {}
    for level in batch.lengths:
        found[id(level)] = places.tolist()
        places = bounds_of(level)[places]
    found[id(batch.values)] = places.tolist()
    return found


def bounds_of(lengths: NDArray[np.signedinteger[Any]]) -> NDArray[np.int64]:
    """Return where rows of these lengths begin and end, one after the other, shape (rows + 1,), int64."""
    bounds = np.zeros(len(lengths) + 1, dtype=np.int64)
    np.cumsum(lengths, out=bounds[1:])
    return bounds


def padded(batch: RaggedBatch) -> tuple[NDArray[Any], list[NDArray[np.int64]]]:
    """Return the rows of a batch at the length of its longest, and the lengths of every depth.

    Returns:
        Array of shape (rows, longest, longest inner, ..., *shape of a value), filled with `pad_value`; arrays of shape
        (rows,), (rows, longest), ..., of the lengths' own type: lengths, 0 where there is no list.
    """
    n_values, n_rows = len(batch.values), len(batch.lengths[0])
    if len(batch.lengths) == 1 and n_values > _LONG * n_rows:
        return _copied_by_row(batch), list(batch.lengths)
    lengths: list[NDArray[np.int64]] = []
    there: NDArray[np.bool_] | None = None
    for level in batch.lengths:
        if there is None:
            known = level
        else:
            known = np.zeros(there.shape, level.dtype)
            known[there] = level
        lengths.append(known)
        longest = int(known.max()) if known.size else 0
        there = np.arange(longest, dtype=np.int32) < known[..., None].astype(np.int32)  # 1.3 times as fast as int64
    assert there is not None
    whole = _room(there.shape, batch)
    whole[there] = batch.values
    return whole, lengths


_LONG = 128  # values of a row on average, from which one copy a row is faster than a mask over all values


def _copied_by_row(batch: RaggedBatch) -> NDArray[Any]:
    lengths = batch.lengths[0].tolist()
    longest = max(lengths)
    whole = _room((len(lengths), longest), batch)
    values = np.ascontiguousarray(batch.values)
    unit = values.dtype if values.dtype.kind in "biuf" else np.dtype(np.int64)  # times have no buffers
    to, of = whole.reshape(-1).view(unit).data, values.view(unit).data
    row = start = 0
    for length in lengths:
        stop = start + length
        to[row : row + length] = of[start:stop]  # memoryviews: half of what NumPy's slices take
        row += longest
        start = stop
    return whole


def _room(shape: tuple[int, ...], batch: RaggedBatch) -> NDArray[Any]:
    if not batch.pad_value:
        return np.zeros(shape, batch.values.dtype)
    return np.full(shape, batch.pad_value, batch.values.dtype)


def length_names(name: str, n_levels: int) -> list[str]:
    """Return under which names the lengths of a padded column stand beside it, outermost first."""
    return [f"{name}_lengths" if level == 1 else f"{name}_lengths_{level}" for level in range(1, n_levels + 1)]


def texts(batch: RaggedBatch) -> list[Any]:
    """Return the rows of a batch of texts, as str or bytes."""
    raw = batch.values.tobytes()
    bounds = bounds_of(batch.lengths[0]).tolist()
    found = [raw[start:stop] for start, stop in pairwise(bounds)]
    return found if batch.form == "bytes" else [text.decode() for text in found]


class ListedBatch(NamedTuple):
    """Python values of one batch as they cross to the training process."""

    values: NDArray[Any]
    """Array of objects, shape (rows,)."""


class Listed:
    """Rows that stay Python values and reach the training loop as a list. Cut like an array: by slices of rows."""

    def __init__(self, values: list[Any]) -> None:
        self.values = values

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, rows: slice) -> Listed:
        return Listed(self.values[rows])

    def batch(self) -> ListedBatch:
        """Return the rows."""
        array = np.empty(len(self.values), dtype=object)
        array[:] = self.values
        return ListedBatch(array)
