"""The row groups of a table's files, from their footers: read in parallel, checked against the log, sized."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import accumulate, pairwise, repeat
from typing import NamedTuple

from pyloader_delta.delta.filters.cache import Counts
from pyloader_delta.delta.filters.groups import GroupFilter, Verdict
from pyloader_delta.delta.parquet import DataParquet, read_errors
from pyloader_delta.delta.selection import Selection
from pyloader_delta.delta.sizes import (
    Lengths,
    column_leaves,
    constant_bytes,
    cursor_bytes,
    has_variable,
    sample_lengths,
    text_bytes,
)
from pyloader_delta.delta.store import Store
from pyloader_delta.delta.view import View
from pyloader_delta.errors import ReadError
from pyloader_delta.values import Chunk, DataFile, Snapshot, named
from pyloader_delta.words import many

_MAX_THREADS = 16
_MAX_SAMPLES = 4  # row groups in which the lengths of texts are measured; more where those lack one


class Footer(NamedTuple):
    """What is kept of a footer."""

    n_rows: list[int]
    """Of each row group, deleted ones included."""
    n_live: list[int]
    """Of each row group."""
    fixed_bytes: list[int]
    """Of each row group: decoded size without the texts."""
    texts: dict[str, list[tuple[int, int]]]
    """Place of a variable-width leaf → (values, footer's size) of each row group."""
    stored_bytes: list[int]
    """Of each row group: its share of the file."""
    cursor_bytes: list[int]
    """Of each row group: what is held while it is read piece by piece."""
    verdicts: list[Verdict]
    """What the filter makes of each row group."""
    absent: tuple[str, ...] = ()
    """Columns that are read, or tested by the filter, and that the file lacks."""

    def size_bytes(self, row_group: int, lengths: Lengths) -> int:
        """Return the decoded size of the rows that are read of a row group; of its live ones where that is unknown."""
        texts = sum(text_bytes(place, *of_groups[row_group], lengths) for place, of_groups in self.texts.items())
        whole = self.fixed_bytes[row_group] + texts
        n_kept = self.verdicts[row_group].n_kept
        n_read = self.n_live[row_group] if n_kept is None else n_kept
        return whole * n_read // max(self.n_rows[row_group], 1)


def chunks_of(
    store: Store, snapshot: Snapshot, files: Sequence[DataFile], selection: Selection, footers: Sequence[Footer]
) -> list[Chunk]:
    """Return one chunk a row group that has rows to read, in the order of the files.

    Args:
        store: The table's store.
        snapshot: The table.
        files: Those of its files that are read.
        selection: What is read of them.
        footers: What `read_footers` gave of them.
    """
    lengths = _sample(store, snapshot, files, selection, footers)
    chunks = []
    for file, footer in zip(files, footers, strict=True):
        start = 0
        for i, verdict in enumerate(footer.verdicts):
            n_rows = footer.n_live[i] if verdict.n_kept is None else verdict.n_kept
            rows = range(start, start + n_rows)
            start += n_rows
            if n_rows:
                size_bytes = footer.size_bytes(i, lengths)
                known = None if verdict.n_kept is None else rows
                sizes = size_bytes, footer.cursor_bytes[i]
                chunks.append(_chunk(file, *sizes, i, known, snapshot.version, verdict.filtered))
    return chunks


def _chunk(
    file: DataFile, size_bytes: int, open_bytes: int, row_group: int, rows: range | None, version: int | None,
    filtered: bool,
) -> Chunk:  # fmt: skip
    return Chunk(
        file.path,
        size_bytes,
        rows,
        row_group,
        row_group_rows=rows,
        partition_values=file.partition_values,
        version=version,
        file_bytes=file.size_bytes,
        deletion_vector=file.deletion_vector,
        base_row_id=file.base_row_id,
        cursor_bytes=open_bytes,
        filtered=filtered,
    )


def read_footers(
    store: Store,
    snapshot: Snapshot,
    files: Sequence[DataFile],
    selection: Selection,
    groups: GroupFilter | None = None,
    counts: Counts | None = None,
) -> list[Footer]:
    """Return what is needed of the footers of files.

    Args:
        store: The table's store.
        snapshot: The table.
        files: Those of its files that are read.
        selection: What is read of them.
        groups: Judges their row groups; None to take all.
        counts: Of each file, of each row group, how many rows the filter keeps, where they were counted before.

    Raises:
        ReadError: A file or a deletion vector is missing, corrupt, or has another size or number of rows than the log
            says.
        TableError: A partition value is none of its column's type, or a selected column is stored in a way that is
            not supported.
    """
    if not files:
        return []
    n_threads = min(len(files), _MAX_THREADS, 4 * (os.cpu_count() or 1))
    known: Iterable[Sequence[int] | None] = repeat(None) if counts is None else counts
    with ThreadPoolExecutor(n_threads, thread_name_prefix="pyloader_delta-footers") as pool:
        last = _Last()
        footers = [
            pool.submit(_read, store, file, snapshot.version, selection, groups, kept, last)
            for file, kept in zip(files, known, strict=False)
        ]
        try:
            return [footer.result() for footer in footers]
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


class _Last:
    """What was found out about the columns of a file: others are mostly like it. Whole, whichever thread sets it."""

    known: tuple[View, _Leaves] | None = None


class _Leaves:
    """The leaves of the selected columns that the log does not give, in a file and those like it."""

    def __init__(self, parquet: DataParquet, selection: Selection) -> None:
        columns = [field for field in selection.fields if field.name not in parquet.columns.constants]
        leaves = [leaf for field in columns for leaf in column_leaves(parquet, field)]
        self.bits_a_row = sum(leaf.bits for leaf in leaves if not leaf.repeated or leaf.column is None)
        self.read = {leaf.column for leaf in leaves if leaf.column is not None}
        """Numbers of those that the file has."""
        self.measured = [leaf for leaf in leaves if leaf.variable or (leaf.repeated and leaf.column is not None)]
        """Those whose sizes do not follow from the number of rows."""


def _read(
    store: Store,
    file: DataFile,
    version: int | None,
    selection: Selection,
    groups: GroupFilter | None,
    counts: Sequence[int] | None,
    last: _Last,
) -> Footer:
    known = last.known
    with read_errors(file.path, version):
        parquet = DataParquet(store, file, selection, version, size_bytes=file.size_bytes, like=known and known[0])
        try:
            check_count(file, parquet.metadata.num_rows, version)
            if known is None or not parquet.view.is_like(known[0]):
                known = last.known = parquet.view, _Leaves(parquet, selection)
            found = _measure(file, parquet, known[1])
            if groups is None:
                return found
            return found._replace(verdicts=groups.judge(file, parquet, counts))
        finally:
            parquet.close()


def check_count(file: DataFile, n_rows: int, version: int | None) -> None:
    """Raise ReadError where a file has another number of rows than the log says."""
    deleted = 0 if file.deletion_vector is None else file.deletion_vector.cardinality
    if file.n_rows is not None and n_rows != file.n_rows + deleted:
        said = f"says {file.n_rows + deleted}"
    elif deleted > n_rows:
        said = f"deletes {deleted} of them"
    else:
        return
    raise ReadError(
        f"{named(file.path, version)} has {many(n_rows, 'row')}, but the log {said}; restore the file from a copy of "
        "the table"
    )


def _measure(file: DataFile, parquet: DataParquet, leaves: _Leaves) -> Footer:
    groups = [parquet.metadata.row_group(i) for i in range(parquet.metadata.num_row_groups)]
    n_live = [parquet.n_live(i) for i in range(len(groups))]
    ends = [0, *accumulate(group.total_byte_size for group in groups)]
    ends = [file.size_bytes * end // max(ends[-1], 1) for end in ends]
    found = Footer(
        n_rows=[group.num_rows for group in groups],
        n_live=n_live,
        fixed_bytes=[],
        texts={leaf.place: [] for leaf in leaves.measured if leaf.variable},
        stored_bytes=[end - start for start, end in pairwise(ends)],
        cursor_bytes=[cursor_bytes(parquet.metadata, i, leaves.read) for i in range(len(groups))],
        verdicts=[Verdict(n, filtered=False, decided=True) for n in n_live],
        absent=parquet.absent,
    )
    for group in groups:
        n_rows = group.num_rows
        fixed_bytes = n_rows * leaves.bits_a_row // 8
        fixed_bytes += sum(constant_bytes(value, n_rows) for value in parquet.columns.constants.values())
        for leaf in leaves.measured:
            if leaf.column is None:
                found.texts[leaf.place].append((0, 0))
                continue
            column = group.column(leaf.column)
            if leaf.repeated:
                fixed_bytes += column.num_values * leaf.bits // 8
            if leaf.variable:
                found.texts[leaf.place].append((column.num_values, column.total_uncompressed_size))
        found.fixed_bytes.append(fixed_bytes)
    return found


def _sample(
    store: Store, snapshot: Snapshot, files: Sequence[DataFile], selection: Selection, footers: Sequence[Footer]
) -> Lengths:
    """Return the lengths of texts at the beginning of some row groups: spread over the table, and where each is new."""
    if not any(footer.texts for footer in footers):
        return {}
    groups = [
        (file, footer, i)
        for file, footer in zip(files, footers, strict=True)
        for i, n_rows in enumerate(footer.n_live)
        if n_rows
    ]
    spread = groups[:: max(len(groups) // _MAX_SAMPLES, 1)][:_MAX_SAMPLES]
    lengths: Lengths = {}
    columns = replace(selection, fields=tuple(field for field in selection.fields if has_variable(field.type)))
    for n, (file, footer, i) in enumerate([*spread, *groups]):
        places = [place for place, of_groups in footer.texts.items() if of_groups[i][0]]
        if not any(n < len(spread) or place not in lengths for place in places):
            continue
        with read_errors(file.path, snapshot.version):
            parquet = DataParquet(store, file, columns, snapshot.version, size_bytes=file.size_bytes)
            stored = sum(of_groups[i][1] for of_groups in footer.texts.values())
            found = sample_lengths(parquet, i, stored // max(footer.n_rows[i], 1))
        for place in places:
            (n_bytes, n_values), new = lengths.get(place, (0, 0)), found.get(place, (0, 0))
            lengths[place] = (n_bytes + new[0], n_values + new[1])
    return lengths
