"""Predicates over a schema: names become columns, literals keys, and comparisons what SQL means by them."""

from __future__ import annotations

import difflib
import math
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from pyloader_delta.delta.filters.literals import Key, has_keys, is_float, is_text, key, key_range
from pyloader_delta.delta.filters.tree import (
    And,
    Column,
    Compare,
    Constant,
    In,
    IsNaN,
    Like,
    Node,
    Not,
    Operator,
    Or,
)

FLIPPED: dict[Operator, Operator] = {"=": "=", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
"""Operator → what it is with its sides swapped."""


def column(schema: pa.Schema, path: Sequence[str], *, any_case: bool = False) -> Column:
    """Return a column, or a field of a struct.

    Args:
        schema: Logical schema of the table.
        path: Its name, below the names of the structs around it.
        any_case: Take a name that differs in case alone, if no other does.

    Raises:
        ValueError: There is none; the text names what there is.
    """
    fields = list(schema)
    found: list[str] = []
    kind = None
    for name in path:
        names = [field.name for field in fields]
        match = [other for other in names if other == name]
        if not match and any_case:
            match = [other for other in names if other.lower() == name.lower()]
        if len(match) != 1:
            raise ValueError(_unknown(name, found, names))
        found.append(match[0])
        kind = fields[names.index(match[0])].type
        fields = [kind.field(i) for i in range(kind.num_fields)] if pa.types.is_struct(kind) else []
    return Column(tuple(found), kind)


def compare(left: Column, operator: Operator, value: Any, *, nan_is_greatest: bool = False) -> Node:
    """Return a column beside a literal; NULL where the column is NULL.

    Args:
        left: The column.
        operator: How they are compared.
        value: What `literals.key` takes, or None: then NULL is the outcome for all rows.
        nan_is_greatest: Take SQL's order of floats, in which NaN equals itself and is above all numbers.

    Raises:
        ValueError: The literal cannot be compared with the column; the text says why.
    """
    _comparable(left)
    if value is None or pa.types.is_null(left.type):
        return Constant(None)
    literal, exact = _key(left, value)
    if isinstance(literal, float):
        return _compare_float(left, operator, literal, nan_is_greatest)
    if not exact:  # `literal` is the greatest key below
        operator = {"<": "<=", ">=": ">"}.get(operator, operator)  # type: ignore[assignment]
        if operator in ("=", "!="):
            return _sure(left, operator == "!=")
    return _compare_in_range(left, operator, literal)


def compare_columns(left: Column, operator: Operator, right: Column, *, nan_is_greatest: bool = False) -> Node:
    """Return a column beside another of the same type; NULL where one of them is.

    Raises:
        ValueError: Their types differ, or have no order.
    """
    _comparable(left)
    if left.type != right.type:
        raise ValueError(f"{left} is {left.type} and {right} is {right.type}: only columns of one type are compared")
    if not nan_is_greatest or not is_float(left.type):
        return Compare(left, operator, right)
    if operator in ("<", "<="):
        left, operator, right = right, FLIPPED[operator], left
    nan, other_nan = IsNaN(left), IsNaN(right)
    if operator == ">":
        return Or((Compare(left, ">", right), And((nan, Not(other_nan)))))
    if operator == ">=":
        return Or((Compare(left, ">=", right), And((nan, _known(other_nan)))))
    equal = Or((Compare(left, "=", right), And((nan, other_nan))))
    return equal if operator == "=" else Not(equal)


def one_of(left: Column, values: Sequence[Any], *, nan_is_greatest: bool = False) -> Node:
    """Return whether a column is one of some literals, None among them; NULL as SQL has it, false for no literal.

    Raises:
        ValueError: A literal cannot be compared with the column; the text says why.
    """
    _comparable(left)
    if not values:
        return Constant(False)
    if pa.types.is_null(left.type):
        return Constant(None)
    keys = [_key(left, value) for value in values if value is not None]
    bounds = key_range(left.type)
    exact = [literal for literal, exactly in keys if exactly]
    if bounds is not None:
        exact = [literal for literal in exact if bounds[0] <= literal <= bounds[1]]  # type: ignore[operator]
    numbers = [literal for literal in exact if literal == literal]
    found: Node = In(left, tuple(sorted(set(numbers))), len(keys) < len(values))
    if len(numbers) == len(exact):
        return found
    if not nan_is_greatest:
        raise ValueError(_NAN)
    return Or((found, IsNaN(left)))


def is_nan(left: Column) -> Node:
    """Return whether a float is NaN; NULL where it is NULL.

    Raises:
        ValueError: The column is no float.
    """
    if not is_float(left.type):
        raise ValueError(f"{left} is {left.type}, which has no NaN")
    return IsNaN(left)


def like(left: Column, pattern: Any, *, ignore_case: bool = False) -> Node:
    """Return whether a text matches SQL's pattern; NULL where it is NULL.

    Raises:
        ValueError: The column or the pattern is no text.
    """
    if not is_text(left.type) or not isinstance(pattern, str):
        raise ValueError(f"LIKE is for texts; {left} is {left.type}, the pattern {pattern!r}")
    if (len(pattern) - len(pattern.rstrip("\\"))) % 2:
        raise ValueError(f"the pattern {pattern!r} ends with a backslash that escapes nothing; write two")
    return Like(left, pattern, ignore_case)


def all_of(children: Sequence[Node]) -> Node:
    """Return AND of predicates. Where one of them is false for NaN, the others need not keep it.

    That is for statistics, which say nothing of NaN: `x BETWEEN 1 AND 2` can be ruled out by them, `x > 1` cannot.
    """
    flat = [part for child in children for part in (child.children if isinstance(child, And) else (child,))]
    without = {column for part in flat if (column := _never_nan(part)) is not None}
    parts = tuple(_without_nan(part, without) for part in flat)
    return parts[0] if len(parts) == 1 else And(parts)


def _never_nan(node: Node) -> Column | None:
    """Return the column for whose NaNs a predicate is false."""
    match node:
        case Compare(column, "=" | "<" | "<=", other) if not isinstance(other, Column):
            return column
        case In(column, _, False) | Not(IsNaN(column)):
            return column
    return None


def _without_nan(node: Node, columns: set[Column]) -> Node:
    match node:
        case Or((Compare(column) as compared, IsNaN(same))) if column == same and column in columns:
            return compared
    return node


_NAN = "nothing is equal to NaN, above or below it; in SQL write isnan(column)"


def _key(left: Column, value: Any) -> tuple[Key, bool]:
    try:
        return key(value, left.type)
    except ValueError as error:
        raise ValueError(f"column {str(left)!r} is {left.type}: {error}") from error


def _compare_float(left: Column, operator: Operator, literal: float, nan_is_greatest: bool) -> Node:
    nan = IsNaN(left)
    if not math.isnan(literal):
        found: Node = Compare(left, operator, literal)
        return Or((found, nan)) if nan_is_greatest and operator in (">", ">=") else found
    if not nan_is_greatest:
        raise ValueError(_NAN)
    if operator in ("=", ">="):
        return nan
    if operator in ("!=", "<"):
        return Not(nan)
    return _known(nan) if operator == "<=" else Not(_known(nan))


def _compare_in_range(left: Column, operator: Operator, literal: Key) -> Node:
    bounds = key_range(left.type)
    if bounds is None or bounds[0] <= literal <= bounds[1]:  # type: ignore[operator]
        return Compare(left, operator, literal)
    above = literal > bounds[1]  # type: ignore[operator]
    return _sure(left, operator == "!=" or operator.startswith("<" if above else ">"))


def _sure(left: Column, value: bool) -> Node:
    """Return an outcome for all rows that are not NULL."""
    bounds = key_range(left.type)
    assert bounds is not None
    return Compare(left, "<=" if value else ">", bounds[1])


def _known(node: Node) -> Node:
    """Return true where a predicate has an outcome, else NULL."""
    return Or((node, Not(node)))


def _comparable(left: Column) -> None:
    if not has_keys(left.type) and not pa.types.is_null(left.type):
        raise ValueError(f"column {str(left)!r} is {left.type}, which has no order; it can only be tested for NULL")


def _unknown(name: str, found: Sequence[str], names: Sequence[str]) -> str:
    if not names:
        return f"{'.'.join(found)!r} is no struct, so it has no field {name!r}"
    return f"there is no column {'.'.join((*found, name))!r}{names_instead(name, names)}"


def names_instead(name: str, names: Sequence[str]) -> str:
    """Return the end of an error about a name that is none of some others: the nearest of them, and all."""
    close = difflib.get_close_matches(name.lower(), [other.lower() for other in names], n=1)
    near = [other for other in names if other.lower() in close]
    hint = f"; did you mean {near[0]!r}?" if near else ";"
    return f"{hint} It has {', '.join(map(repr, names))}"
