"""Which columns of a file stand for which fields of a table, and how they become arrays of the logical types."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate

import pyarrow as pa

from pyloader_delta.delta.conform import Conversion, Siblings, conversion
from pyloader_delta.delta.partition import partition_scalar
from pyloader_delta.values import TableField


class Match:
    """The fields of a table in one file.

    Args:
        stored: Schema of the file.
        fields: What is looked for.
        partition_values: (column, value as the log spells it).
        timezone: Zone of partition timestamps that state none.
        row_id: Name of that of the fields which is no column but numbers the rows; without a stored name it is in no
            file.

    Raises:
        TableError: A partition value, or the kind of a stored column, cannot be read.
        TypeError: A stored column has no lossless way to the table's type.
    """

    def __init__(
        self,
        stored: pa.Schema,
        fields: Sequence[TableField],
        partition_values: Mapping[str, str | None],
        timezone: str,
        row_id: str | None = None,
    ) -> None:
        by_name = {field.name: field for field in fields}
        self.constants = {
            name: partition_scalar(text, by_name[name].arrow, timezone)
            for name, text in partition_values.items()
            if name in by_name
        }
        """Partition columns among the fields → their value."""
        self.stored: dict[str, pa.Field] = {}
        """Field → how the file holds it; absent where it does not."""
        self.first_leaf: dict[str, int] = {}
        """Field that the file holds → number, in the footer, of its first leaf."""
        self._conversions: dict[str, Conversion | None] = {}
        siblings = Siblings(stored)
        leaves = [0, *accumulate(n_leaves(kind) for kind in stored.types)]
        for name, field in by_name.items():
            absent = name in self.constants or (name == row_id and not field.stored_name)
            i = None if absent else siblings.find(field)
            if i is not None:
                self.stored[name], self.first_leaf[name] = siblings.fields[i], leaves[i]
                self._conversions[name] = conversion(siblings.fields[i].type, field, name)
        self.absent = [
            name for name in by_name if not (name in self.constants or name in self.stored or name == row_id)
        ]
        """Fields that the file lacks."""
        self.names = [field.name for field in self.stored.values()]
        """What the file calls those that it holds."""

    def table(self, schema: pa.Schema, table: pa.Table | None, n_rows: int) -> pa.Table:
        """Return rows with some of the fields; see `column`."""
        if not len(schema):
            return pa.Table.from_batches([pa.RecordBatch.from_struct_array(pa.nulls(n_rows, pa.struct([])))])
        return pa.Table.from_arrays([self.column(field, table, n_rows) for field in schema], schema=schema)

    def column(self, field: pa.Field, table: pa.Table | None, n_rows: int) -> pa.Array | pa.ChunkedArray:
        """Return the logical values of a field: converted, its one partition value, or nulls.

        Args:
            field: The field.
            table: Rows as the file holds them; None where it holds none of the fields.
            n_rows: Their number.
        """
        if field.name in self.constants:
            return pa.repeat(self.constants[field.name], n_rows)
        if table is None or field.name not in self.stored:
            return pa.nulls(n_rows, field.type)
        column = table.column(self.stored[field.name].name)
        convert = self._conversions[field.name]
        if convert is None:
            return column
        return pa.chunked_array([convert(chunk) for chunk in column.chunks], type=field.type)


def n_leaves(kind: pa.DataType) -> int:
    """Return how many leaf columns a type takes in a Parquet file."""
    if isinstance(kind, pa.BaseExtensionType):
        return n_leaves(kind.storage_type)
    if pa.types.is_dictionary(kind) or kind.num_fields == 0:
        return 1
    return sum(n_leaves(kind.field(i).type) for i in range(kind.num_fields))
