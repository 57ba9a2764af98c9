"""What all sources share: the pieces they give, the files they find, the types that a Delta table can hold."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import pyarrow as pa
from pyarrow import types as kinds

from pyloader_delta.errors import ConfigError
from pyloader_delta.read.base import chunk_files

PIECE_BYTES = 16 << 20
"""Of a piece in memory, about."""

Advance = Callable[[int], None]
_PACKED = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd"}
_PLAIN = {
    **dict.fromkeys(("large_string", "string_view"), pa.string()),
    **dict.fromkeys(("large_binary", "binary_view"), pa.binary()),
    "uint8": pa.int16(), "uint16": pa.int32(), "uint32": pa.int64(), "uint64": pa.decimal128(20, 0),
    "halffloat": pa.float32(), "date64[ms]": pa.date32(), "date64[day]": pa.date32(), "null": pa.string(),
}  # fmt: skip


class Reject(NamedTuple):
    """A record that is not in the table."""

    place: str
    """File, and line or row."""
    reason: str


class Piece(NamedTuple):
    """A run of records of a source."""

    table: pa.Table | None
    """Rows of the table; None where there is none, or they were skipped."""
    n_records: int
    """Records that it was made of, skipped ones not counted."""
    n_bytes: int
    """Bytes of the source that it was made of."""
    rejects: Sequence[Reject] = ()


class Source(Protocol):
    """Something that becomes a table. The same files and options give the same records in the same order."""

    schema: pa.Schema
    """Of the table."""
    total_bytes: int
    """Of the source."""
    identity: str
    """What the records depend on: where it is equal, a conversion that was cut off can go on."""
    opaque: tuple[str, ...]
    """Columns that do not compress and have no order, such as images."""

    def pieces(self, skip: int) -> Iterator[Piece]:
        """Yield what comes after the first `skip` records."""


def found_files(source: Path, endings: Sequence[str]) -> list[Path]:
    """Return a file, or the files of a folder with some endings, compressed or not, in sorted order."""
    if source.is_file():
        return [source]
    return [path for path in map(Path, chunk_files(str(source), hive=True)) if ending(path) in endings]


def ending(path: Path) -> str:
    """Return the ending of a file's name in lower case, that of a compression left out."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if suffixes and suffixes[-1] in _PACKED:
        suffixes.pop()
    return suffixes[-1] if suffixes else ""


def identity(files: Sequence[Path], root: Path, options: Any) -> str:
    """Return a digest of the files' names, sizes and times, and of options."""
    stats = [(os.path.relpath(path, root), path.stat().st_size, path.stat().st_mtime_ns) for path in files]
    return hashlib.sha256(json.dumps([stats, options], default=str).encode()).hexdigest()[:24]


def total_bytes(files: Sequence[Path]) -> int:
    """Return the size of files."""
    return sum(path.stat().st_size for path in files)


@contextmanager
def unpacked(path: Path) -> Iterator[tuple[pa.NativeFile, pa.NativeFile]]:
    """Open a file, compressed or not; yield it unpacked, and as it lies on the disk, which tells how far reading is.

    Neither is a file of Python's: Arrow's threads read CSV ahead, and one that is inside of Python when the process
    ends aborts it.
    """
    with pa.OSFile(os.fsencode(path)) as raw, pa.input_stream(raw, _PACKED.get(path.suffix.lower())) as stream:
        yield stream, raw


def check_names(names: Sequence[str], place: str) -> None:
    """Raise ConfigError for columns that a table cannot tell apart."""
    seen: dict[str, str] = {}
    for name in names:
        if not name:
            raise ConfigError(f"{place} has a column without a name")
        if name.lower() in seen:
            raise ConfigError(f"{place} has columns {seen[name.lower()]!r} and {name!r}, which a table takes for one")
        seen[name.lower()] = name


def storable(schema: pa.Schema) -> pa.Schema:
    """Return the types that the table will have.

    Raises:
        ConfigError: A column has a type that no Delta table holds.
    """
    check_names(schema.names, "the source")
    return pa.schema([pa.field(field.name, _storable(field.type, field.name)) for field in schema])


def _storable(kind: pa.DataType, name: str) -> pa.DataType:
    if isinstance(kind, pa.BaseExtensionType):
        return _storable(kind.storage_type, name)
    if kinds.is_dictionary(kind):
        return _storable(kind.value_type, name)
    if kinds.is_struct(kind) and not kind.num_fields:
        raise ConfigError(f"column {name!r} holds only empty objects, which no table holds; give --type {name}=string")
    if kinds.is_struct(kind):
        return pa.struct([pa.field(field.name, _storable(field.type, f"{name}.{field.name}")) for field in kind])
    if kinds.is_map(kind):
        return pa.map_(_storable(kind.key_type, f"{name}.key"), _storable(kind.item_type, f"{name}.value"))
    if kinds.is_list(kind) or kinds.is_large_list(kind) or kinds.is_fixed_size_list(kind):
        return pa.list_(_storable(kind.value_type, f"{name}.element"))
    if kinds.is_timestamp(kind):
        return pa.timestamp("us", None if kind.tz is None else "UTC")
    if kinds.is_fixed_size_binary(kind) and not kinds.is_decimal(kind):
        return pa.binary()
    if kinds.is_time(kind) or kinds.is_duration(kind) or kinds.is_interval(kind) or kinds.is_decimal256(kind):
        raise ConfigError(f"column {name!r} is {kind}, which no Delta table holds; convert it first, to int64 say")
    return _PLAIN.get(str(kind), kind)
