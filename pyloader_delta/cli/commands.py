"""The commands by name. A command's module is imported when it is called or asked for help."""

from __future__ import annotations

import importlib

import click

from pyloader_delta import __version__

_COMMANDS = {
    "bench": "How fast a table loads, what bounds it, and how many workers are best.",
    "check": "Compare a table's files with its log.",
    "convert": "Make a Delta table of images, CSV, JSON lines or Parquet.",
    "inspect": "Say what a table is made of, and what would make it better to train on.",
    "preview": "Tell how batches would mix a table, before any training.",
}


class _Commands(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        found: click.Command = importlib.import_module(f"pyloader_delta.cli.{cmd_name}").command
        return found

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(sorted(_COMMANDS.items()))


@click.command(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, package_name="pyloader_delta")
def commands() -> None:
    """Look at, check, measure and make Delta tables for training.

    \b
    Examples:
      pyloader-delta convert photos/ table/
      pyloader-delta inspect table/
      pyloader-delta bench table/ --batch-size 256

    Status: 0 done, 1 failed or found faults, 2 wrong usage, 3 done, but some rows were rejected.
    """
