"""`pyloader-delta preview`: how batches would mix a table, before any training."""

from __future__ import annotations

from typing import Any

import click

from pyloader_delta.cli.shared import command as as_command
from pyloader_delta.cli.shared import opened, print_json, table_options
from pyloader_delta.delta import TableLog
from pyloader_delta.delta.report import readable
from pyloader_delta.encode.fields import FieldSpec
from pyloader_delta.loader import DataLoader
from pyloader_delta.shuffling.picture import kind_of

_SHUFFLES: dict[str, Any] = {"window": True, "full": "full", "none": False}


@click.command()
@table_options
@click.option("--label", help="Column to compare the batches' mixes of.")
@click.option("--column", "columns", multiple=True, help="Column that you will read; may be repeated. Else all: what a "
              "window holds depends on it.")  # fmt: skip
@click.option("--filter", "predicate", help="Rows that you will read, as a predicate in SQL.")
@click.option("--batch-size", type=click.IntRange(1), default=256, show_default=True)
@click.option("--shuffle", type=click.Choice(list(_SHUFFLES)), default="window", show_default=True)
@click.option("--shuffle-window", default="128MiB", show_default=True, help='A size, rows, "chunk", or "all".')
@click.option("--seed", type=int, default=42, show_default=True)
@click.option("--epoch", type=click.IntRange(0), default=0, show_default=True)
@click.option("--batches", type=click.IntRange(1), default=64, show_default=True, help="To look at, spread.")
@click.option("--plot", type=click.Path(dir_okay=False), help="Draw the picture into this file, .png or .svg.")
@as_command
def command(
    table: str, version: int | None, storage_options: dict[str, str], stall_timeout: float, label: str | None,
    columns: tuple[str, ...], predicate: str | None, batch_size: int, shuffle: str, shuffle_window: str, seed: int,
    epoch: int, batches: int, plot: str | None, as_json: bool,
) -> None:  # fmt: skip
    """Tell how the batches of an epoch would mix the rows of TABLE, by the plan alone: only the label is read.

    \b
    Examples:
      pyloader-delta preview photos/ --label label --batch-size 64 --plot shuffle.png
      pyloader-delta preview events/ --shuffle-window 512MiB --json
    """
    if plot is not None:
        kind_of(plot)
    snapshot = TableLog(opened(table, storage_options, stall_timeout)).snapshot(version)
    names = list(columns) or [field.name for field in readable(snapshot).fields]
    if label is not None and label not in names:
        names.append(label)
    loader: DataLoader[Any] = DataLoader.from_delta(
        table, batch_size, fields=[FieldSpec(name, as_list=True) for name in names], framework="numpy", num_workers=0,
        shuffle=_SHUFFLES[shuffle], shuffle_window=_window(shuffle_window), random_seed=seed, version=snapshot.version,
        filter=predicate, storage_options=storage_options or None, stall_timeout=stall_timeout,
    )  # fmt: skip
    with loader:
        preview = loader.preview_shuffle(label, epoch=epoch, batches=batches)
    if plot is not None:
        preview.save(plot)
    if as_json:
        print_json({"uri": snapshot.uri, "version": snapshot.version, "label": label, **preview.figures()})
    else:
        print(preview)


def _window(text: str) -> int | str | None:
    if text == "all":
        return None
    return int(text) if text.isdigit() else text
