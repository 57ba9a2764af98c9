"""A file seen through the selected columns: what of it is read, found once and kept while the file is closed."""

from __future__ import annotations

from copy import copy
from itertools import accumulate
from typing import Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from pyloader_delta.arrays import is_storable
from pyloader_delta.delta.match import Match
from pyloader_delta.delta.selection import Selection


class Partitioned(Protocol):
    """What the log says of a file's partition."""

    @property
    def partition_values(self) -> tuple[tuple[str, str | None], ...]: ...


class View:
    """The selected columns, and those of the filter, in one file.

    Args:
        file: The open file; it is not kept.
        located: What the log says of it.
        selection: What is read of it.

    Raises:
        TableError: A partition value, or the kind of a stored column, cannot be read.
        TypeError: A stored column has no lossless way to the table's type.
    """

    def __init__(self, file: pq.ParquetFile, located: Partitioned, selection: Selection) -> None:
        self.starts: list[int] = _starts(file.metadata)
        """Number of the first row of each row group, deleted ones counted, and the file's number of rows."""
        self.stored_schema: pa.Schema = file.schema_arrow
        """Schema of the file."""
        self.stored_names: list[str] = self.stored_schema.names
        """Names of its columns."""
        self._partition_values = located.partition_values
        values, zone, row_id = dict(located.partition_values), selection.partition_timezone, selection.row_id
        self.columns = Match(self.stored_schema, selection.fields, values, zone, row_id)
        """The selected columns in the file."""
        self.tested: Match | None = None
        """The columns of the filter in the file."""
        if selection.filter is not None:
            self.tested = Match(self.stored_schema, selection.filter_fields, values, zone)
        self.filter_names = list(dict.fromkeys([*self.columns.names, *(self.tested.names if self.tested else ())]))
        """What the file calls the columns of both."""
        self.has_metadata = self.stored_schema.metadata is not None
        """Whether the file's schema has metadata, which is none of the table's."""
        self.is_storable = is_storable(self.stored_schema)
        """Whether Arrow can pick rows of the file: it cannot of texts stored as views, as DataFusion does."""
        self._keeps_order: bool | None = None
        alike = pa.schema(self.columns.stored.values()).equals(selection.schema, check_metadata=True)
        self.as_is = alike and row_id is None
        """Whether what pyarrow reads has the logical table's columns: wrapping each anew would cost 5 % of decoding."""

    def ordered(self, table: pa.Table) -> pa.Table:
        """Return what was read in the order of the selection: releases of pyarrow differ in whose they give."""
        names = self.columns.names
        if self._keeps_order is None:  # one look is enough, also for files like this one
            self._keeps_order = table.schema.names == names
        return table if self._keeps_order else table.select(names)

    def of_another(self, file: pq.ParquetFile, located: Partitioned) -> View | None:
        """Return the view of another file, if its columns and partition are the same: files of a table are alike."""
        if located.partition_values != self._partition_values or not file.schema_arrow.equals(
            self.stored_schema, check_metadata=True
        ):
            return None
        view = copy(self)
        view.starts = _starts(file.metadata)
        return view

    def is_like(self, other: View) -> bool:
        """Return whether one of them was made of the other."""
        return self.columns is other.columns


def _starts(metadata: pq.FileMetaData) -> list[int]:
    return [0, *accumulate(metadata.row_group(i).num_rows for i in range(metadata.num_row_groups))]
