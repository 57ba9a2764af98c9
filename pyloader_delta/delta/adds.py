"""The adds of a log as columns: what each of its files says of the data files, before replay decides which are live."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from pyloader_delta.delta.arrays import integers, texts
from pyloader_delta.delta.canonical import canonical
from pyloader_delta.errors import TableError

VECTOR = pa.struct(
    {
        "storageType": pa.string(),
        "pathOrInlineDv": pa.string(),
        "offset": pa.int32(),
        "sizeInBytes": pa.int32(),
        "cardinality": pa.int64(),
    }
)
VALUES = pa.map_(pa.string(), pa.string())
ADDS = pa.schema(
    {
        "path": pa.string(),  # as `canonical` gives it
        "size": pa.int64(),
        "modificationTime": pa.int64(),
        "partitionValues": VALUES,
        "numRecords": pa.int64(),
        "deletionVector": VECTOR,
        "baseRowId": pa.int64(),
        "source": pa.int32(),  # which of the log's files has the statistics, and in which of its rows
        "row": pa.int32(),
    }
)
# Every writer puts numRecords first; only then the rest, often large, need not be parsed.
NUM_RECORDS = r'\s*\{\s*"numRecords"\s*:\s*(?P<n>\d{1,18})\s*[,}]'
_NUMBERS = ("size", "modificationTime", "baseRowId")


class AddRows:
    """Adds of JSON commits, collected one by one.

    Args:
        table: The table's path, for errors.
        source: Number of the commits among the sources of statistics.
    """

    def __init__(self, table: str, source: int) -> None:
        self._table = table
        self._source = source
        self._paths: list[str] = []
        self._numbers: dict[str, list[int | None]] = {name: [] for name in (*_NUMBERS, "numRecords")}
        self._names: list[str] = []
        self._values: list[str | None] = []
        self._n_values: list[int | None] = [0]
        self._vectors: list[Mapping[str, Any] | None] = []
        self._stats: list[str | None] = []

    def __len__(self) -> int:
        return len(self._paths)

    def append(self, path: str, add: Mapping[str, Any]) -> None:
        """Take one in.

        Args:
            path: Its path, canonical.
            add: The action.

        Raises:
            TableError: It is none.
        """
        for name in _NUMBERS:
            value = add.get(name)
            if value is not None and not _whole(value, 64):
                raise self._broken(name, value, path)
            self._numbers[name].append(value)
        values = add.get("partitionValues") or {}
        if not isinstance(values, dict):
            raise self._broken("partitionValues", values, path)
        for column, value in values.items():
            if not isinstance(value, str | None):
                raise TableError(
                    f"{self._table}: the log states {value!r} as the value of partition column {column!r} for {path}: "
                    "it is broken"
                )
        stats = add.get("stats")
        vector = add.get("deletionVector") or None
        if vector is not None and not _is_vector(vector):
            raise self._broken("deletionVector", vector, path)
        self._paths.append(path)
        self._names += values
        self._values += values.values()
        self._n_values.append(len(self._values))
        self._vectors.append(vector)
        self._stats.append(stats if isinstance(stats, str) else None)
        self._numbers["numRecords"].append(num_records(stats))

    def table(self) -> pa.Table:
        """Return them with the columns of `ADDS`."""
        n_rows = len(self._paths)
        offsets = integers(self._n_values, pa.int32())
        values = pa.MapArray.from_arrays(offsets, texts(self._names), texts(self._values))
        columns = {name: integers(numbers) for name, numbers in self._numbers.items()} | {
            "path": texts(self._paths),
            "partitionValues": values,
            "deletionVector": self._vector_column(),
            "source": integers([self._source] * n_rows, pa.int32()),
            "row": integers(range(n_rows), pa.int32()),
        }
        return pa.Table.from_arrays([columns[name] for name in ADDS.names], schema=ADDS)

    def stats(self) -> pa.Array:
        """Return their statistics as JSON."""
        return texts(self._stats)

    def _vector_column(self) -> pa.Array:
        if not any(self._vectors):
            return pa.nulls(len(self._vectors), VECTOR)
        given = [vector or {} for vector in self._vectors]
        children = [
            texts([vector.get(field.name) for vector in given])
            if pa.types.is_string(field.type)
            else integers([vector.get(field.name) for vector in given], field.type)
            for field in VECTOR
        ]
        return pa.StructArray.from_arrays(children, fields=list(VECTOR), mask=children[0].is_null())

    def _broken(self, name: str, value: object, path: str) -> TableError:
        return TableError(f"{self._table}: the log states {value!r} as {name!r} of {path}: it is broken")


def _is_vector(vector: object) -> bool:
    """Return whether an action's deletion vector is described in full."""
    if not isinstance(vector, dict):
        return False
    described = [(field, vector.get(field.name)) for field in VECTOR]
    return all(
        isinstance(value, str)
        if pa.types.is_string(field.type)
        else _whole(value, field.type.bit_width) or (value is None and field.name == "offset")
        for field, value in described
    )


def _whole(value: object, bits: int) -> bool:
    """Return whether a value is an int of so many bits."""
    return isinstance(value, int) and not isinstance(value, bool) and -(2 ** (bits - 1)) <= value < 2 ** (bits - 1)


def num_records(stats: object) -> int | None:
    """Return `numRecords` of an add's statistics; None where they have none or are no valid JSON."""
    if not isinstance(stats, str):
        return None
    if found := re.match(NUM_RECORDS, stats):
        return int(found[1])
    try:
        parsed = json.loads(stats)
    except (ValueError, RecursionError):
        return None  # statistics are hints: a bad one must not make the table unreadable
    number = parsed.get("numRecords") if isinstance(parsed, dict) else None
    return number if isinstance(number, int) and not isinstance(number, bool) and 0 <= number < 2**63 else None


def key(root: str, action: Mapping[str, Any]) -> tuple[str, str]:
    """Return the canonical path of an add or a remove, and what tells it from others in replay.

    Raises:
        TableError: It has no path.
    """
    path = action.get("path")
    if not isinstance(path, str):
        raise TableError(f"{root} has an action without a path in its log: {str(action)[:200]}; it is broken")
    path = canonical(root, path)
    vector = action.get("deletionVector")
    return path, path if not isinstance(vector, dict) or not vector else f"{path}\0{vector_id(vector)}"


def vector_id(vector: Mapping[str, Any]) -> str:
    """Return the unique id of a deletion vector, as the protocol defines it."""
    offset = vector.get("offset")
    return f"{vector.get('storageType')}{vector.get('pathOrInlineDv')}" + ("" if offset is None else f"@{offset}")


def keys(adds: pa.Table) -> pa.ChunkedArray:
    """Return what `key` gives, for adds with the columns of `ADDS`."""
    paths, vectors = adds.column("path"), adds.column("deletionVector")
    if vectors.null_count == len(vectors):
        return paths
    pairs = zip(paths.to_pylist(), vectors.to_pylist(), strict=True)
    found = texts([path if vector is None else f"{path}\0{vector_id(vector)}" for path, vector in pairs])
    return pa.chunked_array([found])
