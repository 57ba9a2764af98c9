"""What an epoch is read from that was begun on an earlier version of a table."""

from __future__ import annotations

import copy
from typing import Any

from pyloader_delta import budget
from pyloader_delta.errors import ReadError, StateError, TableError
from pyloader_delta.options import Options, group_size
from pyloader_delta.plan.epoch import Order, split, total_rows
from pyloader_delta.read.base import checked_chunks
from pyloader_delta.read.tables import TableReader
from pyloader_delta.stages import named
from pyloader_delta.state import Source, identity


def earlier_source(reader: Any, root: str, version: int, options: Options, order: Order) -> Source:
    """Return an earlier version of a reader's table; the reader can read its chunks from now on.

    Raises:
        StateError: It cannot be read any more.
    """
    if options.full:
        raise StateError(
            f"the state's epoch was begun on version {version} of the table, and shuffle='full' deals out one version "
            f"only: give the reader version={version}, or take a state at an epoch's end"
        )
    earlier = copy.copy(reader)
    earlier.version, earlier.timestamp, earlier._pin = version, None, None
    try:
        with named(earlier, "chunks"):
            chunks = checked_chunks(earlier.chunks(root), type(earlier).__name__)
    except (TableError, ReadError) as error:
        raise StateError(
            f"the state's epoch was begun on version {version} of the table, which cannot be read any more: {error}. "
            "Take the state of an epoch's end, or begin an epoch anew: set_epoch()"
        ) from error
    units = split(chunks, *budget.cut_bytes(options, order.shuffle_rows, chunks))
    n_rows = total_rows(chunks)
    group = group_size(options, sum(chunk.size_bytes for chunk in chunks), n_rows)
    known = identity(
        earlier, units, order, batch_size=options.batch_size, drop_last=options.drop_last, group=group, n_rows=n_rows
    )
    if isinstance(reader, TableReader):
        reader.reads_also(earlier)
    return Source(units, n_rows, group, known)
