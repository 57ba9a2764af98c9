"""One Parquet file of a table: what of it belongs to which column, and its rows in the table's logical schema."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import pyarrow as pa
import pyarrow.parquet as pq

from pyloader_delta.delta.conform import conform, find
from pyloader_delta.delta.partition import partition_scalar
from pyloader_delta.errors import LoaderError, ReadError


@contextmanager
def read_errors(path: str, version: int | None, *, place: str = "") -> Iterator[None]:
    """Turn whatever goes wrong with a file into a ReadError that names it.

    Args:
        path: Absolute path of the file.
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
    """An open data file, seen through the schema of the selected columns.

    Args:
        path: Absolute path of the file.
        schema: Logical schema of the selected columns.
        partition_values: (column, value as the log spells it) of the partition columns.
        metadata: The file's footer, where it is known already.
    """

    def __init__(
        self,
        path: str,
        schema: pa.Schema,
        partition_values: Mapping[str, str | None],
        metadata: pq.FileMetaData | None = None,
    ) -> None:
        self.path = path
        self._file = pq.ParquetFile(
            path, metadata=metadata, memory_map=True, pre_buffer=False, coerce_int96_timestamp_unit="us"
        )
        self.metadata: pq.FileMetaData = self._file.metadata
        self._schema = schema
        self.constants = {
            name: partition_scalar(text, schema.field(name))
            for name, text in partition_values.items()
            if name in schema.names
        }
        """Partition columns among the selected ones → their value."""
        stored: pa.Schema = self._file.schema_arrow
        names = stored.names
        found = {name: find(name, names) for name in schema.names if name not in self.constants}
        self.stored: dict[str, pa.Field] = {name: stored.field(i) for name, i in found.items() if i is not None}
        """Selected column → how the file holds it; absent where it does not."""
        self._names = [field.name for field in self.stored.values()]
        self._leaves = _first_leaves(stored)
        read = pa.schema([field for field in stored if field.name in self._names])
        self._metadata = stored.metadata is not None
        # Then what pyarrow reads is the logical table already: wrapping it anew would cost 5 % of decoding.
        self._as_is = read.equals(schema) and not any(field.metadata for field in read)

    def first_leaf(self, column: str) -> int:
        """Return the number, in the footer, of the first leaf of a column that the file holds."""
        return self._leaves[self.stored[column].name]

    def row_group(self, row_group: int) -> pa.Table:
        """Return all rows of a row group."""
        if not self.stored:
            return self._logical(None, self.metadata.row_group(row_group).num_rows)
        table = self._file.read_row_group(row_group, columns=self._names, use_threads=False)
        return self._logical(table, table.num_rows)

    def batches(self, row_group: int, batch_rows: int) -> Iterator[pa.RecordBatch]:
        """Yield a row group as the file holds it, about `batch_rows` rows at a time; feed them to `logical`.

        There must be one such iterator at most for an open file, and the file must hold a selected column.
        """
        found: Iterator[pa.RecordBatch] = self._file.iter_batches(
            batch_rows, row_groups=[row_group], columns=self._names, use_threads=False
        )
        return found

    def logical(self, batch: pa.RecordBatch) -> pa.Table:
        """Return rows from `batches` in the logical schema."""
        return self._logical(pa.Table.from_batches([batch]), batch.num_rows)

    def close(self) -> None:
        """Close the file; tables that were read stay valid."""
        self._file.close()

    def _logical(self, table: pa.Table | None, n_rows: int) -> pa.Table:
        if table is not None and self._as_is and table.num_columns == len(self._schema):
            return table.replace_schema_metadata(None) if self._metadata else table
        columns = []
        for field in self._schema:
            if field.name in self.constants:
                columns.append(pa.repeat(self.constants[field.name], n_rows))
            elif table is not None and field.name in self.stored:
                columns.append(conform(table.column(self.stored[field.name].name), field))
            else:
                columns.append(pa.nulls(n_rows, field.type))
        return pa.Table.from_arrays(columns, schema=self._schema)


def n_leaves(kind: pa.DataType) -> int:
    """Return how many leaf columns a type takes in a Parquet file."""
    if isinstance(kind, pa.BaseExtensionType):
        return n_leaves(kind.storage_type)
    if pa.types.is_dictionary(kind) or kind.num_fields == 0:
        return 1
    return sum(n_leaves(kind.field(i).type) for i in range(kind.num_fields))


def _first_leaves(schema: pa.Schema) -> dict[str, int]:
    first = 0
    found = {}
    for field in schema:
        found[field.name] = first
        first += n_leaves(field.type)
    return found
