"""The place of one table: its root, and how what lies there is listed and read."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator

import pyarrow as pa


class Store:
    """Local files.

    Args:
        root: Absolute path of the table.
    """

    def __init__(self, root: str) -> None:
        self.root = root

    def list(self, folder: str) -> list[tuple[str, int, int]]:
        """Return (name, size in bytes, modification time in milliseconds) of a folder's files."""
        with os.scandir(os.path.join(self.root, folder)) as entries:
            found = [(entry.name, entry.stat()) for entry in entries if entry.is_file()]
        return [(name, stat.st_size, stat.st_mtime_ns // 1_000_000) for name, stat in found]

    def read_many(self, paths: Iterable[str]) -> Iterator[pa.Buffer]:
        """Yield the content of small files."""
        for path in paths:
            with open(os.path.join(self.root, path), "rb") as file:
                yield pa.py_buffer(file.read())

    def open(self, path: str, size: int | None = None) -> pa.NativeFile:
        return pa.memory_map(os.path.join(self.root, path))
