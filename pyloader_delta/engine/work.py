"""What a worker does with a task, the same in the caller's thread, in a thread and in a process."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import cycle, groupby
from operator import itemgetter
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pyloader_delta.engine.blocks import Blocks, compacted, named_blocks
from pyloader_delta.engine.gather import gather
from pyloader_delta.engine.kinds import file_types
from pyloader_delta.engine.leases import Lease
from pyloader_delta.engine.notes import Notes
from pyloader_delta.engine.numbered import numbered, taken_off
from pyloader_delta.engine.pack import EMPTY, Packed, Part, Tray
from pyloader_delta.engine.region import Layout, Scratch
from pyloader_delta.engine.tasks import ReadTask, RunTask, Segment
from pyloader_delta.engine.tree import take_apart
from pyloader_delta.engine.window import WindowBlocks
from pyloader_delta.errors import IncompleteEpochError, ReadError
from pyloader_delta.memory import keep_freed
from pyloader_delta.values import Chunk, Columns, Group, Others


class StagesLike(Protocol):
    """The user's three objects as the engine calls them."""

    @property
    def numbered(self) -> bool:
        """Whether each row is to be followed by its number in its file."""

    careful: bool
    """Whether what may end the process is to be tried in a child first; only where rows may be skipped."""
    skipped: list[tuple[int, str]]
    """(row, error) of the rows that the last `batches` has skipped."""
    encode_seconds: float
    """Time that encoding has taken so far."""

    @property
    def passes_numbers(self) -> bool:
        """Whether `batches` may hand gathered columns of numbers on: they are gathered to where batches are packed."""

    @property
    def owns_blocks(self) -> bool:
        """Whether nobody else holds the memory of what `read` gives."""

    @property
    def keeps_nothing(self) -> bool:
        """Whether what gets gathered columns keeps no view of them: it is no code of the user's."""

    @property
    def copied(self) -> Collection[str]:
        """Columns that what gets them copies at once, if it is no code of the user's."""

    def open(self) -> None: ...
    def close(self) -> None: ...
    @property
    def lends(self) -> bool:
        """Whether batches of worker processes may stay where their windows lie: those can be read again, the same."""

    def together(self, chunks: Sequence[Chunk]) -> list[list[Chunk]]:
        """Return chunks in runs that `read_run` reads at once."""

    def read_run(self, chunks: Sequence[Chunk], *, apart: bool = False) -> list[pa.RecordBatch]: ...
    def keep_cursors(self, kept: Collection[tuple[str, int]]) -> None:
        """Close cursors in row groups other than these, given as (path, row group)."""

    def read(self, chunk: Chunk) -> list[pa.RecordBatch]: ...
    def row_numbers(self, chunk: Chunk, n_rows: int) -> NDArray[np.int64]: ...
    def batches(
        self, columns: Columns, epoch: int, first_batch: int, batch_rows: Sequence[int], groups: Sequence[int],
        others: Others | None = None,
    ) -> Iterator[Any]: ...  # fmt: skip


@dataclass(frozen=True, slots=True)
class Made:
    """What came of a run task: batches, and the error that ended them before their end."""

    packed: Packed
    seconds: float
    error: BaseException | None


_LARGE_ROW = 1 << 20
"""Bytes of a row from which on memory is given back at once: Arrow keeps each worker's high-water mark. With smaller
rows what is kept is used again by the next read, and new pages would cost time."""


class Workshop:
    """One worker's copy of the user's objects, opened at the first task."""

    def __init__(self, stages: StagesLike) -> None:
        self._stages = stages
        self._opened = self._large = False
        self.scratch = Scratch()

    def read(self, task: ReadTask, region: tuple[Layout, dict[str, NDArray[Any]]] | None = None) -> Blocks:
        """Read the chunks of a task into as few blocks as their types allow, and what is possible into a region."""
        self._open()
        self._stages.keep_cursors(task.cursors)
        made = Blocks(task, region)
        schemas: list[tuple[str, pa.Schema]] = []
        position = task.positions.start
        for chunks in self._stages.together(task.chunks):
            if task.instead is None:
                batches = self._stages.read_run(chunks, apart=region is not None)
            else:
                batches = self._stood_in(task.instead, chunks[0])
            schemas += [(chunks[0].path, batch.schema) for batch in batches if batch.num_rows]
            if self._stages.numbered:
                codes = self._stages.row_numbers(chunks[0], sum(batch.num_rows for batch in batches))
                batches = numbered(batches, position, codes, filler=task.instead is not None)
            made.add(batches, chunks)
            del batches  # of those that were placed, the next read uses the memory again
            position += len(chunks)
            self._large = self._large or any(chunk.size_bytes > (chunk.n_rows or 1) * _LARGE_ROW for chunk in chunks)
        self._release()
        made.end(file_types(schemas))
        return made

    def _stood_in(self, candidates: Sequence[Chunk], chunk: Chunk) -> list[pa.RecordBatch]:
        """Return as many rows of another chunk as a chunk has that cannot be read."""
        for other in candidates:
            try:
                found = [batch for batch in self._stages.read(other) if batch.num_rows]
            except Exception:
                continue
            if found:
                return repeated(found, chunk.n_rows or 0)
        if chunk.n_rows is None:
            return []
        others = f"nor can the {len(candidates)} chunks after it" if candidates else "and there is no other chunk"
        raise ReadError(f"{chunk} cannot be read, {others}: no rows can stand in for it (on_error='skip')")

    def again(self, task: RunTask) -> list[WindowBlocks]:
        """Read the windows of a run that a worker has died of once more, into memory of this worker's own."""
        self._open()
        windows = []
        for chunks in task.again:
            runs = self._stages.together(chunks)
            found = [batch for run in runs for batch in named_blocks(self._stages.read_run(run), run)]
            windows.append(WindowBlocks(compacted(found)))
        return windows

    def run(
        self, task: RunTask, windows: Sequence[WindowBlocks], tray: Tray, leases: Sequence[Lease | None] | None = None
    ) -> Made:
        """Gather, encode and collate the batches of a task, and pack them into a tray, or leave them in the windows.

        Args:
            leases: On each of the windows; None for one where nothing may stay, or for all of them.
        """
        self._open()
        self._release()
        started = time.perf_counter()
        parts: list[Part] = []
        problem: BaseException | None = None
        columns: Columns | None = None
        batch: Any = None
        numbers: list[NDArray[np.int64]] = []
        skipped: list[tuple[int, str]] = []
        kept: dict[Chunk, WindowBlocks] = {}
        made = 0
        gathering, encoded = 0.0, self._stages.encode_seconds
        try:
            pieces = _pieces(task, windows, leases or [None] * len(windows))
            self._stages.careful = task.careful
            for piece in pieces:
                began = time.perf_counter()
                into = (tray, len(pieces) == 1) if self._stages.passes_numbers else None
                columns = gather(
                    piece.windows,
                    piece.segments,
                    into,
                    piece.segments[-1].columns,
                    piece.lease,
                    values_stay=self._stages.keeps_nothing,
                    copied=self._stages.copied,
                )
                if columns.n_rows != sum(piece.batch_rows):
                    raise IncompleteEpochError(
                        f"{task}: {sum(piece.batch_rows)} rows were planned, {columns.n_rows} were gathered"
                    )
                gathering += time.perf_counter() - began
                if self._stages.numbered:
                    columns, codes = taken_off(columns)
                    numbers.append(codes)
                first = task.origin + task.first_batch + piece.first
                others = partial(self._others, kept, piece.segments)
                try:
                    for batch in self._stages.batches(
                        columns, task.epoch, first, piece.batch_rows, piece.groups, others
                    ):
                        parts.append(_part(batch))
                        made += len(batch.rows) if isinstance(batch, Group) else 1
                        if made < len(task.batch_rows) and not self._stages.keeps_nothing:
                            parts[-1].arrays[:] = tray.own(parts[-1].arrays)
                finally:
                    before = sum(map(len, numbers[:-1]))
                    skipped += [(before + row, text) for row, text in self._stages.skipped]
        except BaseException as error:
            add_place(error, task, windows, made)
            problem = error
        encoding = self._stages.encode_seconds - encoded
        collating = time.perf_counter() - started - gathering - encoding
        packed = tray.pack(parts) if parts else EMPTY
        parts.clear()
        columns = batch = None
        packed = tray.leave(packed)
        rows = np.concatenate(numbers) if numbers else None
        packed = replace(packed, notes=Notes(rows, tuple(skipped), (gathering, encoding, collating)))
        return Made(packed, time.perf_counter() - started, problem)

    def _others(
        self, kept: dict[Chunk, WindowBlocks], segments: Sequence[Segment], row: int, most: int
    ) -> Iterator[Columns]:
        """Yield rows of the chunks that may stand in for a batch which ends with a row of the segments.

        Args:
            kept: The chunk that was read last, for the next batch that none of its own rows can be in.
            segments: Those of what is encoded.
            row: A row of them.
            most: Rows of each chunk, at most.
        """
        segment = next(s for s in within(segments, row, 1) if s is not None)
        for chunk in segment.instead:
            if chunk not in kept:
                kept.clear()
                try:
                    kept[chunk] = WindowBlocks(compacted(named_blocks(self._stages.read(chunk), [chunk])))
                except Exception:
                    continue
            n_rows = int(kept[chunk].starts[-1])
            if n_rows:
                some = replace(segment, n_rows=n_rows, start=0, stop=min(n_rows, most), key=None)
                yield gather([kept[chunk]], [some], None, segment.columns)

    def close(self) -> None:
        """Close the user's objects if they were opened."""
        if self._opened:
            self._opened = False
            self._stages.close()

    @property
    def owns_blocks(self) -> bool:
        """Whether batches may be made on the memory of blocks: nobody else holds it, and the batches get it."""
        return self._stages.owns_blocks and self._stages.passes_numbers

    @property
    def lends(self) -> bool:
        """As `StagesLike.lends`."""
        return self._stages.lends

    def _release(self) -> None:
        """Give memory that Arrow has freed and keeps back to the system, where it is the size of rows and pages."""
        if self._large:
            pa.default_memory_pool().release_unused()

    def _open(self) -> None:
        if not self._opened:
            keep_freed()
            self._stages.open()
            self._opened = True


def repeated(batches: Sequence[pa.RecordBatch], n_rows: int) -> list[pa.RecordBatch]:
    """Return so many rows, the same ones again where there are fewer."""
    found: list[pa.RecordBatch] = []
    for batch in cycle(batches):
        found.append(batch.slice(0, n_rows))
        n_rows -= found[-1].num_rows
        if not n_rows:
            break
    return found


def _part(batch: Any) -> Part:
    arrays: list[Any] = []
    if isinstance(batch, Group):
        spec = take_apart(batch.batch, arrays)
        return Part(spec, arrays, batch.rows, [batch.cuts.get(id(array)) for array in arrays] if batch.cuts else None)
    return Part(take_apart(batch, arrays), arrays)


@dataclass(frozen=True, slots=True)
class _Piece:
    """Neighbouring batches of a run whose rows are gathered together."""

    first: int
    """Number in the run of the first batch."""
    batch_rows: tuple[int, ...]
    groups: tuple[int, ...]
    segments: tuple[Segment, ...]
    windows: Sequence[WindowBlocks]
    lease: Lease | None
    """Where its rows may stay in their one window."""


def _pieces(task: RunTask, windows: Sequence[WindowBlocks], leases: Sequence[Lease | None]) -> list[_Piece]:
    """Cut a run where a file brings new columns, and where groups may stay in their window that others leave.

    Which columns a batch has must not depend on the run that it is in.
    """
    first_columns = task.segments[0].columns
    alike = all(s.columns == first_columns for s in task.segments)
    if len(windows) == 1 or (not any(leases) and alike):
        return [
            _Piece(0, task.batch_rows, task.groups, task.segments, windows, leases[0] if len(windows) == 1 else None)
        ]
    found = []  # (what neighbours must have in common, group, rows) of each batch
    row = batch = 0
    for group, n_batches in enumerate(task.groups):
        sizes = task.batch_rows[batch : batch + n_batches]
        touched = tuple(i for i, s in enumerate(within(task.segments, row, sum(sizes))) if s is not None)
        for n_rows in sizes:
            columns = first_columns if alike else [s for s in within(task.segments, row, n_rows) if s][-1].columns
            found.append(((columns, touched if any(leases) else ()), group, n_rows))
            row += n_rows
        batch += n_batches
    pieces: list[_Piece] = []
    row = batch = 0
    for _, members in groupby(found, key=itemgetter(0)):
        batches = list(members)
        sizes = tuple(n_rows for _, _, n_rows in batches)
        groups = tuple(len(list(same)) for _, same in groupby(batches, key=itemgetter(1)))
        cut = [
            (s, w, at) for s, w, at in zip(within(task.segments, row, sum(sizes)), windows, leases, strict=True) if s
        ]
        lease = cut[0][2] if len(cut) == 1 else None
        pieces.append(_Piece(batch, sizes, groups, tuple(s for s, _, _ in cut), [w for _, w, _ in cut], lease))
        row, batch = row + sum(sizes), batch + len(sizes)
    return pieces


def within(segments: Sequence[Segment], start: int, n_rows: int) -> list[Segment | None]:
    """Return what some consecutive rows of the segments take of each; None of one that they do not touch."""
    found: list[Segment | None] = []
    for segment in segments:
        length = segment.stop - segment.start
        low, high = max(start, 0), min(start + n_rows, length)
        found.append(replace(segment, start=segment.start + low, stop=segment.start + high) if low < high else None)
        start -= length
    return found


def add_place(error: BaseException, task: RunTask, windows: Sequence[WindowBlocks], n_made: int) -> None:
    """Say which batch and which files an error comes from."""
    made = min(n_made, len(task.batch_rows) - 1)
    first = task.first_row + sum(task.batch_rows[:made])
    place = f"epoch {task.epoch}, batch {task.first_batch + made}, rows {first}..{first + task.batch_rows[made] - 1}"
    segments = within(task.segments, first - task.first_row, task.batch_rows[made])
    paths = list(dict.fromkeys(p for w, s in zip(windows, segments, strict=False) if s for p in w.files_of(s)))
    more = f" and {len(paths) - 3} more files" if len(paths) > 3 else ""
    error.add_note(f"pyloader_delta: {place} of the epoch's order, from {', '.join(paths[:3])}{more}")
