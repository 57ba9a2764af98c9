"""Which files of a table a filter can leave out, by their partition values and by the log's statistics."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pyloader_delta.delta.filters.bounds import Bounds, of_values
from pyloader_delta.delta.filters.literals import Key, has_keys, key
from pyloader_delta.delta.filters.log import file_bounds
from pyloader_delta.delta.filters.outcomes import TRUE, outcomes
from pyloader_delta.delta.filters.tree import Column, Node, columns
from pyloader_delta.delta.livefiles import files_of
from pyloader_delta.delta.partition import partition_scalar
from pyloader_delta.values import DataFile, Snapshot

Known = dict[tuple[str, ...], Bounds]


class Pruned(NamedTuple):
    """The files that may hold rows which the filter keeps."""

    by_partition: NDArray[np.int64]
    """Numbers of the files that partition values leave, ascending."""
    by_statistics: NDArray[np.int64]
    """Numbers of those that statistics leave of them, ascending."""


def prune_files(snapshot: Snapshot, node: Node, timezone: str) -> Pruned:
    """Return which files to read.

    Args:
        snapshot: The table.
        node: The filter's tree.
        timezone: Zone of partition timestamps that state none.
    """
    files = files_of(snapshot)
    data, partition = split_columns(snapshot, node)
    left = np.arange(len(files), dtype=np.int64)
    known: Known = {}
    for column in partition:
        values = files.partition_values(column.path[0]).combine_chunks()
        known[column.path] = of_values(_dictionary_keys(values, snapshot.schema.field(column.path[0]), timezone))
    if partition:
        left = left[outcomes(node, known, len(left)) & TRUE > 0]
    by_partition = left
    if data and len(left):
        known = {path: bounds.take(left) for path, bounds in known.items()}
        top = {column.path[0] for column in data}
        names = [field.stored_name for field in snapshot.fields if field.name in top]
        known |= file_bounds(files.statistics(left, names), snapshot.fields, data)
        left = left[outcomes(node, known, len(left)) & TRUE > 0]
    return Pruned(by_partition, left)


def split_columns(snapshot: Snapshot, node: Node) -> tuple[list[Column], list[Column]]:
    """Return the columns of a filter that files hold, and those of the partition whose values can be compared."""
    found = list(dict.fromkeys(columns(node)))
    data = [column for column in found if column.path[0] not in snapshot.partition_columns]
    return data, [column for column in found if column not in data and has_keys(column.type)]


def partition_bounds(
    snapshot: Snapshot, file: DataFile, partition: Iterable[Column], timezone: str, n_units: int
) -> Known:
    """Return path of a partition column → its value in a file, `n_units` times."""
    known, values = {}, dict(file.partition_values)
    for column in partition:
        (name,) = column.path
        known[column.path] = of_values(_keys([values[name]], snapshot.schema.field(name), timezone) * n_units)
    return known


def _dictionary_keys(values: pa.DictionaryArray, field: pa.Field, timezone: str) -> list[Key | None]:
    keys = _keys(values.dictionary.to_pylist(), field, timezone)
    return [None if i is None else keys[i] for i in values.indices.to_pylist()]


def _keys(texts: Sequence[str | None], field: pa.Field, timezone: str) -> list[Key | None]:
    """Return the values that texts in the log stand for, None for NULL."""
    scalars = [partition_scalar(text, field, timezone) for text in texts]
    return [key(scalar, field.type)[0] if scalar.is_valid else None for scalar in scalars]
