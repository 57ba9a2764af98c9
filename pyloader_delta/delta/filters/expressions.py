"""A pyarrow expression becomes a tree, as far as its meaning is known exactly; the rest is opaque.

Rows are always filtered by the expression itself: the tree says which columns it needs and what it can prune. pyarrow
offers no look into an expression but its pickled form: an Arrow IPC file whose schema's metadata lists the calls, the
fields and the places of literals and options in its columns. It is the same from pyarrow 18 to 26.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as kinds

from pyloader_delta.delta.filters import build
from pyloader_delta.delta.filters.literals import is_bytes, is_float, is_text
from pyloader_delta.delta.filters.tree import And, Column, Constant, IsNull, Node, Not, Opaque, Operator, Or
from pyloader_delta.errors import ConfigError

_OPERATORS: dict[str, Operator] = {
    "equal": "=",
    "not_equal": "!=",
    "less": "<",
    "less_equal": "<=",
    "greater": ">",
    "greater_equal": ">=",
}
_MAX_EXACT_FLOAT32 = 2**24

_Path = tuple[str, ...]
_Part = Any
"""A Node, a pa.Scalar or a _Path."""


def serialized(expression: pc.Expression) -> bytes:
    """Return an expression in bytes.

    Raises:
        ConfigError: It names columns by number, or holds something else that cannot travel to a worker.
    """
    try:
        return bytes(expression.__reduce__()[1][0])
    except (pa.ArrowException, NotImplementedError) as error:
        raise ConfigError(f"filter {expression} cannot be sent to workers: {error}; name columns by name") from error


def parse(expression: pc.Expression, schema: pa.Schema) -> tuple[Node, tuple[str, ...]]:
    """Return the tree of an expression and the names of the columns that it needs.

    Raises:
        ConfigError: It names a column that the schema does not have.
    """
    return _Decoder(serialized(expression), schema).decoded()


class _Decoder:
    """Goes through the parts of an expression, which stand in the order of a call's name, arguments, options, end."""

    def __init__(self, data: bytes, schema: pa.Schema) -> None:
        self._all = list(_metadata(data))
        self._parts = iter(self._all)
        self._values = pa.ipc.open_file(data).get_batch(0)
        self._schema = schema

    def decoded(self) -> tuple[Node, tuple[str, ...]]:
        names = tuple(dict.fromkeys(self._names()))
        try:
            return self._node(self._part(*next(self._parts))), names
        except RecursionError:  # thousands of calls in one another
            return Opaque(), names

    def _names(self) -> Iterator[str]:
        parts = iter(self._all)
        for kind, value in parts:
            if kind in ("field_ref", "nested_field_ref"):
                path = (value,) if kind == "field_ref" else tuple(next(parts)[1] for _ in range(int(value)))
                try:
                    yield build.column(self._schema, path).path[0]
                except ValueError as error:
                    raise ConfigError(f"filter names {'.'.join(path)!r}: {error}") from error

    def _part(self, kind: str, value: str) -> _Part:
        if kind == "literal":
            return self._values.column(int(value))[0]
        if kind == "field_ref":
            return (value,)
        if kind == "nested_field_ref":
            return tuple(next(self._parts)[1] for _ in range(int(value)))
        arguments = []
        options: dict[str, Any] = {}
        for inner, text in self._parts:
            if inner == "end":
                break
            if inner == "options":
                options = dict(self._values.column(int(text))[0].items())
            else:
                arguments.append(self._part(inner, text))
        return self._call(value, arguments, options)

    def _call(self, name: str, arguments: list[_Part], options: dict[str, Any]) -> Node:
        if name == "invert":
            return Not(self._node(arguments[0]))
        if name in ("and_kleene", "or_kleene"):
            children = tuple(self._node(argument) for argument in arguments)
            return And(children) if name == "and_kleene" else Or(children)
        if not isinstance(arguments[0], tuple):
            if len(arguments) == 2 and name in _OPERATORS and isinstance(arguments[1], tuple):
                flipped = build.FLIPPED[_OPERATORS[name]]
                return self._compared(self._column(arguments[1]), flipped, arguments[0])
            return Opaque()
        column = self._column(arguments[0])
        if name in _OPERATORS:
            return self._compared(column, _OPERATORS[name], arguments[1])
        return _tested(name, column, options)

    def _compared(self, column: Column, operator: Operator, other: _Part) -> Node:
        try:
            if isinstance(other, tuple):
                return build.compare_columns(column, operator, self._column(other))
            if isinstance(other, pa.Scalar) and not other.is_valid:
                return Constant(None)
            if isinstance(other, pa.Scalar) and _alike(other.type, column.type, other):
                return build.compare(column, operator, other)
        except ValueError:
            pass
        return Opaque()

    def _node(self, part: _Part) -> Node:
        if isinstance(part, tuple):
            column = self._column(part)
            return build.compare(column, "=", True) if kinds.is_boolean(column.type) else Opaque()
        if isinstance(part, pa.Scalar):
            return Constant(part.as_py()) if kinds.is_boolean(part.type) or not part.is_valid else Opaque()
        node: Node = part
        return node

    def _column(self, path: _Path) -> Column:
        return build.column(self._schema, path)


def _tested(name: str, column: Column, options: dict[str, Any]) -> Node:
    """Return a call of one column."""
    try:
        if name == "is_valid":
            return Not(IsNull(column))
        if name == "is_null" and not (options["nan_is_null"].as_py() and is_float(column.type)):
            return IsNull(column)
        if name == "is_nan" and is_float(column.type):
            return build.is_nan(column)
        if name == "match_like":
            return build.like(column, options["pattern"].as_py(), ignore_case=options["ignore_case"].as_py())
        if name == "is_in":
            return _in(column, options["value_set"].values, options["null_matching_behavior"].as_py())
    except (KeyError, ValueError):
        pass
    return Opaque()


def _in(column: Column, values: pa.Array, null_matching: int) -> Node:
    """Return what pyarrow's `isin` is: never NULL."""
    signed = kinds.is_signed_integer(values.type) and kinds.is_signed_integer(column.type)
    zero = is_float(values.type) and 0.0 in values.to_pylist()  # 0.0 and -0.0 are two values there
    if null_matching not in (0, 1) or zero or not (signed or values.type == column.type):
        return Opaque()
    known = [value for value in values if value.is_valid]
    found: Node = And((build.one_of(column, known), Not(IsNull(column))))
    return Or((found, IsNull(column))) if len(known) < len(values) and null_matching == 0 else found


def _alike(literal: pa.DataType, column: pa.DataType, value: pa.Scalar) -> bool:
    """Return whether pyarrow compares the two without changing a value."""
    if kinds.is_signed_integer(literal):
        small = is_float(column) and abs(value.as_py()) <= _MAX_EXACT_FLOAT32
        return bool(kinds.is_signed_integer(column) or kinds.is_decimal(column)) or small
    if kinds.is_timestamp(literal):
        return kinds.is_timestamp(column) and (literal.tz is None) == (column.tz is None)
    if is_float(literal):
        return is_float(column)
    if kinds.is_decimal(literal):
        return bool(kinds.is_decimal(column))
    if is_bytes(literal):
        return is_bytes(column) and is_text(literal) == is_text(column)
    return bool(literal == column)


def _metadata(data: bytes) -> Iterator[tuple[str, str]]:
    """Yield the metadata of an IPC file's schema in order: pyarrow itself gives a dict, without what repeats.

    Message and Schema are flatbuffers: a table begins with the distance back to its vtable, which has the distance of
    each field; https://arrow.apache.org/docs/format/Columnar.html.
    """

    def number(form: str, at: int) -> int:
        found: int = struct.unpack_from(form, data, at)[0]
        return found

    def field(table: int, i: int) -> int:
        vtable = table - number("<i", table)
        at = table + number("<H", vtable + 4 + 2 * i)
        return at + number("<I", at)

    def text(at: int) -> str:
        return data[at + 4 : at + 4 + number("<I", at)].decode()

    root = 16  # after the magic, padded, the mark of a message and its length
    message = root + number("<I", root)
    pairs = field(field(message, 2), 2)
    for i in range(number("<I", pairs)):
        at = pairs + 4 + 4 * i
        pair = at + number("<I", at)
        yield text(field(pair, 0)), text(field(pair, 1))
