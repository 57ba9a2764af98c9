"""One scratch file without a name: it is gone when it is closed, and when the process ends in whatever way."""

from __future__ import annotations

import os
import tempfile
import threading
import weakref
from collections.abc import Sequence
from typing import Any

from pyloader_delta.errors import ConfigError, ScratchError

_ALIGN = 64


class Scratch:
    """A file that threads append to, and every process of this machine can read.

    Args:
        folder: Where it is; None for the system's folder of temporary files.
        need_bytes: About how large it will get.

    Raises:
        ConfigError: There is no such folder.
        ScratchError: It has too little room, or no file can be made in it.
    """

    def __init__(self, folder: str | None, need_bytes: int) -> None:
        self.folder = folder or tempfile.gettempdir()
        self._need = need_bytes
        if not os.path.isdir(self.folder):
            raise ConfigError(f"scratch_dir {self.folder!r} is no folder")
        free = free_bytes(self.folder)
        if free < need_bytes:
            raise ScratchError(
                f"shuffle='full' needs about {need_bytes} bytes in {self.folder}, {free} are free; {_ADVICE}"
            )
        try:
            with tempfile.TemporaryFile(prefix="pyloader_delta-", dir=self.folder, buffering=0) as file:
                self._fd = os.dup(file.fileno())
        except OSError as error:
            raise ScratchError(f"no scratch file can be made in {self.folder}: {error.strerror}") from error
        self._finalizer = weakref.finalize(self, os.close, self._fd)
        self._lock = threading.Lock()
        self.size_bytes = 0
        """Bytes appended."""

    @property
    def path(self) -> str:
        """The path by which other processes reach it while it is open; on Linux, else this process alone."""
        return f"/proc/{os.getpid()}/fd/{self._fd}" if os.path.isdir("/proc/self/fd") else f"/dev/fd/{self._fd}"

    def append(self, parts: Sequence[Any]) -> list[tuple[int, int]]:
        """Write buffers and return (offset, bytes) of each; several threads may do so at once.

        Raises:
            ScratchError: The disk is full, or cannot be written to.
        """
        sizes = [memoryview(part).nbytes for part in parts]
        with self._lock:
            offset = self.size_bytes
            self.size_bytes += sum(-(-size // _ALIGN) * _ALIGN for size in sizes)
        found = []
        for part, size in zip(parts, sizes, strict=True):
            found.append((offset, size))
            self._write(memoryview(part).cast("B"), offset)
            offset += -(-size // _ALIGN) * _ALIGN
        return found

    def close(self) -> None:
        """Give the disk's room back."""
        self._finalizer()

    def _write(self, left: memoryview, offset: int) -> None:
        try:
            while left:
                n = os.pwrite(self._fd, left, offset)
                left, offset = left[n:], offset + n
        except OSError as error:
            raise ScratchError(
                f"shuffle='full' could not write to {self.folder}: {error.strerror}, after {self.size_bytes} of about "
                f"{self._need} bytes, {free_bytes(self.folder)} are free; {_ADVICE}"
            ) from error


_ADVICE = (
    "free some room there, name another folder by scratch_dir, read fewer columns, or mix windows instead by "
    "shuffle=True and a larger shuffle_window"
)


def free_bytes(folder: str) -> int:
    """Return the bytes that this user may still write below a folder."""
    stat = os.statvfs(folder)
    return stat.f_bavail * stat.f_frsize
