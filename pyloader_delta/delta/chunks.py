"""The chunks of a table: its row groups, less those that a filter leaves out, with what was left out by which step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pyarrow.compute as pc

from pyloader_delta.delta.absent import check_absent
from pyloader_delta.delta.filters.cache import cache_key, load_counts, save_counts
from pyloader_delta.delta.filters.explain import Amount, Explanation
from pyloader_delta.delta.filters.groups import GroupFilter, Verdict
from pyloader_delta.delta.filters.prune import Pruned, prune_files
from pyloader_delta.delta.footers import Footer, chunks_of, read_footers
from pyloader_delta.delta.livefiles import LiveFiles, files_of
from pyloader_delta.delta.selection import Selection
from pyloader_delta.delta.store import Store
from pyloader_delta.values import Chunk, Snapshot


def list_chunks(
    store: Store, snapshot: Snapshot, selection: Selection, *, exact_length: bool
) -> tuple[list[Chunk], Explanation]:
    """Return one chunk a row group that has rows to deliver, in the order of the files, and what was left out.

    Args:
        store: The table's store.
        snapshot: The table.
        selection: What is read of it.
        exact_length: Whether the rows that a filter keeps are counted; else some chunks do not say their rows.

    Raises:
        ReadError: A file or a deletion vector is missing, corrupt, or has another size or number of rows than the log
            says, or a file lacks a column of which the log states values.
        TableError: A partition value is none of its column's type, or a selected column is stored in a way that is
            not supported.
    """
    if selection.filter is None:
        footers = read_footers(store, snapshot, snapshot.files, selection)
        check_absent(files_of(snapshot), selection, footers, snapshot.version)
        n_live = [n for footer in footers for n in footer.n_live]
        whole = replace(_of_files(files_of(snapshot)), n_row_groups=len(n_live), n_rows=sum(n_live))
        return chunks_of(store, snapshot, snapshot.files, selection, footers), Explanation(whole, {}, whole)
    zone = selection.partition_timezone
    pruned = prune_files(snapshot, selection.filter.node, zone)
    files = files_of(snapshot).take(pruned.by_statistics)
    groups = GroupFilter(store, snapshot, selection, exact_length)
    key = cache_key(snapshot.table_id, snapshot.version, selection.filter.digest, zone, files)
    known = load_counts(key, len(files)) if exact_length else None
    footers = read_footers(store, snapshot, files, selection, groups, known)
    check_absent(files, selection, footers, snapshot.version)
    if exact_length and known is None and not all(verdict.decided for footer in footers for verdict in footer.verdicts):
        save_counts(key, [[verdict.n_kept or 0 for verdict in footer.verdicts] for footer in footers])
    chunks = chunks_of(store, snapshot, files, selection, footers)
    return chunks, _explanation(files_of(snapshot), pruned, footers)


def _explanation(files: LiveFiles, pruned: Pruned, footers: Sequence[Footer]) -> Explanation:
    groups = [
        _Group(verdict, size_bytes, n_live)
        for footer in footers
        for verdict, size_bytes, n_live in zip(footer.verdicts, footer.stored_bytes, footer.n_live, strict=True)
    ]
    tested = [group for group in groups if not group.verdict.pruned]
    read = [group for group in tested if group.verdict.n_kept != 0]
    empty = _of_groups([group for group in tested if group.verdict.n_kept == 0])
    n_kept = [group.verdict.n_kept for group in read]
    n_left = None if None in n_kept else sum(n for n in n_kept if n is not None)
    n_left_out = None if n_left is None else sum(group.n_live for group in tested) - n_left
    gone = np.setdiff1d(np.arange(len(files)), pruned.by_partition)
    return Explanation(
        _of_files(files),
        {
            "partition values": _of_files(files.take(gone)),
            "file statistics": _of_files(files.take(np.setdiff1d(pruned.by_partition, pruned.by_statistics))),
            "row group statistics": _of_groups([group for group in groups if group.verdict.pruned]),
            "rows": replace(empty, n_rows=n_left_out),
        },
        replace(
            _of_groups(read),
            n_files=sum(any(verdict.n_kept != 0 for verdict in footer.verdicts) for footer in footers),
            n_rows=n_left,
        ),
    )


class _Group(NamedTuple):
    verdict: Verdict
    stored_bytes: int
    n_live: int


def _of_groups(groups: Sequence[_Group]) -> Amount:
    size_bytes = sum(group.stored_bytes for group in groups)
    return Amount(None, len(groups), size_bytes, sum(group.n_live for group in groups))


def _of_files(files: LiveFiles) -> Amount:
    """Return how much files are; no row groups, which only footers would tell."""
    n_rows = None if files.n_rows.null_count else pc.sum(files.n_rows).as_py() or 0
    return Amount(len(files), None, pc.sum(files.size_bytes).as_py() or 0, n_rows)
