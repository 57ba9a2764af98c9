"""The filter of a reader: read from what the user gave, and applied to rows. What it can prune is decided elsewhere."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyloader_delta.columns import numbers
from pyloader_delta.delta.filters import expressions, sql, tuples
from pyloader_delta.delta.filters.tree import Node, columns, expression
from pyloader_delta.errors import ConfigError


@dataclass(frozen=True, slots=True)
class RowFilter:
    """A predicate that says of each row whether it is kept; a row for which it is NULL is not."""

    node: Node
    """Its tree; opaque where only pyarrow knows what it means."""
    expression: pc.Expression
    """What is evaluated."""
    columns: tuple[str, ...]
    """Names of the table's columns that it needs."""
    digest: str
    """SHA-256 of the expression: the same for the same predicate."""

    def mask(self, rows: pa.Table) -> pa.ChunkedArray:
        """Return a bool for each row, without nulls: whether it is kept.

        Args:
            rows: At least `columns`, with the table's logical types.

        Raises:
            ConfigError: The predicate cannot be evaluated for these rows; the text says why.
        """
        return pc.fill_null(self.outcomes(rows), _FALSE)

    def outcomes(self, rows: pa.Table) -> pa.ChunkedArray:
        """Return what the predicate is for each row, null where it is NULL; else as `mask`."""
        # pyarrow.acero is the public home of these names, but it imports pandas: 0.4 s and 40 MiB a process.
        from pyarrow._acero import Declaration, ProjectNodeOptions, TableSourceNodeOptions

        if not self.columns:
            rows = pa.Table.from_arrays([pa.nulls(rows.num_rows)], [""])
        source = Declaration("table_source", TableSourceNodeOptions(rows))
        project = Declaration("project", ProjectNodeOptions([self.expression], [""]), [source])
        try:
            return project.to_table(use_threads=False).column(0)
        except pa.ArrowException as error:
            raise ConfigError(f"filter {self.expression} cannot be evaluated: {error}; try it in SQL") from error


def row_filter(value: Any, schema: pa.Schema) -> RowFilter:
    """Return the filter that a user gave.

    Args:
        value: A pyarrow expression, a list of (column, operator, value) or of such lists, or a predicate in SQL.
        schema: Logical schema of the table.

    Raises:
        ConfigError: It is no predicate on columns of the schema; the text says what is wrong and where.
    """
    if isinstance(value, pc.Expression):
        node, names = expressions.parse(value, schema)
        made = value
    elif isinstance(value, str | list | tuple):
        node = sql.parse(value, schema) if isinstance(value, str) else tuples.parse(value, schema)
        names, made = tuple(dict.fromkeys(column.path[0] for column in columns(node))), expression(node)
    else:
        raise ConfigError(
            "filter must be a pyarrow expression, a list of (column, operator, value) or a predicate in SQL; "
            f"got {type(value).__name__}"
        )
    found = RowFilter(node, made, names, hashlib.sha256(expressions.serialized(made)).hexdigest())
    _check(found, schema)
    return found


_FALSE = numbers(np.array([0], np.uint8)).cast(pa.bool_())[0]


def _check(made: RowFilter, schema: pa.Schema) -> None:
    """Refuse an expression that no rows can be filtered with, before any are read."""
    fields = pa.schema([schema.field(name) for name in made.columns])
    empty = pa.Table.from_arrays(
        [pa.nulls(0, field.type) for field in fields], schema=fields
    )  # empty_table imports pandas
    bound = made.outcomes(empty)
    if not pa.types.is_boolean(bound.type):
        raise ConfigError(f"filter {made.expression} gives {bound.type}, not true or false: it is no predicate")
