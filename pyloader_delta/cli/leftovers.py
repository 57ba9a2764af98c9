"""What a killed conversion left in a table's folder: whose turn it is to write there, and which files to take away."""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from pyloader_delta.errors import ConfigError

_DATA = re.compile(r"part-.*\.parquet(#\d+)?")
_COMMIT = re.compile(r"\d{20}\.json#\d+|_commit_.*\.json\.tmp")
_BLOCK_BYTES = 1 << 20


class Leftovers:
    """Files in a table's folder on this machine that no version names.

    One conversion at a time holds the folder. The system lets go of it when a process ends, killed or not.

    Args:
        root: The table's folder; it is made.

    Raises:
        ConfigError: Another conversion writes to the table now, or the folder cannot be made.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._found: list[Path] = []
        try:
            root.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(f"no table can be made at {root}: {error.strerror}") from error
        self._held = os.open(root, os.O_RDONLY | os.O_CLOEXEC)
        try:
            fcntl.flock(self._held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.close()
            raise ConfigError(f"another conversion writes to {root} now; wait until it ends") from None
        except OSError:
            pass  # a file system without locks: commits of one conversion exclude each other all the same

    def close(self) -> None:
        """Let others write."""
        os.close(self._held)

    def find(self, live: Iterable[str]) -> None:
        """Look for data files that may be left over: no version names them.

        Args:
            live: Names of the table's data files.
        """
        found = {entry.name for entry in os.scandir(self._root) if _DATA.fullmatch(entry.name)}.difference(live)
        for path in sorted(self._root.glob("_delta_log/*.json")) if found else ():
            commit = path.read_text(encoding="utf-8")
            found = {name for name in found if name not in commit}  # those that older versions need
        self._found = [self._root / name for name in found]

    def remove(self, live: Iterable[str], conversion: str) -> None:
        """Take away of what was found each file that is the same as one of the table, as far as it was written.

        It was written in its place. What another program is about to commit is not taken: it holds something else. Of
        commits that are half written those of this conversion are taken away.

        Args:
            live: Names of the table's data files, now.
            conversion: What its commits name.
        """
        for path in self._found:
            if any(_begins(path, self._root / name) for name in live):
                path.unlink(missing_ok=True)
        for path in (self._root / "_delta_log").iterdir():
            if _COMMIT.fullmatch(path.name) and (not (text := path.read_bytes()) or conversion.encode() in text):
                path.unlink(missing_ok=True)


def _begins(path: Path, whole: Path) -> bool:
    """Return whether a file is the same as another one as far as it was written."""
    if path.stat().st_size > (whole.stat().st_size if whole.exists() else -1):
        return False
    with open(path, "rb") as one, open(whole, "rb") as other:
        while block := one.read(_BLOCK_BYTES):
            found = np.frombuffer(block, np.uint8)
            wanted = np.frombuffer(other.read(len(block)), np.uint8)
            if not ((found == wanted) | (found == 0)).all():
                return False
    return True
