"""One epoch: the order of its chunks and the windows they form. The same for any workers, queue and budget."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from pyloader_delta.permute import permuted
from pyloader_delta.plan.mixture import lanes, size_of, spread, together
from pyloader_delta.plan.ranks import Place, share
from pyloader_delta.values import Chunk, WindowSize

WHOLE_OF_WINDOW, PART_OF_WINDOW = 8, 16
"""A row group above an eighth of the window is read in chunks of a sixteenth of it. Part of the order."""


@dataclass(frozen=True, slots=True)
class Order:
    """What fixes the order of an epoch beside the table."""

    shuffle_chunks: bool
    """Permute the order of row groups or files (`DataLoader.shuffle`)."""
    chunk_seed: int
    """Seed of that permutation."""
    shuffle_rows: bool
    """Mix the rows of each window (`DataReader.shuffle`)."""
    row_seed: int
    """Seed of that mixing."""
    window: WindowSize
    """Size of a window; used only where rows are mixed."""


@dataclass(frozen=True, slots=True)
class EpochPlan:
    """The chunks of one epoch in the order in which their rows are delivered."""

    epoch: int
    """0-based."""
    chunks: tuple[Chunk, ...]
    """In order of delivery; a chunk's index here is its position."""
    windows: tuple[range, ...]
    """Positions of each window's chunks; together 0..len(chunks)-1."""
    row_seed: int | None
    """Seed of the mixing inside windows; None where rows stay in order."""
    padded: int = 0
    """Rows that a rank repeats to have as many as the others, 0 or 1; the last row, in a window of its own."""
    first_batch: int = 0
    """Number of the first batch to deliver; those before it were delivered by an earlier process."""
    first_row: int = 0
    """Number of that batch's first row in the epoch."""
    first_window: int = 0
    """The first window to read."""
    max_rows: int | None = None
    """The epoch ends after so many of its rows; None: with the last."""

    @property
    def n_rows(self) -> int | None:
        """Rows of the epoch; None where a chunk's length is unknown before reading."""
        return total_rows(self.chunks)


def total_rows(chunks: Iterable[Chunk]) -> int | None:
    """Return the number of rows of the chunks; None where one is unknown."""
    counts = [chunk.n_rows for chunk in chunks]
    return None if None in counts else sum(n for n in counts if n is not None)


def split(chunks: Iterable[Chunk], max_bytes: int, part_bytes: int | None = None) -> list[list[Chunk]]:
    """Return units of consecutive chunks, one unit a row group or file, no chunk of a row group above `max_bytes`.

    Row groups are cut into runs of equally many rows (the last may be shorter), so each cut is the same everywhere.

    Args:
        chunks: Whole row groups and files.
        max_bytes: Size up to which a row group is left whole.
        part_bytes: Size of the parts of a larger one, at most `max_bytes`; None: the same.
    """
    units = []
    part_bytes = max(max_bytes if part_bytes is None else part_bytes, 1)
    for chunk in chunks:
        n_rows = chunk.n_rows
        parts = min(-(-chunk.size_bytes // part_bytes), n_rows or 1) if chunk.size_bytes > max_bytes else 1
        if chunk.row_group is None or chunk.rows is None or not n_rows or parts <= 1:
            units.append([chunk])
            continue
        step = -(-n_rows // parts)
        rows = [chunk.rows[start : start + step] for start in range(0, n_rows, step)]
        units.append([replace(chunk, rows=part, size_bytes=chunk.size_bytes * len(part) // n_rows) for part in rows])
    return units


def plan_epoch(
    units: Sequence[Sequence[Chunk]],
    order: Order,
    epoch: int,
    place: Place = Place(),  # noqa: B008  # a frozen value
) -> EpochPlan:
    """Return the plan of one epoch, 0-based, over the units of `split`, for one rank."""
    repeated = None
    if order.shuffle_chunks:
        units = [units[i] for i in _unit_order(units, order, epoch)]
    if place.world_size > 1:
        units, repeated = share(units, place)
    if order.shuffle_rows and order.window.unit != "chunk":
        chunks = _interleaved(units, lanes(units, order.window))
    else:
        chunks = [chunk for unit in units for chunk in unit]
    windows = _windows(chunks, order)
    if repeated is not None:
        windows.append(range(len(chunks), len(chunks) + 1))
        chunks.append(repeated)
    row_seed = order.row_seed if order.shuffle_rows else None
    return EpochPlan(epoch, tuple(chunks), tuple(windows), row_seed, 0 if repeated is None else 1)


def _unit_order(units: Sequence[Sequence[Chunk]], order: Order, epoch: int) -> Iterable[int]:
    key = ("chunks", order.chunk_seed, epoch)
    if not order.shuffle_rows or order.window.unit == "chunk":
        return permuted(len(units), key)
    return spread([size_of(unit, order.window) for unit in units], together(units, order.window), key)


def _interleaved(units: Sequence[Sequence[Chunk]], n_lanes: int) -> list[Chunk]:
    waiting = deque(deque(unit) for unit in units)
    opened: deque[deque[Chunk]] = deque()
    chunks = []
    while waiting or opened:
        while waiting and len(opened) < n_lanes:
            opened.append(waiting.popleft())
        unit = opened.popleft()
        chunks.append(unit.popleft())
        if unit:
            opened.append(unit)
        elif waiting:
            opened.append(waiting.popleft())
    return chunks


def _windows(chunks: Sequence[Chunk], order: Order) -> list[range]:
    if not order.shuffle_rows:
        return [range(i, i + 1) for i in range(len(chunks))]
    if order.window.unit == "chunk":
        groups = groupby(range(len(chunks)), key=lambda i: (chunks[i].path, chunks[i].row_group))
        return [range(found[0], found[-1] + 1) for _, members in groups for found in [list(members)]]
    windows = []
    first = size = 0
    for position, chunk in enumerate(chunks):
        size += size_of([chunk], order.window)
        if size >= order.window.amount:
            windows.append(range(first, position + 1))
            first, size = position + 1, 0
    if first < len(chunks):
        windows.append(range(first, len(chunks)))
    return windows
