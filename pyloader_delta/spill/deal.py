"""The first pass of a full shuffle: the table is read once, and each row written to its bucket."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from pyloader_delta.columns import numbers
from pyloader_delta.errors import IncompleteEpochError
from pyloader_delta.spill.buckets import Dealer, Extent, FullOrder
from pyloader_delta.spill.scratch import Scratch
from pyloader_delta.spill.streams import joined, to_bytes
from pyloader_delta.values import Chunk

Read = Callable[[Chunk], list[pa.RecordBatch]]
OpenReader = Callable[[], AbstractContextManager[Read]]
"""Opens a reader of the table for one thread."""


@dataclass(slots=True)
class Dealt:
    """What came of a run of row groups or files, or of all of them."""

    extents: list[tuple[int, int, Extent, int]] = field(default_factory=list)
    """(bucket, first row of the table in it, where, how many rows)."""
    files: Counter[str] = field(default_factory=Counter)
    """Rows of the rank's own buckets by the path that they were read from."""
    schemas: list[tuple[str, pa.Schema]] = field(default_factory=list)
    """(path, schema) of what was read, without those like the one before."""


class Deal:
    """Deals the rows of a table out.

    Args:
        open_reader: Opens a reader of the table.
        order: Where each row goes.
        dealer: The buckets that are wanted.
        own: All buckets of the rank, for `Dealt.files`.
        scratch: What the rows are written to.
        run_bytes: Decoded bytes that one thread deals out together, about; it holds some times as much meanwhile.
    """

    def __init__(
        self, open_reader: OpenReader, order: FullOrder, dealer: Dealer, own: Dealer, scratch: Scratch, run_bytes: int
    ) -> None:
        self._open_reader, self._order, self._dealer, self._own = open_reader, order, dealer, own
        self._scratch, self._run_bytes = scratch, run_bytes
        self._stopped = False
        self._readers = ExitStack()
        self._idle: list[Read] = []  # one for each thread that has had work

    def all(self, units: Sequence[Sequence[Chunk]], n_threads: int) -> Dealt:
        """Read all units and return what came of them.

        Args:
            units: Row groups or files as chunks of known length, in the table's order.
            n_threads: Threads to do it with; 0 for the caller's own.

        Raises:
            IncompleteEpochError: A chunk has not the rows that the plan says.
            ScratchError: The disk is full.
            Exception: Whatever reading raises.
        """
        runs = list(self._runs(units))
        with self._readers:
            found = self._all(runs, n_threads)
        pa.default_memory_pool().release_unused()  # the engine's turn comes now
        return found

    def _all(self, runs: Sequence[tuple[int, list[Chunk]]], n_threads: int) -> Dealt:
        if n_threads == 0:
            return _added(self._run(*run) for run in runs)
        pool = ThreadPoolExecutor(min(n_threads, len(runs) or 1), thread_name_prefix="pyloader_delta-deal")
        try:
            futures = [pool.submit(self._run, *run) for run in runs]
            wait(futures, return_when=FIRST_EXCEPTION)
            failed = next((one for one in futures if one.done() and one.exception() is not None), None)
            if failed is not None:
                failed.result()
            return _added(future.result() for future in futures)
        finally:
            self._stopped = True
            pool.shutdown(wait=True, cancel_futures=True)

    def _runs(self, units: Sequence[Sequence[Chunk]]) -> Iterator[tuple[int, list[Chunk]]]:
        """Yield (first row, chunks) of runs of whole units: a row group is read by one thread, front to back."""
        row = first = size = 0
        run: list[Chunk] = []
        for unit in units:
            run += unit
            size += sum(chunk.size_bytes for chunk in unit)
            row += sum(chunk.n_rows or 0 for chunk in unit)
            if size >= self._run_bytes:
                yield first, run
                first, size, run = row, 0, []
        if run:
            yield first, run

    def _run(self, row: int, chunks: Sequence[Chunk]) -> Dealt:
        found = Dealt()
        held: list[pa.RecordBatch] = []
        first, size = row, 0
        try:
            read = self._idle.pop()  # at once, as threads share the list
        except IndexError:
            read = self._readers.enter_context(self._open_reader())
        for chunk in chunks:
            if self._stopped:
                break
            blocks = [block for block in read(chunk) if block.num_rows]
            n_rows = sum(block.num_rows for block in blocks)
            if n_rows != chunk.n_rows:
                raise IncompleteEpochError(f"{chunk}: the plan has {chunk.n_rows} rows, reading gave {n_rows}")
            self._note(found, chunk, row, blocks)
            held += blocks
            row += n_rows
            size += sum(block.nbytes for block in blocks)
            if size >= self._run_bytes:
                self._write(found, first, held)
                first, size, held = row, 0, []
        self._write(found, first, held)
        self._idle.append(read)
        return found

    def _note(self, found: Dealt, chunk: Chunk, row: int, blocks: Sequence[pa.RecordBatch]) -> None:
        positions = self._order.positions(row, row + (chunk.n_rows or 0))
        found.files[chunk.path] += self._own.count(positions)
        for block in blocks:
            if not found.schemas or not found.schemas[-1][1].equals(block.schema, check_metadata=True):
                found.schemas.append((chunk.path, block.schema))

    def _write(self, found: Dealt, row: int, blocks: list[pa.RecordBatch]) -> None:
        """Write consecutive rows, of which `row` is the first, to their buckets."""
        left = joined(blocks)[::-1]
        blocks.clear()
        while left:
            block = left.pop()
            n_rows = block.num_rows
            dealt = self._dealer.deal(self._order.positions(row, row + n_rows))
            if dealt:
                block = block.take(numbers(np.concatenate([rows for _, rows in dealt])))
                parts, start = [], 0
                for _, rows in dealt:
                    parts.append(to_bytes(block.slice(start, len(rows))))
                    start += len(rows)
                extents = self._scratch.append(parts)
                for (bucket, rows), extent in zip(dealt, extents, strict=True):
                    found.extents.append((bucket, row + int(rows[0]), extent, len(rows)))
            row += n_rows


def _added(parts: Iterable[Dealt]) -> Dealt:
    found = Dealt()
    for part in parts:
        found.extents += part.extents
        found.files.update(part.files)
        found.schemas += part.schemas
    return found
