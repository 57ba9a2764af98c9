"""Rows of windows are gathered into columns. Rows are counted here: what is not gathered is not delivered."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pyloader_delta.columns import column_kind, joined, numbers, shaped
from pyloader_delta.engine.pack import Tray
from pyloader_delta.engine.slabs import aligned
from pyloader_delta.engine.tasks import Segment
from pyloader_delta.engine.window import Where, WindowBlocks
from pyloader_delta.errors import ContractError
from pyloader_delta.values import Columns


def gather(
    windows: Sequence[WindowBlocks], segments: Sequence[Segment], tray: Tray | None = None, names: Sequence[str] = ()
) -> Columns:
    """Return the rows of some segments, one after the other, in delivery order.

    Args:
        windows: The window of each segment.
        segments: Places in them.
        tray: Where columns of numbers are put; None for memory of their own.
        names: Columns to give, in this order; those that no window has are all None. Others of the windows follow.

    Raises:
        ContractError: A window lacks a column that another one has.
    """
    where = [Where(window, segment) for window, segment in zip(windows, segments, strict=True)]
    there = {field.name: field for field in _fields(windows)}
    names = [*names, *(name for name in there if name not in names)]
    fields = [there.get(name) or pa.field(name, pa.null()) for name in names]
    dtypes = [_dtype(windows, name) for name in names]
    n_rows = _counted(where)
    size = sum([aligned(n_rows * dtype.itemsize) for dtype in dtypes if dtype is not None])
    if tray is not None and size:
        tray.open(size)
    arrays: list[Any] = []
    given: list[pa.Field] = []
    for name, field, dtype in zip(names, fields, dtypes, strict=True):
        if dtype is None:
            parts = [_gathered(found, name) for found in where]
            whole, field = parts[0] if len(parts) == 1 else joined(*zip(*parts, strict=True))
        else:
            whole = np.empty(n_rows, dtype) if tray is None else tray.column(dtype, n_rows)
            _fill(whole, where, name)
        arrays.append(whole if field.metadata is None or isinstance(whole, list) else shaped(whole, field))
        given.append(field)
    return Columns(pa.schema(given), arrays, n_rows)


def _counted(where: Sequence[Where]) -> int:
    """Return the rows that the segments really have in their windows."""
    return sum(found.n_there for found in where)


def _dtype(windows: Sequence[WindowBlocks], name: str) -> np.dtype[Any] | None:
    """Return the one dtype of a column in all windows; None where it is no column of numbers or they differ."""
    dtype = windows[0].dtypes.get(name)
    if len(windows) == 1 or dtype is None:
        return dtype
    kind = column_kind(windows[0].field(name))
    for window in windows[1:]:
        other = window.dtypes.get(name)  # NumPy takes None for float64, also when it compares
        if other is None or other != dtype or column_kind(window.field(name)) != kind:
            return None
    return dtype


def _fill(whole: NDArray[Any], where: Sequence[Where], name: str) -> None:
    start = 0
    for found in where:
        pieces = found.window.column(name)[0]
        chosen, place = found.of(name, pieces)
        if place is not None:
            taken = np.concatenate([pieces[number].take(rows) for number, rows in chosen])
            whole[start : start + found.n_rows] = taken.take(place)
            start += found.n_rows
            continue
        for number, rows in chosen:
            part = pieces[number][rows] if type(rows) is slice else pieces[number].take(rows)
            whole[start : start + len(part)] = part
            start += len(part)


def _gathered(found: Where, name: str) -> tuple[Any, pa.Field]:
    """Return some rows of one column of one window, in delivery order, and the field of their blocks."""
    pieces, fields = found.window.column(name)
    chosen, place = found.of(name, pieces)
    parts = [_taken(pieces[number], rows) for number, rows in chosen]
    whole, field = (
        (parts[0], fields[chosen[0][0]]) if len(parts) == 1 else joined(parts, [fields[number] for number, _ in chosen])
    )
    if place is None:
        return whole, field
    if isinstance(whole, list):
        return [whole[i] for i in place], field
    return whole.take(place) if isinstance(whole, np.ndarray) else whole.take(numbers(place)), field


def _taken(column: Any, rows: Any) -> Any:
    if isinstance(column, np.ndarray):
        return column[rows] if isinstance(rows, slice) else column.take(rows)
    if isinstance(rows, slice):
        return column.slice(rows.start, rows.stop - rows.start)
    return column.take(numbers(rows))


def _fields(windows: Sequence[WindowBlocks]) -> list[pa.Field]:
    """Return the columns of all windows.

    Raises:
        ContractError: One lacks a column that another one has.
    """
    fields = windows[0].fields
    if all(window.fields == fields for window in windows[1:]):
        return fields
    found: dict[str, pa.Field] = {}
    for window in windows:
        for field in window.fields:
            if field.name not in found or pa.types.is_null(found[field.name].type):
                found[field.name] = field
    for window in windows if not windows[0].missing_as_none else ():
        for name in found.keys() - {field.name for field in window.fields}:
            having = next(w for w in windows if any(field.name == name for field in w.fields))
            raise ContractError(
                f"column {name!r} is in {having.files[0][0]} but not in {window.files[0][0]}: every file must give the "
                "same columns"
            )
    return list(found.values())
