"""A checkpoint's Parquet files become the adds, the protocol and the metadata in them; only needed leaves are read."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pyloader_delta.delta.commit import NUM_RECORDS, num_records
from pyloader_delta.errors import TableError

_ALWAYS = ("add.path", "add.size", "add.modificationTime", "add.partitionValues", "protocol", "metaData")
_DELETION_VECTOR = tuple(f"add.deletionVector.{name}" for name in ("storageType", "pathOrInlineDv", "offset"))
_N_ROWS = "add.stats_parsed.numRecords"


class UnreadableCheckpointError(TableError):
    """A checkpoint is corrupt; an older one, or the commits alone, may still give the version."""


@dataclass(slots=True)
class Checkpoint:
    """What a checkpoint says; the lists are equally long, one entry an add."""

    paths: list[str] = field(default_factory=list)
    sizes: list[int | None] = field(default_factory=list)
    times: list[int | None] = field(default_factory=list)
    partition_values: list[list[tuple[str, str | None]]] = field(default_factory=list)
    n_rows: list[int | None] = field(default_factory=list)
    deletion_vectors: list[dict[str, Any] | None] = field(default_factory=list)
    protocol: dict[str, Any] | None = None
    metadata: dict[str, Any] | None = None
    sidecars: bool = False
    """Whether files are listed in sidecars, as only reader feature 'v2Checkpoint' allows."""


def read_checkpoint(paths: list[str]) -> Checkpoint:
    """Return the content of a checkpoint.

    Args:
        paths: Absolute paths of its parts.

    Raises:
        UnreadableCheckpointError: A part is missing or corrupt.
    """
    checkpoint = Checkpoint()
    for path in paths:
        try:
            with pq.ParquetFile(path, memory_map=True, pre_buffer=False) as file:
                for row_group in range(file.num_row_groups):
                    _add(checkpoint, file, row_group)
        except Exception as error:  # a corrupt file makes pyarrow raise nearly anything
            raise UnreadableCheckpointError(f"checkpoint {path} cannot be read: {error}") from error
    return checkpoint


def _add(checkpoint: Checkpoint, file: pq.ParquetFile, row_group: int) -> None:
    columns = [*_ALWAYS, *_DELETION_VECTOR, _N_ROWS, "sidecar.path"]
    table = file.read_row_group(row_group, columns=columns, use_threads=False)
    for row in _rows(table, "protocol"):
        if row.get("minReaderVersion") is not None:
            checkpoint.protocol = row
    for row in _rows(table, "metaData"):
        if row.get("schemaString") is not None:
            checkpoint.metadata = row | {"configuration": dict(row.get("configuration") or ())}
    checkpoint.sidecars |= any(row.get("path") is not None for row in _rows(table, "sidecar"))
    adds = _child(table, "add")
    if adds is None or (paths := _child(adds, "path")) is None:
        return
    live = pc.is_valid(paths)
    n_adds = pc.sum(live).as_py() or 0
    if not n_adds:
        return

    def column(*names: str) -> pa.ChunkedArray:
        found = adds
        for name in names:
            found = None if found is None else _child(found, name)
        return pa.chunked_array([pa.nulls(n_adds)]) if found is None else found.filter(live)

    checkpoint.paths += column("path").to_pylist()
    checkpoint.sizes += column("size").to_pylist()
    checkpoint.times += column("modificationTime").to_pylist()
    checkpoint.partition_values += [value or [] for value in column("partitionValues").to_pylist()]
    checkpoint.deletion_vectors += column("deletionVector").to_pylist()
    n_rows = column("stats_parsed", "numRecords")
    if n_rows.null_count:  # statistics as text are often most of a checkpoint, so they are read only if needed
        text = file.read_row_group(row_group, columns=["add.stats"], use_threads=False)
        adds = _child(text, "add")
        checkpoint.n_rows += _n_rows(n_rows.to_pylist(), column("stats"))
    else:
        checkpoint.n_rows += n_rows.to_pylist()


def _n_rows(known: list[int | None], stats: pa.ChunkedArray) -> list[int | None]:
    """Return the known numbers, completed from statistics as text."""
    if pa.types.is_null(stats.type):
        return known
    quick = pc.struct_field(pc.extract_regex(stats, pattern=f"^{NUM_RECORDS}"), "n").cast(pa.int64()).to_pylist()
    slow = {i: num_records(stats[i].as_py()) for i, n in enumerate(quick) if n is None}
    return [
        slow.get(i) if n is None and m is None else m if n is None else n
        for i, (n, m) in enumerate(zip(known, quick, strict=True))
    ]


def _rows(table: pa.Table, name: str) -> list[dict[str, Any]]:
    column = _child(table, name)
    return [] if column is None else column.drop_null().to_pylist()


def _child(parent: pa.Table | pa.ChunkedArray, name: str) -> pa.ChunkedArray | None:
    """Return a column of a table or a field of a struct; None if there is none."""
    if isinstance(parent, pa.Table):
        return parent.column(name) if name in parent.column_names else None
    if not pa.types.is_struct(parent.type) or parent.type.get_field_index(name) < 0:
        return None
    return pc.struct_field(parent, name)
