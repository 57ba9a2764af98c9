"""A progress bar on standard error, where that is a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from pyloader_delta.cli.shared import console


@contextmanager
def bar(what: str, total: int | None, unit: str) -> Iterator[Callable[[int], None]]:
    """Show a bar; yield what moves it on by a number of units. Nothing is shown where there is no terminal.

    Args:
        what: What is being done.
        total: Units in all; None where that is not known.
        unit: What is counted.
    """
    columns = (
        TextColumn(what),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn(unit),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    terminal = console(err=True)
    with Progress(*columns, console=terminal, disable=not terminal.is_terminal) as progress:
        task = progress.add_task(what, total=total)
        yield lambda n: progress.advance(task, n)
