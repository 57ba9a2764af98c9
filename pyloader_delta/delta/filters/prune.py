"""Which files of a table a filter can leave out, by their partition values and by the log's statistics."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pyloader_delta.delta.filters.bounds import Bounds, of_values
from pyloader_delta.delta.filters.literals import Key, has_keys, key
from pyloader_delta.delta.filters.log import Statistics, file_bounds, parsed
from pyloader_delta.delta.filters.outcomes import TRUE, outcomes
from pyloader_delta.delta.filters.tree import Column, Node, columns
from pyloader_delta.delta.partition import partition_scalar
from pyloader_delta.values import DataFile, Snapshot

Known = dict[tuple[str, ...], Bounds]


class Pruned(NamedTuple):
    """The files that may hold rows which the filter keeps."""

    by_partition: NDArray[np.int64]
    """Numbers of the files that partition values leave."""
    by_statistics: NDArray[np.int64]
    """Numbers of those that statistics leave of them."""


def prune_files(
    snapshot: Snapshot,
    node: Node,
    timezone: str,
    statistics: Callable[[Sequence[int]], Sequence[str | Statistics | None]],
) -> Pruned:
    """Return which files to read.

    Args:
        snapshot: The table.
        node: The filter's tree.
        timezone: Zone of partition timestamps that state none.
        statistics: Gives the log's statistics of files by their numbers.
    """
    data, partition = split_columns(snapshot, node)
    left = np.arange(len(snapshot.files))
    known: Known = {}
    if partition:
        known = partition_bounds(snapshot, snapshot.files, partition, timezone)
        left = left[outcomes(node, known, len(left)) & TRUE > 0]
    by_partition = left
    if data and len(left):
        known = {path: bounds.take(left) for path, bounds in known.items()}
        known |= file_bounds(parsed(statistics(left.tolist())), snapshot.fields, data)
        left = left[outcomes(node, known, len(left)) & TRUE > 0]
    return Pruned(by_partition, left)


def split_columns(snapshot: Snapshot, node: Node) -> tuple[list[Column], list[Column]]:
    """Return the columns of a filter that files hold, and those of the partition."""
    found = list(dict.fromkeys(columns(node)))
    partition = [column for column in found if column.path[0] in snapshot.partition_columns]
    return [column for column in found if column not in partition], partition


def partition_bounds(
    snapshot: Snapshot, files: Sequence[DataFile], partition: Sequence[Column], timezone: str
) -> Known:
    """Return path of a partition column → its value in each file."""
    known = {}
    for column in partition:
        if not has_keys(column.type):
            continue
        (name,) = column.path
        field = snapshot.schema.field(name)
        keys: dict[str | None, Key | None] = {}
        found = []
        for file in files:
            text = dict(file.partition_values)[name]
            if text not in keys:
                value = partition_scalar(text, field, timezone)
                keys[text] = key(value, column.type)[0] if value.is_valid else None
            found.append(keys[text])
        known[column.path] = of_values(found)
    return known
