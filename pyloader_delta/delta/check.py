"""Whether the files of a table are what its log says: sizes, rows, deletion vectors, and all values if asked for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyloader_delta.delta.filters.bounds import Bounds
from pyloader_delta.delta.filters.literals import Key, has_keys, key
from pyloader_delta.delta.filters.log import file_bounds, parsed
from pyloader_delta.delta.filters.tree import Column
from pyloader_delta.delta.footers import check_count
from pyloader_delta.delta.livefiles import files_of
from pyloader_delta.delta.parquet import DataParquet, read_errors
from pyloader_delta.delta.selection import Selection
from pyloader_delta.delta.store import Store
from pyloader_delta.errors import ReadError, TableError
from pyloader_delta.values import DataFile, Snapshot
from pyloader_delta.words import many

_BATCH_ROWS = 1 << 14
_BLOCK = 256


class Checked(NamedTuple):
    """One file, looked at."""

    path: str
    n_rows: int | None
    """Rows that are not deleted; None where the file could not be read."""
    problems: tuple[str, ...]
    """What is wrong with it; empty where nothing is."""


def check(store: Store, snapshot: Snapshot, *, full: bool = False, n_threads: int = 8) -> Iterator[Checked]:
    """Yield each live file in order, checked against the log.

    Args:
        store: The table's store.
        snapshot: The table.
        full: Read every value too: pages with their checksums, and nulls and bounds of columns against the log's
            statistics, by which filters leave files out.
        n_threads: Files looked at at a time.
    """
    files = files_of(snapshot)
    columns = tuple(field for field in snapshot.fields if field.unreadable is None)
    selection = Selection(columns, page_checksums=full)
    names = [field.stored_name for field in columns]
    pool = ThreadPoolExecutor(n_threads, thread_name_prefix="pyloader_delta-check")
    try:
        for start in range(0, len(files), _BLOCK):  # so that statistics and results of few files are held
            block = np.arange(start, min(start + _BLOCK, len(files)), dtype=np.int64)
            stated: Sequence[Any] = files.statistics(block, names) if full else [None] * len(block)
            found: list[Future[Checked]] = [
                pool.submit(_checked, store, file, snapshot, selection, of_file, full)
                for file, of_file in zip(files.take(block), stated, strict=True)
            ]
            yield from (future.result() for future in found)
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _checked(
    store: Store, file: DataFile, snapshot: Snapshot, selection: Selection, stated: Any, full: bool
) -> Checked:
    problems: list[str] = []
    try:
        with read_errors(file.path, snapshot.version):
            parquet = DataParquet(store, file, selection, snapshot.version, size_bytes=file.size_bytes)
            try:
                check_count(file, parquet.metadata.num_rows, snapshot.version)
                deleted = parquet.deleted
                n_rows = parquet.metadata.num_rows - (0 if deleted is None else len(deleted))
                if full:
                    problems += _values(parquet, snapshot, file, parsed(stated))
            finally:
                parquet.close()
    except (ReadError, TableError) as error:
        return Checked(file.path, None, (str(error),))
    return Checked(file.path, n_rows, tuple(problems))


def _values(parquet: DataParquet, snapshot: Snapshot, file: DataFile, stated: Mapping[str, Any]) -> Iterator[str]:
    """Read all of a file; yield what its statistics say wrongly."""
    data = [field for field in parquet.schema if field.name not in snapshot.partition_columns]
    columns = [Column((field.name,), field.type) for field in data if has_keys(field.type)]
    bounds = file_bounds([stated], snapshot.fields, columns)
    nulls = dict.fromkeys((field.name for field in data), 0)
    beyond: set[str] = set()
    for row_group in range(parquet.metadata.num_row_groups):
        for piece in parquet.pieces(row_group, _BATCH_ROWS):
            table = piece.table()
            for name in nulls:
                nulls[name] += table.column(name).null_count
            beyond |= {column.path[0] for column in columns if _beyond(table, column, bounds[column.path])}
    yield from (
        f"{file.path} has values of {name!r} beyond the bounds that the log states: filters on it lose rows; write the "
        "file anew with right statistics"
        for name in sorted(beyond)
    )
    if file.deletion_vector is None:  # else the log counts deleted rows as well
        yield from _wrong_nulls(snapshot, file, nulls, stated)


def _beyond(table: pa.Table, column: Column, bounds: Bounds) -> bool:
    values = table.column(column.path[0])
    low, high = bounds.low[0], bounds.high[0]
    if (low is None and high is None) or values.null_count == len(values):
        return False
    found = pc.min_max(values)
    least, greatest = (_key(found[name], column.type) for name in ("min", "max"))
    if least is None or greatest is None:
        return False
    return (low is not None and least < low) or (high is not None and greatest > high)


def _key(scalar: pa.Scalar, kind: pa.DataType) -> Key | None:
    try:
        found, exact = key(scalar, kind)
    except ValueError:
        return None  # beyond what Python's own types hold
    return found if exact and found == found else None  # NaN is outside all bounds


def _wrong_nulls(
    snapshot: Snapshot, file: DataFile, nulls: Mapping[str, int], stated: Mapping[str, Any]
) -> Iterator[str]:
    counts = stated.get("nullCount")
    for field in snapshot.fields:
        said = counts.get(field.stored_name) if isinstance(counts, Mapping) else None
        if type(said) is int and field.name in nulls and said != nulls[field.name]:
            yield f"{file.path} has {many(nulls[field.name], 'null')} in {field.name!r}, but the log says {said}"
