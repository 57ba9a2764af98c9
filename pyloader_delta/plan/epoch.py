"""One epoch: the order of its chunks and the windows they form. The same for any workers, queue and budget."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby

from pyloader_delta.permute import permuted
from pyloader_delta.plan.mixture import lanes, size_of, spread, together
from pyloader_delta.plan.ranks import Piece, Place, Remnant, rows_in, share
from pyloader_delta.values import Chunk, Rest, WindowSize

WHOLE_OF_WINDOW, PART_OF_WINDOW = 8, 16
"""A row group above an eighth of the window is read in chunks of a sixteenth of it. Part of the order."""
UNIT_BYTES = 16 << 20
"""Where rows keep their order, neighbouring row groups up to this decoded size together are one unit. It decides what
is encoded together, so it is part of what random augmentations give."""
UNIT_FILES = 32
"""Files that are one unit at most: the first batch waits until they are opened."""


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
    full: bool = False
    """Whether the chunks are buckets of a full shuffle."""
    window_bytes: int = 0
    """Up to what size whole row groups of one unit are one window, where rows keep their order. Neither order nor units
    depend on it."""
    joins_files: bool = False
    """Whether neighbouring files may be one unit: all have the same columns."""


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
    units: tuple[int, ...]
    """Number of each window's unit, ascending. Batches are encoded together that lie in one unit, or that each lie in
    several: a unit is a window that is mixed, else some neighbouring row groups, or a file."""
    padded: int = 0
    """Rows that a rank repeats to have as many as the others, 0 or 1; the last row, in a window of its own."""
    first_batch: int = 0
    """Number of the first batch to deliver; those before it were delivered by an earlier process."""
    first_row: int = 0
    """Number of that batch's first row in the epoch."""
    first_window: int = 0
    """The first window to read."""
    first_window_row: int | None = None
    """Number of its first row, where lengths are unknown and a state tells it."""
    max_rows: int | None = None
    """The epoch ends after so many of its rows; None: with the last."""
    origin: int = 0
    """Added to numbers of rows and batches, it makes them distinct over all ranks and restarts: chance is keyed so."""
    rests: Mapping[int, Rest] = field(default_factory=dict)
    """Windows of which only some places are left, by their numbers."""
    group: int | None = None
    """Batches that may be encoded together; None: as many as the pass says."""
    left_out: int = 0
    """Rows that no rank delivers."""
    files: Mapping[str, int] | None = None
    """Rows by file, where the chunks are no files' own."""

    @property
    def n_rows(self) -> int | None:
        """Rows of the epoch; None where a chunk's length is unknown before reading."""
        n_rows = total_rows(self.chunks)
        if n_rows is None:
            return None
        return n_rows - sum((self._held(n) or 0) - (rest.stop - rest.start) for n, rest in self.rests.items())

    def rows_of(self, window: int) -> int | None:
        """Return how many rows of a window are delivered; None where unknown before reading."""
        rest = self.rests.get(window)
        return self._held(window) if rest is None else rest.stop - rest.start

    def _held(self, window: int) -> int | None:
        span = self.windows[window]
        return total_rows(self.chunks[span.start : span.stop])


def total_rows(chunks: Iterable[Chunk]) -> int | None:
    """Return the number of rows of the chunks; None where one is unknown."""
    counts = [chunk.n_rows for chunk in chunks]
    return None if None in counts else sum(n for n in counts if n is not None)


def split(chunks: Iterable[Chunk], max_bytes: int, part_bytes: int | None = None) -> list[list[Chunk]]:
    """Return the parts of each row group or file, one list each, no chunk of a row group above `max_bytes`.

    Row groups are cut into runs of equally many rows (the last may be shorter), so each cut is the same everywhere.
    The sizes of the parts add up to that of the whole.

    Args:
        chunks: Whole row groups and files.
        max_bytes: Size up to which a row group is left whole.
        part_bytes: Size of the parts of a larger one, at most `max_bytes`; None: the same.
    """
    found = []
    part_bytes = max(max_bytes if part_bytes is None else part_bytes, 1)
    for chunk in chunks:
        n_rows = chunk.n_rows
        parts = min(-(-chunk.size_bytes // part_bytes), n_rows or 1) if chunk.size_bytes > max_bytes else 1
        if chunk.row_group is None or chunk.rows is None or not n_rows or parts <= 1:
            found.append([chunk])
            continue
        step, size = -(-n_rows // parts), chunk.size_bytes
        bounds = [(start, min(start + step, n_rows)) for start in range(0, n_rows, step)]
        found.append(
            [
                replace(chunk, rows=chunk.rows[start:stop], size_bytes=size * stop // n_rows - size * start // n_rows)
                for start, stop in bounds
            ]
        )
    return found


def plan_epoch(
    parts: Sequence[Sequence[Chunk]],
    order: Order,
    epoch: int,
    place: Place = Place(),  # noqa: B008  # a frozen value
) -> EpochPlan:
    """Return the plan of one epoch, 0-based, over the parts that `split` gives, for one rank."""
    return plan_share(ordered(parts, order, epoch), order, epoch, place)


def ordered(parts: Sequence[Sequence[Chunk]], order: Order, epoch: int) -> Sequence[Sequence[Chunk]]:
    """Return the units in the epoch's order, which ranks share: the parts of row groups, neighbours as one."""
    if order.shuffle_chunks:
        parts = [parts[i] for i in _unit_order(parts, order, epoch)]
    if order.shuffle_rows:
        return parts
    units = _units(parts)
    return _joined(units) if order.joins_files else units


def _units(parts: Sequence[Sequence[Chunk]]) -> list[list[Chunk]]:
    """Return neighbouring row groups of one file as units; a file of another format, or of unknown length, is one."""
    units: list[list[Chunk]] = []
    for path, run in groupby(parts, key=lambda chunks: chunks[0].path if _joins(chunks) else None):
        if path is None:
            units += map(list, run)
        else:
            units += _even(list(run))
    return units


def _joined(units: Sequence[list[Chunk]]) -> list[list[Chunk]]:
    """Return the units of files with small neighbours as one."""
    found: list[list[Chunk]] = []
    room = n_left = 0
    for unit in units:
        size = sum(chunk.size_bytes for chunk in unit) if _joins(unit) else UNIT_BYTES  # however they are read
        if n_left and size <= room:
            found[-1] += unit
        else:
            found.append(unit)
            room, n_left = UNIT_BYTES, UNIT_FILES
        room, n_left = room - size, n_left - 1
    return found


def _joins(chunks: Sequence[Chunk]) -> bool:
    return all(chunk.row_group is not None and chunk.rows is not None for chunk in chunks)


def _even(parts: Sequence[Sequence[Chunk]]) -> list[list[Chunk]]:
    """Return the row groups of a file as units: as few as their size allows, about equally large."""
    sizes = [sum(chunk.size_bytes for chunk in chunks) for chunks in parts]
    n_units, room = 0, -1
    for size in sizes:
        n_units, room = (n_units, room - size) if size <= room else (n_units + 1, UNIT_BYTES - size)
    bounds = [sum(sizes) * number / n_units for number in range(n_units)]
    units: list[list[Chunk]] = []
    end = 0
    for chunks, size in zip(parts, sizes, strict=True):
        if not units or (len(units) < n_units and end + size / 2 > bounds[len(units)]):
            units.append([])
        units[-1] += chunks
        end += size
    return units


def plan_share(pieces: Sequence[Piece], order: Order, epoch: int, place: Place, origin: int = 0) -> EpochPlan:
    """Return a rank's plan of what is left of an epoch.

    Args:
        pieces: What is left, in order.
        order: The order's seeds and windows.
        epoch: 0-based.
        place: The rank.
        origin: Numbers below it were used for rows of the epoch by earlier processes.
    """
    repeated, left_out = None, 0
    if place.world_size > 1:
        n_rows = sum(map(rows_in, pieces))
        pieces, repeated = share(pieces, place)
        origin, left_out = origin + place.rank * place.steps(n_rows), place.left_out(n_rows)
    chunks, windows, units, rests = lay_out(pieces, order)
    if repeated is not None:
        windows.append(range(len(chunks), len(chunks) + 1))
        units.append(units[-1] + 1 if units else 0)
        chunks.append(repeated)
    return EpochPlan(
        epoch,
        tuple(chunks),
        tuple(windows),
        order.row_seed if order.shuffle_rows else None,
        tuple(units),
        0 if repeated is None else 1,
        origin=origin,
        rests=rests,
        left_out=left_out,
    )


def lay_out(pieces: Iterable[Piece], order: Order) -> tuple[list[Chunk], list[range], list[int], dict[int, Rest]]:
    """Return the chunks of a share in order of delivery, its windows, their units, and which are left in part."""
    chunks: list[Chunk] = []
    windows: list[range] = []
    units: list[int] = []
    rests: dict[int, Rest] = {}
    for kind, run in groupby(pieces, key=lambda piece: isinstance(piece, Remnant)):
        if kind:
            for piece in run:
                assert isinstance(piece, Remnant)
                rests[len(windows)] = piece.rest
                units.append(units[-1] + 1 if units else 0)
                windows.append(range(len(chunks), len(chunks) + len(piece.chunks)))
                chunks += piece.chunks
            continue
        whole = [piece for piece in run if not isinstance(piece, Remnant)]
        found, own, numbers = _mixed(whole, order) if order.shuffle_rows else _in_order(whole, order.window_bytes)
        windows += [range(w.start + len(chunks), w.stop + len(chunks)) for w in own]
        first = units[-1] + 1 if units else 0
        units += [first + number for number in numbers]
        chunks += found
    return chunks, windows, units, rests


def _mixed(parts: Sequence[Sequence[Chunk]], order: Order) -> tuple[list[Chunk], list[range], Iterable[int]]:
    """Return chunks, windows and the unit of each window, where rows are mixed."""
    if order.window.unit != "chunk":
        chunks = _interleaved(parts, lanes(parts, order.window))
    else:
        chunks = [chunk for part in parts for chunk in part]
    windows = _windows(chunks, order)
    for window in windows:  # mixed, they are in no order: row groups of one file can be read together
        chunks[window.start : window.stop] = sorted(chunks[window.start : window.stop], key=_place_in_table)
    return chunks, windows, range(len(windows))


def _place_in_table(chunk: Chunk) -> tuple[str, int, int]:
    return chunk.path, chunk.row_group or 0, 0 if chunk.rows is None else chunk.rows.start


def _in_order(units: Sequence[Sequence[Chunk]], window_bytes: int) -> tuple[list[Chunk], list[range], Iterable[int]]:
    """Return the same where rows keep their order: whole row groups of a unit share a window, a part has its own."""
    chunks: list[Chunk] = []
    windows: list[range] = []
    numbers: list[int] = []
    for number, unit in enumerate(units):
        room = -1
        for chunk in unit:
            position = len(chunks)
            chunks.append(chunk)
            whole = chunk.is_whole_row_group
            if whole and chunk.size_bytes <= room:
                windows[-1] = range(windows[-1].start, position + 1)
                room -= chunk.size_bytes
            else:
                windows.append(range(position, position + 1))
                numbers.append(number)
                room = window_bytes - chunk.size_bytes if whole else -1
    return chunks, windows, numbers


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
