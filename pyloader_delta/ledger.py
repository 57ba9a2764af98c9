"""The books of a loader: which epochs were planned, what was delivered of them, and their receipts."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyloader_delta.audit import Audit, file_key
from pyloader_delta.delta.paths import table_path
from pyloader_delta.engine.numbered import FILLER, positions, rows
from pyloader_delta.errors import ConfigError, IncompleteEpochError
from pyloader_delta.plan.epoch import EpochPlan
from pyloader_delta.plan.ranks import Place
from pyloader_delta.read.tables import TableReader
from pyloader_delta.receipt import FileRows, Receipt, Skip
from pyloader_delta.skips import text_of
from pyloader_delta.state import Source


@dataclass(slots=True)
class Tally:
    """What was delivered of one epoch, by this process and on this rank."""

    plan: EpochPlan
    place: Place
    audit: Audit | None
    before: int
    """Rows of it delivered by an earlier process."""
    total: int | None
    """Rows of it on this rank; None where unknown before reading."""
    source: Source | None = None
    """What it is read from, where that is not what the loader reads: an earlier version of the table."""
    delivered: int = 0
    padded: int = 0
    dropped: int = 0
    planned: int | None = None
    """Rows that were to be delivered, once the epoch has ended."""
    skipped: int = 0
    rows_lost: list[tuple[int, str]] = field(default_factory=list)
    """(number, error) of single rows that were skipped, the first of them."""
    chunks_lost: dict[int, int] = field(default_factory=dict)
    """Position of a chunk that could not be read → rows skipped of it."""

    def note(self, numbers: NDArray[np.int64], skipped: Sequence[tuple[int, str]]) -> NDArray[np.intp]:
        """Take note of the rows of a batch that is delivered; return the places in which other rows stand.

        Args:
            numbers: Their numbers.
            skipped: (row of the batch, error) of single rows that were skipped.
        """
        places = [row for row, _ in skipped]
        for position, n in zip(*np.unique(positions(numbers[numbers & FILLER != 0]), return_counts=True), strict=True):
            self.chunks_lost[int(position)] = self.chunks_lost.get(int(position), 0) + int(n)
        self.rows_lost += [(int(numbers[row]), text) for row, text in skipped][: LISTED - len(self.rows_lost)]
        if places:
            numbers = numbers.copy()
            numbers[places] |= FILLER
        if self.audit is not None:
            self.audit.add(numbers)
        found = np.flatnonzero(numbers & FILLER)
        self.skipped += len(found)
        return found

    def end(self, *, planned: int, dropped: int) -> None:
        """Note that the epoch has ended, and compare what was planned with what was delivered.

        Args:
            planned: Rows of the epoch on this rank.
            dropped: Of these, rows that were left out.

        Raises:
            IncompleteEpochError: They differ.
        """
        self.planned, self.dropped = planned - self.before, dropped
        epoch = self.plan.epoch
        if self.delivered + dropped != self.planned:
            raise IncompleteEpochError(
                f"epoch {epoch}: {self.planned} rows were planned, {self.delivered} were gathered and {dropped} "
                "dropped; please report this with the table's layout"
            )
        cut = 0 if self.total is None else (self.plan.n_rows or 0) - self.total  # by `limit`
        wrong = None if self.audit is None else self.audit.problem(short=dropped + cut, before=self.before)
        if wrong is not None:
            raise IncompleteEpochError(f"epoch {epoch}: {wrong}; please report this with the table's layout")


LISTED = 1000
"""Skipped rows that a receipt lists one by one."""


class Ledger:
    """The books of one loader.

    Args:
        source: What the loader was given: a folder, or the path or URI of a table.
        base: The same as files' paths begin with it.
        n_rows: Rows of an epoch over all ranks; None where unknown before reading.
        version: Version of the table; None for a folder of files.
        audited: Whether each row is checked off by its number.
    """

    def __init__(self, source: str, base: str, n_rows: int | None, version: int | None, *, audited: bool) -> None:
        self._source, self._base, self._n_rows, self._audited = source, base.rstrip("/") + "/", n_rows, audited
        self._version = version
        self._plans: dict[int, EpochPlan] = {}
        self._keys: dict[str, int] = {}
        self._tally: Tally | None = None
        self.lost: dict[tuple[int, int], BaseException] = {}
        """(epoch, position) → error of chunks that cannot be read and are skipped: the engine enters them."""

    def noted(self, plans: Iterable[EpochPlan]) -> Iterator[EpochPlan]:
        """Yield the epochs' plans of a new pass; they are kept until each is begun."""
        self._plans.clear()
        self.lost.clear()
        for plan in plans:
            self._plans[plan.epoch] = plan
            yield plan

    def begin(self, epoch: int, place: Place, before: int, source: Source | None = None) -> Tally:
        """Open the books of an epoch, of which an earlier process has delivered some rows."""
        plan = self._plans.pop(epoch)
        for over in [found for found in self.lost if found[0] < epoch]:
            del self.lost[over]
        audit = Audit(plan, self._key) if self._audited else None
        n_rows, most = plan.n_rows, plan.max_rows
        total = n_rows if n_rows is None or most is None else min(n_rows, most)
        self._tally = Tally(plan, place, audit, before, total, source)
        return self._tally

    def receipt(self) -> Receipt:
        """Return the receipt of the epoch of the batch delivered last.

        Raises:
            ConfigError: No batch was delivered yet.
        """
        tally = self._tally
        if tally is None:
            raise ConfigError("no batch was delivered yet: receipt() is of the epoch of the batch delivered last")
        place, complete = tally.place, tally.planned is not None
        source = tally.source
        n_rows = self._n_rows if source is None else source.n_rows
        if n_rows is None and complete:
            n_rows = tally.before + (tally.planned or 0)
        return Receipt(
            source=self._source,
            version=self._version if source is None else source.known["version"],
            epoch=tally.plan.epoch + 1,
            complete=complete,
            rows=n_rows,
            planned=tally.delivered if tally.planned is None else tally.planned,
            delivered=tally.delivered,
            padded=tally.padded,
            skipped=tally.skipped,
            dropped=tally.dropped,
            left_out=tally.plan.left_out if complete else 0,
            world_size=place.world_size,
            ranks=(place.rank,),
            digest=None if tally.audit is None else f"{tally.audit.digest:016x}",
            skips=tuple(self._skips(tally)),
            files=self._files(tally),
        )

    def _files(self, tally: Tally) -> dict[str, FileRows]:
        if tally.plan.files is not None:
            return {self._name(path): FileRows(n) for path, n in tally.plan.files.items()}
        plan = tally.plan
        own, counts = len(plan.chunks) - plan.padded, None if tally.audit is None else _counted(tally.audit)
        partly = {position for window in plan.rests for position in plan.windows[window]}
        found: dict[str, FileRows] = {}
        for position, chunk in enumerate(plan.chunks[:own]):
            name = self._name(chunk.path)
            planned = None if position in partly else chunk.n_rows
            rows = FileRows(planned, None if counts is None else int(counts[position]))
            found[name] = found[name] + rows if name in found else rows
        return found

    def _skips(self, tally: Tally) -> Iterator[Skip]:
        epoch, chunks = tally.plan.epoch, tally.plan.chunks
        for (when, position), error in sorted(self.lost.items(), key=itemgetter(0)):
            if when != epoch:
                continue
            chunk, n = chunks[position], tally.chunks_lost.get(position, 0)
            if n or chunk.rows is None:
                yield Skip(self._name(chunk.path), None if chunk.rows is None else chunk.rows.start, n, text_of(error))
        for number, text in tally.rows_lost:
            code = np.array([number])
            yield Skip(self._name(chunks[int(positions(code)[0])].path), int(rows(code)[0]), 1, text)

    def _key(self, path: str) -> int:
        key = self._keys.get(path)
        if key is None:
            key = self._keys[path] = file_key(self._name(path))
        return key

    def _name(self, path: str) -> str:
        """Return a file's path below the folder or table, so that it stays the same where that is moved."""
        return path.removeprefix(self._base)


def base_of(reader: Any, root_dir: str) -> str:
    """Return what the paths of the files of a reader's chunks begin with."""
    if isinstance(reader, TableReader) and reader._pin is not None:
        return str(reader._pin.request[0])
    return table_path(root_dir) if root_dir.startswith("file:") else os.path.abspath(root_dir)


def _counted(audit: Audit) -> NDArray[np.int64]:
    audit.digest  # noqa: B018  # works off what waits
    return audit.delivered - audit.skipped
