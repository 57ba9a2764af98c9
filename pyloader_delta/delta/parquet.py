"""One Parquet file of a table: what of it belongs to which column, and its live rows in the table's logical schema."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from itertools import accumulate
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from pyloader_delta.delta.conform import Conversion, conversion, find
from pyloader_delta.delta.partition import partition_scalar
from pyloader_delta.delta.selection import Selection
from pyloader_delta.delta.store import Store
from pyloader_delta.delta.vectors import deleted_rows
from pyloader_delta.errors import LoaderError, ReadError
from pyloader_delta.values import DeletionVector


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
        version: Version of the table.
        place: What of the file was read, for the text.
    """
    try:
        yield
    except LoaderError:
        raise
    except FileNotFoundError as error:
        raise ReadError(
            f"{path} of version {version} is missing; was the table vacuumed? Read a newer version, "
            "or restore the file from a copy of the table"
        ) from error
    except Exception as error:  # a corrupt file makes pyarrow raise nearly anything
        raise ReadError(f"cannot read {path}{place} of version {version}: {error}") from error


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
    ) -> None:
        self._store, self._located, self._version = store, file, version
        self._selection = selection
        self.schema = selection.schema
        """Logical schema of what is read."""
        self._source = store.open(file.path, size_bytes)
        try:
            self._check_size(size_bytes)
            self._file = pq.ParquetFile(
                self._source,
                metadata=metadata,
                pre_buffer=False,
                coerce_int96_timestamp_unit="us",
                page_checksum_verification=selection.page_checksums,
            )
            self.metadata: pq.FileMetaData = self._file.metadata
            self._deleted = deleted
            self._match(dict(file.partition_values))
        except BaseException:
            self._source.close()
            raise

    def _check_size(self, size_bytes: int | None) -> None:
        found = self._source.size()
        if size_bytes and found != size_bytes:
            raise ReadError(
                f"{self._located.path} of version {self._version} has {found} bytes, but the log says {size_bytes}: "
                "it is another file or was cut; restore it from a copy of the table"
            )

    def _match(self, partition_values: dict[str, str | None]) -> None:
        """Find the selected columns in the file."""
        fields = {field.name: field for field in self._selection.fields}
        self.constants = {
            name: partition_scalar(text, fields[name].arrow, self._selection.partition_timezone)
            for name, text in partition_values.items()
            if name in fields
        }
        """Partition columns among the selected ones → their value."""
        stored: pa.Schema = self._file.schema_arrow
        self.stored: dict[str, pa.Field] = {}
        """Selected column → how the file holds it; absent where it does not."""
        self._conversions: dict[str, Conversion | None] = {}
        self._leaf: dict[str, int] = {}
        leaves = [0, *accumulate(n_leaves(kind) for kind in stored.types)]
        for name, field in fields.items():
            absent = name in self.constants or (name == self._selection.row_id and not field.stored_name)
            i = None if absent else find(field, list(stored))
            if i is not None:
                self.stored[name], self._leaf[name] = stored.field(i), leaves[i]
                self._conversions[name] = conversion(stored.field(i).type, field, name)
        self._names = [field.name for field in self.stored.values()]
        read = pa.schema([field for field in stored if field.name in self._names])
        self._metadata = stored.metadata is not None
        # Then what pyarrow reads is the logical table already: wrapping it anew would cost 5 % of decoding.
        self._as_is = (
            read.remove_metadata().equals(self.schema, check_metadata=True)
            and all(field.name == name for name, field in self.stored.items())
            and self._selection.row_id is None
        )

    @cached_property
    def starts(self) -> list[int]:
        """Number of the first row of each row group, deleted ones counted, and the file's number of rows."""
        groups = (self.metadata.row_group(i).num_rows for i in range(self.metadata.num_row_groups))
        return [0, *accumulate(groups)]

    @property
    def deleted(self) -> NDArray[np.int64] | None:
        """Numbers, in the file, of its deleted rows, ascending; None where it has no deletion vector."""
        vector = self._located.deletion_vector
        if vector is not None and self._deleted is None:
            path, n_rows = self._located.path, self.metadata.num_rows
            self._deleted = deleted_rows(self._store, vector, n_rows, file=path, version=self._version)
        return self._deleted

    def n_live(self, row_group: int) -> int:
        """Return how many rows of a row group are not deleted."""
        first, last = self.starts[row_group : row_group + 2]
        vector = self._located.deletion_vector
        if vector is not None and self.metadata.num_row_groups == 1:
            return last - vector.cardinality  # what reading it will confirm
        return last - first - len(self._deleted_within(first, last))

    def first_leaf(self, column: str) -> int:
        """Return the number, in the footer, of the first leaf of a column that the file holds."""
        return self._leaf[column]

    def row_group(self, row_group: int) -> pa.Table:
        """Return the live rows of a row group."""
        first, last = self.starts[row_group : row_group + 2]
        table = None
        if self.stored:
            table = self._file.read_row_group(row_group, columns=self._names, use_threads=False)
        return Piece(self, table, first, last - first).table()

    def pieces(self, row_group: int, batch_rows: int) -> Iterator[Piece]:
        """Yield a row group, about `batch_rows` rows at a time.

        There must be one such iterator at most for an open file.
        """
        first, last = self.starts[row_group : row_group + 2]
        if not self.stored:
            yield Piece(self, None, first, last - first)
            return
        batches = self._file.iter_batches(batch_rows, row_groups=[row_group], columns=self._names, use_threads=False)
        for batch in batches:
            yield Piece(self, batch, first, batch.num_rows)
            first += batch.num_rows

    def close(self) -> None:
        """Close the file; tables that were read stay valid."""
        self._file.close()
        self._source.close()

    def _deleted_within(self, first: int, last: int) -> NDArray[np.int64]:
        """Return the deleted rows of a range, counted from its first."""
        deleted = self.deleted
        if deleted is None:
            return np.empty(0, np.int64)
        begin, end = np.searchsorted(deleted, (first, last))
        return deleted[begin:end] - first

    def _logical(self, table: pa.Table | None, first: int, n_rows: int, deleted: NDArray[np.int64]) -> pa.Table:
        """Return rows of the file in the logical schema.

        Args:
            table: As the file holds them; None where it holds no selected column.
            first: Number of the first of them in the file.
            n_rows: Their number, deleted ones included.
            deleted: What `_deleted_within` says of them.
        """
        live = None
        if len(deleted):
            live = np.ones(n_rows, bool)
            live[deleted] = False
            n_rows -= len(deleted)
            table = None if table is None else table.filter(_booleans(live))
        if table is not None and self._as_is and table.num_columns == len(self.schema):
            return table.replace_schema_metadata(None) if self._metadata else table
        columns = []
        for field in self.schema:
            column = None
            if table is not None and field.name in self.stored:
                column = self._converted(table.column(self.stored[field.name].name), field)
            if field.name == self._selection.row_id:
                columns.append(self._row_ids(column, first, n_rows, live))
            elif field.name in self.constants:
                columns.append(pa.repeat(self.constants[field.name], n_rows))
            else:
                columns.append(pa.nulls(n_rows, field.type) if column is None else column)
        if not columns:
            return _of_no_column(n_rows)
        return pa.Table.from_arrays(columns, schema=self.schema)

    def _converted(self, column: pa.ChunkedArray, field: pa.Field) -> pa.ChunkedArray:
        convert = self._conversions[field.name]
        if convert is None:
            return column
        return pa.chunked_array([convert(chunk) for chunk in column.chunks], type=field.type)

    def _row_ids(
        self, kept: pa.ChunkedArray | None, first: int, n_rows: int, live: NDArray[np.bool_] | None
    ) -> pa.Array | pa.ChunkedArray:
        """Return the ids of rows: those that a rewritten file keeps, else they count up from its first."""
        if kept is not None and kept.null_count == 0:
            return kept
        base = self._located.base_row_id
        if base is None:
            raise ReadError(
                f"{self._located.path} of version {self._version} has no row ids (no baseRowId in the log); "
                f"leave {self._selection.row_id!r} out of columns=[…]"
            )
        within = np.arange(n_rows, dtype=np.int64) if live is None else np.flatnonzero(live)
        counted = pa.Array.from_buffers(pa.int64(), n_rows, [None, pa.py_buffer(within + (base + first))])
        return counted if kept is None else pc.coalesce(kept, counted)


class Piece:
    """Consecutive rows of a file as it holds them; they become logical when they are asked for."""

    __slots__ = ("_deleted", "_file", "_first", "_n_stored", "_stored", "num_rows")

    def __init__(self, file: DataParquet, stored: pa.RecordBatch | pa.Table | None, first: int, n_rows: int) -> None:
        if stored is not None and stored.num_rows != n_rows:
            raise ReadError(f"{file._located.path} is corrupt: {stored.num_rows} rows instead of {n_rows}")
        self._file, self._first, self._n_stored = file, first, n_rows
        self._stored = pa.Table.from_batches([stored]) if isinstance(stored, pa.RecordBatch) else stored
        self._deleted = file._deleted_within(first, first + n_rows)
        self.num_rows = n_rows - len(self._deleted)
        """Number of live rows."""

    def table(self) -> pa.Table:
        """Return the live rows in the logical schema."""
        return self._file._logical(self._stored, self._first, self._n_stored, self._deleted)


def n_leaves(kind: pa.DataType) -> int:
    """Return how many leaf columns a type takes in a Parquet file."""
    if isinstance(kind, pa.BaseExtensionType):
        return n_leaves(kind.storage_type)
    if pa.types.is_dictionary(kind) or kind.num_fields == 0:
        return 1
    return sum(n_leaves(kind.field(i).type) for i in range(kind.num_fields))


def _booleans(values: NDArray[np.bool_]) -> pa.Array:
    bits = np.packbits(values, bitorder="little")  # pa.array would import pandas
    return pa.Array.from_buffers(pa.bool_(), len(values), [None, pa.py_buffer(bits)])


def _of_no_column(n_rows: int) -> pa.Table:
    return pa.Table.from_batches([pa.RecordBatch.from_struct_array(pa.nulls(n_rows, pa.struct([])))])
