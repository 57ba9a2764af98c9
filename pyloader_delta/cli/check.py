"""`pyloader-delta check`: the files of a table against its log."""

from __future__ import annotations

import sys

import click

from pyloader_delta.cli.bar import bar
from pyloader_delta.cli.shared import FAULTS, message, opened, print_json, table_options
from pyloader_delta.cli.shared import command as as_command
from pyloader_delta.delta import TableLog
from pyloader_delta.delta.check import check
from pyloader_delta.words import many


@click.command()
@table_options
@click.option("--full", is_flag=True, help="Read every value: page checksums, and the log's statistics of columns.")
@as_command
def command(
    table: str, version: int | None, storage_options: dict[str, str], stall_timeout: float, full: bool, as_json: bool
) -> None:
    """Compare the files of TABLE with its log: there, of the right size, the right number of rows, deletion vectors
    whole. Ends with status 1 where something is wrong.

    \b
    Examples:
      pyloader-delta check events/
      pyloader-delta check events/ --full --version 12
    """
    store = opened(table, storage_options, stall_timeout)
    snapshot = TableLog(store).snapshot(version)
    n_rows, n_bad, problems = 0, 0, []
    with bar("checking", len(snapshot.files), "files") as advance:
        for checked in check(store, snapshot, full=full):
            n_rows += checked.n_rows or 0
            n_bad += bool(checked.problems)
            for problem in checked.problems:
                problems.append({"path": checked.path, "problem": problem})
                if not as_json:
                    message(problem)
            advance(1)
    if as_json:
        print_json(
            {
                "uri": snapshot.uri,
                "version": snapshot.version,
                "full": full,
                "n_files": len(snapshot.files),
                "n_rows": n_rows,
                "n_bad_files": n_bad,
                "problems": problems,
            }
        )
    else:
        verdict = "all as the log says" if not problems else f"{n_bad:,} with faults"
        files, rows = many(len(snapshot.files), "file"), many(n_rows, "row")
        print(f"version {snapshot.version} of {snapshot.uri}: {files}, {verdict}, {rows}")
    sys.exit(FAULTS if problems else 0)
