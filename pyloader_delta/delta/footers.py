"""The row groups of a table's files, from their footers: read in parallel, checked against the log, sized."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import NamedTuple

from pyloader_delta.delta.parquet import DataParquet, read_errors
from pyloader_delta.delta.selection import Selection
from pyloader_delta.delta.sizes import (
    Lengths,
    column_leaves,
    constant_bytes,
    has_variable,
    sample_lengths,
    text_bytes,
)
from pyloader_delta.delta.store import Store
from pyloader_delta.errors import ReadError
from pyloader_delta.values import Chunk, DataFile, Snapshot

_MAX_THREADS = 16


class _Footer(NamedTuple):
    """What is kept of a footer."""

    n_rows: list[int]
    """Of each row group, deleted ones included."""
    n_live: list[int]
    """Of each row group."""
    fixed_bytes: list[int]
    """Of each row group: decoded size without the texts."""
    texts: dict[str, list[tuple[int, int]]]
    """Place of a variable-width leaf → (values, footer's size) of each row group."""

    def size_bytes(self, row_group: int, lengths: Lengths) -> int:
        """Return the decoded size of a row group's live rows."""
        texts = sum(text_bytes(place, *of_groups[row_group], lengths) for place, of_groups in self.texts.items())
        whole = self.fixed_bytes[row_group] + texts
        return whole * self.n_live[row_group] // max(self.n_rows[row_group], 1)


def row_groups(store: Store, snapshot: Snapshot, selection: Selection) -> list[Chunk]:
    """Return one chunk a row group that has live rows, in the order of the files.

    Args:
        store: The table's store.
        snapshot: The table.
        selection: What is read of it.

    Raises:
        ReadError: A file or a deletion vector is missing, corrupt, or has another size or number of rows than the log
            says.
        TableError: A partition value is none of its column's type, or a selected column is stored in a way that is
            not supported.
    """
    footers = _read_all(store, snapshot, selection)
    lengths = _sample(store, snapshot, selection, footers)
    chunks = []
    for file, footer in zip(snapshot.files, footers, strict=True):
        start = 0
        for i, n_rows in enumerate(footer.n_live):
            rows = range(start, start + n_rows)
            start += n_rows
            if n_rows:
                chunks.append(_chunk(file, footer.size_bytes(i, lengths), i, rows, snapshot.version))
    return chunks


def _chunk(file: DataFile, size_bytes: int, row_group: int, rows: range, version: int) -> Chunk:
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
    )


def _read_all(store: Store, snapshot: Snapshot, selection: Selection) -> list[_Footer]:
    if not snapshot.files:
        return []
    n_threads = min(len(snapshot.files), _MAX_THREADS, 4 * (os.cpu_count() or 1))
    with ThreadPoolExecutor(n_threads, thread_name_prefix="pyloader_delta-footers") as pool:
        footers = [pool.submit(_read, store, file, snapshot.version, selection) for file in snapshot.files]
        try:
            return [footer.result() for footer in footers]
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _read(store: Store, file: DataFile, version: int, selection: Selection) -> _Footer:
    with read_errors(file.path, version):
        parquet = DataParquet(store, file, selection, version, size_bytes=file.size_bytes)
        try:
            _check_count(file, parquet.metadata.num_rows, version)
            return _measure(parquet, selection)
        finally:
            parquet.close()


def _check_count(file: DataFile, n_rows: int, version: int) -> None:
    deleted = 0 if file.deletion_vector is None else file.deletion_vector.cardinality
    if file.n_rows is not None and n_rows != file.n_rows + deleted:
        said = f"says {file.n_rows + deleted}"
    elif deleted > n_rows:
        said = f"deletes {deleted} of them"
    else:
        return
    raise ReadError(
        f"{file.path} of version {version} has {n_rows} rows, but the log {said}; "
        "restore the file from a copy of the table"
    )


def _measure(file: DataParquet, selection: Selection) -> _Footer:
    columns = [field for field in selection.fields if field.name not in file.columns.constants]
    leaves = [leaf for field in columns for leaf in column_leaves(file, field)]
    groups = [file.metadata.row_group(i) for i in range(file.metadata.num_row_groups)]
    bits_a_row = sum(leaf.bits for leaf in leaves if not leaf.repeated or leaf.column is None)
    n_live = [file.n_live(i) for i in range(len(groups))]
    texts: dict[str, list[tuple[int, int]]] = {leaf.place: [] for leaf in leaves if leaf.variable}
    found = _Footer([group.num_rows for group in groups], n_live, [], texts)
    for group in groups:
        n_rows = group.num_rows
        fixed_bytes = n_rows * bits_a_row // 8
        fixed_bytes += sum(constant_bytes(value, n_rows) for value in file.columns.constants.values())
        for leaf in leaves:
            if leaf.column is None or not (leaf.repeated or leaf.variable):
                if leaf.variable:
                    found.texts[leaf.place].append((0, 0))
                continue
            column = group.column(leaf.column)
            if leaf.repeated:
                fixed_bytes += column.num_values * leaf.bits // 8
            if leaf.variable:
                found.texts[leaf.place].append((column.num_values, column.total_uncompressed_size))
        found.fixed_bytes.append(fixed_bytes)
    return found


def _sample(store: Store, snapshot: Snapshot, selection: Selection, footers: Sequence[_Footer]) -> Lengths:
    """Return the lengths of texts in the first row group that has each of them: mostly the table's first."""
    lengths: Lengths = {}
    columns = replace(selection, fields=tuple(field for field in selection.fields if has_variable(field.type)))
    for file, footer in zip(snapshot.files, footers, strict=True):
        first = next((i for i, n_rows in enumerate(footer.n_live) if n_rows), None)
        if first is None:
            continue
        new = [place for place, of_groups in footer.texts.items() if of_groups[first][0] and place not in lengths]
        if not new:
            continue
        with read_errors(file.path, snapshot.version):
            parquet = DataParquet(store, file, columns, snapshot.version, size_bytes=file.size_bytes)
            found = sample_lengths(parquet, first)
        lengths |= {place: found[place] for place in new if place in found}
    return lengths
