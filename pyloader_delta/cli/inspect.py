"""`pyloader-delta inspect`: what a table is made of, and advice."""

from __future__ import annotations

import dataclasses
import datetime as dt
from typing import Any

import click

from pyloader_delta.cli.advice import advice
from pyloader_delta.cli.shared import command as as_command
from pyloader_delta.cli.shared import message, opened, print_json, show, size, table_options
from pyloader_delta.delta.report import Spread, TableReport, report
from pyloader_delta.memory import usable_bytes
from pyloader_delta.words import many


@click.command()
@table_options
@click.option(
    "--footers", type=click.IntRange(0), default=256, show_default=True, help="Files whose footers are read, spread."
)
@click.option("--folder/--no-folder", default=True, help="List the folder for files that are dead.")
@as_command
def command(
    table: str,
    version: int | None,
    storage_options: dict[str, str],
    stall_timeout: float,
    footers: int,
    folder: bool,
    as_json: bool,
) -> None:
    """Say what TABLE (a path or URI) is made of, and what would make it better to train on.

    \b
    Examples:
      pyloader-delta inspect events/
      pyloader-delta inspect s3://lake/events --version 12 --no-folder
      pyloader-delta inspect events/ --json | jq .row_groups
    """
    found = report(opened(table, storage_options, stall_timeout), version, max_footers=footers, folder=folder)
    hints = list(advice(found, usable_bytes()[0]))
    if as_json:
        print_json(
            dataclasses.asdict(found) | {"decoded_bytes": found.decoded_bytes, "skew": found.skew, "advice": hints}
        )
        return
    show(_facts(found))
    print()
    show(
        ((column.name, column.unreadable or column.type, column.n_nulls) for column in found.columns),
        head=("column", "type", "nulls"),
    )
    if hints:
        print("\nadvice")
        for hint in hints:
            print(f"- {hint}")
    if footers < found.n_files and found.row_groups is not None:
        message(f"row groups: of {footers:,} of {many(found.n_files, 'file')} (--footers)")


def _facts(found: TableReport) -> list[tuple[str, Any]]:
    when = found.timestamp_ms
    groups = found.row_groups
    facts: list[tuple[str, Any]] = [
        ("table", found.uri),
        ("version", f"{found.version}{'' if when is None else f' of {_moment(when)}'}"),
        ("protocol", f"reader {found.reader_version}, writer {found.writer_version}"),
        ("features", ", ".join(found.features) or "none by name"),
        ("rows", f"{'?' if found.n_rows is None else format(found.n_rows, ',')}"),
        ("deleted rows in files", f"{found.n_deleted_rows:,}"),
        ("files", f"{found.n_files:,}, {size(found.size_bytes)}"),
    ]
    if found.partition_columns:
        facts.append(("partitions", f"{found.n_partitions:,} by {', '.join(found.partition_columns)}"))
    if found.file_bytes is not None and found.skew is not None:
        facts.append(("file sizes", f"{_spread(found.file_bytes, size)}; largest {found.skew:.1f} × median"))
        facts.append(("small files", f"{found.n_small_files:,} below 16 MiB"))
    if found.n_dead_files is not None:
        facts.append(("dead files", f"{found.n_dead_files:,}, {size(found.dead_bytes)}"))
    if groups is not None:
        facts += [
            ("row groups", f"{groups.n_groups:,} in {many(groups.n_files, 'file')}"),
            ("rows a row group", _spread(groups.n_rows, lambda n: f"{n:,}")),
            ("decoded a row group", _spread(groups.decoded_bytes, size)),
            ("decoded table", f"{size(found.decoded_bytes)}, {groups.row_bytes:,} B a row"),
        ]
    return facts


def _spread(spread: Spread, text: Any) -> str:
    return f"{text(spread.smallest)} to {text(spread.largest)}, median {text(spread.median)}"


def _moment(time_ms: int) -> str:
    try:
        return f"{dt.datetime.fromtimestamp(time_ms / 1000, dt.UTC):%Y-%m-%d %H:%M:%S} UTC"
    except (OverflowError, ValueError, OSError):
        return f"{time_ms} ms since 1970"
