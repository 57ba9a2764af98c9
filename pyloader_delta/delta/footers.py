"""The row groups of a table's files, from their footers: read in parallel, checked against the log, sized."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import pyarrow as pa

from pyloader_delta.delta.parquet import DataParquet, read_errors
from pyloader_delta.delta.sizes import (
    Lengths,
    column_leaves,
    constant_bytes,
    has_variable,
    sample_lengths,
    text_bytes,
)
from pyloader_delta.errors import ReadError
from pyloader_delta.values import Chunk, DataFile, Snapshot

_MAX_THREADS = 16


class _Footer(NamedTuple):
    """What is kept of a footer."""

    n_rows: list[int]
    """Of each row group."""
    fixed_bytes: list[int]
    """Of each row group: decoded size without the texts."""
    texts: dict[str, list[tuple[int, int]]]
    """Place of a variable-width leaf → (values, footer's size) of each row group."""


def row_groups(snapshot: Snapshot, schema: pa.Schema) -> list[Chunk]:
    """Return one chunk a row group that has rows, in the order of the files.

    Args:
        snapshot: The table.
        schema: Logical schema of the selected columns.

    Raises:
        ReadError: A file is missing, corrupt, or has another number of rows than the log says.
        TableError: A partition value is none of its column's type.
    """
    footers = _read_all(snapshot, schema)
    lengths = _sample(snapshot, schema, footers)
    chunks = []
    for file, footer in zip(snapshot.files, footers, strict=True):
        start = 0
        for i, n_rows in enumerate(footer.n_rows):
            rows = range(start, start + n_rows)
            start += n_rows
            if n_rows:
                texts = sum(text_bytes(place, *of_groups[i], lengths) for place, of_groups in footer.texts.items())
                size = footer.fixed_bytes[i] + texts
                chunks.append(Chunk(file.path, size, rows, i, rows, file.partition_values, snapshot.version))
    return chunks


def _read_all(snapshot: Snapshot, schema: pa.Schema) -> list[_Footer]:
    if not snapshot.files:
        return []
    n_threads = min(len(snapshot.files), _MAX_THREADS, 4 * (os.cpu_count() or 1))
    with ThreadPoolExecutor(n_threads, thread_name_prefix="pyloader_delta-footers") as pool:
        footers = [pool.submit(_read, file, snapshot.version, schema) for file in snapshot.files]
        try:
            return [footer.result() for footer in footers]
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _read(file: DataFile, version: int, schema: pa.Schema) -> _Footer:
    with read_errors(file.path, version):
        parquet = DataParquet(file.path, schema, dict(file.partition_values))
        try:
            footer = parquet.metadata
            if file.n_rows is not None and footer.num_rows != file.n_rows:
                raise ReadError(
                    f"{file.path} of version {version} has {footer.num_rows} rows, but the log says {file.n_rows}; "
                    "restore the file from a copy of the table"
                )
            return _measure(parquet, schema)
        finally:
            parquet.close()


def _measure(file: DataParquet, schema: pa.Schema) -> _Footer:
    leaves = [leaf for field in schema if field.name not in file.constants for leaf in column_leaves(file, field)]
    groups = [file.metadata.row_group(i) for i in range(file.metadata.num_row_groups)]
    bits_a_row = sum(leaf.bits for leaf in leaves if not leaf.repeated or leaf.column is None)
    found = _Footer([group.num_rows for group in groups], [], {leaf.place: [] for leaf in leaves if leaf.variable})
    for group in groups:
        n_rows = group.num_rows
        fixed_bytes = n_rows * bits_a_row // 8
        fixed_bytes += sum(constant_bytes(value, n_rows) for value in file.constants.values())
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


def _sample(snapshot: Snapshot, schema: pa.Schema, footers: Sequence[_Footer]) -> Lengths:
    """Return the lengths of texts in the first row group that has each of them: mostly the table's first."""
    lengths: Lengths = {}
    for file, footer in zip(snapshot.files, footers, strict=True):
        first = next((i for i, n_rows in enumerate(footer.n_rows) if n_rows), None)
        if first is None:
            continue
        new = [place for place, of_groups in footer.texts.items() if of_groups[first][0] and place not in lengths]
        if not new:
            continue
        columns = pa.schema([field for field in schema if has_variable(field.type)])
        with read_errors(file.path, snapshot.version):
            parquet = DataParquet(file.path, columns, dict(file.partition_values))
            found = sample_lengths(parquet, first, columns)
        lengths |= {place: found[place] for place in new if place in found}
    return lengths
