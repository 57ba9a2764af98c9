"""A column that a file lacks is NULL there, unless the log says that it has values in that file: then it was missed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pyloader_delta.delta.filters.log import parsed
from pyloader_delta.delta.footers import Footer
from pyloader_delta.delta.livefiles import LiveFiles
from pyloader_delta.delta.selection import Selection
from pyloader_delta.errors import ReadError

_MAX_FILES = 64  # spread over the table; what is wrong with how columns are found is wrong in all files


def check_absent(files: LiveFiles, selection: Selection, footers: Sequence[Footer], version: int | None) -> None:
    """Compare columns that files lack with the statistics of the log.

    Args:
        files: The files that are read.
        selection: What is read of them.
        footers: What was read of their footers.
        version: Version of the table; None for a folder of plain files, which has no log.

    Raises:
        ReadError: A file lacks a column that has values there as the log says; the text names both.
    """
    lacking = np.flatnonzero([bool(footer.absent) for footer in footers])
    if not len(lacking):
        return
    positions = lacking[:: -(-len(lacking) // _MAX_FILES)]
    fields = {field.name: field for field in (*selection.filter_fields, *selection.fields)}
    names = {fields[name].stored_name for i in positions.tolist() for name in footers[i].absent}
    for i, stated in zip(positions.tolist(), files.statistics(positions, names), strict=True):
        of_file = parsed(stated)
        for name in footers[i].absent:
            stored = fields[name].stored_name
            nulls, low = (of_file.get(kind) for kind in ("nullCount", "minValues"))
            if _has_values(_of(nulls, stored), sum(footers[i].n_rows)) or _of(low, stored) is not None:
                raise ReadError(
                    f"{files[i].path} of version {version} has no column {stored!r}, but the log states values of it: "
                    f"either the file was replaced, or the table's mapping of column {name!r} is broken; leave the "
                    "column out by columns=[…], or restore the file from a copy of the table"
                )


def _of(statistics: Any, name: str) -> Any:
    return statistics.get(name) if isinstance(statistics, Mapping) else None


def _has_values(n_nulls: Any, n_rows: int) -> bool:
    """Return whether a column, or one of a struct's fields, has fewer nulls than rows."""
    if isinstance(n_nulls, Mapping):
        return any(_has_values(n, n_rows) for n in n_nulls.values())
    return type(n_nulls) is int and n_nulls < n_rows
