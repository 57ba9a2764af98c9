"""Rows of windows are gathered into columns. Rows are counted here: what is not gathered is not delivered."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pyloader_delta.arrays import OFFSET_LIMIT
from pyloader_delta.columns import column_kind, joined, numbers, shaped
from pyloader_delta.engine.leases import Lease, lent
from pyloader_delta.engine.opening import Gathered, merged_fields
from pyloader_delta.engine.pack import Tray
from pyloader_delta.engine.rows import Picked, taken, values_of
from pyloader_delta.engine.shared import over
from pyloader_delta.engine.slabs import aligned, put
from pyloader_delta.engine.tasks import Segment
from pyloader_delta.engine.wide import as_bytes, is_bytes
from pyloader_delta.engine.window import Where, WindowBlocks
from pyloader_delta.values import Columns


def gather(
    windows: Sequence[WindowBlocks], segments: Sequence[Segment], into: tuple[Tray, bool] | None = None,
    names: Sequence[str] = (), lease: Lease | None = None, *, values_stay: bool = False,
    copied: Collection[str] = (),
) -> Columns:  # fmt: skip
    """Return the rows of some segments, one after the other, in delivery order.

    Args:
        windows: The window of each segment.
        segments: Places in them.
        into: (a tray that is to know of columns of numbers that stay, whether the others are put into it); None where
            all get memory of their own.
        names: Columns to give, in this order; those that no window has are all None. Others of the windows follow.
        lease: Lets columns of numbers stay where they lie in one piece and in order; the tray knows of them then.
        values_stay: Whether that holds for columns of bytes and lists as well: who gets them keeps no view.
        copied: Columns of numbers that who gets them copies at once: read-only views will do, without a lease.
    """
    where = [Where(window, segment) for window, segment in zip(windows, segments, strict=True)]
    plans = [window.gathered(tuple(names)) for window in windows]
    plan = _plan(windows, plans, names)
    n_rows = _counted(where)
    tray, filled = into or (None, False)
    nothing: list[Any] = [None] * len(plan.names)
    there, alone = [nothing for _ in where], nothing
    if n_rows == sum(found.n_rows for found in where):
        there = [found.in_place(own if plan is plans[0] else plan) for found, own in zip(where, plans, strict=True)]
        alone = [_alone(where, name) if d is None else None for name, d in zip(plan.names, plan.dtypes, strict=True)]
    staying = nothing
    if tray is not None and len(where) == 1:
        lends = lease is not None
        staying = [
            rows
            if rows is not None
            and (name in copied or (lends and rows.flags.writeable and (values_stay or not is_bytes(rows, field))))
            else None
            for name, field, rows in zip(plan.names, plan.fields, there[0], strict=True)
        ]
    if tray is not None and filled:
        moving = [d for d, stays in zip(plan.dtypes, staying, strict=True) if d is not None and stays is None]
        sizes = [n_rows * dtype.itemsize for dtype in moving] + [one.size_bytes for one in alone if one is not None]
        if sizes:
            tray.open(sum(map(aligned, sizes)))

    def room(dtype: np.dtype[Any], n: int) -> NDArray[Any]:
        return tray.column(dtype, n) if tray is not None and filled else np.empty(n, dtype)

    arrays: list[Any] = []
    given: list[pa.Field] = []
    each = zip(plan.names, plan.fields, plan.dtypes, staying, alone, zip(*there, strict=True), strict=True)
    for name, field, dtype, stays, one, lying in each:
        whole: Any
        if stays is not None and tray is not None:
            whole = as_bytes(stays, field)
            if lease is not None and name not in copied:
                if whole is stays:
                    whole = tray.keep(lent(stays, lease))
                else:
                    _keep_values(whole, tray, lease, ())
        elif one is not None:
            whole = taken(one.chosen, room(_BYTE, one.size_bytes) if filled else None)
        elif dtype is None:
            parts = [_gathered(found, name) for found in where]
            whole, field = parts[0] if len(parts) == 1 else joined(*zip(*parts, strict=True))
            if tray is not None and lease is not None and values_stay and where[0].is_one_piece(name):
                _keep_values(whole, tray, lease, where[0].window.memories)
        else:
            whole = room(dtype, n_rows)
            _fill(whole, where, name, lying)
            whole = as_bytes(whole, field)
        arrays.append(whole if field.metadata is None or isinstance(whole, list) else shaped(whole, field))
        given.append(field)
    alike = all(a is b or a.equals(b, check_metadata=True) for a, b in zip(given, plan.fields, strict=True))
    return Columns(
        plan.schema if alike else pa.schema(given), arrays, n_rows
    )  # to `==` bytes and pickled values are equal


_BYTE = np.dtype(np.uint8)


class _Alone(NamedTuple):
    """A column whose rows are copied one by one."""

    chosen: list[Picked]
    size_bytes: int


def _alone(where: Sequence[Where], name: str) -> _Alone | None:
    """Return a column so; None where it is gathered otherwise: its rows are short, or stay, or come in whole pieces."""
    if all(isinstance(found.numbers, slice) for found in where):
        if not all(_are_large(found.window.column(name)[0]) for found in where):
            return None
        if len(where) == 1 and where[0].is_together(name):
            return None
    columns = [rows for found in where if (rows := found.window.rows(name)) is not None]
    if len(columns) < len(where) or not all(rows.is_like(columns[0]) for rows in columns):
        return None
    chosen = [rows.picked(found.numbers) for rows, found in zip(columns, where, strict=True)]
    size = sum(picked.size_bytes for picked in chosen)
    return _Alone(chosen, size) if size <= OFFSET_LIMIT else None


def _keep_values(column: Any, tray: Tray, lease: Lease, memories: Sequence[NDArray[np.uint8]]) -> None:
    """Let batches be views of a column of bytes or of lists, where nobody else holds its memory."""
    found = values_of(column) if isinstance(column, pa.Array) else None
    raw = None if found is None else found.values.view(np.uint8)
    if raw is not None and raw.size and (raw.flags.writeable or over(raw, memories) is not None):
        tray.keep_bytes(lent(raw, lease))


def _plan(windows: Sequence[WindowBlocks], plans: Sequence[Gathered], names: Sequence[str]) -> Gathered:
    """Return what columns are when they are gathered from several windows: `names` first, then what else these have.

    It is the first one's plan where they are alike.
    """
    first = plans[0]
    if all(_same(p.dtypes, first.dtypes) and p.schema.equals(first.schema, check_metadata=True) for p in plans[1:]):
        return first
    there = {field.name: field for field in merged_fields([window.fields for window in windows])}
    everything = tuple(dict.fromkeys((*names, *there)))
    fields = [there.get(name) or pa.field(name, pa.null()) for name in everything]
    dtypes = [_dtype(windows, name) for name in everything]
    return Gathered(everything, fields, dtypes, pa.schema(fields))


def _same(one: Sequence[np.dtype[Any] | None], other: Sequence[np.dtype[Any] | None]) -> bool:
    """Return whether columns are of the same dtypes; NumPy takes None for float64, also when it compares."""
    return len(one) == len(other) and all(
        a is b or (a is not None and b is not None and a == b) for a, b in zip(one, other, strict=True)
    )


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


def _fill(whole: NDArray[Any], where: Sequence[Where], name: str, lying: Sequence[NDArray[Any] | None]) -> None:
    start = 0
    for found, there in zip(where, lying, strict=True):
        if there is not None:
            put(whole[start : start + len(there)], there)
            start += len(there)
            continue
        pieces = found.window.column(name)[0] if type(found.numbers) is slice else found.window.numbers(name)
        chosen, place = found.of(name, pieces)
        if len(pieces) == 1 and type(chosen[0][1]) is not slice and len(chosen[0][1]) == len(whole):
            pieces[0].take(chosen[0][1], out=whole, mode="clip")  # all of them are in bounds: there are so many
            return
        if place is not None:
            taken = np.concatenate([pieces[number].take(rows) for number, rows in chosen])
            whole[start : start + found.n_rows] = taken.take(place)
            start += found.n_rows
            continue
        for number, rows in chosen:
            part = pieces[number][rows] if type(rows) is slice else pieces[number].take(rows)
            put(whole[start : start + len(part)], part)
            start += len(part)


def _gathered(found: Where, name: str) -> tuple[Any, pa.Field]:
    """Return some rows of one column of one window, in delivery order, and the field of their blocks."""
    pieces, fields = found.window.column(name)
    chosen, place = found.of(name, pieces)
    if place is not None and len(place) <= _FEW and _are_large([pieces[number] for number, _ in chosen]):
        rows = [(number, int(row)) for number, taken in chosen for row in taken]
        parts = [pieces[rows[i][0]].slice(rows[i][1], 1) for i in place]
        return joined(parts, [fields[rows[i][0]] for i in place])
    parts = [as_bytes(_taken(pieces[number], rows), fields[number]) for number, rows in chosen]
    whole, field = (
        (parts[0], fields[chosen[0][0]]) if len(parts) == 1 else joined(parts, [fields[number] for number, _ in chosen])
    )
    if place is None:
        return whole, field
    if isinstance(whole, list):
        return [whole[i] for i in place], field
    return whole.take(place) if isinstance(whole, np.ndarray) else whole.take(numbers(place)), field


_FEW, _LARGE = 1024, 1 << 16


def _are_large(pieces: Sequence[Any]) -> bool:
    """Return whether values are so large that each is copied alone: joining and then picking would hold them twice."""
    return all(isinstance(piece, pa.Array) and piece.nbytes > _LARGE * len(piece) for piece in pieces)


def _taken(column: Any, rows: Any) -> Any:
    if isinstance(column, np.ndarray):
        return column[rows] if isinstance(rows, slice) else column.take(rows)
    if isinstance(rows, slice):
        return column.slice(rows.start, rows.stop - rows.start)
    return column.take(numbers(rows))
