"""The adds of a log as columns: what each of its files says of the data files, before replay decides which are live."""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import Any, cast

import pyarrow as pa
import pyarrow.compute as pc

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
_NUM_RECORDS = r'^\s*\{\s*"numRecords"\s*:\s*(?P<n>\d{1,18})\s*[,}]'
_BLOCK = 8192
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
        self._tables: list[pa.Table] = []
        self._texts: list[pa.Array] = []
        """Statistics of those in `_tables`."""
        self._n_done = 0
        self._begin()

    def _begin(self) -> None:
        self._paths: list[str] = []
        self._numbers: dict[str, list[int | None]] = {name: [] for name in _NUMBERS}
        self._names: list[str] = []
        self._values: list[str | None] = []
        self._n_values: list[int | None] = [0]
        self._vectors: list[Mapping[str, Any] | None] = []
        self._stats: list[str | None] = []

    def __len__(self) -> int:
        return self._n_done + len(self._paths)

    def append(self, path: str, add: Mapping[str, Any]) -> None:
        """Take one in. Numbers and partition values are checked later, many at a time.

        Args:
            path: Its path, canonical.
            add: The action.

        Raises:
            TableError: It is none, or one before it is none.
        """
        values = add.get("partitionValues") or {}
        if not isinstance(values, dict):
            raise self._broken("partitionValues", values, path)
        stats = add.get("stats")
        vector = add.get("deletionVector") or None
        if vector is not None and not _is_vector(vector):
            raise self._broken("deletionVector", vector, path)
        for name, numbers in self._numbers.items():
            numbers.append(add.get(name))
        self._paths.append(path)
        self._names += values
        self._values += values.values()
        self._n_values.append(len(self._values))
        self._vectors.append(vector)
        self._stats.append(stats if isinstance(stats, str) else None)
        if len(self._paths) >= _BLOCK:
            self._end()

    def table(self) -> pa.Table:
        """Return them with the columns of `ADDS`.

        Raises:
            TableError: A number or a partition value is none.
        """
        self._end()
        return pa.concat_tables(self._tables)

    def stats(self) -> pa.ChunkedArray:
        """Return their statistics as JSON, of those that `table` gave."""
        return pa.chunked_array(self._texts)

    def _end(self) -> None:
        """Turn what was collected into columns, which take a fraction of its memory."""
        self._check()
        n_rows, first = len(self._paths), self._n_done
        try:
            stats = texts(self._stats)
            columns = {name: integers(numbers) for name, numbers in self._numbers.items()} | {
                "path": texts(self._paths),
                "partitionValues": pa.MapArray.from_arrays(
                    integers(self._n_values, pa.int32()), texts(self._names), texts(self._values)
                ),
                "numRecords": counts(stats),
                "deletionVector": self._vector_column(),
                "source": integers([self._source] * n_rows, pa.int32()),
                "row": integers(range(first, first + n_rows), pa.int32()),
            }
        except UnicodeEncodeError as error:
            raise TableError(f"the log of {self._table} holds a text that is none: {error}; it is broken") from error
        self._tables.append(pa.Table.from_arrays([columns[name] for name in ADDS.names], schema=ADDS))
        self._texts.append(stats)
        self._n_done += n_rows
        self._begin()

    def _check(self) -> None:
        for name, numbers in self._numbers.items():
            if set(map(type, numbers)) - {int, type(None)} or not all(_whole(n, 64) for n in _extremes(numbers)):
                pairs = zip(self._paths, numbers, strict=True)
                path, number = next(pair for pair in pairs if pair[1] is not None and not _whole(pair[1], 64))
                raise self._broken(name, number, path)
        if set(map(type, self._values)) - {str, type(None)}:
            place = next(i for i, value in enumerate(self._values) if not isinstance(value, str | None))
            path = self._paths[bisect_right(cast(list[int], self._n_values), place) - 1]
            raise TableError(
                f"{self._table}: the log states {self._values[place]!r} as the value of partition column "
                f"{self._names[place]!r} for {path}: it is broken"
            )

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


def _extremes(numbers: Sequence[int | None]) -> tuple[int, int]:
    """Return the least and the greatest of some ints, and of 0."""
    known = [number for number in numbers if number is not None]
    return min(known, default=0), max(known, default=0)


def _whole(value: object, bits: int) -> bool:
    """Return whether a value is an int of so many bits."""
    return isinstance(value, int) and not isinstance(value, bool) and -(2 ** (bits - 1)) <= value < 2 ** (bits - 1)


def counts(stats: pa.Array) -> pa.Array:
    """Return `numRecords` of statistics as JSON, int64; null where they have none or are no valid JSON."""
    quick = pc.struct_field(pc.extract_regex(stats, pattern=_NUM_RECORDS), "n").cast(pa.int64())
    missing = pc.and_(pc.is_null(quick), pc.is_valid(stats))
    slow = [_num_records(text) for text in stats.filter(missing).to_pylist()]
    return pc.replace_with_mask(quick, missing, integers(slow)) if slow else quick


def _num_records(stats: str) -> int | None:
    try:
        parsed = json.loads(stats)
    except (ValueError, RecursionError):
        return None  # statistics are hints: a bad one must not make the table unreadable
    number = parsed.get("numRecords") if isinstance(parsed, dict) else None
    return number if isinstance(number, int) and _whole(number, 64) and number >= 0 else None


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
    nothing, at, end = texts(["", "@", "\0"])
    storage, place, offset = (pc.struct_field(vectors, name) for name in ("storageType", "pathOrInlineDv", "offset"))
    suffix = pc.fill_null(pc.binary_join_element_wise(at, offset.cast(pa.string()), nothing), nothing)
    ids = pc.binary_join_element_wise(storage, place, suffix, nothing)
    return pc.coalesce(pc.binary_join_element_wise(paths, ids, end), paths)
