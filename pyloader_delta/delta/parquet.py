"""One Parquet file of a table: what of it belongs to which column, and its live rows in the table's logical schema."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from pyloader_delta.arrays import storable_table
from pyloader_delta.delta.masks import booleans, unpacked
from pyloader_delta.delta.match import Match
from pyloader_delta.delta.selection import Selection
from pyloader_delta.delta.store import Store, StoreFile, expecting
from pyloader_delta.delta.stores.ranges import column_spans
from pyloader_delta.delta.vectors import deleted_rows
from pyloader_delta.delta.view import View
from pyloader_delta.errors import LoaderError, ReadError
from pyloader_delta.values import DeletionVector, named
from pyloader_delta.words import many

_BUFFER_BYTES = 64 << 10  # of a column, from a file in a store; from a disk it is read whole, or mapped


class Located(Protocol):
    """What the log says of a file, as a `DataFile` and a `Chunk` carry it."""

    @property
    def path(self) -> str: ...
    @property
    def partition_values(self) -> tuple[tuple[str, str | None], ...]: ...
    @property
    def deletion_vector(self) -> DeletionVector | None: ...
    @property
    def base_row_id(self) -> int | None: ...


@contextmanager
def read_errors(path: str, version: int | None, *, place: str = "") -> Iterator[None]:
    """Turn whatever goes wrong with a file into a ReadError that names it.

    Args:
        path: Path of the file.
        version: Version of the table; None for a folder of plain files.
        place: What of the file was read, for the text.
    """
    try:
        yield
    except LoaderError:
        raise
    except FileNotFoundError as error:
        if version is None:
            raise ReadError(f"{path} is missing; it was there when the files were listed") from error
        raise ReadError(
            f"{path} of version {version} is missing; was the table vacuumed? Read a newer version, "
            "or restore the file from a copy of the table"
        ) from error
    except Exception as error:  # a corrupt file makes pyarrow raise nearly anything
        raise ReadError(f"cannot read {named(f'{path}{place}', version)}: {error}") from error


class DataParquet:
    """An open data file, seen through the selected columns, without the rows that are deleted.

    Args:
        store: The table's store.
        file: What the log says of the file.
        selection: What is read of it.
        version: Version of the table, for errors.
        size_bytes: Size of the file as the log states it; None where it does not.
        metadata: The file's footer, where it is known already.
        deleted: What `deleted` was, where it is known already.
        view: What `view` was, where it is known already.
        like: That of another file, which may be the same.
        source: Where the file's bytes are, if they were read already.

    Raises:
        ReadError: The file has another size.
        TableError: A partition value, or the kind of a stored column, cannot be read.
        TypeError: A stored column has no lossless way to the table's type.
    """

    def __init__(
        self,
        store: Store,
        file: Located,
        selection: Selection,
        version: int | None,
        *,
        size_bytes: int | None = None,
        metadata: pq.FileMetaData | None = None,
        deleted: NDArray[np.int64] | None = None,
        view: View | None = None,
        like: View | None = None,
        source: pa.NativeFile | None = None,
    ) -> None:
        self._store, self._located, self._version = store, file, version
        self._selection = selection
        self.schema = selection.schema
        """Logical schema of what is read."""
        self._deleted = deleted
        self._source = source or store.open(file.path, size_bytes or None, mapped=not selection.is_short)
        try:
            self._check_size(size_bytes)
            self._file = self._parquet(self._source, metadata)
            self.metadata: pq.FileMetaData = self._file.metadata
            view = view or (None if like is None else like.of_another(self._file, file))
            self.view = View(self._file, file, selection) if view is None else view
            """What of the file belongs to which column."""
        except BaseException:
            self._source.close()
            raise
        self.stored_schema: pa.Schema = self.view.stored_schema
        """Schema of the file."""
        self.columns: Match = self.view.columns
        """The selected columns in the file."""
        self.starts: list[int] = self.view.starts
        """Number of the first row of each row group, deleted ones counted, and the file's number of rows."""

    def _parquet(self, source: pa.NativeFile, metadata: pq.FileMetaData | None) -> pq.ParquetFile:
        return pq.ParquetFile(
            source,
            metadata=metadata,
            pre_buffer=False,
            buffer_size=_BUFFER_BYTES if isinstance(source, StoreFile) else 0,
            coerce_int96_timestamp_unit="us",
            page_checksum_verification=self._selection.page_checksums,
        )

    def _check_size(self, size_bytes: int | None) -> None:
        found = self._source.size()
        if size_bytes and found != size_bytes:
            raise ReadError(
                f"{named(self._located.path, self._version)} has {found} bytes, but "
                f"{'had' if self._version is None else 'the log says'} {size_bytes}: "
                "it is another file or was cut; restore it from a copy of the table"
            )

    @property
    def deleted(self) -> NDArray[np.int64] | None:
        """Numbers, in the file, of its deleted rows, ascending; None where it has no deletion vector."""
        vector = self._located.deletion_vector
        if vector is not None and self._deleted is None:
            path, n_rows = self._located.path, self.metadata.num_rows
            self._deleted = deleted_rows(self._store, vector, n_rows, file=path, version=self._version)
        return self._deleted

    @property
    def absent(self) -> tuple[str, ...]:
        """Columns that are selected, or tested by the filter, and that the file lacks."""
        return tuple(dict.fromkeys([*self.columns.absent, *(self.view.tested.absent if self.view.tested else ())]))

    def n_live(self, row_group: int) -> int:
        """Return how many rows of a row group are not deleted."""
        first, last = self.starts[row_group : row_group + 2]
        vector = self._located.deletion_vector
        if vector is not None and self.metadata.num_row_groups == 1:
            return last - vector.cardinality  # what reading it will confirm
        return last - first - len(self._deleted_within(first, last))

    def row_groups(self, row_groups: Sequence[int], *, filtered: bool = False) -> pa.Table:
        """Return the live rows of row groups; with `filtered` those that the selection's filter keeps.

        They are neighbours, where rows are deleted, numbered or filtered.
        """
        first = self.starts[row_groups[0]]
        n_rows = sum(self.starts[number + 1] - self.starts[number] for number in row_groups)
        table = None
        if names := self._names(filtered):
            with expecting(self._source, lambda: column_spans(self.metadata, row_groups, names)):
                columns = None if names == self.view.stored_names else names  # to look names up costs a fifth
                table = self._file.read_row_groups(row_groups, columns=columns, use_threads=False)
        return Piece(self, table, first, n_rows, filtered).table()

    def pieces(self, row_group: int, batch_rows: int, *, filtered: bool = False) -> Iterator[Piece]:
        """Yield a row group, about `batch_rows` rows at a time; with `filtered` those that the filter keeps.

        There must be one such iterator at most for an open file.
        """
        first, last = self.starts[row_group : row_group + 2]
        names = self._names(filtered)
        if not names:
            yield Piece(self, None, first, last - first, filtered)
            return
        with (
            self._piecewise() as file,
            expecting(self._source, lambda: column_spans(self.metadata, [row_group], names), bounded=True),
        ):
            for batch in file.iter_batches(batch_rows, row_groups=[row_group], columns=names, use_threads=False):
                yield Piece(self, batch, first, batch.num_rows, filtered)
                first += batch.num_rows

    @contextmanager
    def _piecewise(self) -> Iterator[pq.ParquetFile]:
        """Give the file to be read piece by piece: mapped, where it would be read a column at a time."""
        if isinstance(self._source, StoreFile):
            yield self._file
            return
        with self._store.open(self._located.path) as source:
            yield self._parquet(source, self.metadata)

    def close(self) -> None:
        """Close the file; tables that were read stay valid."""
        self._file.close()
        self._source.close()

    def _names(self, filtered: bool) -> list[str]:
        """Return what the file calls the columns that are read."""
        return self.view.filter_names if filtered else self.columns.names

    def _deleted_within(self, first: int, last: int) -> NDArray[np.int64]:
        """Return the deleted rows of a range, counted from its first."""
        deleted = self.deleted
        if deleted is None:
            return np.empty(0, np.int64)
        begin, end = np.searchsorted(deleted, (first, last))
        return deleted[begin:end] - first

    def _left_out(self, table: pa.Table | None, n_rows: int, deleted: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return which rows are deleted or not kept by the filter; the others as `_logical`."""
        tested, row_filter = self.view.tested, self._selection.filter
        assert tested is not None
        assert row_filter is not None
        live = _all_but(deleted, n_rows)
        if table is not None and len(deleted):
            table = table.filter(booleans(live))
        rows = tested.table(self._selection.filter_schema, table, n_rows - len(deleted))
        live[live] = unpacked(row_filter.mask(rows))
        return np.flatnonzero(~live)

    def _logical(self, table: pa.Table | None, first: int, n_rows: int, left_out: NDArray[np.int64]) -> pa.Table:
        """Return rows of the file in the logical schema, and behind it their numbers if the selection asks for them.

        Args:
            table: As the file holds them, with all selected columns that it holds; None where it holds none.
            first: Number of the first of them in the file.
            n_rows: Their number, those left out included.
            left_out: Which of them are not wanted, ascending.
        """
        live = None
        if len(left_out):
            live = _all_but(left_out, n_rows)
            n_rows -= len(left_out)
            table = None if table is None else table.filter(booleans(live))
        found = self._selected(table, first, n_rows, live)
        return found.append_column("", _numbers(first, n_rows, live)) if self._selection.numbered else found

    def _selected(self, table: pa.Table | None, first: int, n_rows: int, live: NDArray[np.bool_] | None) -> pa.Table:
        """Return rows in the logical schema; `live`: which of the file's from `first` on they are, None for all."""
        if table is not None and self.view.as_is and table.num_columns == len(self.schema):
            return table.replace_schema_metadata(None) if self.view.has_metadata else table
        row_id = self._selection.row_id
        if row_id is None:
            return self.columns.table(self.schema, table, n_rows)
        columns = [
            self._row_ids(table, first, n_rows, live)
            if field.name == row_id
            else self.columns.column(field, table, n_rows)
            for field in self.schema
        ]
        return pa.Table.from_arrays(columns, schema=self.schema)

    def _row_ids(
        self, table: pa.Table | None, first: int, n_rows: int, live: NDArray[np.bool_] | None
    ) -> pa.Array | pa.ChunkedArray:
        """Return the ids of rows: those that a rewritten file keeps, else they count up from its first."""
        name = self._selection.row_id
        kept = None
        if table is not None and name in self.columns.stored:
            kept = self.columns.column(self.schema.field(name), table, n_rows)
        if kept is not None and kept.null_count == 0:
            return kept
        base = self._located.base_row_id
        if base is None:
            raise ReadError(
                f"{self._located.path} of version {self._version} has no row ids (no baseRowId in the log); "
                f"leave {name!r} out of columns=[…]"
            )
        counted = _numbers(base + first, n_rows, live)
        return counted if kept is None else pc.coalesce(kept, counted)


class Piece:
    """Consecutive rows of a file as it holds them; they become logical when they are asked for."""

    __slots__ = ("_file", "_first", "_left_out", "_n_stored", "_stored", "num_rows")

    def __init__(
        self,
        file: DataParquet,
        stored: pa.RecordBatch | pa.Table | None,
        first: int,
        n_rows: int,
        filtered: bool = False,
    ) -> None:
        if stored is not None and stored.num_rows != n_rows:
            raise ReadError(f"{file._located.path} is corrupt: {many(stored.num_rows, 'row')} instead of {n_rows:,}")
        self._file, self._first, self._n_stored = file, first, n_rows
        self._stored = pa.Table.from_batches([stored]) if isinstance(stored, pa.RecordBatch) else stored
        self._left_out = file._deleted_within(first, first + n_rows)
        if (filtered or len(self._left_out)) and self._stored is not None and not file.view.is_storable:
            self._stored = storable_table(self._stored)
        if filtered:
            self._left_out = file._left_out(self._stored, n_rows, self._left_out)
            names = file.columns.names
            self._stored = self._stored.select(names) if names and self._stored is not None else None
        elif self._stored is not None:
            self._stored = file.view.ordered(self._stored)
        self.num_rows = n_rows - len(self._left_out)
        """Number of rows that are left."""

    def table(self) -> pa.Table:
        """Return the rows that are left in the logical schema."""
        return self._file._logical(self._stored, self._first, self._n_stored, self._left_out)


def _numbers(first: int, n_rows: int, live: NDArray[np.bool_] | None) -> pa.Array:
    """Return the numbers of `n_rows` rows, counted from `first`; `live`: which of all they are, None for all."""
    within = np.arange(n_rows, dtype=np.int64) if live is None else np.flatnonzero(live)
    return pa.Array.from_buffers(pa.int64(), n_rows, [None, pa.py_buffer(within + first)])


def _all_but(left_out: NDArray[np.int64], n_rows: int) -> NDArray[np.bool_]:
    wanted = np.ones(n_rows, bool)
    wanted[left_out] = False
    return wanted
