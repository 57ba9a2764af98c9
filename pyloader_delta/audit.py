"""Each row that is delivered is checked off: once, and no row that was not planned. By its number, not by counting."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable

import numpy as np
from numpy.typing import NDArray

from pyloader_delta.engine.numbered import FILLER, positions, rows
from pyloader_delta.plan.epoch import EpochPlan

_AT_ONCE = 1 << 16  # rows worked on together: of small batches the calls would cost most
_SPREAD, _MIX_1, _MIX_2 = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB  # SplitMix64 (Steele et al., 2014)


def file_key(name: str) -> int:
    """Return what stands for a file in digests, 0 <= key < 2**64."""
    digest = hashlib.blake2b(name.encode("utf-8", "surrogateescape"), digest_size=8).digest()
    return int.from_bytes(digest, "little")


def digest_of(keys: NDArray[np.uint64], numbers: NDArray[np.int64]) -> int:
    """Return the sum, modulo 2**64, of a hash of each (file, row): the same in whatever order they come.

    Args:
        keys: Of each row its file's key.
        numbers: Their numbers in their files.
    """
    mixed = keys ^ (numbers.astype(np.uint64) * np.uint64(_SPREAD))
    mixed ^= mixed >> np.uint64(30)
    mixed *= np.uint64(_MIX_1)
    mixed ^= mixed >> np.uint64(27)
    mixed *= np.uint64(_MIX_2)
    mixed ^= mixed >> np.uint64(31)
    return int(np.add.reduce(mixed, dtype=np.uint64)) if len(mixed) else 0


class Audit:
    """The rows of one epoch, on one rank.

    It holds 8 bytes for each row of the windows that are being delivered, and 20 for each chunk.

    Args:
        plan: The epoch.
        key: Returns the key of a file.
    """

    def __init__(self, plan: EpochPlan, key: Callable[[str], int]) -> None:
        self.plan = plan
        n = len(plan.chunks)
        self.delivered = np.zeros(n, np.int64)
        """Rows delivered of each chunk, in the plan's order, those that stand in for skipped ones included."""
        self.skipped = np.zeros(n, np.int64)
        """Of these, rows that were skipped."""
        self._keys = np.fromiter((key(chunk.path) for chunk in plan.chunks), np.uint64, n)
        self._window = np.zeros(n, np.int32)
        for number, window in enumerate(plan.windows):
            self._window[window.start : window.stop] = number
        self._own = n - plan.padded  # chunks from here on repeat rows of others
        self._open: dict[int, list[NDArray[np.int64]]] = {}  # window → numbers delivered of it
        self._twice: NDArray[np.int64] | None = None
        self._waiting: list[NDArray[np.int64]] = []
        self._n_waiting = self._digest = 0

    def add(self, numbers: NDArray[np.int64]) -> None:
        """Take note of the rows of a batch that was delivered."""
        self._waiting.append(numbers)
        self._n_waiting += len(numbers)
        if self._n_waiting >= _AT_ONCE:
            self._work()

    @property
    def digest(self) -> int:
        """The digest of the rows delivered, without those that were repeated."""
        self._work()
        return self._digest

    def problem(self, *, short: int, before: int) -> str | None:
        """Return what is wrong at the epoch's end, naming a file; None if all is right.

        Args:
            short: Rows that were planned and are rightly not delivered (`drop_last`).
            before: Rows that an earlier process has delivered.
        """
        self._work()
        for window in sorted(self._open):
            self._check(window)
        if self._twice is not None:
            chunk = self.plan.chunks[int(positions(self._twice)[0])]
            return f"row {int(rows(self._twice)[0])} of {chunk.path} was delivered more than once"
        missing = row = 0
        for window, span in enumerate(self.plan.windows):
            n, found = self.plan.rows_of(window), int(self.delivered[span.start : span.stop].sum())
            first, row = row, row + (n or 0)
            if first < before:
                continue
            missing += 0 if n is None else n - found
            if n is not None and (found > n or missing > short):
                return self._amiss(span, n, found)
        return None

    def _amiss(self, span: range, n_rows: int, found: int) -> str:
        """Return which chunk of a window is to blame for its having other rows than planned."""
        for position in span:
            chunk, delivered = self.plan.chunks[position], int(self.delivered[position])
            if delivered != chunk.n_rows:
                return f"{chunk} has {chunk.n_rows} rows, {delivered} were delivered"
        return f"of {n_rows} rows of a window with {self.plan.chunks[span.start]}, {found} were delivered"

    def _work(self) -> None:
        if not self._waiting:
            return
        numbers = np.concatenate(self._waiting)
        self._waiting.clear()
        self._n_waiting = 0
        places = positions(numbers)
        first = int(places.min())
        counts = np.bincount(places - first)
        self.delivered[first : first + len(counts)] += counts
        filled = numbers & FILLER != 0
        np.add.at(self.skipped, places[filled], 1)
        own = (places < self._own) & ~filled
        self._digest = (self._digest + digest_of(self._keys[places[own]], rows(numbers[own]))) % 2**64
        windows = self._window[places]
        touched = np.flatnonzero(np.bincount(windows)).tolist()
        for window in touched:
            self._open.setdefault(window, []).append(numbers if len(touched) == 1 else numbers[windows == window])
        self._close(touched)

    def _close(self, windows: Iterable[int]) -> None:
        """Check windows of which all rows were delivered, and forget their numbers."""
        for window in windows:
            planned = self.plan.rows_of(window)
            if planned is not None and sum(map(len, self._open[window])) >= planned:
                self._check(window)

    def _check(self, window: int) -> None:
        numbers = np.sort(np.concatenate(self._open.pop(window)))
        twice = numbers[1:][numbers[1:] == numbers[:-1]]
        if len(twice) and self._twice is None:
            self._twice = twice[:1]
