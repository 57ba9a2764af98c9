"""Rows of windows are gathered into columns. Rows are counted here: what is not gathered is not delivered."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pyloader_delta.columns import FILES, column_kind, joined, opened, shaped
from pyloader_delta.engine.tasks import Segment
from pyloader_delta.errors import ContractError
from pyloader_delta.permute import permuted
from pyloader_delta.values import Columns

Rows = list[tuple[int, Any]]
"""(block, rows inside it: an int64 array, or a slice), together all rows of one segment, grouped by block."""


class WindowBlocks:
    """The blocks of one window as columns, opened once for all runs that gather from it.

    Args:
        blocks: The window's record batches, in order.
        missing_as_none: Whether a column that a block lacks is NULL there; otherwise it is an error.
    """

    def __init__(self, blocks: Sequence[pa.RecordBatch], *, missing_as_none: bool = False) -> None:
        self.blocks = [block for block in blocks if block.num_rows]
        self.starts = np.concatenate(([0], np.cumsum([block.num_rows for block in self.blocks]))).astype(np.int64)
        self.n_rows = int(self.starts[-1])
        self.missing_as_none = missing_as_none
        self.fields = _fields(self.blocks, missing_as_none)
        self._columns: dict[str, tuple[list[Any], list[pa.Field]]] = {}

    def field(self, name: str) -> pa.Field:
        """Return the window's field of that name; a null field where no block has it."""
        return next((field for field in self.fields if field.name == name), pa.field(name, pa.null()))

    def column(self, name: str) -> tuple[list[Any], list[pa.Field]]:
        """Return a column of each block (a NumPy view where `columns.opened` gives one, else Arrow) and its fields."""
        found = self._columns.get(name)
        if found is None:
            pieces, fields = [], []
            for block in self.blocks:
                index = block.schema.get_field_index(name)
                field = pa.field(name, pa.null()) if index < 0 else block.schema.field(index)
                fields.append(field)
                pieces.append(pa.nulls(block.num_rows) if index < 0 else opened(block.column(index), field))
            found = self._columns[name] = pieces, fields
        return found

    def rows(self, segment: Segment) -> tuple[Rows, NDArray[np.int64] | None]:
        """Return where a segment's rows lie, grouped by block, and each row's place in that grouping (None: as is)."""
        if segment.key is None:
            first = int(np.searchsorted(self.starts, segment.start, side="right")) - 1
            found: Rows = []
            for number in range(first, len(self.blocks)):
                start, stop = int(self.starts[number]), int(self.starts[number + 1])
                if start >= segment.stop:
                    break
                found.append((number, slice(max(segment.start - start, 0), min(segment.stop, stop) - start)))
            return found, None
        numbers = permuted(segment.n_rows, segment.key, segment.start, segment.stop)
        if len(self.blocks) == 1:
            return [(0, numbers)], None
        packed = numbers << 24  # sorting (row number, place) as one integer is faster than argsort; a run is < 2**24 rows
        packed |= np.arange(len(numbers))
        packed.sort()
        numbers = packed >> 24
        place = np.empty(len(packed), dtype=np.int64)
        place[packed & 0xFFFFFF] = np.arange(len(packed))
        bounds = np.searchsorted(numbers, self.starts).tolist()
        found = [
            (number, numbers[bounds[number] : bounds[number + 1]] - self.starts[number])
            for number in range(len(self.blocks))
            if bounds[number] < bounds[number + 1]
        ]
        return found, place


def gather(windows: Sequence[WindowBlocks], segments: Sequence[Segment]) -> Columns:
    """Return the rows of some segments, one after the other, in delivery order.

    Args:
        windows: The blocks of each segment's window.
        segments: Places in them.

    Raises:
        ContractError: A block lacks a column that another one has.
    """
    where = [window.rows(segment) for window, segment in zip(windows, segments, strict=True)]
    n_rows = sum(_count(rows) for rows, _ in where)
    fields, arrays = _merged(windows), []
    for field in fields:
        parts = [_gathered(window, field.name, *found) for window, found in zip(windows, where, strict=True)]
        part_fields = [window.field(field.name) for window in windows]
        whole = parts[0] if len(parts) == 1 else joined(parts, part_fields)
        arrays.append(whole if isinstance(whole, list) else shaped(whole, field))
    if len(fields) == 1 and column_kind(fields[0]) == {"kind": "rows"}:
        return Columns(pa.schema([]), [], n_rows)
    return Columns(pa.schema(fields), arrays, n_rows)


def _gathered(window: WindowBlocks, name: str, rows: Rows, place: NDArray[np.int64] | None) -> Any:
    """Return some rows of one column of one window, in delivery order, private to the caller."""
    pieces, fields = window.column(name)
    parts = [_taken(pieces[number], chosen) for number, chosen in rows]
    if place is None and len(parts) == 1:
        part = parts[0]
        return part.copy() if isinstance(part, np.ndarray) and isinstance(rows[0][1], slice) else part
    whole = joined(parts, [fields[number] for number, _ in rows])
    if place is None:
        return whole
    if isinstance(whole, list):
        return [whole[i] for i in place]
    return whole.take(place) if isinstance(whole, np.ndarray) else whole.take(pa.array(place))


def _taken(column: Any, rows: Any) -> Any:
    if isinstance(column, np.ndarray):
        return column[rows] if isinstance(rows, slice) else column.take(rows)
    if isinstance(rows, slice):
        return column.slice(rows.start, rows.stop - rows.start)
    return column.take(pa.array(rows))


def _count(rows: Rows) -> int:
    return sum(chosen.stop - chosen.start if isinstance(chosen, slice) else len(chosen) for _, chosen in rows)


def files(window: WindowBlocks, segment: Segment) -> list[str]:
    """Return the paths of the files that a segment's rows may come from."""
    named: list[tuple[str, int]] = [pair for block in window.blocks for pair in _named(block)]
    if segment.key is not None:
        return list(dict.fromkeys(path for path, _ in named))
    found, row = [], 0
    for path, n_rows in named:
        if row < segment.stop and row + n_rows > segment.start:
            found.append(path)
        row += n_rows
    return list(dict.fromkeys(found))


def _named(block: pa.RecordBatch) -> list[tuple[str, int]]:
    text = (block.schema.metadata or {}).get(FILES)
    return json.loads(text) if text else []


def _fields(blocks: Sequence[pa.RecordBatch], missing_as_none: bool) -> list[pa.Field]:
    """Return the window's fields: those of the first block, and of later ones if `missing_as_none`."""
    fields: dict[str, pa.Field] = {}
    for block in blocks:
        for field in block.schema:
            known = fields.get(field.name)
            if known is None or (pa.types.is_null(known.type) and not pa.types.is_null(field.type)):
                fields[field.name] = field
    if not missing_as_none:
        for block in blocks:
            missing = fields.keys() - set(block.schema.names)
            if missing:
                raise _missing(sorted(missing)[0], block, blocks)
    return list(fields.values())


def _missing(name: str, block: pa.RecordBatch, blocks: Sequence[pa.RecordBatch]) -> ContractError:
    lacking = [path for path, _ in _named(block)]
    having = [path for other in blocks if name in other.schema.names for path, _ in _named(other)]
    return ContractError(
        f"column {name!r} is in {having[0] if having else 'some files'} but not in {lacking[0] if lacking else 'others'}: "
        "every file must give the same columns"
    )


def _merged(windows: Sequence[WindowBlocks]) -> list[pa.Field]:
    fields = windows[0].fields
    if all(window.fields == fields for window in windows[1:]):
        return fields
    blocks = [block for window in windows for block in window.blocks]
    return _fields(blocks, windows[0].missing_as_none)
