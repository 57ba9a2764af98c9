"""Few groups of the values of one column, whatever its type, so that batches can be compared by their shares."""

from __future__ import annotations

from collections import Counter
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyloader_delta.errors import ConfigError

MOST = 10
"""Groups at most; rarer texts are "others", numbers and times are cut into ranges of about equally many rows."""

_ORDERED = (int, float, Decimal, date, datetime, time, timedelta)


def grouped(values: list[Any], name: str) -> tuple[list[str], NDArray[np.int64]]:
    """Return the names of the groups, and the group of each value.

    Args:
        values: Python values; None is a group of its own.
        name: Of the column.

    Raises:
        ConfigError: They are lists, structs or the like.
    """
    if any(isinstance(value, (list, dict, tuple)) for value in values):
        raise ConfigError(f"label must be a column of numbers, texts or times; {name!r} is nested")
    values = [None if isinstance(value, float) and value != value else value for value in values]
    counts = Counter(values)
    if len(counts) <= MOST:
        names = sorted((value for value in counts if value is not None), key=_sortable)
        order: dict[Any, int] = {value: i for i, value in enumerate([*names, *([None] if None in counts else [])])}
        return [str(value) for value in order], np.array([order[value] for value in values], dtype=np.int64)
    there = [value for value in values if value is not None]
    if all(isinstance(value, _ORDERED) for value in there):
        return _ranges(values, there)
    common = [value for value, _ in counts.most_common(MOST - 1)]
    order = {value: i for i, value in enumerate(common)}
    return [*map(str, common), "others"], np.array([order.get(v, len(common)) for v in values], dtype=np.int64)


def _ranges(values: list[Any], there: list[Any]) -> tuple[list[str], NDArray[np.int64]]:
    there = sorted(there)
    borders = list(dict.fromkeys(there[len(there) * i // MOST] for i in range(1, MOST)))
    edges = [there[0], *borders, there[-1]]
    names = [f"{low} – {high}" for low, high in pairwise(edges)]
    found = [len(names) if value is None else sum(value >= border for border in borders) for value in values]
    return names + ["None"] * (len(there) < len(values)), np.array(found, dtype=np.int64)


def _sortable(value: Any) -> tuple[int, Any]:
    return (0, value) if isinstance(value, (int, float, Decimal)) else (1, str(value))
