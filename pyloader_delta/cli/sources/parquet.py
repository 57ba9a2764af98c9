"""Parquet files, as `ParquetDataReader` reads them: one schema, partitions in the folders' names, huge row groups."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from pyloader_delta.cli.sources.base import PIECE_BYTES, Piece, identity, storable, total_bytes
from pyloader_delta.delta.folder import PlainFile, folder_snapshot
from pyloader_delta.errors import ConfigError
from pyloader_delta.read.parquet import ParquetDataReader
from pyloader_delta.values import Chunk


class _Files(ParquetDataReader[Any]):
    """Reads some of a folder's files; a column that one of them lacks is NULL there."""

    missing_as_none = True
    files: Sequence[PlainFile] = ()

    def chunks(self, root: str) -> list[Chunk]:
        store = self._store(root)
        snapshot = folder_snapshot(store, self.files, None, missing_as_none=True)
        return self._listed((store.root,), store, snapshot, "UTC")


class Parquet:
    """Rows of Parquet files.

    Args:
        files: The files.
        root: A folder that they lie in.

    Raises:
        ConfigError: A column has a type that no Delta table holds.
        ReadError: A file is corrupt.
        TableError: The files disagree on a column's type.
    """

    opaque: tuple[str, ...] = ()

    def __init__(self, files: Sequence[Path], root: Path) -> None:
        self._reader = _Files()
        self._reader.files = [_plain(path, root) for path in files]
        self._chunks = self._reader.chunks(str(root))
        self.schema = storable(self._reader.schema)
        self.total_bytes = total_bytes(files)
        self._n_bytes = {str(path): path.stat().st_size for path in files}
        self.identity = identity(files, root, ["parquet", str(self.schema)])

    def pieces(self, skip: int) -> Iterator[Piece]:
        n_rows: dict[str, int] = {}
        for chunk in self._chunks:
            n_rows[chunk.path] = n_rows.get(chunk.path, 0) + (chunk.n_rows or 0)
        try:
            for part in (part for chunk in self._chunks for part in _parts(chunk)):
                assert part.rows is not None
                rows, size = part.rows, self._n_bytes.get(part.path, 0)
                n_bytes = size * len(rows) // n_rows[part.path]
                skipped = min(skip, len(rows))
                skip -= skipped
                left = rows[skipped:]
                if not left:
                    yield Piece(None, 0, n_bytes)
                    continue
                yield Piece(self._cast(self._reader.read_chunk(replace(part, rows=left))), len(left), n_bytes)
        finally:
            self._reader.close()

    def _cast(self, table: pa.Table) -> pa.Table:
        columns = []
        for field, column in zip(self.schema, table.columns, strict=True):
            try:
                columns.append(column.cast(field.type))
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
                raise ConfigError(
                    f"column {field.name!r} is {column.type}, {field.type} in the table, but a value is none: "
                    f"{error}; convert it first"
                ) from error
        return pa.Table.from_arrays(columns, schema=self.schema)


def _plain(path: Path, root: Path) -> PlainFile:
    stat = path.stat()
    return PlainFile(os.path.relpath(path, root).replace(os.sep, "/"), stat.st_size, stat.st_mtime_ns // 1_000_000)


def _parts(chunk: Chunk) -> Iterator[Chunk]:
    """Yield a row group in parts that are small in memory."""
    assert chunk.rows is not None
    rows = chunk.rows
    step = max(PIECE_BYTES * len(rows) // max(chunk.size_bytes, 1), 1)
    for start in range(0, len(rows), step):
        yield replace(chunk, rows=rows[start : start + step])
