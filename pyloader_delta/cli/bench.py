"""`pyloader-delta bench`: how fast a table loads, what bounds it, and how many workers are best."""

from __future__ import annotations

import os
from dataclasses import asdict
from typing import Any

import click

from pyloader_delta.cli.bar import bar
from pyloader_delta.cli.measuring import Rates, decode_rate, loader_rate, specs, storage_rate
from pyloader_delta.cli.shared import command as as_command
from pyloader_delta.cli.shared import opened, print_json, show, table_options
from pyloader_delta.encode.spec import FRAMEWORKS
from pyloader_delta.errors import ConfigError
from pyloader_delta.loader import DataLoader
from pyloader_delta.memory import usable_cpus
from pyloader_delta.read.delta import DeltaDataReader
from pyloader_delta.shuffling.picture import figure_of, kind_of
from pyloader_delta.words import many

_WIDTH = 40
_STORAGE = "bytes of the files"


def _workers(ctx: click.Context, option: click.Parameter, text: str | None) -> list[int]:
    if text is None:
        cpus = usable_cpus()
        return sorted({n for n in (1, 2, 4, 8, 16, 32) if n < cpus} | {cpus})
    try:
        found = [int(part) for part in text.split(",")]
    except ValueError:
        found = []
    if not found or min(found) < 1:
        raise click.BadParameter(f"must be numbers >= 1 with commas between, such as 1,2,4; got {text!r}", ctx, option)
    return sorted(set(found))


@click.command()
@table_options
@click.option("--column", "columns", multiple=True, help="Column to read; may be repeated. Else all.")
@click.option("--filter", "predicate", help="Rows to read, as a predicate in SQL.")
@click.option("--batch-size", type=click.IntRange(1), default=256, show_default=True)
@click.option("--shuffle/--no-shuffle", default=True, show_default=True)
@click.option("--shuffle-window", default="128MiB", show_default=True)
@click.option("--framework", type=click.Choice(FRAMEWORKS), default="numpy", show_default=True)
@click.option("--kind", type=click.Choice(["auto", "thread", "process"]), default="auto", show_default=True,
              help="Kind of workers.")  # fmt: skip
@click.option("--workers", metavar="N,N,…", callback=_workers, help="Numbers of workers to try; else 1, 2, 4 … CPUs.")
@click.option("--seconds", type=click.FloatRange(0, min_open=True), default=3.0, show_default=True,
              help="Time for each measurement.")  # fmt: skip
@click.option("--plot", type=click.Path(dir_okay=False), help="Draw the rates into this file, .png or .svg.")
@as_command
def command(
    table: str, version: int | None, storage_options: dict[str, str], stall_timeout: float, columns: tuple[str, ...],
    predicate: str | None, batch_size: int, shuffle: bool, shuffle_window: str, framework: Any, kind: str,
    workers: list[int], seconds: float, plot: str | None, as_json: bool,
) -> None:  # fmt: skip
    """Measure how many rows a second TABLE gives: its bytes alone, decoded, as batches, and by number of workers.

    \b
    Examples:
      pyloader-delta bench events/
      pyloader-delta bench events/ --column x --column label --batch-size 1024 --framework torch
      pyloader-delta bench s3://lake/events --workers 2,4,8 --plot rates.svg
    """
    if plot is not None:
        kind_of(plot)
    store = opened(table, storage_options, stall_timeout)
    options: dict[str, Any] = {
        "filter": predicate,
        "storage_options": storage_options or None,
        "stall_timeout": stall_timeout,
    }
    reader: DeltaDataReader[Any] = DeltaDataReader(batch_size, columns=columns or None, version=version, **options)
    if not reader.chunks(store.root):
        raise ConfigError(f"{store.root} has no row to measure with")
    snapshot = reader.snapshot
    assert snapshot is not None
    os.environ.setdefault("JAX_ENABLE_X64", "1")  # or it would refuse int64 and float64
    fields = specs(store, snapshot.version, reader.schema, columns, framework)

    def loader(n_workers: int) -> DataLoader[Any]:
        return DataLoader.from_delta(
            table, batch_size, fields=fields, framework=framework, shuffle=shuffle, shuffle_window=shuffle_window,
            version=snapshot.version, num_workers=n_workers, workers=kind if n_workers else "auto", num_epoch=None,
            **options,
        )  # fmt: skip

    with bar("measuring", 3 + len(workers), "rates") as advance:
        storage = storage_rate(store, reader, seconds)
        advance(1)
        decode = decode_rate(reader, store.root, seconds)
        advance(1)
        batches = loader_rate(loader(0), seconds)
        advance(1)
        by_workers = {}
        for n in workers:
            by_workers[n] = loader_rate(loader(n), seconds)
            advance(1)
    rates = Rates(storage, decode, batches, by_workers)
    if plot is not None:
        _draw(rates, plot, f"{store.root}, version {snapshot.version}")
    found = {"best_num_workers": rates.best_workers, "bound": rates.bound(usable_cpus())}
    if as_json:
        print_json({"uri": store.root, "version": snapshot.version, "rows_per_second": asdict(rates), **found})
        return
    show(_lines(rates), head=("stage", "rows/s", ""))
    print(f"\nbest num_workers  {rates.best_workers}\nbound by          {found['bound']}")


def _lines(rates: Rates) -> list[tuple[str, int, str]]:
    named = _named(rates)
    longest = max(rate for name, rate in named.items() if name != _STORAGE)  # bytes alone may be 100 times as fast
    bars = {name: "█" * min(max(round(_WIDTH * rate / longest), 1), _WIDTH) for name, rate in named.items()}
    return [(name, round(rate), bars[name] + ("…" if rate > longest else "")) for name, rate in named.items()]


def _named(rates: Rates) -> dict[str, float]:
    stages = {
        "bytes of the files": rates.storage,
        "decoded, 1 thread": rates.decode,
        "batches, no worker": rates.batches,
    }
    return stages | {f"batches, {many(n, 'worker')}": rate for n, rate in rates.by_workers.items()}


def _draw(rates: Rates, path: str, title: str) -> None:
    named = _named(rates)
    figure = figure_of(8, 0.5 * len(named) + 1.5)
    axes = figure.add_subplot()
    axes.barh(list(named), list(named.values()), color=["#9aa5b1"] * 3 + ["#2f6f9f"] * len(rates.by_workers))
    axes.invert_yaxis()
    axes.set_xlabel("rows a second")
    axes.set_title(title, fontsize=9, loc="left")
    figure.savefig(path, format=kind_of(path))
