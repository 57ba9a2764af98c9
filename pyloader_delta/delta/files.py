"""The open files and cursors of one reader in one process: few at a time, the oldest closed first."""

from __future__ import annotations

from collections import OrderedDict
from typing import Protocol, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from pyloader_delta.delta.cursor import Cursor
from pyloader_delta.delta.parquet import DataParquet, read_errors
from pyloader_delta.errors import ConfigError, ReadError
from pyloader_delta.values import Chunk

_MAX_FILES = 2  # a mapped file's pages count as ours; its footer, which costs more than opening it, is kept longer
_MAX_FOOTERS = 32
_MAX_CURSORS = 4  # the plan interleaves that many large row groups


class _Closable(Protocol):
    def close(self) -> None: ...


_Key = TypeVar("_Key")
_Kept = TypeVar("_Kept", bound=_Closable)


class OpenFiles:
    """Reads chunks of a table. A copy, pickled or not, begins with nothing open.

    Args:
        schema: Logical schema of the selected columns.
    """

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._files: OrderedDict[str, DataParquet] = OrderedDict()
        self._footers: OrderedDict[str, pq.FileMetaData] = OrderedDict()
        self._cursors: OrderedDict[tuple[str, int], Cursor] = OrderedDict()

    def __reduce__(self) -> tuple[type[OpenFiles], tuple[pa.Schema]]:
        return OpenFiles, (self._schema,)

    def read(self, chunk: Chunk) -> pa.Table:
        """Return the rows of a chunk in the logical schema; consecutive parts of a row group continue a cursor.

        Raises:
            ConfigError: The chunk is no run of rows of one row group.
        ReadError: The file is missing, corrupt, or another one than when the chunk was planned.
        """
        rows, whole, row_group = chunk.rows, chunk.row_group_rows, chunk.row_group
        if rows is None or whole is None or row_group is None or not _within(rows, whole):
            raise ConfigError(f"{chunk} is no run of rows of a row group; take chunks from chunks()")
        with read_errors(chunk.path, chunk.version, place=f" rows {rows.start}..{rows.stop - 1}"):
            file = self._file(chunk)
            footer = file.metadata
            if row_group >= footer.num_row_groups or footer.row_group(row_group).num_rows != len(whole):
                raise ReadError(f"{chunk.path} of version {chunk.version} was changed while it was being read")
            if rows == whole:
                table = file.row_group(row_group)
            elif not file.stored:
                table = file.row_group(row_group).slice(rows.start - whole.start, len(rows))
            else:
                table = self._part(chunk, file, row_group, rows, whole)
            if table.num_rows != len(rows):
                raise ReadError(f"{chunk} gave {table.num_rows} rows: the file is corrupt")
            return table

    def close(self) -> None:
        """Close everything; reading opens it again."""
        for cursor in self._cursors.values():
            cursor.close()
        for file in self._files.values():
            file.close()
        self._cursors.clear()
        self._files.clear()
        self._footers.clear()

    def _file(self, chunk: Chunk) -> DataParquet:
        file = self._files.pop(chunk.path, None)
        if file is None:
            footer = self._footers.pop(chunk.path, None)
            file = DataParquet(chunk.path, self._schema, dict(chunk.partition_values), footer)
            self._footers[chunk.path] = file.metadata
            if len(self._footers) > _MAX_FOOTERS:
                self._footers.popitem(last=False)
        _keep(self._files, chunk.path, file, _MAX_FILES)
        return file

    def _part(self, chunk: Chunk, file: DataParquet, row_group: int, rows: range, whole: range) -> pa.Table:
        start, n_rows = rows.start - whole.start, len(rows)
        key = (chunk.path, row_group)
        cursor = self._cursors.pop(key, None)
        if cursor is not None and cursor.position > start:
            cursor.close()
            cursor = None
        if cursor is None:
            own = DataParquet(chunk.path, self._schema, dict(chunk.partition_values), file.metadata)
            cursor = Cursor(own, row_group, n_rows)
        try:
            cursor.skip(start - cursor.position)
            table = cursor.take(n_rows)
        except BaseException:
            cursor.close()
            raise
        if cursor.position == len(whole):
            cursor.close()
        else:
            _keep(self._cursors, key, cursor, _MAX_CURSORS)
        return table


def _within(rows: range, whole: range) -> bool:
    return rows.step == whole.step == 1 and len(rows) > 0 and whole.start <= rows.start and rows.stop <= whole.stop


def _keep(kept: OrderedDict[_Key, _Kept], key: _Key, value: _Kept, most: int) -> None:
    kept[key] = value
    if len(kept) > most:
        kept.popitem(last=False)[1].close()
