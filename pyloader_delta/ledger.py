"""The books of a loader: which epochs were planned, what was delivered of them, and their receipts."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyloader_delta.audit import Audit, file_key
from pyloader_delta.delta.paths import table_path
from pyloader_delta.errors import ConfigError, IncompleteEpochError
from pyloader_delta.plan.epoch import EpochPlan
from pyloader_delta.plan.ranks import Place
from pyloader_delta.read.tables import TableReader
from pyloader_delta.receipt import FileRows, Receipt


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
    delivered: int = 0
    padded: int = 0
    dropped: int = 0
    planned: int | None = None
    """Rows that were to be delivered, once the epoch has ended."""

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
        wrong = None if self.audit is None else self.audit.problem(short=dropped + cut, begun=bool(self.before))
        if wrong is not None:
            raise IncompleteEpochError(f"epoch {epoch}: {wrong}; please report this with the table's layout")


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

    def noted(self, plans: Iterable[EpochPlan]) -> Iterator[EpochPlan]:
        """Yield the epochs' plans of a new pass; they are kept until each is begun."""
        self._plans.clear()
        for plan in plans:
            self._plans[plan.epoch] = plan
            yield plan

    def begin(self, epoch: int, place: Place, before: int) -> Tally:
        """Open the books of an epoch, of which an earlier process has delivered some rows."""
        plan = self._plans.pop(epoch)
        audit = Audit(plan, self._key) if self._audited else None
        n_rows, most = plan.n_rows, plan.max_rows
        total = n_rows if n_rows is None or most is None else min(n_rows, most)
        self._tally = Tally(plan, place, audit, before, total)
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
        n_rows = self._n_rows if self._n_rows is not None or not complete else tally.before + (tally.planned or 0)
        return Receipt(
            source=self._source,
            version=self._version,
            epoch=tally.plan.epoch + 1,
            complete=complete,
            rows=n_rows,
            planned=tally.delivered if tally.planned is None else tally.planned,
            delivered=tally.delivered,
            padded=tally.padded,
            dropped=tally.dropped,
            left_out=0 if n_rows is None else place.left_out(n_rows),
            world_size=place.world_size,
            ranks=(place.rank,),
            digest=None if tally.audit is None else f"{tally.audit.digest:016x}",
            files=self._files(tally),
        )

    def _files(self, tally: Tally) -> dict[str, FileRows]:
        if tally.plan.files is not None:
            return {self._name(path): FileRows(n) for path, n in tally.plan.files.items()}
        own = len(tally.plan.chunks) - tally.plan.padded
        counts = None if tally.audit is None else _counted(tally.audit)
        found: dict[str, FileRows] = {}
        for position, chunk in enumerate(tally.plan.chunks[:own]):
            name = self._name(chunk.path)
            rows = FileRows(chunk.n_rows, None if counts is None else int(counts[position]))
            found[name] = found[name] + rows if name in found else rows
        return found

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
    return audit.delivered
