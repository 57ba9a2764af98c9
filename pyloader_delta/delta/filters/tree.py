"""A predicate on columns as a tree, with SQL's three values. How it is spelled is not decided here, nor what it reads.

Comparisons of floats are IEEE's: NaN is unequal to all and neither below nor above. What SQL says of NaN is spelled
out with `IsNaN` where a tree is built from SQL.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyloader_delta.columns import numbers
from pyloader_delta.delta.filters.literals import Key, arrow_array, is_float

Operator = Literal["=", "!=", "<", "<=", ">", ">="]


@dataclass(frozen=True, slots=True)
class Column:
    """A column, or a field of a struct."""

    path: tuple[str, ...]
    """Its name, below the names of the structs around it."""
    type: pa.DataType
    """Its logical type."""

    def __str__(self) -> str:
        return ".".join(self.path)


@dataclass(frozen=True, slots=True)
class Compare:
    """A column beside a value or another column of the same type; NULL where one of them is."""

    column: Column
    operator: Operator
    other: Key | Column


@dataclass(frozen=True, slots=True)
class In:
    """Whether a column is one of some values; NULL where it is NULL, or where it is none of them and `null` is set."""

    column: Column
    keys: tuple[Key, ...]
    null: bool
    """Whether NULL stands among the values."""


@dataclass(frozen=True, slots=True)
class Like:
    """Whether a text matches a pattern: `%` is any text, `_` one character, `\\` takes the next one as it is."""

    column: Column
    pattern: str
    ignore_case: bool


@dataclass(frozen=True, slots=True)
class IsNull:
    """Whether a column is NULL."""

    column: Column


@dataclass(frozen=True, slots=True)
class IsNaN:
    """Whether a float is NaN; NULL where it is NULL."""

    column: Column


@dataclass(frozen=True, slots=True)
class Constant:
    """The same for all rows."""

    value: bool | None


@dataclass(frozen=True, slots=True)
class Opaque:
    """Something that only pyarrow can evaluate: any outcome is possible."""


@dataclass(frozen=True, slots=True)
class Not:
    """NOT; NULL of NULL."""

    child: Node


@dataclass(frozen=True, slots=True)
class And:
    """AND: false where one is false, else NULL where one is NULL."""

    children: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Or:
    """OR: true where one is true, else NULL where one is NULL."""

    children: tuple[Node, ...]


Node = Compare | In | Like | IsNull | IsNaN | Constant | Opaque | Not | And | Or


def columns(node: Node) -> Iterator[Column]:
    """Yield the columns of a predicate, some of them several times."""
    if isinstance(node, And | Or):
        for child in node.children:
            yield from columns(child)
    elif isinstance(node, Not):
        yield from columns(node.child)
    elif not isinstance(node, Constant | Opaque):
        yield node.column
        if isinstance(node, Compare) and isinstance(node.other, Column):
            yield node.other


def expression(node: Node) -> pc.Expression:
    """Return the predicate, which holds nothing opaque, as pyarrow evaluates it: true, false or null for each row."""
    match node:
        case Constant(value):
            return _flag(value)
        case Not(child):
            return ~expression(child)
        case And(children):
            return _all(children)
        case Or(children):
            return ~_all(tuple(Not(child) for child in children))
        case IsNull(column):
            return _field(column).is_null()
        case IsNaN(column):
            return pc.is_nan(_field(column))
        case Like(column, pattern, ignore_case):
            return pc.match_like(_field(column), pattern, ignore_case=ignore_case)
        case In(column, keys, null):
            return _in(column, keys, null)
        case Compare(column, operator, other):
            left = _field(column)
            right = _field(other) if isinstance(other, Column) else pc.scalar(arrow_array(other, column.type)[0])
            return _COMPARE[operator](left, right)
    raise TypeError(f"no node of a predicate that can be evaluated: {node!r}")


_COMPARE = {
    "=": lambda left, right: left == right,
    "!=": lambda left, right: left != right,
    "<": lambda left, right: left < right,
    "<=": lambda left, right: left <= right,
    ">": lambda left, right: left > right,
    ">=": lambda left, right: left >= right,
}


def _all(children: tuple[Node, ...]) -> pc.Expression:
    """Return the AND of many, in a balanced way: pyarrow recurses."""
    if len(children) == 1:
        return expression(children[0])
    middle = len(children) // 2
    return _all(children[:middle]) & _all(children[middle:])


def _field(column: Column) -> pc.Expression:
    field = pc.field(*column.path)
    return field.cast(pa.float64()) if is_float(column.type) else field  # numbers are compared as doubles


def _in(column: Column, keys: tuple[Key, ...], null: bool) -> pc.Expression:
    field, nothing = _field(column), _flag(None)
    if is_float(column.type) and 0.0 in keys:
        keys = (*keys, 0.0, -0.0)  # equal, but not to pyarrow's sets
    found = field.isin(_array(keys, column.type))
    if null:
        found = pc.if_else(found, _flag(True), nothing)
    return pc.if_else(field.is_valid(), found, nothing)


def _array(keys: tuple[Key, ...], kind: pa.DataType) -> pa.Array:
    if not keys:
        return pa.nulls(0, pa.float64() if is_float(kind) else kind)
    return pa.concat_arrays([arrow_array(key, kind) for key in keys])


def _flag(value: bool | None) -> pc.Expression:
    return pc.scalar(
        pa.nulls(1, pa.bool_())[0] if value is None else numbers(np.array([value], np.uint8)).cast(pa.bool_())[0]
    )
