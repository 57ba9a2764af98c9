"""The place of one table: its root, and how what lies there is listed and read."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager

import pyarrow as pa

from pyloader_delta.delta.paths import split, table_path
from pyloader_delta.delta.stores.filesystems import FilesystemClient, catalog, root_of
from pyloader_delta.delta.stores.objects import ObjectClient
from pyloader_delta.delta.stores.ranges import RangeFile, Span
from pyloader_delta.delta.stores.settings import StoreSettings
from pyloader_delta.errors import TableError

_MAX_REQUESTS = 16  # at a time, for many small files
_OBJECT_STORES = ("s3", "gs", "az")

Entry = tuple[str, int, int]


class Store:
    """Reads files of one table, wherever they lie. A copy, pickled or not, begins without connections.

    Paths are relative to the root, or absolute ones or URIs, which may lie in other buckets. What is missing raises
    FileNotFoundError, what is refused PermissionError, what does not answer in time TimeoutError, the rest OSError;
    requests to a store are repeated where that may help.

    Args:
        root: Absolute path or URI of the table, as `table_root` gives it.
        settings: How its store is reached.

    Raises:
        ConfigError: The settings do not fit.
    """

    def __init__(self, root: str, settings: StoreSettings | None = None) -> None:
        self.root = root
        self.settings = settings or StoreSettings()
        self._root = split(root)
        self._clients: dict[tuple[str, str], ObjectClient | FilesystemClient] = {}

    def __repr__(self) -> str:
        return f"Store({self.root!r})"

    def __reduce__(self) -> tuple[type[Store], tuple[str, StoreSettings]]:
        return Store, (self.root, self.settings)

    @property
    def local(self) -> bool:
        """Whether the table lies on a disk that is mounted here."""
        return self.settings.filesystem is None and self._root.kind == ""

    def walk(self) -> list[Entry]:
        """Return what `list` does of all files below the root, named by paths relative to it; not for a disk."""
        client, path = self._resolved("")
        assert client is not None
        found = client.patience.retried(lambda: list(client.list(path.rstrip("/"), "", True)), f"listing {self.root}")
        folders = {name[:i] for name, _, _ in found for i, character in enumerate(name) if character == "/"}
        found = [entry for entry in found if entry[1] or entry[0] not in folders]  # empty objects may stand for folders
        if not found:
            raise FileNotFoundError(f"there is no file below {self.root}")
        return found

    def list(self, folder: str, start_after: str = "") -> list[Entry]:
        """Return (name, size in bytes, modification time in milliseconds since 1970 UTC) of a folder's files.

        Args:
            folder: A folder below the root.
            start_after: Names up to this one are left out.
        """
        client, path = self._resolved(folder)
        if client is None:
            with os.scandir(path) as entries:
                stats = [
                    (entry.name, entry.stat()) for entry in entries if entry.name > start_after and entry.is_file()
                ]
            return [(name, stat.st_size, stat.st_mtime_ns // 1_000_000) for name, stat in stats]
        found = client.patience.retried(
            lambda: list(client.list(path, start_after, False)), f"listing {self.root}/{folder}"
        )
        if not found and not start_after:
            raise FileNotFoundError(f"there is no folder {folder} in {self.root}")
        return found

    def read(self, path: str) -> pa.Buffer:
        """Return the content of a small file."""
        client, place = self._resolved(path)
        if client is None:
            with open(place, "rb") as file:
                return pa.py_buffer(file.read())
        return client.patience.retried(lambda: client.read(place, 0, None), f"reading {path}")[0]

    def read_many(self, paths: Iterable[str]) -> Iterator[pa.Buffer]:
        """Yield the content of small files, in the order of paths; from a store several are fetched at a time."""
        if self.local:
            yield from map(self.read, paths)
            return
        with ThreadPoolExecutor(_MAX_REQUESTS, thread_name_prefix="pyloader_delta-store") as pool:
            ahead: deque[Future[pa.Buffer]] = deque()
            try:
                for path in paths:
                    ahead.append(pool.submit(self.read, path))
                    if len(ahead) > _MAX_REQUESTS:
                        yield ahead.popleft().result()
                while ahead:
                    yield ahead.popleft().result()
            finally:
                pool.shutdown(wait=False, cancel_futures=True)

    def read_joined(self, paths: Sequence[str], sizes: Sequence[int]) -> bytearray:
        """Return the contents of small files of so many bytes, one after the other.

        Raises:
            OSError: One has another size, or does not lie where the table does.
        """
        if not self.local:
            found = list(self.read_many(paths))
            if [content.size for content in found] != list(sizes):
                raise OSError("a file has another size")
            return bytearray().join(found)
        contents, start = bytearray(sum(sizes)), 0
        for path, size in zip(paths, sizes, strict=True):
            client, place = self._resolved(path)
            if client is not None:
                raise OSError(f"{path} is on no disk")
            with open(place, "rb", buffering=0) as file, memoryview(contents)[start : start + size] as room:
                if file.readinto(room) != size or file.read(1):
                    raise OSError(f"{path} has not {size} bytes")
            start += size
        return contents

    def open(self, path: str, size: int | None = None, *, mapped: bool = True) -> pa.NativeFile:
        """Return an open file: from a disk, or one that is read in ranges.

        Args:
            path: The file.
            size: Its size in bytes where it is known: that saves a request.
            mapped: Whether a file on a disk is mapped. To read it costs less where its values are short, by the faults
                of its pages, and these do not count as memory of the process; large values would be copied once more.
        """
        client, place = self._resolved(path)
        if client is None:
            return pa.memory_map(place) if mapped else pa.OSFile(place)

        def fetch(start: int, stop: int) -> tuple[pa.Buffer, int]:
            return client.patience.retried(lambda: client.read(place, start, stop), f"reading {path}")

        return StoreFile(RangeFile(fetch, size or None), "r")

    def size(self, path: str) -> int:
        """Return the size of a file in bytes."""
        client, place = self._resolved(path)
        if client is None:
            return os.stat(place).st_size
        return client.patience.retried(lambda: client.read(place, 0, 1), f"reading {path}")[1]

    def check(self, path: str) -> None:
        """Raise TableError for an absolute path or URI that this store does not reach. Nothing is requested."""
        self._resolved(path)

    def _resolved(self, path: str) -> tuple[ObjectClient | FilesystemClient | None, str]:
        """Return who reads a path, and how it is called there; None for a disk."""
        kind, authority, rest = split(path)
        if kind == "" and not path.startswith("/"):
            kind, authority, rest = self._root.kind, self._root.authority, f"{self._root.path}/{path}"
        if kind == "" and self.settings.filesystem is None:
            return None, rest
        key = (kind, authority)
        if key not in self._clients:
            self._clients[key] = self._client(kind, authority)
        return self._clients[key], rest.strip("/")

    def _client(self, kind: str, authority: str) -> ObjectClient | FilesystemClient:
        if self.settings.filesystem is not None and kind == self._root.kind:
            return FilesystemClient(self.settings.filesystem, kind, authority, self.settings)
        if self.settings.filesystem is None and kind in _OBJECT_STORES:
            return ObjectClient(kind, authority, self.settings)
        if self.settings.filesystem is None and kind == "uc":
            return FilesystemClient(catalog(self.root, self.settings), kind, "", self.settings)
        raise TableError(
            f"{self.root} has files at {kind}://{authority}, which its store does not reach; copy them to it"
        )


class StoreFile(pa.PythonFile):  # type: ignore[misc]
    """An open file in a store."""

    def __init__(self, ranges: RangeFile, _mode: str) -> None:  # both are pyarrow's own arguments, taken before this
        self.ranges = ranges


@contextmanager
def expecting(file: pa.NativeFile, spans: Callable[[], Sequence[Span]], *, bounded: bool = False) -> Iterator[None]:
    """Have bytes of a file of `Store.open` at hand that are about to be read; see `RangeFile.expecting`.

    Args:
        file: The file.
        spans: Returns which bytes; not called for a mapped file.
        bounded: Hold a part of them only.
    """
    if isinstance(file, StoreFile):
        with file.ranges.expecting(spans(), bounded=bounded):
            yield
    else:
        yield


def table_root(uri: str, settings: StoreSettings | None = None) -> str:
    """Return the absolute path or URI of a table, in the spelling that `Store` takes.

    Raises:
        ConfigError: `filesystem` is none.
        TableError: The URI's scheme is not supported.
    """
    filesystem = None if settings is None else settings.filesystem
    return table_path(uri) if filesystem is None else root_of(uri, filesystem)
