"""What is found out about a schema, kept for the next blocks that have it: those of a table are nearly all alike."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

import pyarrow as pa

T = TypeVar("T")

_MOST_KNOWN = 8  # a mixture of tables gives blocks of several in turn


class BySchema(Generic[T]):
    """A function of schemas that remembers the last few; any thread may call it.

    Args:
        find: Returns what is asked of a schema; the metadata of its fields counts, its own does not.
    """

    def __init__(self, find: Callable[[pa.Schema], T]) -> None:
        self._find = find

    def __call__(self, schema: pa.Schema) -> T:
        """Return what `find` gives of a schema, or gave of an equal one."""
        known = _known(schema)
        if self not in known.found:
            known.found[self] = self._find(known.schema)
        found: T = known.found[self]
        return found


class _Known:
    """A schema that was asked of, without its metadata."""

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        """The latest of equal ones: with it the next has its fields in common, often as objects."""
        self.found: dict[BySchema[Any], Any] = {}


_all_known: tuple[_Known, ...] = ()


def _known(schema: pa.Schema) -> _Known:
    global _all_known
    if schema.metadata is not None:
        schema = schema.remove_metadata()
    for known in _all_known:
        if known.schema.equals(schema, check_metadata=True):
            known.schema = schema
            return known
    made = _Known(schema)
    _all_known = (made, *_all_known[: _MOST_KNOWN - 1])
    return made
