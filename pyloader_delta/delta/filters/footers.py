"""Statistics of row groups, in a file's footer, become bounds of the table's columns."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import types as kinds

from pyloader_delta.delta.conform import Siblings
from pyloader_delta.delta.filters.bounds import Bounds, of_statistics
from pyloader_delta.delta.filters.literals import Key, is_bytes
from pyloader_delta.delta.filters.tree import Column
from pyloader_delta.delta.match import n_leaves
from pyloader_delta.values import TableField

_DAY_US = 86_400 * 10**6
_UNITS_A_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


def row_group_bounds(
    footer: pq.FileMetaData, stored: pa.Schema, fields: Sequence[TableField], columns: Iterable[Column]
) -> dict[tuple[str, ...], Bounds]:
    """Return path of a column → its bounds in each row group of a file.

    Args:
        footer: The file's.
        stored: The file's schema.
        fields: Columns of the table.
        columns: Which of them, none a partition column.
    """
    groups = [footer.row_group(i) for i in range(footer.num_row_groups)]
    rows = [group.num_rows for group in groups]
    found = {}
    for column in columns:
        leaf = _leaf(column, fields, stored)
        if leaf is None:  # nulls stand in
            nothing: list[None] = [None] * len(rows)
            found[column.path] = of_statistics(nothing, nothing, rows, rows)
        elif not leaf[1].num_fields:
            number, kind = leaf
            parts = [_statistics(group.column(number).statistics, kind, column.type) for group in groups]
            low, high, nulls = zip(*parts, strict=True) if parts else ((), (), ())
            found[column.path] = of_statistics(low, high, nulls, rows)
    return found


def _leaf(column: Column, fields: Sequence[TableField], stored: Iterable[pa.Field]) -> tuple[int, pa.DataType] | None:
    """Return the number of a column's first leaf in the footer and its stored type; None where the file lacks it."""
    first, kind = 0, pa.null()
    for name in column.path:
        siblings = Siblings(stored)
        there = siblings.fields
        field = next(field for field in fields if field.name == name)
        i = siblings.find(field)
        if i is None:
            return None
        first += sum(n_leaves(before.type) for before in there[:i])
        kind, fields = there[i].type, field.children
        stored = list(kind) if kinds.is_struct(kind) else []
    return first, kind.value_type if kinds.is_dictionary(kind) else kind


def _statistics(
    found: pq.Statistics | None, stored: pa.DataType, wanted: pa.DataType
) -> tuple[Key | None, Key | None, int | None]:
    """Return the least and the greatest key of a row group and its number of NULLs, as far as they are known."""
    if found is None:
        return None, None, None
    nulls = found.null_count if found.has_null_count else None
    if not found.has_min_max:
        return None, None, nulls
    return _key(found.min_raw, stored, wanted), _key(found.max_raw, stored, wanted), nulls


def _key(raw: Any, stored: pa.DataType, wanted: pa.DataType) -> Key | None:
    """Return the key of a stored value after its conversion to the column's type."""
    if kinds.is_decimal(stored):
        unscaled = int.from_bytes(raw, "big", signed=True) if isinstance(raw, bytes) else int(raw)
        scale = wanted.scale - stored.scale if kinds.is_decimal(wanted) else -1
        return unscaled * 10**scale if scale >= 0 else None
    if is_bytes(stored) and is_bytes(wanted):
        return bytes(raw) if isinstance(raw, bytes) else None
    if kinds.is_boolean(stored) and kinds.is_boolean(wanted):
        return bool(raw)
    if kinds.is_integer(stored):
        number = int(raw) % 2**stored.bit_width if kinds.is_unsigned_integer(stored) else int(raw)
        if kinds.is_decimal(wanted):
            return number * 10**wanted.scale if wanted.scale >= 0 else None
        return float(number) if kinds.is_floating(wanted) else number if kinds.is_integer(wanted) else None
    if (kinds.is_float32(stored) or kinds.is_float64(stored)) and kinds.is_floating(wanted):
        return float(raw)
    if kinds.is_date32(stored):
        return int(raw) if kinds.is_date32(wanted) else int(raw) * _DAY_US if _microseconds(wanted) else None
    if kinds.is_timestamp(stored) and kinds.is_timestamp(wanted) and isinstance(raw, int):
        return raw * _UNITS_A_SECOND[wanted.unit] // _UNITS_A_SECOND[stored.unit]
    return None


def _microseconds(kind: pa.DataType) -> bool:
    return bool(kinds.is_timestamp(kind) and kind.unit == "us")
