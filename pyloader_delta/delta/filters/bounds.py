"""What is known of a column in each of many units (files, row groups) without reading it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyloader_delta.delta.filters.literals import Key


@dataclass(frozen=True, slots=True)
class Bounds:
    """Least and greatest values and NULLs of a column in each unit. Bounds may be too wide, never too narrow."""

    low: NDArray[Any]
    """Object array of keys (see `literals`), None where unknown; no value is below."""
    high: NDArray[Any]
    """The same for above. NaN is outside all bounds."""
    some_null: NDArray[np.bool_]
    """Where there may be a NULL."""
    some_value: NDArray[np.bool_]
    """Where there may be something else."""

    @property
    def single(self) -> NDArray[np.bool_]:
        """Where all values are the same one."""
        pairs = zip(self.low, self.high, strict=True)
        return np.fromiter((a is not None and a == b for a, b in pairs), bool, len(self.low))

    def take(self, units: NDArray[Any]) -> Bounds:
        """Return those of some units, by number or by mask."""
        return Bounds(self.low[units], self.high[units], self.some_null[units], self.some_value[units])


def of_statistics(
    low: Sequence[Key | None],
    high: Sequence[Key | None],
    nulls: Sequence[int | None],
    rows: Sequence[int | None],
) -> Bounds:
    """Return bounds of statistics; what contradicts itself, and NaN, count as unknown.

    Args:
        low: Lower bound in each unit; None where unknown.
        high: Upper bound in each unit; None where unknown.
        nulls: Number of NULLs in each unit; None where unknown.
        rows: Number of rows in each unit, as `nulls` counts them; None where unknown.
    """
    sound = [
        (a if a == a else None, b if b == b else None) if a is None or b is None or not a > b else (None, None)  # type: ignore[operator]
        for a, b in zip(low, high, strict=True)
    ]
    return Bounds(
        _objects(a for a, _ in sound),
        _objects(b for _, b in sound),
        np.array([n is None or n > 0 for n in nulls], bool),
        np.array([n is None or m is None or n < m for n, m in zip(nulls, rows, strict=True)], bool),
    )


def of_values(values: Sequence[Key | None]) -> Bounds:
    """Return the bounds of a column that has one value a unit; None is NULL."""
    found = _objects(values)
    null = np.array([value is None for value in values], bool)
    nan = np.array([value != value for value in values], bool)
    found[nan] = None
    return Bounds(found, found, null, ~null)


def of_constant(value: Key, n_units: int) -> Bounds:
    """Return the bounds of a literal."""
    found = np.empty(n_units, object)
    found.fill(value)
    return Bounds(found, found, np.zeros(n_units, bool), np.ones(n_units, bool))


def _objects(values: Iterable[Any]) -> NDArray[Any]:
    listed = list(values)
    found = np.empty(len(listed), object)
    found[:] = listed
    return found
