"""What every client of a store can do; one attempt a call, repeated by who calls it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import pyarrow as pa

Entry = tuple[str, int, int]
"""Name, size in bytes, modification time in milliseconds since 1970 UTC."""


class Client(Protocol):
    """Reads one bucket, container or filesystem.

    All methods raise FileNotFoundError for what is not there, PermissionError for what is refused, PassingError for
    what may be tried again, and OSError for the rest; texts are free of secrets.
    """

    def list(self, folder: str, start_after: str, recursive: bool) -> Iterator[Entry]:
        """Yield the files that lie in a folder itself, names after `start_after` only; none if there is no folder.

        With `recursive` also those in folders below, whose names are paths relative to `folder`.
        """
        ...

    def read(self, path: str, start: int, stop: int | None) -> tuple[pa.Buffer, int]:
        """Return bytes `start` to `stop` of a file, fewer where it ends, and the file's size in bytes.

        Without `stop` all that follows is read.
        """
        ...
