"""The command line: `pyloader-delta`, or `python -m pyloader_delta`. It alone needs click and rich (extra `cli`)."""

from __future__ import annotations

import sys
from collections.abc import Sequence

_NEEDED = ("click", "rich")


def main(args: Sequence[str] | None = None) -> None:
    """Run a command and end the process: status 0 done, 1 failed or found faults, 2 wrong usage, 3 some rows rejected.

    Args:
        args: What follows the program's name; None: what the process was started with.
    """
    try:
        from pyloader_delta.cli.commands import commands
    except ModuleNotFoundError as error:
        if error.name not in _NEEDED:
            raise
        sys.exit(f"the command line needs {error.name}: pip install 'pyloader_delta[cli]'")
    commands.main(None if args is None else list(args), prog_name="pyloader-delta")
