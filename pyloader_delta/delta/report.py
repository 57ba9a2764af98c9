"""What a table is made of, in numbers: by its log, its footers, and a listing of its folder. Nothing is judged."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from pyloader_delta.delta.arrays import view
from pyloader_delta.delta.canonical import absolute
from pyloader_delta.delta.filters.log import parsed
from pyloader_delta.delta.footers import chunks_of, read_footers
from pyloader_delta.delta.livefiles import LiveFiles, files_of
from pyloader_delta.delta.replay import State
from pyloader_delta.delta.schema import mapping_mode
from pyloader_delta.delta.selection import Selection
from pyloader_delta.delta.snapshot import TableLog
from pyloader_delta.delta.store import Store
from pyloader_delta.delta.vectors import vector_path
from pyloader_delta.errors import ReadError, TableError
from pyloader_delta.values import Snapshot, TableField

SMALL_FILE_BYTES = 16 << 20
_HIDDEN = ("_delta_log/", "_change_data/")


@dataclass(frozen=True, slots=True)
class Spread:
    """How far numbers lie apart."""

    smallest: int
    median: int
    largest: int


@dataclass(frozen=True, slots=True)
class ColumnReport:
    """A column of the table."""

    name: str
    """With dots before the name of a field inside a struct."""
    type: str
    n_nulls: int | None
    """By the log's statistics, deleted rows counted; None where a file has none for it."""
    unreadable: str | None = None
    """Why it cannot be read; None where it can."""


@dataclass(frozen=True, slots=True)
class RowGroupReport:
    """Row groups, by the footers of files spread over the table."""

    n_files: int
    """Files whose footers were read."""
    n_groups: int
    """Row groups in them."""
    n_rows: Spread
    """Rows of a row group that are not deleted."""
    decoded_bytes: Spread
    """Of a row group in memory, estimated."""
    row_bytes: int
    """Decoded size of a row, the mean."""


@dataclass(frozen=True, slots=True)
class TableReport:
    """A table at one version."""

    uri: str
    table_id: str
    version: int | None
    timestamp_ms: int | None
    """Milliseconds since 1970 UTC; None where the commit states none."""
    reader_version: int
    writer_version: int | None
    features: tuple[str, ...]
    """Table features that readers or writers need."""
    columns: tuple[ColumnReport, ...]
    partition_columns: tuple[str, ...]
    n_partitions: int | None
    """Different partition values; None where the table is not partitioned."""
    n_files: int
    n_rows: int | None
    """Rows that are not deleted; None where files lack statistics and footers were not read."""
    size_bytes: int
    """Of the live files."""
    file_bytes: Spread | None
    """None where there is no file."""
    n_small_files: int
    """Smaller than 16 MiB."""
    n_deleted_rows: int
    """By deletion vectors: they lie in the files, and are left out when these are read."""
    n_files_without_counts: int
    """Files of which the log does not say how many rows they have."""
    row_groups: RowGroupReport | None
    """None where no footer was read, or there is no row."""
    footer_problem: str | None
    """Why footers could not be read; None where they could."""
    n_dead_files: int | None
    """Files in the folder that are not of this version; None where it was not listed."""
    dead_bytes: int | None
    retention_risk: str | None
    """Why files may be deleted while the version is being read."""

    @property
    def decoded_bytes(self) -> int | None:
        """Size of the whole table in memory, estimated; None where it is unknown."""
        if self.n_rows is None or self.row_groups is None:
            return None
        return self.n_rows * self.row_groups.row_bytes

    @property
    def skew(self) -> float | None:
        """Largest file by the median one; None where there is no file."""
        return None if self.file_bytes is None else self.file_bytes.largest / max(self.file_bytes.median, 1)


def report(store: Store, version: int | None = None, *, max_footers: int = 256, folder: bool = True) -> TableReport:
    """Return what a table is made of.

    Args:
        store: The table's store.
        version: The version; None for the latest.
        max_footers: Files whose footers are read, spread over the table; 0 for none.
        folder: Whether the folder is listed for files that are dead.

    Raises:
        TableError: There is no such table or version, or it cannot be read; the text names why.
    """
    log = TableLog(store)
    state = log.state(version)
    snapshot = log.judged(state)
    files = files_of(snapshot)
    sizes = view(files.size_bytes.combine_chunks()) if len(files) else np.empty(0, np.int64)
    groups, n_counted, problem = None, None, None
    try:
        groups, n_counted = _row_groups(store, snapshot, min(max_footers, len(files)))
    except (ReadError, TableError) as error:  # what the log says can be told all the same
        problem = str(error)
    n_rows = n_counted if files.n_rows.null_count else pc.sum(files.n_rows).as_py() or 0
    dead = _dead(store, files) if folder else None
    return TableReport(
        uri=snapshot.uri,
        table_id=snapshot.table_id,
        version=snapshot.version,
        timestamp_ms=snapshot.timestamp_ms,
        reader_version=state.protocol["minReaderVersion"],
        writer_version=state.protocol.get("minWriterVersion"),
        features=features(state),
        columns=tuple(_columns(snapshot)),
        partition_columns=snapshot.partition_columns,
        n_partitions=_n_partitions(snapshot),
        n_files=len(files),
        n_rows=n_rows,
        size_bytes=int(sizes.sum()),
        file_bytes=_spread(sizes),
        n_small_files=int((sizes < SMALL_FILE_BYTES).sum()),
        n_deleted_rows=_n_deleted(files),
        n_files_without_counts=files.n_rows.null_count,
        row_groups=groups,
        footer_problem=problem,
        n_dead_files=None if dead is None else len(dead),
        dead_bytes=None if dead is None else sum(dead),
        retention_risk=log.retention_risk(snapshot),
    )


def features(state: State) -> tuple[str, ...]:
    """Return the features that a table's protocol names, sorted; of an older one, column mapping where it is used."""
    named = [*(state.protocol.get("readerFeatures") or ()), *(state.protocol.get("writerFeatures") or ())]
    if mapping_mode(state.metadata.get("configuration")) != "none":
        named.append("columnMapping")
    return tuple(sorted({str(name) for name in named}))


def readable(snapshot: Snapshot) -> Selection:
    """Return the selection of every column that can be read."""
    return Selection(tuple(field for field in snapshot.fields if field.unreadable is None))


def _row_groups(store: Store, snapshot: Snapshot, n_files: int) -> tuple[RowGroupReport | None, int | None]:
    """Return the row groups of some files, and the rows of the table if these are all of its files."""
    if not n_files:
        return None, None
    files = files_of(snapshot)
    chosen = files.take(np.linspace(0, len(files) - 1, n_files).astype(np.int64))
    selection = readable(snapshot)
    footers = read_footers(store, snapshot, chosen, selection)
    counted = sum(sum(footer.n_live) for footer in footers) if n_files == len(files) else None
    chunks = chunks_of(store, snapshot, chosen, selection, footers)
    rows = np.array([chunk.n_rows for chunk in chunks], np.int64)
    decoded = np.array([chunk.size_bytes for chunk in chunks], np.int64)
    spread, sizes = _spread(rows), _spread(decoded)
    if spread is None or sizes is None:
        return None, counted
    return RowGroupReport(n_files, len(chunks), spread, sizes, max(int(decoded.sum() // rows.sum()), 1)), counted


def _spread(numbers: NDArray[np.int64]) -> Spread | None:
    if not len(numbers):
        return None
    return Spread(int(numbers.min()), int(np.median(numbers)), int(numbers.max()))


def _n_partitions(snapshot: Snapshot) -> int | None:
    files = files_of(snapshot)
    if not snapshot.partition_columns:
        return None
    values = [files.partition_values(name).to_pylist() for name in snapshot.partition_columns]
    return len(set(zip(*values, strict=True)))


def _n_deleted(files: LiveFiles) -> int:
    vectors = files.table.column("deletionVector")
    return pc.sum(pc.struct_field(vectors, "cardinality")).as_py() or 0 if len(vectors) else 0


def _columns(snapshot: Snapshot) -> Iterator[ColumnReport]:
    files = files_of(snapshot)
    stored = [field for field in snapshot.fields if field.name not in snapshot.partition_columns]
    names = [field.stored_name for field in stored]
    every = np.arange(len(files), dtype=np.int64)
    counts = [parsed(found).get("nullCount") for found in files.statistics(every, names)]
    for field in snapshot.fields:
        if field.name in snapshot.partition_columns:
            yield ColumnReport(field.name, str(field.type), _partition_nulls(files, field.name), field.unreadable)
        else:
            yield from _column(field, counts, "")


def _column(field: TableField, counts: Sequence[Any], before: str) -> Iterator[ColumnReport]:
    """Yield a column, or the fields of a struct, with the nulls in each file's statistics."""
    name = before + field.name
    own = [count.get(field.stored_name) if isinstance(count, Mapping) else None for count in counts]
    if pa.types.is_struct(field.type) and field.children and not field.variant and field.unreadable is None:
        for child in field.children:
            yield from _column(child, own, f"{name}.")
        return
    known = [count for count in own if type(count) is int]
    yield ColumnReport(name, _type(field), sum(known) if len(known) == len(own) else None, field.unreadable)


def _type(field: TableField) -> str:
    return "variant" if field.variant else str(field.type)


def _partition_nulls(files: LiveFiles, name: str) -> int | None:
    rows = files.n_rows.filter(pc.is_null(files.partition_values(name)))
    return None if rows.null_count else pc.sum(rows).as_py() or 0


def _dead(store: Store, files: LiveFiles) -> list[int]:
    """Return the sizes of files below the root that are neither of the log nor of this version."""
    live = {absolute(store.root, path) for path in files.table.column("path").to_pylist()}
    for file in files:
        if (vector := file.deletion_vector) is not None and vector.storage_type != "i":
            live.add(absolute(store.root, vector_path(vector)))
    return [
        size
        for name, size in _listing(store)
        if not name.startswith(_HIDDEN) and absolute(store.root, name) not in live and not _ignored(name)
    ]


def _ignored(name: str) -> bool:
    """Return whether a file is none of the table's: neither data nor a deletion vector."""
    return not name.endswith((".parquet", ".bin"))


def _listing(store: Store) -> Iterator[tuple[str, int]]:
    """Yield (path relative to the root, with slashes; size) of all files below it."""
    if not store.local:
        yield from ((name, size) for name, size, _ in store.walk())
        return
    for folder, _, names in os.walk(store.root):
        for name in names:
            path = os.path.join(folder, name)
            yield os.path.relpath(path, store.root).replace(os.sep, "/"), os.lstat(path).st_size
