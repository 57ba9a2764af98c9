"""What the scheduler hands to workers: frozen, picklable tasks, and the limits it keeps."""

from __future__ import annotations

from dataclasses import dataclass

from pyloader_delta.values import Chunk


@dataclass(frozen=True, slots=True)
class Limits:
    """What the scheduler may let happen at once. None of it changes the order of rows."""

    n_workers: int
    """Workers that ask for tasks, >= 1."""
    store_bytes: int
    """Decoded chunks held and being read, by their estimates until they are read."""
    batch_bytes: int
    """Batches finished or being made and not yet delivered; one run beyond it is allowed at the head."""
    max_queue_size: int
    """Chunks read beyond those that complete the window being delivered and the next, >= 1."""
    pending_runs: int
    """Runs made or being made and not yet delivered, >= 1."""
    read_cost: int = 1
    """Times its size that a chunk takes while it is read: 2 where it is decoded first and copied then."""
    run_bytes: int = 16 << 20
    """A run of batches aims at this size."""
    run_rows: int = 1 << 17
    """A run of batches aims at no more rows."""
    run_seconds: float = 0.02
    """A run of batches aims at no more time in user code, so that slow encoding still spreads over the workers."""
    read_bytes: int = 16 << 20
    """Small chunks of one window are read together up to this size."""
    read_chunks: int = 64
    """Small chunks of one window are read together up to this number."""


@dataclass(frozen=True, slots=True)
class ReadTask:
    """Read some consecutive chunks of one window and put them into the store."""

    number: int
    """Distinct in a pass; names the blocks that come of it."""
    epoch: int
    window: int
    positions: range
    chunks: tuple[Chunk, ...]
    size_bytes: int
    """Estimated decoded size of the chunks."""
    window_rows: int | None = None
    """Rows of the whole window, where its rows are mixed and their number is known before reading."""
    first_row: int = 0
    """Number in the window of the task's first row, where `window_rows` is known."""
    key: tuple[int | str, ...] = ()
    """Key of the permutation of the window's rows, where `window_rows` is known."""
    instead: tuple[Chunk, ...] | None = None
    """Where the one chunk of the task cannot be read and is skipped: chunks whose rows may stand in its place, the
    first that can be read; none where its length is not known, so that it has no rows then."""
    cursors: tuple[tuple[str, int], ...] = ()
    """(path, row group) that the worker reads on in; its others are closed first. That is all, where no chunks are."""

    def __str__(self) -> str:
        if not self.chunks:
            return "closing files"
        more = f" and {len(self.chunks) - 1} more" if len(self.chunks) > 1 else ""
        return f"reading {self.chunks[0]}{more}"


@dataclass(frozen=True, slots=True)
class MixTask:
    """Permute the numbers of a window in place, once it is read."""

    number: int
    """Distinct in a pass."""
    epoch: int
    window: int
    n_rows: int
    key: tuple[int | str, ...]

    def __str__(self) -> str:
        return f"mixing window {self.window} of epoch {self.epoch}"


@dataclass(frozen=True, slots=True)
class Segment:
    """Consecutive places of one window, in delivery order."""

    window: int
    n_rows: int
    """Rows of the whole window."""
    start: int
    """First place inside the window."""
    stop: int
    """One past the last place."""
    key: tuple[int | str, ...] | None
    """Key of the permutation of the window's rows; None: rows stay in order."""
    reads: tuple[int, ...]
    """Numbers of the read tasks whose blocks are the window, in order."""
    columns: tuple[str, ...] = ()
    """Names of the columns that the epoch's files have had up to this window."""
    instead: tuple[Chunk, ...] = ()
    """Where rows may be skipped: chunks whose rows may stand in for a batch of which none can be encoded."""


@dataclass(frozen=True, slots=True)
class RunTask:
    """Gather, encode and collate some consecutive batches of one epoch."""

    number: int
    """Place in the order of delivery, from 0; no gaps in a pass."""
    epoch: int
    first_batch: int
    """Number of the first batch in its epoch."""
    batch_rows: tuple[int, ...]
    """Rows of each batch."""
    groups: tuple[int, ...]
    """Batches that are encoded together, one after the other."""
    segments: tuple[Segment, ...]
    last: bool
    """Whether the epoch ends with this run."""
    epoch_rows: int
    """With `last`: rows that were planned, or read where the plan could not know. 0 otherwise."""
    dropped_rows: int
    """With `last`: rows left over by `drop_last`. 0 otherwise."""
    first_row: int
    """Number in the epoch of the run's first row."""
    origin: int = 0
    """Added to numbers of batches, it makes them distinct over all ranks and restarts: chance is keyed so."""
    again: tuple[tuple[Chunk, ...], ...] = ()
    """The chunks of each segment's window, of a run that a worker has died of: they are read again for it where user
    code may have changed rows that were lent to it."""
    careful: bool = False
    """Whether workers have died of it, and rows that end a worker are to be skipped."""

    @property
    def n_rows(self) -> int:
        """Rows of all batches of the run."""
        return sum(self.batch_rows)

    def window_after(self, n_batches: int) -> tuple[int, int]:
        """Return the window that holds the row after so many batches, and the number in the epoch of its first row."""
        row, end = 0, sum(self.batch_rows[:n_batches])
        for segment in self.segments:
            start, row = row, row + segment.stop - segment.start
            if end < row:
                return segment.window, self.first_row + start - segment.start
        last = self.segments[-1]
        if last.stop == last.n_rows:
            return last.window + 1, self.first_row + row
        return last.window, self.first_row + row - last.stop

    def __str__(self) -> str:
        last = self.first_batch + len(self.batch_rows) - 1
        rows = f"rows {self.first_row}..{self.first_row + self.n_rows - 1}"
        return f"encoding batches {self.first_batch}..{last} ({rows}) of epoch {self.epoch}"


Task = ReadTask | MixTask | RunTask
