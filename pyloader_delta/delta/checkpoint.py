"""One Parquet file of a checkpoint becomes the adds, protocol and metadata in it; only needed leaves are read."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from pyloader_delta.arrays import storable_table
from pyloader_delta.columns import numbers
from pyloader_delta.delta.adds import ADDS, VECTOR, counts
from pyloader_delta.delta.arrays import integers, view
from pyloader_delta.delta.canonical import canonical_column
from pyloader_delta.delta.store import expecting
from pyloader_delta.delta.stores.ranges import column_spans

_BATCH = 32_768
_LEAVES = [
    *("protocol", "metaData", "sidecar.path", "sidecar.sizeInBytes", "add.stats_parsed.numRecords"),
    *(f"add.{name}" for name in ADDS.names if name not in ("numRecords", "source", "row")),
]


@dataclass(slots=True)
class Part:
    """What one file of a checkpoint says."""

    adds: list[pa.Table] = field(default_factory=list)
    """With the columns of `ADDS`."""
    protocol: dict[str, Any] | None = None
    metadata: dict[str, Any] | None = None
    sidecars: list[tuple[str, int | None]] = field(default_factory=list)
    """Paths, as spelled there, and sizes of the files that hold more adds."""


def read_part(opened: pa.NativeFile, root: str, source: int) -> Part:
    """Return the content of one Parquet file of a checkpoint, or of a sidecar.

    Args:
        opened: The file, as `Store.open` gives it.
        root: The table's absolute path or URI.
        source: Number of the file among the sources of statistics.

    Raises:
        Exception: Nearly anything, where the file is corrupt.
    """
    part = Part()
    first_row = 0
    with pq.ParquetFile(opened) as file:
        for row_group in range(file.num_row_groups):
            adds = []
            start = first_row
            for table in _tables(opened, file, row_group, _LEAVES):
                _take(part, table)
                if (found := _adds(table, root, source, first_row)) is not None:
                    adds.append(found)
                first_row += table.num_rows
            if adds:
                texts = _tables(opened, file, row_group, ["add.stats"])
                part.adds.append(_counted(pa.concat_tables(adds), texts, start))
    return part


def _tables(opened: pa.NativeFile, file: pq.ParquetFile, row_group: int, leaves: Sequence[str]) -> Iterator[pa.Table]:
    """Yield some leaves of a row group, a number of rows at a time."""
    with expecting(opened, lambda: column_spans(file.metadata, [row_group], leaves)):
        for batch in file.iter_batches(_BATCH, row_groups=[row_group], columns=leaves):
            yield storable_table(pa.Table.from_batches([batch]))


def _take(part: Part, table: pa.Table) -> None:
    """Take in what is no add."""
    for row in _rows(table, "protocol"):
        if row.get("minReaderVersion") is not None:
            part.protocol = row
    for row in _rows(table, "metaData"):
        if row.get("schemaString") is not None:
            part.metadata = row | {name: dict(row.get(name) or ()) for name in ("configuration", "format")}
    sidecars = [(row.get("path"), row.get("sizeInBytes")) for row in _rows(table, "sidecar")]
    part.sidecars += [(path, size) for path, size in sidecars if path is not None]


def statistics(opened: pa.NativeFile, rows: NDArray[Any], names: Collection[str]) -> list[str | dict[str, Any] | None]:
    """Return statistics of some adds of a checkpoint's file: JSON, or what `stats_parsed` has; None for none.

    Args:
        opened: The file, as `Store.open` gives it.
        rows: Integer array of shape (n,): their rows in the file, in any order.
        names: Columns whose statistics are wanted, as data files spell them.
    """
    leaves = ["add.stats", "add.stats_parsed.numRecords", "add.stats_parsed.tightBounds"]
    leaves += [f"add.stats_parsed.{kind}.{name}" for kind in ("minValues", "maxValues", "nullCount") for name in names]
    found: list[str | dict[str, Any] | None] = [None] * len(rows)
    first_row = 0
    with pq.ParquetFile(opened) as file:
        for row_group in range(file.num_row_groups):
            for table in _tables(opened, file, row_group, leaves):
                places = np.flatnonzero((first_row <= rows) & (rows < first_row + table.num_rows))
                adds, taken = _child(table, "add"), numbers(rows[places] - first_row)
                for name in ("stats", "stats_parsed") if len(places) else ():
                    column = _child(adds, name)
                    values = [] if column is None else _values(column.take(taken))
                    for i, value in zip(places.tolist(), values, strict=False):
                        found[i] = found[i] if value is None else value
                first_row += table.num_rows
    return found


def _values(column: pa.ChunkedArray) -> list[Any]:
    """Return Python values, None for what Python has no value for, such as a time beyond the year 9999."""
    try:
        return list(column.to_pylist())
    except (ValueError, OverflowError):
        return [_value(scalar) for scalar in column]


def _value(scalar: pa.Scalar) -> Any:
    try:
        return scalar.as_py()
    except (ValueError, OverflowError):
        return None


def _adds(table: pa.Table, root: str, source: int, first_row: int) -> pa.Table | None:
    adds = _child(table, "add")
    paths = _child(adds, "path")
    if paths is None or paths.null_count == len(paths):
        return None
    live = pc.is_valid(paths)
    rows = view(pc.indices_nonzero(live))

    def column(*names: str) -> pa.Array | None:
        found = adds
        for name in names:
            found = _child(found, name)
        return None if found is None else _one(found.filter(live))

    columns: dict[str, Any] = {
        name: column(name) for name in ("size", "modificationTime", "partitionValues", "baseRowId")
    }
    columns["path"] = canonical_column(root, _one(paths.filter(live)).cast(pa.string()))
    columns["deletionVector"] = _vectors(column("deletionVector"))
    columns["numRecords"] = column("stats_parsed", "numRecords")
    columns["source"] = integers([source] * len(rows), pa.int32())
    columns["row"] = numbers((first_row + rows).astype(np.int32))
    arrays = [_typed(columns[column.name], column.type, len(rows)) for column in ADDS]
    return pa.Table.from_arrays(arrays, schema=ADDS)


def _counted(adds: pa.Table, texts: Iterable[pa.Table], first_row: int) -> pa.Table:
    """Return adds with their numbers of rows, also where only statistics as JSON have them.

    Args:
        adds: Those of a row group.
        texts: Its `add.stats`, which are often most of a checkpoint: they are read if needed, and not all at once.
        first_row: Its first row in the file.
    """
    known = adds.column("numRecords")
    if not known.null_count:
        return adds
    rows = np.concatenate([view(chunk) for chunk in adds.column("row").chunks]) - first_row
    found = []
    start = 0
    for table in texts:
        first, last = np.searchsorted(rows, (start, start + table.num_rows))
        stats = _child(_child(table, "add"), "stats")
        if stats is None:
            return adds
        found.append(counts(_one(stats.take(numbers(rows[first:last] - start)))))
        start += table.num_rows
    counted = pc.coalesce(known, pa.chunked_array([pa.concat_arrays(found)]))
    return adds.set_column(adds.schema.get_field_index("numRecords"), "numRecords", counted)


def _typed(column: pa.Array | None, kind: pa.DataType, n_rows: int) -> pa.Array:
    if column is None:
        return pa.nulls(n_rows, kind)
    return column if column.type == kind else column.cast(kind)


def _vectors(column: pa.Array | None) -> pa.Array | None:
    """Return descriptors with the fields of `VECTOR`; null where there is none."""
    if column is None or column.null_count == len(column):
        return None
    children = [_typed(_child(column, child.name), child.type, len(column)) for child in VECTOR]
    return pa.StructArray.from_arrays(children, fields=list(VECTOR), mask=children[0].is_null())


def _rows(table: pa.Table, name: str) -> list[dict[str, Any]]:
    column = _child(table, name)
    return [] if column is None else column.drop_null().to_pylist()


def _child(parent: pa.Table | pa.ChunkedArray | pa.Array | None, name: str) -> Any:
    """Return a column of a table or a field of a struct; None if there is none."""
    if isinstance(parent, pa.Table):
        return parent.column(name) if name in parent.column_names else None
    if parent is None or not pa.types.is_struct(parent.type) or parent.type.get_field_index(name) < 0:
        return None
    return pc.struct_field(parent, name)


def _one(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    """Return a column in one piece."""
    if isinstance(column, pa.Array):
        return column
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks)
