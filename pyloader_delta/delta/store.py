"""The place of one table: its root, and how what lies there is listed and read."""

from __future__ import annotations

import os

import pyarrow as pa


class Store:
    """Local files.

    Args:
        root: Absolute path of the table.
    """

    def __init__(self, root: str) -> None:
        self.root = root

    def open(self, path: str, size: int | None = None) -> pa.NativeFile:
        """Return a file open for reading at any place.

        Args:
            path: Relative to the root, or absolute.
            size: Its size, where known.

        Raises:
            FileNotFoundError: There is none.
        """
        return pa.memory_map(os.path.join(self.root, path))
