"""What of a table is read and how: the same for all its files, for planning and in each worker."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import pyarrow as pa

from pyloader_delta.delta.schema import ROW_ID, arrow_schema
from pyloader_delta.errors import ConfigError, TableError
from pyloader_delta.values import TableField

if TYPE_CHECKING:
    from pyloader_delta.delta.filters.rows import RowFilter


@dataclass(frozen=True)
class Selection:
    """Columns of a table, and how their values are read."""

    fields: tuple[TableField, ...]
    """In the order in which they are given."""
    partition_timezone: str = "UTC"
    """Zone of partition timestamps that state none."""
    page_checksums: bool = False
    """Verify the checksums of a file's pages, where it has them."""
    row_id: str | None = None
    """Name of that of the fields which is no column but numbers the rows; None for none."""

    filter: RowFilter | None = None
    """What decides which rows are read; None for all."""
    filter_fields: tuple[TableField, ...] = ()
    """The columns that it needs."""
    numbered: bool = False
    """Give one column more, the last, which is not in `schema`: each row's number in its file, deleted rows counted."""

    @cached_property
    def schema(self) -> pa.Schema:
        """Logical schema of what is read."""
        return arrow_schema(self.fields)

    @cached_property
    def is_short(self) -> bool:
        """Whether all columns are numbers, bools or times."""
        return all(pa.types.is_primitive(kind) for kind in self.schema.types)

    @cached_property
    def lists(self) -> tuple[str, ...]:
        """Names of the columns that are lists of numbers, times, texts or bytes."""
        return tuple(field.name for field in self.schema if _is_list(field.type))

    @cached_property
    def is_joinable(self) -> bool:
        """Whether files may be read as one, as it can be told which rows are which file's: not of maps, nor deep lists.

        Other columns have one value a row, and damaged ones have as many; of plain lists the lengths tell it.
        """
        return all(_is_list(kind) or not _repeats(kind) for kind in self.schema.types)

    @cached_property
    def filter_schema(self) -> pa.Schema:
        """Logical schema of what the filter needs."""
        return arrow_schema(self.filter_fields)


def _is_list(kind: pa.DataType) -> bool:
    return pa.types.is_list(kind) and not pa.types.is_nested(kind.value_type)


def _repeats(kind: pa.DataType) -> bool:
    if pa.types.is_struct(kind):
        return any(_repeats(kind.field(i).type) for i in range(kind.num_fields))
    return pa.types.is_nested(kind) or isinstance(kind, pa.BaseExtensionType)


def selected(
    fields: Sequence[TableField], columns: object, table: str, *, row_ids: TableField | None = None
) -> tuple[tuple[TableField, ...], str | None]:
    """Return the fields that a user's list of names selects, and the name of the row ids if they are among them.

    Args:
        fields: Columns of the table.
        columns: Names of columns, `_row_id` too if the table tracks rows; None for all columns.
        table: What the table is called, with its version, for errors.
        row_ids: The row ids of a table that tracks them.

    Raises:
        ConfigError: `columns` is no list of different names of columns.
        TableError: A selected column has a type that cannot be read.
    """
    by_name = {field.name: field for field in fields}
    if columns is None:
        columns = list(by_name)
    elif not isinstance(columns, list | tuple) or not columns or not all(isinstance(name, str) for name in columns):
        raise ConfigError(f"columns must be a list of names or None, got {columns!r}")
    if twice := [name for name, n in Counter(columns).items() if n > 1]:
        raise ConfigError(f"columns names {twice[0]!r} twice")
    chosen, row_id = [], None
    for name in columns:
        field = by_name.get(name)
        if field is None and name == ROW_ID:
            if row_ids is None:
                raise ConfigError(
                    f"columns names {name!r}, but {table} does not track rows (table feature 'rowTracking')"
                )
            field, row_id = row_ids, name
        if field is None:
            raise ConfigError(_unknown(name, list(by_name), table))
        if field.unreadable:
            raise TableError(f"{field.unreadable}; {table} can be read without it: leave it out by columns=[…]")
        chosen.append(field)
    return tuple(chosen), row_id


def _unknown(name: str, names: Sequence[str], table: str) -> str:
    from pyloader_delta.delta.filters.build import names_instead  # here: worker processes need no parsers

    return f"columns names {name!r}, which {table} does not have{names_instead(name, names)}"
