"""A predicate as lists of (column, operator, value), deltalake's and pyarrow's, becomes a tree."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from pyloader_delta.delta.filters import build
from pyloader_delta.delta.filters.tree import And, Column, IsNull, Node, Not, Or
from pyloader_delta.errors import ConfigError

_OPERATORS = {op: op for op in ("=", "!=", "<", "<=", ">", ">=")} | {"==": "=", "<>": "!="}
_OTHERS = ("in", "not in", "is", "is not")
_FORM = "a list of (column, operator, value), all of which hold, or a list of such lists, one of which holds"


def parse(value: Sequence[Any], schema: pa.Schema) -> Node:
    """Return the tree of a predicate: the OR of ANDs.

    Args:
        value: Tuples, or lists of them. A column's name may have dots, for fields of structs.
        schema: Logical schema of the table.

    Raises:
        ConfigError: It is no predicate on columns of the schema; the text shows the tuple.
    """
    if not value:
        raise ConfigError("filter is an empty list; None is for all rows")
    alternatives = [value] if any(_is_tuple(part) for part in value) else value
    found = []
    for alternative in alternatives:
        if not isinstance(alternative, list | tuple) or not alternative:
            raise ConfigError(f"filter must be {_FORM}; got {alternative!r} in it")
        children = tuple(_predicate(part, schema) for part in alternative)
        found.append(children[0] if len(children) == 1 else And(children))
    return found[0] if len(found) == 1 else Or(tuple(found))


def _is_tuple(part: Any) -> bool:
    return isinstance(part, list | tuple) and len(part) > 0 and isinstance(part[0], str)


def _predicate(part: Any, schema: pa.Schema) -> Node:
    if not _is_tuple(part) or len(part) != 3:
        raise ConfigError(f"filter must be {_FORM}; got {part!r} in it")
    name, operator, value = part
    operator = " ".join(operator.lower().split()) if isinstance(operator, str) else operator
    try:
        return _made(_column(name, schema), operator, value)
    except ValueError as error:
        raise ConfigError(f"filter has {tuple(part)!r}: {error}") from error


def _made(column: Column, operator: Any, value: Any) -> Node:
    if operator in _OPERATORS:
        if value is None:
            raise ValueError('a comparison with None holds for no row; write "is" or "is not" for the operator')
        return build.compare(column, _OPERATORS[operator], value)  # type: ignore[arg-type]
    if operator in ("in", "not in"):
        if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
            raise ValueError(f"{operator!r} takes a list of values")
        found = build.one_of(column, list(value))
        return found if operator == "in" else Not(found)
    if operator in ("is", "is not"):
        if value is not None:
            raise ValueError(f"{operator!r} is for None alone; write = or !=")
        return IsNull(column) if operator == "is" else Not(IsNull(column))
    raise ValueError(f"operator {operator!r} is none of {', '.join((*_OPERATORS, *_OTHERS))}")


def _column(name: str, schema: pa.Schema) -> Column:
    found = next(iter(_paths(name, schema)), ())
    return build.column(schema, found or name.split("."))


def _paths(name: str, fields: Iterable[pa.Field]) -> Iterator[tuple[str, ...]]:
    """Yield the ways to read a name, whose dots may be those between structs and fields, or part of their names."""
    for field in fields:
        if field.name == name:
            yield (name,)
        elif name.startswith(f"{field.name}.") and pa.types.is_struct(field.type):
            for rest in _paths(name.removeprefix(f"{field.name}."), field.type):
                yield field.name, *rest
