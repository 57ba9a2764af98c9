"""A folder of plain Parquet files becomes a `Snapshot`: one schema for all files, hive partitions as columns."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import NamedTuple
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import types as kinds

from pyloader_delta.delta.adds import VECTOR
from pyloader_delta.delta.arrays import integers, texts
from pyloader_delta.delta.canonical import absolute
from pyloader_delta.delta.livefiles import LiveFiles
from pyloader_delta.delta.parquet import read_errors
from pyloader_delta.delta.schema import arrow_schema, plain_fields
from pyloader_delta.delta.store import Store
from pyloader_delta.delta.widen import caster
from pyloader_delta.errors import ConfigError, TableError
from pyloader_delta.values import Snapshot, TableField

_NULL = "__HIVE_DEFAULT_PARTITION__"
_INTEGER = re.compile(r"[+-]?\d{1,18}")
_MAX_THREADS = 16


class PlainFile(NamedTuple):
    """A file of the folder."""

    path: str
    """Relative to the folder, with slashes."""
    size_bytes: int
    modification_time_ms: int
    """Milliseconds since 1970 UTC."""


def folder_snapshot(
    store: Store,
    files: Sequence[PlainFile],
    partition_types: Mapping[str, pa.DataType] | None,
    *,
    missing_as_none: bool,
) -> Snapshot:
    """Return a folder as a table of all its files' columns, partition columns last.

    Args:
        store: The folder.
        files: Its files, in the order in which they are read.
        partition_types: Types of partition columns that are not to be guessed: int64 where all values are whole
            numbers, else string.
        missing_as_none: Whether a column that a file lacks is NULL there; else it cannot be selected.

    Raises:
        ConfigError: `partition_types` names none of the partition columns.
        ReadError: A file is corrupt or no Parquet.
        TableError: Files disagree on the partition columns. Where they do on a column's type, it cannot be selected.
    """
    values = [_partition_values(file.path) for file in files]
    names = list(values[0])
    for file, own in zip(files, values, strict=True):
        if list(own) != names:
            raise TableError(
                f"{file.path} has partition columns {list(own)}, but {files[0].path} has {names}: all files of a "
                "folder must lie below the same name=value folders"
            )
    columns = {name: [own[name] for own in values] for name in names}
    unknown = [name for name in partition_types or () if name not in columns]
    if unknown:
        raise ConfigError(f"partition_types names {unknown[0]!r}, which is no partition column of {store.root}")
    fields = _fields(files, _schemas(store, files), missing_as_none)
    partition = [pa.field(name, (partition_types or {}).get(name) or _guessed(own)) for name, own in columns.items()]
    fields = (*(field for field in fields if field.name not in columns), *plain_fields(pa.schema(partition)))
    return Snapshot(
        uri=store.root,
        table_id="",
        version=None,
        timestamp_ms=None,
        schema=arrow_schema(fields),
        fields=fields,
        partition_columns=tuple(names),
        files=_live_files(store, files, columns),
    )


def _partition_values(path: str) -> dict[str, str | None]:
    """Return the values in the names of the folders around a file; None is NULL."""
    found: dict[str, str | None] = {}
    for part in path.split("/")[:-1]:
        name, equals, value = part.partition("=")
        if equals:
            found[unquote(name)] = None if value == _NULL else unquote(value)
    return found


def _guessed(values: Sequence[str | None]) -> pa.DataType:
    whole = all(value is None or _INTEGER.fullmatch(value) for value in values)
    return pa.int64() if whole and any(value is not None for value in values) else pa.string()


def _schemas(store: Store, files: Sequence[PlainFile]) -> list[pa.Schema]:
    def read(file: PlainFile) -> pa.Schema:
        with (
            read_errors(absolute(store.root, file.path), None),
            store.open(file.path, file.size_bytes) as opened,
            pq.ParquetFile(opened, pre_buffer=False, coerce_int96_timestamp_unit="us") as parquet,
        ):
            return parquet.schema_arrow

    with ThreadPoolExecutor(min(len(files), _MAX_THREADS), thread_name_prefix="pyloader_delta-schemas") as pool:
        return list(pool.map(read, files))


def _fields(files: Sequence[PlainFile], schemas: Sequence[pa.Schema], missing_as_none: bool) -> tuple[TableField, ...]:
    """Return the columns of all files; with a type that holds the values of all where types differ."""
    found: dict[str, _Column] = {}
    for file, schema in zip(files, schemas, strict=True):
        for field in schema:
            plain = pa.field(field.name, _plain(field.type), field.nullable)
            column = found.setdefault(field.name, _Column(plain, file.path))
            column.add(plain, file.path)
    for file, schema in zip(files, schemas, strict=True):
        for name in found.keys() - set(schema.names):
            found[name].lack(file.path, missing_as_none)
    plain_ones = plain_fields(pa.schema([column.field for column in found.values()]))
    return tuple(
        replace(field, unreadable=column.reason) for field, column in zip(plain_ones, found.values(), strict=True)
    )


class _Column:
    """A column as the files seen so far have it."""

    def __init__(self, field: pa.Field, first: str) -> None:
        self.field, self.first = field, first
        self.reason: str | None = None
        """Why it cannot be selected."""

    def add(self, other: pa.Field, path: str) -> None:
        known, nullable = self.field, self.field.nullable or other.nullable
        if known.type == other.type:
            self.field = known.with_nullable(nullable)
            return
        for stored, wanted in ((other.type, known.type), (known.type, other.type)):
            if _fits(stored, wanted):
                self.field = pa.field(known.name, wanted, nullable)
                return
        self.reason = f"column {known.name!r} is {known.type} in {self.first}, but {other.type} in {path}"

    def lack(self, path: str, missing_as_none: bool) -> None:
        self.field = self.field.with_nullable(True)
        if not missing_as_none:
            self.reason = (
                f"{path} has no column {self.field.name!r}, but {self.first} has; set missing_as_none = True in the "
                "reader to read NULL there"
            )


def _fits(stored: pa.DataType, wanted: pa.DataType) -> bool:
    """Return whether all values of a type are values of another."""
    if stored.num_fields or wanted.num_fields:
        return False
    if kinds.is_null(stored):
        return True
    if kinds.is_integer(stored) and kinds.is_integer(wanted):
        signed = kinds.is_signed_integer(stored)
        return bool(stored.bit_width < wanted.bit_width and (not signed or kinds.is_signed_integer(wanted)))
    if kinds.is_timestamp(stored) or kinds.is_decimal(stored) or kinds.is_decimal(wanted):
        return False
    try:
        caster(stored, wanted, "")
    except TypeError:
        return False
    return True


def _plain(kind: pa.DataType) -> pa.DataType:
    """Return a type without dictionaries, views of text and bytes, extensions and metadata of fields."""
    if kinds.is_string_view(kind):
        return pa.string()
    if kinds.is_binary_view(kind):
        return pa.binary()
    if isinstance(kind, pa.BaseExtensionType):
        return _plain(kind.storage_type)
    if kinds.is_dictionary(kind):
        return _plain(kind.value_type)
    if kinds.is_struct(kind):
        return pa.struct([pa.field(field.name, _plain(field.type), field.nullable) for field in kind])
    if kinds.is_map(kind):
        value = kind.item_field
        return pa.map_(_plain(kind.key_type), pa.field("value", _plain(value.type), value.nullable))
    if kinds.is_list(kind) or kinds.is_large_list(kind) or kinds.is_fixed_size_list(kind):
        element = kind.value_field
        return pa.list_(pa.field("element", _plain(element.type), element.nullable))
    return kind


def _live_files(store: Store, files: Sequence[PlainFile], columns: Mapping[str, Sequence[str | None]]) -> LiveFiles:
    n = len(files)
    table = pa.Table.from_arrays(
        [
            texts([file.path for file in files]),
            integers([file.size_bytes for file in files]),
            integers([file.modification_time_ms for file in files]),
            pa.nulls(n, pa.int64()),
            pa.nulls(n, VECTOR),
            pa.nulls(n, pa.int64()),
            integers([-1] * n, pa.int32()),
            integers([0] * n, pa.int32()),
        ],
        names=["path", "size", "modificationTime", "n_rows", "deletionVector", "baseRowId", "source", "row"],
    )
    values = {name: pa.chunked_array([texts(own)]).dictionary_encode() for name, own in columns.items()}
    return LiveFiles(store, table, values, [])
