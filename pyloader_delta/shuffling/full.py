"""`shuffle="full"`: before an epoch is delivered, its rows are dealt out to buckets on disk. Wiring only."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

from pyloader_delta.collate.base import DataCollator
from pyloader_delta.encode.base import Dataset
from pyloader_delta.engine.kinds import Kinds, types_of
from pyloader_delta.engine.local import own_copy
from pyloader_delta.errors import ConfigError
from pyloader_delta.options import Options
from pyloader_delta.plan.epoch import EpochPlan, Order
from pyloader_delta.read.base import DataReader
from pyloader_delta.spill.buckets import Dealer, Extent, FullOrder, bucket_units, filled
from pyloader_delta.spill.deal import Deal, Dealt, Read
from pyloader_delta.spill.scratch import Scratch
from pyloader_delta.stages import Stages, named
from pyloader_delta.values import Chunk, WindowSize

_EXTENT_BYTES = 256 << 10  # what a bucket gets of a run, at least where memory allows: less is slow to read back
_LEAST_BYTES = 16 << 20  # dealt out together: less would cost more calls than copies, more falls out of caches
_COPIES = 6  # of the rows that a thread deals out together: as read, joined, picked, as streams that grow by doubling


class FullShuffle:
    """A full shuffle of one loader's rows.

    Args:
        parts: The user's reader, dataset and collator.
        units: The table's row groups or files, of known length, as they are read.
        options: The loader's.
        name: What stands for a path in errors.
    """

    def __init__(
        self, parts: tuple[DataReader[Any], Dataset[Any], DataCollator[Any]], units: Sequence[Sequence[Chunk]],
        options: Options, name: str,
    ) -> None:  # fmt: skip
        self._parts, self._table, self._options = parts, units, options
        chunks = [chunk for unit in units for chunk in unit]
        self._n_rows = sum(chunk.n_rows or 0 for chunk in chunks)
        self._size_bytes = sum(chunk.size_bytes for chunk in chunks)
        rows, seed = self._bucket_rows(), options.random_seed
        self.order = Order(False, seed, True, seed, WindowSize("chunk", rows), full=True)
        """The order in which buckets are delivered and their rows mixed."""
        self.units = bucket_units(self._n_rows, self._size_bytes, rows, f"{name}, shuffled in full,")
        """The buckets, as units of an epoch's plan."""
        self._scratch: Scratch | None = None

    def of(self, epoch: int) -> FullOrder:
        """Return which rows of the table an epoch's buckets hold."""
        return FullOrder(self._n_rows, self.order.chunk_seed, epoch)

    def dealt(self, plans: Iterable[EpochPlan], budget: int) -> Iterator[EpochPlan]:
        """Yield each epoch's plan once its rows lie in the scratch file; those of the one before are given up then.

        Args:
            plans: Of buckets.
            budget: Bytes that may be used meanwhile.

        Raises:
            ScratchError: There is too little room on the disk.
            Exception: Whatever reading raises.
        """
        for plan in plans:
            self.close()
            yield self._dealt(plan, budget)
            self.close()

    def close(self) -> None:
        """Give up the scratch file."""
        if self._scratch is not None:
            self._scratch.close()
            self._scratch = None

    def _bucket_rows(self) -> int:
        window = self._options.window
        if window.unit == "bytes":
            return max(self._n_rows * window.amount // max(self._size_bytes, 1), 1)
        return window.amount if window.unit == "rows" else max(self._n_rows, 1)

    def _dealt(self, plan: EpochPlan, budget: int) -> EpochPlan:
        first = plan.windows[plan.first_window].start if plan.windows else 0
        wanted = [(place, chunk) for place, chunk in enumerate(plan.chunks) if place >= first]
        if not wanted:
            return plan
        own = len(plan.chunks) - plan.padded
        scratch = Scratch(self._options.scratch_dir, sum(chunk.size_bytes for _, chunk in wanted))
        self._scratch = scratch
        threads = 0 if self._options.workers == "inline" else self._options.n_workers
        run_bytes = min(max(len(wanted) * _EXTENT_BYTES, _LEAST_BYTES), budget // (_COPIES * max(threads, 1)))
        deal = Deal(
            self._opened,
            self.of(plan.epoch),
            Dealer(wanted),
            Dealer([*enumerate(plan.chunks[:own])]),
            scratch,
            run_bytes,
        )
        try:
            dealt = deal.all(self._table, threads)
            self._check(dealt)
        except BaseException:
            self.close()
            raise
        extents: dict[int, list[tuple[int, tuple[Extent, int]]]] = {}
        for place, row, extent, n_rows in dealt.extents:
            extents.setdefault(place, []).append((row, (extent, n_rows)))
        chunks: list[Chunk] = []
        windows: list[range] = []
        for window in plan.windows:
            start = len(chunks)
            for place in window:
                found = [where for _, where in sorted(extents.get(place, ()))]
                chunks += filled(plan.chunks[place], scratch.path, found) if place >= first else [plan.chunks[place]]
            windows.append(range(start, len(chunks)))
        return replace(plan, chunks=tuple(chunks), windows=tuple(windows), files=dict(dealt.files))

    @contextmanager
    def _opened(self) -> Iterator[Read]:
        """Open a copy of the user's reader, for one thread."""
        reader, dataset, collator = self._parts
        reader = cast(Any, own_copy(cast(Any, SimpleNamespace(reader=reader)))).reader
        with named(reader, "open"):
            reader.open()
        try:
            yield Stages(reader, dataset, collator, seed=0).read
        finally:
            reader.close()

    def _check(self, dealt: Dealt) -> None:
        """Raise what the engine would where files disagree on their columns; it sees buckets alone."""
        reader, dataset, _ = self._parts
        kinds = Kinds(strict=dataset.input_format != "python", missing_as_none=reader.missing_as_none)
        for path, schema in dealt.schemas:
            error = kinds.add(((path, types_of(schema)),))
            if error is not None:
                raise error


def full_shuffle(
    parts: tuple[DataReader[Any], Dataset[Any], DataCollator[Any]], units: Sequence[Sequence[Chunk]],
    options: Options, name: str, n_rows: int | None,
) -> FullShuffle | None:  # fmt: skip
    """Return the full shuffle that a loader was asked for; None for none.

    Raises:
        ConfigError: It cannot be done: lengths are unknown, or an option does not go with it.
    """
    if not options.full:
        if options.scratch_dir is not None:
            raise ConfigError("scratch_dir is used by shuffle='full' alone")
        return None
    if n_rows is None:
        raise ConfigError(
            f"shuffle='full' needs the length of each file before reading: {parts[0].length_advice} in "
            f"{type(parts[0]).__name__}"
        )
    if options.window.unit == "chunk":
        raise ConfigError("shuffle='full' deals rows out to buckets of shuffle_window: give a size, not 'chunk'")
    if options.numbered:
        name = "audit=True" if options.audit else "on_error='skip'"
        raise ConfigError(f"{name} follows rows by their numbers in files, which shuffle='full' does not keep")
    if options.skips:
        raise ConfigError("on_error='skip' tells rows by their numbers in files, which shuffle='full' does not keep")
    if options.scratch_dir is not None and not os.path.isdir(options.scratch_dir):
        raise ConfigError(f"scratch_dir {options.scratch_dir!r} is no folder")
    return FullShuffle(parts, units, options, name)
