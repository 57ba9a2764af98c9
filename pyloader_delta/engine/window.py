"""The blocks of one window, opened as columns for all runs that gather from it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pyloader_delta.columns import FILES, column_kind
from pyloader_delta.engine.opening import Described, Gathered, Opening, merged_fields, opening
from pyloader_delta.engine.region import SMALLEST_BYTES, Layout
from pyloader_delta.engine.rows import Rows
from pyloader_delta.engine.tasks import Segment
from pyloader_delta.engine.wide import as_bytes
from pyloader_delta.permute import permuted, places


class WindowBlocks:
    """One window.

    Args:
        blocks: The window's record batches, in order, without the columns that were placed in its region.
        layout: The columns of the window's region, if it has one.
        region: Its arrays by name.
        mixed: Names of those that hold all rows, in delivery order.
        key: Of the permutation of the window's rows, if it has a region.
        own: Whether nobody else holds the blocks' memory.
        memories: Slabs that the blocks lie in, if they do.
    """

    def __init__(
        self,
        blocks: Sequence[pa.RecordBatch],
        *,
        layout: Layout | None = None,
        region: dict[str, NDArray[Any]] | None = None,
        mixed: frozenset[str] = frozenset(),
        key: tuple[int | str, ...] | None = None,
        own: bool = False,
        memories: Sequence[NDArray[np.uint8]] = (),
    ) -> None:
        blocks = [block for block in blocks if block.num_rows]
        self.starts = np.cumsum([0, *(block.num_rows for block in blocks)], dtype=np.int64)
        self.mixed = mixed
        """Names of columns that hold all rows in delivery order."""
        self.files = [pair for block in blocks for pair in _named(block)]
        """(path, rows) of the files that the rows come from, in order."""
        self.memories = memories
        self.own = own
        """Whether nobody else holds the blocks' memory."""
        self.lendable = own or bool(mixed)
        """Whether there may be columns that nobody else holds: batches can be made on their memory."""
        openings = [opening(block.schema) for block in blocks]
        columns = [found.columns(block, own, memories) for found, block in zip(openings, blocks, strict=True)]
        self._whole: dict[str, Any] = {name: region[name] for name in mixed} if region else {}
        self._pieces: dict[str, tuple[list[Any], list[pa.Field]]] = {}  # columns that are not one piece
        if len(blocks) == 1:
            self._whole |= zip(openings[0].names, columns[0], strict=True)
        else:
            self._pieces = _pieces(openings, columns, self.starts, layout, region or {}, key)
        alone = len(blocks) == 1 and layout is None
        self._described = openings[0].described(columns[0]) if alone else self._mixture(openings, layout)
        self.fields = self._described.fields
        self.dtypes: dict[str, np.dtype[Any] | None] = self._described.dtypes
        self._arrays: tuple[Gathered, list[NDArray[Any] | None]] | None = None
        self._rows: dict[str, Rows | None] = {}
        self._order: tuple[Any, NDArray[np.int64]] | None = None

    def _mixture(self, openings: Sequence[Opening], layout: Layout | None) -> Described:
        """Return what columns of several blocks are, or of a region: in the reader's order, first those of the region.

        Those that were asked of the region and are in blocks keep their place.
        """
        there = {f.name: f for f in merged_fields([found.fields for found in openings])}
        asked = {} if layout is None else layout.by_name
        known = [there.get(n, f) for n, f in asked.items() if n in self._whole or n in self._pieces]
        fields = known + [f for name, f in there.items() if name not in asked]
        whole = self._whole
        return Described(
            fields, [_dtype([whole[f.name]], [f]) if f.name in whole else _dtype(*self._pieces[f.name]) for f in fields]
        )

    def gathered(self, names: tuple[str, ...]) -> Gathered:
        """As `Described.gathered` of the window's columns."""
        return self._described.gathered(names)

    def arrays(self, plan: Gathered) -> list[NDArray[Any] | None]:
        """Return each column that is one NumPy array; None for others."""
        if self._arrays is None or self._arrays[0] is not plan:
            found = [self._whole.get(name) for name in plan.names]
            self._arrays = plan, [array if type(array) is np.ndarray else None for array in found]
        return self._arrays[1]

    def column(self, name: str) -> tuple[list[Any], list[pa.Field]]:
        """Return a column and its fields: of the whole window (one piece), or of each block.

        A piece is a NumPy view where `columns.opened` gives one, else an Arrow array.
        """
        if name in self._whole:
            return [self._whole[name]], [self.field(name)]
        found = self._pieces.get(name)
        if found is None:
            nulls = pa.field(name, pa.null())
            n_blocks = len(self.starts) - 1
            found = [pa.nulls(int(n)) for n in np.diff(self.starts)], [nulls] * n_blocks
        return found

    def numbers(self, name: str) -> list[NDArray[Any]]:
        """Return the pieces of a column of numbers; one, once they are joined, where all such columns are small.

        Rows that are mixed would be taken from each block otherwise, for each run.
        """
        pieces = self.column(name)[0]
        if len(pieces) > 1 and self._is_small:
            pieces = [np.concatenate(pieces)]
            self._whole[name] = pieces[0]
            self._pieces.pop(name, None)  # another thread may have done so
        return pieces

    @cached_property
    def _is_small(self) -> bool:
        widths = sum(dtype.itemsize for dtype in self.dtypes.values() if dtype is not None)
        return int(self.starts[-1]) * widths <= SMALLEST_BYTES

    def rows(self, name: str) -> Rows | None:
        """Return a column for rows to be copied out of it one by one; None where Arrow is to take them."""
        if name not in self._rows:
            self._rows[name] = Rows.of(*self.column(name))
        return self._rows[name]

    def order(self, segment: Segment) -> NDArray[np.int64]:
        """Return numbers of the rows of a segment that is mixed; a small window's all at once, for its other runs."""
        if segment.n_rows > _SMALL:
            return permuted(segment.n_rows, segment.key or (), segment.start, segment.stop)
        known = self._order
        if known is None or known[0] != (segment.n_rows, segment.key):
            known = self._order = (segment.n_rows, segment.key), permuted(segment.n_rows, segment.key or ())
        return known[1][segment.start : segment.stop]

    def field(self, name: str) -> pa.Field:
        """Return the window's field of that name; a null field where no block has it."""
        return self._described.field(name)

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


_SMALL = 1 << 16  # rows: a part of an order costs as much as ten times as many rows of the whole, in steps of NumPy's


class Where:
    """The rows of one segment: their numbers in the window, and where they lie in its blocks."""

    def __init__(self, window: WindowBlocks, segment: Segment) -> None:
        self.window = window
        self.n_rows = segment.stop - segment.start
        self._segment = segment
        self._places = slice(segment.start, segment.stop)
        self._in_place: tuple[list[tuple[int, Any]], None] = [(0, self._places)], None

    @property
    def n_there(self) -> int:
        """Rows that the segment really has in the window."""
        there = int(self.window.starts[-1])
        if self._segment.key is not None:
            return self.n_rows if there == self._segment.n_rows else 0
        return max(min(self._segment.stop, there) - self._segment.start, 0)

    @cached_property
    def numbers(self) -> NDArray[np.int64] | slice:
        """Numbers in the window of the segment's rows."""
        return self._places if self._segment.key is None else self.window.order(self._segment)

    def of(self, name: str, pieces: list[Any]) -> tuple[list[tuple[int, Any]], NDArray[np.int64] | None]:
        """Return (piece, rows inside it) for each piece that has some, and each row's place among them if not as is."""
        if name in self.window.mixed:
            return self._in_place
        return ([(0, self.numbers)], None) if len(pieces) == 1 else self._grouped

    def in_place(self, plan: Gathered) -> list[NDArray[Any] | None]:
        """Return the rows of each column of numbers where they lie, if they do in order and in one array."""
        mixed = None if self._segment.key is None else self.window.mixed
        return [
            None
            if dtype is None or (mixed is not None and name not in mixed)
            else self._in_a_piece(name)
            if array is None
            else array[self._places]
            for name, dtype, array in zip(plan.names, plan.dtypes, self.window.arrays(plan), strict=True)
        ]

    def _in_a_piece(self, name: str) -> NDArray[Any] | None:
        found = self._together(name)
        return found[0][found[1]] if found is not None and type(found[0]) is np.ndarray else None

    def is_one_piece(self, name: str) -> bool:
        """Return whether the rows of a column of a block lie in order, in one piece and in memory of our own."""
        return self.window.own and self.is_together(name)

    def is_together(self, name: str) -> bool:
        """Return whether the rows of a column lie in order, in one piece."""
        return self._together(name) is not None

    def _together(self, name: str) -> tuple[Any, slice] | None:
        """Return the one piece that the rows of a column lie in, in order, and which of it they are."""
        pieces = self.window.column(name)[0]
        chosen, place = self.of(name, pieces)
        if place is not None or len(chosen) != 1 or type(chosen[0][1]) is not slice:
            return None
        number, rows = chosen[0]
        return pieces[number], rows

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
        if len(numbers) >= 1 << 24:
            order = np.argsort(numbers, kind="stable")
            return _by_block(numbers[order], order, starts)
        packed = numbers << 24  # (row, place) sorted as one integer, faster than argsort; a run has < 2**24 rows
        packed |= np.arange(len(numbers))
        packed.sort()
        return _by_block(packed >> 24, packed & 0xFFFFFF, starts)


def _by_block(
    numbers: NDArray[np.int64], order: NDArray[np.int64], starts: NDArray[np.int64]
) -> tuple[list[tuple[int, Any]], NDArray[np.int64]]:
    """Return (block, rows inside it) of ascending row numbers, and where each of them goes by `order`."""
    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.arange(len(order))
    bounds = np.searchsorted(numbers, starts).tolist()
    chosen = [
        (number, numbers[bounds[number] : bounds[number + 1]] - starts[number])
        for number in range(len(starts) - 1)
        if bounds[number] < bounds[number + 1]
    ]
    return chosen, place


def _named(block: pa.RecordBatch) -> list[tuple[str, int]]:
    text = (block.schema.metadata or {}).get(FILES)
    return json.loads(text) if text else []


def _pieces(
    openings: Sequence[Opening],
    columns: Sequence[Sequence[Any]],
    starts: NDArray[np.int64],
    layout: Layout | None,
    region: dict[str, NDArray[Any]],
    key: tuple[int | str, ...] | None,
) -> dict[str, tuple[list[Any], list[pa.Field]]]:
    """Return each column of several blocks, of the region where a block's rows were placed there."""
    asked = {} if layout is None else layout.by_name
    order = key if layout is not None and layout.is_in_order else None
    blocks = [
        {f.name: (f, piece) for f, piece in zip(found.fields, pieces, strict=True)}
        for found, pieces in zip(openings, columns, strict=True)
    ]
    made: dict[str, tuple[list[Any], list[pa.Field]]] = {}
    for name in dict.fromkeys(name for block in blocks for name in block):
        pieces, fields = made[name] = [], []
        for number, block in enumerate(blocks):
            start, stop = starts[number : number + 2].tolist()
            if name in block:
                field, piece = block[name]
            elif name in region:
                field = asked[name]
                piece = as_bytes(_placed(region[name], start, stop, order), field)
            else:
                field, piece = pa.field(name, pa.null()), pa.nulls(stop - start)
            pieces.append(piece)
            fields.append(field)
    return made


def _placed(whole: NDArray[Any], start: int, stop: int, order: tuple[int | str, ...] | None) -> NDArray[Any]:
    """Return a block's rows of a column of a region where other blocks' rows are not; `order`: as it is filled."""
    if order is None:
        return whole[start:stop]
    found: NDArray[Any] = whole.take(places(len(whole), order, start, stop))
    return found


def _dtype(pieces: list[Any], fields: list[pa.Field]) -> np.dtype[Any] | None:
    """Return the dtype of pieces that one array can hold as they are, else None."""
    if not pieces or not all(type(piece) is np.ndarray for piece in pieces):
        return None
    dtype: np.dtype[Any] = pieces[0].dtype
    if len(pieces) == 1:
        return dtype
    if any(piece.dtype != dtype for piece in pieces):
        return None
    kind = column_kind(fields[0])
    return dtype if all(column_kind(field) == kind for field in fields[1:]) else None
