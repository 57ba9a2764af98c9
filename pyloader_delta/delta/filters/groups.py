"""Which row groups of a file a filter can leave out by their statistics, and how many rows it keeps of the others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from pyloader_delta.delta.filters.footers import row_group_bounds
from pyloader_delta.delta.filters.outcomes import TRUE, outcomes
from pyloader_delta.delta.filters.prune import partition_bounds, split_columns
from pyloader_delta.delta.parquet import DataParquet
from pyloader_delta.delta.selection import Selection
from pyloader_delta.delta.store import Store
from pyloader_delta.values import DataFile, Snapshot

_COUNTED_ROWS = 1 << 14  # at once, by each of several threads: texts may be long


class Verdict(NamedTuple):
    """What a filter makes of a row group."""

    n_kept: int | None
    """Live rows that it keeps; None where only reading them would tell."""
    filtered: bool
    """Whether its rows still have to be filtered, as some are not kept."""
    decided: bool
    """Whether statistics alone say so."""

    @property
    def pruned(self) -> bool:
        """Whether statistics alone say that it keeps none."""
        return self.decided and self.n_kept == 0


@dataclass(frozen=True, slots=True)
class GroupFilter:
    """Judges the row groups of a table's files."""

    store: Store
    snapshot: Snapshot
    selection: Selection
    """What is read, with the filter."""
    exact: bool
    """Whether to read the filter's columns where statistics do not decide."""

    def judge(self, file: DataFile, parquet: DataParquet, known: Sequence[int] | None) -> list[Verdict]:
        """Return what the filter makes of each row group of an open file.

        Args:
            file: What the log says of it.
            parquet: The file.
            known: Rows that it keeps of each row group, where they were counted before.
        """
        possible = self._possible(file, parquet)
        n_live = [parquet.n_live(i) for i in range(len(possible))]
        if known is not None and (len(known) != len(n_live) or any(n > m for n, m in zip(known, n_live, strict=True))):
            known = None
        found = []
        with _Counter(self, file, parquet) as counter:
            for i, outcome in enumerate(possible):
                if not outcome & TRUE:
                    found.append(Verdict(0, filtered=True, decided=True))
                elif outcome == TRUE:
                    found.append(Verdict(n_live[i], filtered=False, decided=True))
                elif not self.exact:
                    found.append(Verdict(None, filtered=True, decided=False))
                else:
                    n_kept = counter.count(i) if known is None else known[i]
                    found.append(Verdict(n_kept, n_kept < n_live[i], decided=False))
        return found

    def _possible(self, file: DataFile, parquet: DataParquet) -> list[int]:
        row_filter = self.selection.filter
        assert row_filter is not None
        data, partition = split_columns(self.snapshot, row_filter.node)
        n_groups = parquet.metadata.num_row_groups
        timezone = self.selection.partition_timezone
        known = partition_bounds(self.snapshot, file, partition, timezone, n_groups)
        known |= row_group_bounds(parquet.metadata, parquet.stored_schema, self.snapshot.fields, data)
        found: list[int] = outcomes(row_filter.node, known, n_groups).tolist()
        return found


class _Counter:
    """The filter's columns of a file, opened when they are needed."""

    def __init__(self, groups: GroupFilter, file: DataFile, parquet: DataParquet) -> None:
        self._groups, self._file, self._parquet = groups, file, parquet
        self._opened: DataParquet | None = None

    def __enter__(self) -> _Counter:
        return self

    def __exit__(self, *error: object) -> None:
        if self._opened is not None:
            self._opened.close()

    def count(self, row_group: int) -> int:
        groups = self._groups
        if self._opened is None:
            self._opened = DataParquet(
                groups.store,
                self._file,
                replace(groups.selection, fields=(), row_id=None),
                groups.snapshot.version,
                size_bytes=self._file.size_bytes,
                metadata=self._parquet.metadata,
                deleted=self._parquet.deleted,
            )
        return sum(piece.num_rows for piece in self._opened.pieces(row_group, _COUNTED_ROWS, filtered=True))
