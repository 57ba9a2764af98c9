"""What the commands share: options, how errors end a command, JSON, and how numbers and tables are printed."""

from __future__ import annotations

import functools
import json
import math
import sys
import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NoReturn

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from pyloader_delta.delta.store import Store, table_root
from pyloader_delta.delta.stores.settings import StoreSettings
from pyloader_delta.errors import LoaderError

FAULTS, REJECTS = 1, 3
"""Exit codes; 2 is wrong usage."""


def command(function: Callable[..., Any]) -> Callable[..., Any]:
    """Make a function with `as_json` among its arguments end as a command does: errors as one line, or as JSON."""

    @click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
    @functools.wraps(function)
    def run(*args: Any, as_json: bool, **options: Any) -> None:
        with warnings.catch_warnings():
            warnings.showwarning = _warn
            try:
                function(*args, as_json=as_json, **options)
            except BrokenPipeError:
                raise  # whoever reads what is printed has had enough: click ends the command
            except (LoaderError, OSError) as error:
                fail(error, as_json)

    return run


def table_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add what names a table: TABLE, its version and how its store is reached."""
    for add in (
        click.option("--stall-timeout", type=click.FloatRange(0, min_open=True), default=60.0, show_default=True,
                     help="Seconds without progress of a store."),
        storage_option,
        click.option("--version", "version", type=click.IntRange(0), help="Version of the table; else the latest."),
        click.argument("table"),
    ):  # fmt: skip
        function = add(function)
    return function


def storage_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add `--storage-option NAME=VALUE`, which may be repeated."""
    text = (
        "Option of an object store under delta-rs's name; may be repeated. Rather set the usual environment variables."
    )
    return click.option(
        "--storage-option", "storage_options", metavar="NAME=VALUE", multiple=True, callback=_pairs, help=text
    )(function)


def _pairs(ctx: click.Context, option: click.Parameter, given: Sequence[str]) -> dict[str, str]:
    found = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise click.BadParameter("each must read NAME=VALUE", ctx, option)  # it is secret, so it is not shown
        found[name] = value
    return found


def opened(table: str, storage_options: dict[str, str], stall_timeout: float) -> Store:
    """Return the store of a table."""
    settings = StoreSettings(storage_options, None, stall_timeout)
    return Store(table_root(table, settings), settings)


def fail(error: BaseException, as_json: bool) -> NoReturn:
    """End the command with an error's text and status 1."""
    if as_json:
        print_json({"error": {"type": type(error).__name__, "message": str(error)}})
    else:
        message(f"error: {error}")
    sys.exit(FAULTS)


def print_json(document: Any) -> None:
    """Print a document on standard output."""
    click.echo(json.dumps(_plain(document), indent=2, ensure_ascii=False, default=str, allow_nan=False))


def _plain(value: Any) -> Any:
    """Return a document without numbers that JSON has not."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items()}
    return [_plain(inner) for inner in value] if isinstance(value, list | tuple) else value


def message(text: str) -> None:
    """Print a line on standard error, which leaves standard output to results."""
    click.echo(text, err=True)


def _warn(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: Any = None,
    line: str | None = None,
) -> None:
    click.echo(f"warning: {message}", err=True)


def console(*, err: bool = False) -> Console:
    """Return what prints tables and bars; of a fixed width where it is no terminal."""
    found = Console(stderr=err, highlight=False, soft_wrap=True)
    return found if found.is_terminal else Console(stderr=err, highlight=False, width=120, soft_wrap=True)


def show(rows: Iterable[Sequence[object]], head: Sequence[str] = (), title: str | None = None) -> None:
    """Print a table; cells that are numbers stand to the right."""
    table = Table(*head, title=title, title_justify="left", show_header=bool(head), box=None, pad_edge=False)
    for row in rows:
        table.add_row(*(Text(cell(value), justify="right" if _numeric(value) else "left") for value in row))
    console().print(table)


def cell(value: object) -> str:
    """Return a value as text: numbers with commas, None as a question mark."""
    if value is None:
        return "?"
    if isinstance(value, bool) or not isinstance(value, int | float):
        return "".join(character if character.isprintable() else "·" for character in str(value))
    return f"{value:,}" if isinstance(value, int) else f"{value:,.3g}"


def _numeric(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def size(n_bytes: int | float | None) -> str:
    """Return a number of bytes as people write it."""
    if n_bytes is None:
        return "?"
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(n_bytes) < 1024:
            return f"{n_bytes:.0f} {unit}" if unit == "B" or n_bytes >= 100 else f"{n_bytes:.1f} {unit}"
        n_bytes /= 1024
    return f"{n_bytes:,.1f} TiB"
