"""What a predicate can be for rows of which only bounds are known: true, false, NULL, or several of these.

Each unit (a file, a row group) has the set of its possible outcomes, as bits. A set may be too large, never too small.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyloader_delta.delta.filters.bounds import Bounds, of_constant
from pyloader_delta.delta.filters.literals import Key, is_float
from pyloader_delta.delta.filters.tree import (
    And,
    Column,
    Compare,
    Constant,
    In,
    IsNaN,
    IsNull,
    Like,
    Node,
    Not,
    Operator,
    Or,
)

Outcomes = NDArray[np.uint8]
"""One set a unit."""
TRUE, FALSE, NULL = 1, 2, 4
ANY = TRUE | FALSE | NULL

_Known = Mapping[tuple[str, ...], Bounds]


def outcomes(node: Node, known: _Known, n_units: int) -> Outcomes:
    """Return the possible outcomes of a predicate.

    Args:
        node: The predicate.
        known: Path of a column → its bounds in each unit; nothing is known of columns that are not there.
        n_units: Number of units.

    Returns:
        uint8 array of shape (n_units,): sums of TRUE, FALSE, NULL.
    """
    match node:
        case Constant(value):
            return np.full(n_units, NULL if value is None else TRUE if value else FALSE, np.uint8)
        case Not(child):
            return _NOT[outcomes(child, known, n_units)]
        case And(children):
            return reduce(lambda left, right: _AND[left, right], (outcomes(c, known, n_units) for c in children))
        case Or(children):
            return _NOT[reduce(lambda a, b: _AND[a, b], (_NOT[outcomes(c, known, n_units)] for c in children))]
        case Compare(column, operator, other) if column.path in known:
            return _compare(known[column.path], operator, other, known, is_float(column.type))
        case IsNull(column) if column.path in known:
            found = known[column.path]
            return _set(found.some_null, found.some_value, np.False_)
        case IsNaN(column) if column.path in known:
            found = known[column.path]
            return _set(found.some_value, found.some_value, found.some_null)
        case In(column, keys, null) if column.path in known:
            return _in(known[column.path], keys, null, is_float(column.type))
        case Like(column, pattern, ignore_case) if column.path in known:
            return _like(known[column.path], "" if ignore_case else pattern)
    return np.full(n_units, ANY, np.uint8)


def _compare(left: Bounds, operator: Operator, other: Key | Column, known: _Known, has_nan: bool) -> Outcomes:
    if isinstance(other, Column):
        if other.path not in known:
            return np.full(len(left.low), ANY, np.uint8)
        right = known[other.path]
    else:
        right = of_constant(other, len(left.low))
    if operator in (">", ">="):
        left, right = right, left
    if operator in ("=", "!="):
        true = _maybe_at_most(left.low, right.high) & _maybe_at_most(right.low, left.high)
        false = ~(left.single & right.single & true)
    elif operator in ("<", ">"):
        true, false = _maybe_below(left.low, right.high), _maybe_at_most(right.low, left.high)
    else:
        true, false = _maybe_at_most(left.low, right.high), _maybe_below(right.low, left.high)
    if has_nan:
        false = np.ones_like(false)  # beyond all bounds
    if operator == "!=":
        true, false = false, true
    value = left.some_value & right.some_value
    return _set(true & value, false & value, left.some_null | right.some_null)


def _in(column: Bounds, keys: tuple[Key, ...], null: bool, has_nan: bool) -> Outcomes:
    places = (
        (0 if low is None else bisect_left(keys, low), high) for low, high in zip(column.low, column.high, strict=True)
    )
    true = np.fromiter(
        (i < len(keys) and (high is None or keys[i] <= high) for i, high in places),
        bool,
        len(column.low),
    )
    false = np.ones_like(true) if has_nan else ~(column.single & true)
    value = column.some_value
    if null:
        return _set(true & value, np.False_, column.some_null | (false & value))
    return _set(true & value, false & value, column.some_null)


def _like(column: Bounds, pattern: str) -> Outcomes:
    prefix = _prefix(pattern)
    n = len(prefix)
    true = np.fromiter(
        (
            (low is None or low[:n] <= prefix) and (high is None or high >= prefix)
            for low, high in zip(column.low, column.high, strict=True)
        ),
        bool,
        len(column.low),
    )
    return _set(true & column.some_value, column.some_value, column.some_null)


def _prefix(pattern: str) -> bytes:
    """Return the text with which all matches begin."""
    found, characters = "", iter(pattern)
    for character in characters:
        if character in "%_\\":  # what follows a backslash is not worth its rules
            break
        found += character
    return found.encode()


def _maybe_below(left: NDArray[Any], right: NDArray[Any]) -> NDArray[np.bool_]:
    """Return where something that is at least `left` may be below something that is at most `right`."""
    return np.fromiter((a is None or b is None or a < b for a, b in zip(left, right, strict=True)), bool, len(left))


def _maybe_at_most(left: NDArray[Any], right: NDArray[Any]) -> NDArray[np.bool_]:
    return np.fromiter((a is None or b is None or a <= b for a, b in zip(left, right, strict=True)), bool, len(left))


def _set(true: Any, false: Any, null: Any) -> Outcomes:
    found: Outcomes = (true * TRUE | false * FALSE | null * NULL).astype(np.uint8)
    return found


def _table(outcome: Any) -> Outcomes:
    """Return, for each two sets, the set of what `outcome` makes of one of each."""
    found = np.zeros((ANY + 1, ANY + 1), np.uint8)
    for left in range(ANY + 1):
        for right in range(ANY + 1):
            for a in (TRUE, FALSE, NULL):
                for b in (TRUE, FALSE, NULL):
                    if left & a and right & b:
                        found[left, right] |= outcome(a, b)
    return found


_AND = _table(lambda a, b: FALSE if FALSE in (a, b) else NULL if NULL in (a, b) else TRUE)
_NOT = np.array([(s & TRUE) * 2 | (s & FALSE) // 2 | s & NULL for s in range(ANY + 1)], np.uint8)
