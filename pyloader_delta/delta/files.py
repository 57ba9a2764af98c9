"""The open files and cursors of one reader in one process: few at a time, the oldest closed first."""

from __future__ import annotations

import copy
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import accumulate, groupby
from operator import attrgetter
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from pyloader_delta.delta.cursor import Cursor, rows_at_once
from pyloader_delta.delta.joined import Footers, are_whole
from pyloader_delta.delta.parquet import DataParquet, read_errors
from pyloader_delta.delta.selection import Selection
from pyloader_delta.delta.sizes import footer_bytes
from pyloader_delta.delta.store import Store
from pyloader_delta.delta.view import View
from pyloader_delta.errors import ConfigError, ReadError
from pyloader_delta.values import Chunk, named
from pyloader_delta.words import many

_MAX_FILES = (
    2  # a mapped file's pages count as ours; what is known of it, which costs more than opening, is kept longer
)
_MAX_KNOWN = 32
_MAX_KNOWN_BYTES = 32 << 20
_MAX_KEPT_DELETED = 1 << 17  # numbers of a file's deleted rows; more are read again
_MAX_UNFILTERED_BYTES = 16 << 20  # decoded at once, to be filtered
_MAX_JOINED_BYTES = 8 << 20  # of files that are read as one
_SMALL_BYTES = 1 << 20  # of a file: in a larger one there is so much to decode that opening it costs little
_MAX_CURSORS = 16  # the plan interleaves at most that many large row groups


class _Known(NamedTuple):
    """What was read of a file beside its rows."""

    metadata: pq.FileMetaData | None = None
    deleted: NDArray[np.int64] | None = None
    view: View | None = None

    def close(self) -> None: ...


class _Closable(Protocol):
    def close(self) -> None: ...


_Key = TypeVar("_Key")
_Kept = TypeVar("_Kept", bound=_Closable)


class OpenFiles:
    """Reads chunks of a table. A copy, pickled or not, begins with nothing open.

    Args:
        store: The table's store.
        selection: What is read of the table.
        footers: What is known of small files; a copy for another thread shares it.
    """

    def __init__(self, store: Store, selection: Selection, footers: Footers | None = None) -> None:
        self._store = store
        self._selection = selection
        # Of row groups that are no neighbours: no rows are counted over them, and only numbers are cheaper to read so
        uncounted = selection.row_id is None and not selection.numbered
        self._gaps = uncounted and selection.is_short
        self._joinable = uncounted and selection.filter is None and selection.is_joinable
        self._files: OrderedDict[str, DataParquet] = OrderedDict()
        self._known: OrderedDict[str, _Known] = OrderedDict()
        self._cursors: OrderedDict[tuple[str, int], Cursor] = OrderedDict()
        self._like: View | None = None  # of the file opened last
        self._footers = footers or Footers()

    def __reduce__(self) -> tuple[type[OpenFiles], tuple[Store, Selection]]:
        return OpenFiles, (self._store, self._selection)

    def __deepcopy__(self, memo: dict[int, Any]) -> OpenFiles:
        return OpenFiles(*copy.deepcopy((self._store, self._selection), memo), self._footers)

    def read(self, chunk: Chunk) -> pa.Table:
        """Return the rows of a chunk in the logical schema; consecutive parts of a row group continue a cursor.

        Raises:
            ConfigError: The chunk is no run of rows of one row group.
            ReadError: The file is missing, corrupt, or another one than when the chunk was planned.
        """
        rows, whole, row_group = chunk.rows, chunk.row_group_rows, chunk.row_group
        unknown = rows is None and whole is None and chunk.filtered
        if row_group is None or not (unknown or _within(rows, whole)):
            raise ConfigError(f"{chunk} is no run of rows of a row group; take chunks from chunks()")
        if chunk.filtered and self._selection.filter is None:
            raise ConfigError(f"{chunk} was listed by a reader with a filter, which this one does not have")
        place = "" if rows is None else f" rows {rows.start}..{rows.stop - 1}"
        with read_errors(chunk.path, chunk.version, place=place):
            if rows is None or whole is None or (rows == whole and chunk.filtered):
                table = self._filtered(chunk, row_group)
            elif rows == whole:
                table = self._file(chunk, row_group).row_groups([row_group])
            else:
                table = self._part(chunk, row_group, rows, whole)
            if rows is not None and table.num_rows != len(rows):
                raise ReadError(f"{chunk} gave {many(table.num_rows, 'row')}: the file is corrupt")
            return table

    def together(self, chunks: Sequence[Chunk]) -> list[list[Chunk]]:
        """Return chunks in runs of whole row groups, without a filter, of one version; others alone.

        Runs are of one file where columns are more than numbers, unless files are small: to join those of several costs
        a copy.
        """
        return _runs(chunks, _go_together if self._selection.is_short else self._read_as_one)

    def read_together(self, chunks: Sequence[Chunk]) -> pa.Table:
        """Return the rows of one of the runs that `together` makes: cheaper than one by one.

        Raises:
            ReadError: As `read`.
        """
        tables = [table for run in _runs(chunks, self._read_as_one) for table in self._of_files(run)]
        return tables[0] if len(tables) == 1 else pa.concat_tables(tables)

    def _read_as_one(self, before: Chunk, chunk: Chunk) -> bool:
        return self._one_file(before, chunk) or (
            _go_together(before, chunk)
            and self._is_small(before)
            and self._is_small(chunk)
            and before.partition_values == chunk.partition_values
        )

    def _one_file(self, before: Chunk, chunk: Chunk) -> bool:
        return _joins(before, chunk, gaps=self._gaps) and _go_together(before, chunk)

    def _is_small(self, chunk: Chunk) -> bool:
        """Return whether a chunk's file may be read as one with others."""
        plain = self._joinable and chunk.deletion_vector is None
        return plain and 0 < (chunk.file_bytes or 0) <= _SMALL_BYTES

    def _of_files(self, chunks: Sequence[Chunk]) -> Iterator[pa.Table]:
        """Yield the rows of row groups of one file, or of small ones, which are read as one where that works."""
        by_file = [list(of_file) for _, of_file in groupby(chunks, key=attrgetter("path"))]
        while by_file:
            sizes = accumulate(of_file[0].file_bytes or 0 for of_file in by_file)
            n_files = max(sum(size <= _MAX_JOINED_BYTES for size in sizes), 1)
            some, by_file = by_file[:n_files], by_file[n_files:]
            table = self._as_one(some) if n_files > 1 else None
            if table is not None:
                yield table
            else:
                yield from map(self._of_one_file, _runs([c for of_file in some for c in of_file], self._one_file))

    def _as_one(self, by_file: Sequence[Sequence[Chunk]]) -> pa.Table | None:
        """Return the rows of small files read as one; None where that fails: each alone then says why, if it does."""
        first = by_file[0][0]
        paths, sizes = [of_file[0].path for of_file in by_file], [of_file[0].file_bytes or 0 for of_file in by_file]
        try:
            contents = self._store.read_joined(paths, sizes)
            footer = self._footers.joined(by_file, contents)
            file = DataParquet(
                self._store,
                first,
                self._selection,
                first.version,
                metadata=footer,
                like=self._like,
                source=pa.BufferReader(pa.py_buffer(contents)),
            )
            self._like = file.view
            table = file.row_groups(range(footer.num_row_groups))
            file.close()
            leaves = file.columns.first_leaf
            if not are_whole(table, footer, {name: leaves[name] for name in self._selection.lists if name in leaves}):
                return None
        except TimeoutError as error:  # each alone would take as long
            raise ReadError(f"cannot read {many(len(by_file), 'file')} from {first.path} on: {error}") from error
        except Exception:
            return None
        return table

    def _of_one_file(self, chunks: Sequence[Chunk]) -> pa.Table:
        """Return the rows of row groups of one file, each column in one piece if it is one of numbers."""
        first, last = chunks[0], chunks[-1]
        row_groups = [chunk.row_group for chunk in chunks if chunk.row_group is not None]
        n_rows = sum(chunk.n_rows or 0 for chunk in chunks)
        rows = f" rows {first.rows.start if first.rows else 0}..{last.rows.stop - 1 if last.rows else 0}"
        with read_errors(first.path, first.version, place=rows):
            for number, chunk in zip(row_groups, chunks, strict=True):
                file = self._file(chunk, number)
            table = file.row_groups(row_groups)
            if table.num_rows != n_rows:
                raise ReadError(f"{first.path}{rows} gave {many(table.num_rows, 'row')}: the file is corrupt")
            return table

    def keep_cursors(self, kept: Collection[tuple[str, int]]) -> None:
        """Close the cursors in row groups that will not be read on, given as (path, row group)."""
        for key in [key for key in self._cursors if key not in kept]:
            self._cursors.pop(key).close()

    def close(self) -> None:
        """Close everything; reading opens it again."""
        for kept in (self._cursors, self._files):
            for closable in kept.values():
                closable.close()
            kept.clear()
        self._known.clear()

    def _file(self, chunk: Chunk, row_group: int) -> DataParquet:
        file = self._files.pop(chunk.path, None) or self._opened(chunk)
        _keep(self._files, chunk.path, file, _MAX_FILES)
        self._check(chunk, file, row_group)
        return file

    def _opened(self, chunk: Chunk) -> DataParquet:
        known = self._known.pop(chunk.path, None) or _Known()
        file = DataParquet(
            self._store,
            chunk,
            self._selection,
            chunk.version,
            size_bytes=chunk.file_bytes,
            metadata=known.metadata,
            deleted=known.deleted,
            view=known.view,
            like=self._like,
        )
        self._like = file.view
        deleted = file.deleted
        kept = deleted if deleted is not None and len(deleted) <= _MAX_KEPT_DELETED else None
        room = _MAX_KNOWN_BYTES // max(footer_bytes(file.metadata), 1)
        _keep(self._known, chunk.path, _Known(file.metadata, kept, file.view), max(min(_MAX_KNOWN, room), 1))
        return file

    def _check(self, chunk: Chunk, file: DataParquet, row_group: int) -> None:
        whole = None if chunk.filtered else chunk.row_group_rows
        n_groups = file.metadata.num_row_groups
        if row_group >= n_groups or (whole is not None and file.n_live(row_group) != len(whole)):
            raise ReadError(f"{named(chunk.path, chunk.version)} was changed while it was being read")

    def _filtered(self, chunk: Chunk, row_group: int) -> pa.Table:
        """Return the rows that the filter keeps of a row group, which may be much larger than they are."""
        file = self._file(chunk, row_group)
        n_rows = file.metadata.row_group(row_group).num_rows
        row_bytes = chunk.size_bytes // (chunk.n_rows or n_rows or 1) + 1
        if n_rows * row_bytes <= _MAX_UNFILTERED_BYTES:
            return file.row_groups([row_group], filtered=True)
        at_once = rows_at_once(_MAX_UNFILTERED_BYTES // row_bytes, row_bytes)
        cursor = Cursor(self._opened(chunk), row_group, at_once, filtered=True)
        try:
            return cursor.take(n_rows)
        finally:
            cursor.close()

    def _part(self, chunk: Chunk, row_group: int, rows: range, whole: range) -> pa.Table:
        start, n_rows = rows.start - whole.start, len(rows)
        key = (chunk.path, row_group)
        cursor = self._cursors.pop(key, None)
        if cursor is not None and cursor.position > start:
            cursor.close()
            cursor = None
        if cursor is None:
            at_once = rows_at_once(n_rows, chunk.size_bytes // n_rows)
            cursor = Cursor(self._opened(chunk), row_group, at_once, filtered=chunk.filtered)
        try:
            self._check(chunk, cursor.file, row_group)
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


def _runs(chunks: Sequence[Chunk], joins: Callable[[Chunk, Chunk], bool]) -> list[list[Chunk]]:
    """Return chunks in runs of neighbours that go together."""
    runs: list[list[Chunk]] = []
    for chunk in chunks:
        if runs and joins(runs[-1][-1], chunk):
            runs[-1].append(chunk)
        else:
            runs.append([chunk])
    return runs


def _joins(before: Chunk, chunk: Chunk, *, gaps: bool) -> bool:
    """Return whether a row group follows another one of its file; with `gaps` there may be others between."""
    first, second = before.row_group, chunk.row_group
    if first is None or second is None:
        return False
    return before.path == chunk.path and (
        second == first + 1 or (gaps and second > first and chunk.deletion_vector is None)
    )


def _go_together(before: Chunk, chunk: Chunk) -> bool:
    return _is_plain(before) and _is_plain(chunk) and before.version == chunk.version


def _is_plain(chunk: Chunk) -> bool:
    return chunk.is_whole_row_group and not chunk.filtered


def _within(rows: range | None, whole: range | None) -> bool:
    if rows is None or whole is None:
        return False
    return rows.step == whole.step == 1 and len(rows) > 0 and whole.start <= rows.start and rows.stop <= whole.stop


def _keep(kept: OrderedDict[_Key, _Kept], key: _Key, value: _Kept, most: int) -> None:
    kept[key] = value
    while len(kept) > most:
        kept.popitem(last=False)[1].close()
