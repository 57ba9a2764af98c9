"""What would make a table better to train on, by what it is made of. Pure: a report in, sentences out."""

from __future__ import annotations

from collections.abc import Iterator

from pyloader_delta.cli.shared import size
from pyloader_delta.delta.report import TableReport
from pyloader_delta.plan.epoch import WHOLE_OF_WINDOW
from pyloader_delta.words import many

GROUP_BYTES = 8 << 20
"""Decoded size of a row group that is good to train on: sixteen of them in a window of 128 MiB."""

WINDOW_BYTES = 128 << 20
_MIN_GROUP_BYTES = 1 << 20
_MIN_GROUPS = 16
_MANY_FILES = 8
_SKEW = 8


def advice(report: TableReport, memory_bytes: int) -> Iterator[str]:
    """Yield what to do, the most useful first.

    Args:
        report: The table.
        memory_bytes: What one training process may use.
    """
    if report.n_rows == 0:
        yield "The table has no row at this version: a loader gives no batch of it."
    if hidden := [column for column in report.columns if column.unreadable]:
        yield (
            f"{many(len(hidden), 'column')} cannot be read, such as {hidden[0].name!r}: name those that you need by "
            "columns=[…] or fields=[…]."
        )
    if report.footer_problem:
        yield f"A file cannot be read: {report.footer_problem}. `pyloader-delta check` looks at all of them."
    if report.retention_risk:
        yield f"{report.retention_risk}."
    yield from _files(report)
    yield from _row_groups(report)
    yield from _window(report, memory_bytes)


def group_rows(row_bytes: int) -> int:
    """Return how many rows of a decoded size make a row group that is good to train on."""
    return max(GROUP_BYTES // max(row_bytes, 1), 1)


def _files(report: TableReport) -> Iterator[str]:
    if report.n_small_files >= _MANY_FILES and report.n_small_files * 2 > report.n_files:
        yield (
            f"OPTIMIZE: {report.n_small_files} of {report.n_files} files are smaller than 16 MiB, and each costs a "
            "footer to read at start."
        )
    if report.n_deleted_rows and report.n_rows is not None and report.n_deleted_rows * 10 > report.n_rows:
        yield (
            f"REORG TABLE … APPLY (PURGE): {many(report.n_deleted_rows, 'deleted row')} in the files, to be decoded "
            f"with the {report.n_rows:,} left."
        )
    if report.dead_bytes is not None and report.dead_bytes > max(report.size_bytes, 1 << 20):
        yield (
            f"VACUUM: {many(report.n_dead_files or 0, 'file')}, {size(report.dead_bytes)}, in the folder, but not in "
            "this version; older versions may need them."
        )
    if report.n_files_without_counts:
        yield (
            f"The log has no row count of {report.n_files_without_counts:,} of {many(report.n_files, 'file')}: write "
            "them with statistics, so that filters can leave files out."
        )
    if report.skew is not None and report.skew > _SKEW and report.n_files >= _MANY_FILES:
        yield (
            f"The largest file is {report.skew:.0f} times the median one: ranks cut the table by rows, so that costs "
            "nothing, but a writer with even files (OPTIMIZE) reads more evenly from a store."
        )


def _row_groups(report: TableReport) -> Iterator[str]:
    groups = report.row_groups
    if groups is None:
        return
    rows, median = group_rows(groups.row_bytes), groups.decoded_bytes.median
    if median > WINDOW_BYTES // WHOLE_OF_WINDOW:
        yield (
            f"Row groups decode to {size(median)}: above an eighth of shuffle_window they are read in parts, which "
            f"costs about twice the time of whole ones. Write about {many(rows, 'row')} a row group "
            f"({size(GROUP_BYTES)})."
        )
    elif median < _MIN_GROUP_BYTES and groups.n_groups >= _MANY_FILES:
        yield (
            f"Row groups decode to {size(median)}: opening them costs more than their rows. Write about "
            f"{many(rows, 'row')} a row group ({size(GROUP_BYTES)})."
        )


def _window(report: TableReport, memory_bytes: int) -> Iterator[str]:
    groups, decoded = report.row_groups, report.decoded_bytes
    if groups is None or not decoded:
        return
    if decoded <= WINDOW_BYTES:
        yield f"The default shuffle_window of 128 MiB mixes the whole table, which decodes to {size(decoded)}."
        return
    n_in_window = WINDOW_BYTES // max(groups.decoded_bytes.median, 1)
    share = WINDOW_BYTES / decoded
    text = (
        f"The default shuffle_window of 128 MiB mixes {share:.1%} of the table at a time, "
        f"{many(max(n_in_window, 1), 'row group')} of {size(groups.decoded_bytes.median)}"
    )
    largest = memory_bytes // 10  # a quarter for the budget, of which two windows and a half
    wished = min(max(_MIN_GROUPS * groups.decoded_bytes.median, WINDOW_BYTES), largest, decoded)
    if n_in_window < _MIN_GROUPS and wished > WINDOW_BYTES:
        yield f'{text}. Take shuffle_window="{wished >> 20}MiB" for a better mix; this machine has memory for it.'
    else:
        yield f"{text}."
