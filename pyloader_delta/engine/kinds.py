"""Which columns files have, of which types: compared in the order of delivery, so that an error has one place."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from pyloader_delta.columns import KIND
from pyloader_delta.errors import ContractError
from pyloader_delta.schemas import BySchema

Types = tuple[tuple[str, str], ...]
"""(column, its type), the type "null" where a file has nothing but nulls in it."""
FileTypes = tuple[tuple[str, Types], ...]
"""(path, its types) of some files in order, without those that are like the one before them."""


@BySchema
def types_of(schema: pa.Schema) -> Types:
    """Return the columns of blocks, and how they are kept where that is more than an Arrow type."""
    return tuple((f.name, (f.metadata or {}).get(KIND, str(f.type).encode()).decode()) for f in schema if f.name)


def file_types(schemas: Sequence[tuple[str, pa.Schema]]) -> FileTypes:
    """Return the types of blocks, given by their schemas with the paths that they come from."""
    found: list[tuple[str, Types]] = []
    for path, schema in schemas:
        types = types_of(schema)
        if not found or found[-1][1] != types:
            found.append((path, types))
    return tuple(found)


class Kinds:
    """The columns that an epoch's files have had so far.

    Args:
        strict: Whether a type that changes between files is an error.
        missing_as_none: Whether a column that a file lacks is None there; otherwise it is an error.
    """

    def __init__(self, *, strict: bool, missing_as_none: bool) -> None:
        self._strict, self._missing_as_none = strict, missing_as_none
        self._known: dict[str, tuple[str, str]] = {}  # column → (type, path that has it)
        self._seen: Types | None = None
        self._first = ""
        self.columns: tuple[str, ...] = ()
        """Names of all columns so far, in the order in which they came."""

    def add(self, files: FileTypes) -> ContractError | None:
        """Take in the next files; return an error if one does not fit those before it."""
        for path, types in files:
            if types == self._seen:
                continue
            error = self._misfit(path, types)
            if error is not None:
                return error
            self._first = self._first or path
            self._seen = types
            for name, kind in types:
                if name not in self._known or self._known[name][0] == "null":
                    self._known[name] = kind, path
            self.columns = tuple(self._known)
        return None

    def _misfit(self, path: str, types: Types) -> ContractError | None:
        names = {name for name, _ in types}
        if not self._missing_as_none and self._first:
            for name, having, lacking in [
                *((name, there, path) for name, (_, there) in self._known.items() if name not in names),
                *((name, path, self._first) for name, _ in types if name not in self._known),
            ]:
                return ContractError(
                    f"column {name!r} is in {having} but not in {lacking}: every file must give the same columns"
                )
        for name, kind in types if self._strict else ():
            known, _ = self._known.get(name, ("null", ""))
            if known != kind and "null" not in (known, kind):
                return ContractError(
                    f"{path}: column {name!r} is {kind} here and {known} in other files; cast it in read_file, or set "
                    "input_format = 'python'"
                )
        return None
