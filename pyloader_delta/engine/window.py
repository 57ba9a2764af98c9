"""The blocks of one window, opened as columns for all runs that gather from it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pyloader_delta.columns import FILES, column_kind, opened
from pyloader_delta.engine.tasks import Segment
from pyloader_delta.errors import ContractError
from pyloader_delta.permute import permuted


class WindowBlocks:
    """One window.

    Args:
        blocks: The window's record batches, in order.
        missing_as_none: Whether a column that a block lacks is NULL there; otherwise it is an error.
        join: Make each column of numbers one array. The blocks can be dropped then: taking scattered rows from one
            array costs less than half of taking them block by block.
    """

    def __init__(self, blocks: Sequence[pa.RecordBatch], *, missing_as_none: bool = False, join: bool = False) -> None:
        blocks = [block for block in blocks if block.num_rows]
        self.starts = np.concatenate(([0], np.cumsum([block.num_rows for block in blocks]))).astype(np.int64)
        self.missing_as_none = missing_as_none
        self.files = [pair for block in blocks for pair in _named(block)]
        """(path, rows) of the files that the rows come from, in order."""
        self.fields = merged_fields(blocks, missing_as_none)
        self._pieces: dict[str, tuple[list[Any], list[pa.Field]]] = {f.name: _pieces(blocks, f.name) for f in self.fields}
        if join and len(blocks) > 1:
            for name, (pieces, fields) in self._pieces.items():
                if _alike(pieces, fields):
                    self._pieces[name] = [np.concatenate(pieces)], fields[:1]

    def column(self, name: str) -> tuple[list[Any], list[pa.Field]]:
        """Return a column and its fields: of the whole window (one piece), or of each block.

        A piece is a NumPy view where `columns.opened` gives one, else an Arrow array.
        """
        found = self._pieces.get(name)
        if found is None:
            nulls = pa.field(name, pa.null())
            n_blocks = len(self.starts) - 1
            found = [pa.nulls(int(n)) for n in np.diff(self.starts)], [nulls] * n_blocks
        return found

    def field(self, name: str) -> pa.Field:
        """Return the window's field of that name; a null field where no block has it."""
        return next((field for field in self.fields if field.name == name), pa.field(name, pa.null()))

    def files_of(self, segment: Segment) -> list[str]:
        """Return the paths of the files that a segment's rows may come from."""
        if segment.key is not None:
            return list(dict.fromkeys(path for path, _ in self.files))
        found, row = [], 0
        for path, n_rows in self.files:
            if row < segment.stop and row + n_rows > segment.start:
                found.append(path)
            row += n_rows
        return list(dict.fromkeys(found))


class Where:
    """The rows of one segment: their numbers in the window, and where they lie in its blocks."""

    def __init__(self, window: WindowBlocks, segment: Segment) -> None:
        self.window = window
        self.n_rows = segment.stop - segment.start
        self.numbers: NDArray[np.int64] | slice = (
            slice(segment.start, segment.stop)
            if segment.key is None
            else permuted(segment.n_rows, segment.key, segment.start, segment.stop)
        )

    def of(self, pieces: list[Any]) -> tuple[list[tuple[int, Any]], NDArray[np.int64] | None]:
        """Return (piece, rows inside it) for each piece that has some, and each row's place among them (None: as is)."""
        return ([(0, self.numbers)], None) if len(pieces) == 1 else self._grouped

    @cached_property
    def _grouped(self) -> tuple[list[tuple[int, Any]], NDArray[np.int64] | None]:
        starts, numbers = self.window.starts, self.numbers
        if isinstance(numbers, slice):
            found: list[tuple[int, Any]] = []
            for number in range(int(np.searchsorted(starts, numbers.start, side="right")) - 1, len(starts) - 1):
                start, stop = int(starts[number]), int(starts[number + 1])
                if start >= numbers.stop:
                    break
                found.append((number, slice(max(numbers.start - start, 0), min(numbers.stop, stop) - start)))
            return found, None
        packed = numbers << 24  # (row, place) sorted as one integer, faster than argsort; a run has < 2**24 rows
        packed |= np.arange(len(numbers))
        packed.sort()
        sorted_numbers = packed >> 24
        place = np.empty(len(packed), dtype=np.int64)
        place[packed & 0xFFFFFF] = np.arange(len(packed))
        bounds = np.searchsorted(sorted_numbers, starts).tolist()
        chosen = [
            (number, sorted_numbers[bounds[number] : bounds[number + 1]] - starts[number])
            for number in range(len(starts) - 1)
            if bounds[number] < bounds[number + 1]
        ]
        return chosen, place


def merged_fields(blocks: Sequence[pa.RecordBatch], missing_as_none: bool) -> list[pa.Field]:
    """Return one field a column of any block, of the first block where it is not all null.

    Raises:
        ContractError: A block lacks a column that another one has; not if `missing_as_none`.
    """
    fields: dict[str, pa.Field] = {}
    for block in blocks:
        for field in block.schema:
            known = fields.get(field.name)
            if known is None or (pa.types.is_null(known.type) and not pa.types.is_null(field.type)):
                fields[field.name] = field
    for block in () if missing_as_none else blocks:
        missing = fields.keys() - set(block.schema.names)
        if missing:
            name = sorted(missing)[0]
            lacking = [path for path, _ in _named(block)]
            having = [path for other in blocks if name in other.schema.names for path, _ in _named(other)]
            raise ContractError(
                f"column {name!r} is in {having[0] if having else 'some files'} but not in "
                f"{lacking[0] if lacking else 'others'}: every file must give the same columns"
            )
    return list(fields.values())


def _named(block: pa.RecordBatch) -> list[tuple[str, int]]:
    text = (block.schema.metadata or {}).get(FILES)
    return json.loads(text) if text else []


def _pieces(blocks: Sequence[pa.RecordBatch], name: str) -> tuple[list[Any], list[pa.Field]]:
    pieces, fields = [], []
    for block in blocks:
        index = block.schema.get_field_index(name)
        field = pa.field(name, pa.null()) if index < 0 else block.schema.field(index)
        fields.append(field)
        pieces.append(pa.nulls(block.num_rows) if index < 0 else opened(block.column(index), field))
    return pieces, fields


def _alike(pieces: list[Any], fields: list[pa.Field]) -> bool:
    """Return whether pieces are arrays that one array can hold as they are."""
    kinds = [column_kind(field) for field in fields]
    return (
        all(isinstance(piece, np.ndarray) for piece in pieces)
        and all(piece.dtype == pieces[0].dtype for piece in pieces)
        and all(kind == kinds[0] for kind in kinds)
    )
