"""What was read, as blocks: record batches that say of which files their rows are, as few as their types allow."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pyloader_delta.columns import FILES, KIND, rows_alone
from pyloader_delta.engine.kinds import FileTypes
from pyloader_delta.engine.region import Layout, learn, learn_more, place
from pyloader_delta.engine.tasks import ReadTask
from pyloader_delta.engine.window import WindowBlocks
from pyloader_delta.permute import places
from pyloader_delta.values import Chunk

_JOINED_BYTES = 1 << 20  # parts of row groups hold less where their rows were placed; more would be copied for nothing


class Blocks:
    """What comes of a read task, one run of its chunks after the other.

    Args:
        task: The read.
        region: The layout and the arrays of its window's region; None where it has none.
    """

    def __init__(self, task: ReadTask, region: tuple[Layout, dict[str, NDArray[Any]]] | None) -> None:
        self.batches: list[pa.RecordBatch] = []
        self.rows: list[int] = []
        """Rows of each chunk."""
        self.types: FileTypes = ()
        """Of the files that have rows."""
        self.placed: frozenset[str] | None = None if region is None else frozenset(region[1])
        """Columns that are in the window's region instead; None where it has none."""
        self.layout: bytes | None = None
        """What a region of such blocks would hold (see `region.learn`); None where nothing was learned."""
        self.placed_bytes = 0
        self.window: WindowBlocks | None = None
        """The whole window opened, on its first blocks: opened once, and gone with them."""
        self._task, self._region = task, region
        self._n_placed = 0  # rows
        self._alone: list[list[Any]] = []  # [path, rows] of which all columns were placed, and no block was made yet
        self._places: NDArray[np.int64] | None = None  # of all rows in the order of delivery
        if region is not None and region[0].is_in_order:
            n_rows = sum(chunk.n_rows or 0 for chunk in task.chunks)
            self._places = places(task.window_rows or 0, task.key, task.first_row, task.first_row + n_rows)

    @cached_property
    def size_bytes(self) -> int:
        """Bytes that the blocks keep in memory."""
        return _nbytes(self.batches) + self.placed_bytes

    def add(self, batches: list[pa.RecordBatch], chunks: Sequence[Chunk]) -> None:
        """Take in the rows of some chunks, and place what is possible."""
        batches = [batch for batch in batches if batch.num_rows]  # what has no rows says nothing of the types of others
        n_rows = sum(batch.num_rows for batch in batches)
        planned = [chunk.n_rows or 0 for chunk in chunks]
        self.rows += [n_rows] if len(chunks) == 1 else planned
        if self._region is not None and self.placed is not None:
            if n_rows != sum(planned):
                self.placed = None  # an error, but not this reader's: there is no place for these rows
            else:
                layout, arrays = self._region
                to = None if self._places is None else self._places[self._n_placed :][:n_rows]
                batches, placed = place(batches, layout, arrays, self._task.first_row + self._n_placed, to)
                self.placed &= placed
                self.placed_bytes += n_rows * sum(arrays[name].itemsize for name in placed)
                self._n_placed += n_rows
        if n_rows and not any(batch.num_columns for batch in batches):
            self._alone += [[chunk.path, n] for chunk, n in zip(chunks, self.rows[-len(chunks) :], strict=True)]
            return
        self._flush()
        named = named_blocks([batch if batch.num_columns else rows_alone(batch.num_rows) for batch in batches], chunks)
        self.batches += compacted(named) if chunks[0].is_part else named

    def _flush(self) -> None:
        """Make a block of rows of which no column is left."""
        if self._alone:
            self.batches.append(_with_files(rows_alone(sum(n for _, n in self._alone)), self._alone))
            self._alone = []

    def end(self, types: FileTypes) -> None:
        """Join what can be joined, and note what a region of such blocks would hold; nothing is added any more."""
        self.types = types
        self._flush()
        if not self._task.chunks[0].is_part or _nbytes(self.batches) <= _JOINED_BYTES:
            self.batches = compacted(self.batches)
        if self._region is not None and self.placed is not None:
            self.layout = learn_more(self._region[0], self.batches)
        elif self._task.window_rows is not None:
            self.layout = learn(self.batches)
        self._region = self._places = None


def _nbytes(batches: Sequence[pa.RecordBatch]) -> int:
    return sum(int(batch.get_total_buffer_size()) for batch in batches)


def named_blocks(batches: Sequence[pa.RecordBatch], chunks: Sequence[Chunk]) -> list[pa.RecordBatch]:
    """Return the batches of some chunks that have rows; their metadata says of which files these are."""
    there = [batch for batch in batches if batch.num_rows]
    if len(chunks) == 1:
        return [_with_files(batch, [[chunks[0].path, batch.num_rows]]) for batch in there]
    left = [[chunk.path, chunk.n_rows or 0] for chunk in reversed(chunks)]
    found = []
    for batch in there:
        files: list[list[Any]] = []
        n_rows = batch.num_rows
        while n_rows and left:
            path, n = left[-1]
            taken = min(n, n_rows)
            left[-1][1], n_rows = n - taken, n_rows - taken
            if files and files[-1][0] == path:
                files[-1][1] += taken
            else:
                files.append([path, taken])
            if taken == n:
                left.pop()
        found.append(_with_files(batch, files))
    return found


def _with_files(batch: pa.RecordBatch, files: list[list[Any]]) -> pa.RecordBatch:
    return batch.replace_schema_metadata({FILES: json.dumps(files)})


def compacted(batches: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """Join neighbouring batches of one schema."""
    if len(batches) < 2:
        return batches
    groups: list[list[pa.RecordBatch]] = []
    for batch in batches:
        first = groups[-1][0] if groups else None
        if first is not None and first.schema.equals(batch.schema) and _kinds(first) == _kinds(batch):
            groups[-1].append(batch)
        else:
            groups.append([batch])
    blocks = []
    for group in groups:
        named = [pair for batch in group for pair in json.loads(batch.schema.metadata[FILES])]
        schema = group[0].schema.with_metadata({FILES: json.dumps(named)})
        table = pa.Table.from_batches([b.replace_schema_metadata(None) for b in group])
        try:
            joined = table.combine_chunks().to_batches()
        except pa.ArrowInvalid:  # a string column beyond 2 GiB
            joined = []
        if len(joined) == 1:
            blocks.append(joined[0].replace_schema_metadata(schema.metadata))
        else:
            blocks += group
    return blocks


def _kinds(batch: pa.RecordBatch) -> list[bytes | None]:
    return [(field.metadata or {}).get(KIND) for field in batch.schema]
