"""Any filesystem of pyarrow or fsspec, and catalogs through deltalake's: a call that takes too long is left."""

from __future__ import annotations

import queue
import re
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import pyarrow as pa

from pyloader_delta.delta.paths import table_path
from pyloader_delta.delta.stores.client import Entry
from pyloader_delta.delta.stores.retry import PassingError, Patience
from pyloader_delta.delta.stores.settings import StoreSettings
from pyloader_delta.errors import ConfigError

T = TypeVar("T")

_NAMES = {"gcs": "gs"}
_REFUSED = re.compile(r"ACCESS_DENIED|AccessDenied|Forbidden|InvalidAccessKeyId|SignatureDoesNotMatch|\b40[13]\b")
_MISSING = re.compile(r"NO_SUCH_BUCKET|NoSuchBucket|NO_SUCH_KEY|bucket does not exist|\b404\b", re.IGNORECASE)


def root_of(uri: str, filesystem: Any) -> str:
    """Return an absolute path or URI for a table in a filesystem, given as it names paths or as a URI.

    Raises:
        ConfigError: `filesystem` is neither pyarrow's nor fsspec's.
    """
    kind = _kind(_arrow(filesystem))
    if kind == "":
        return table_path(uri)
    return uri.rstrip("/") if "://" in uri else f"{kind}://{uri.rstrip('/')}"


class FilesystemClient:
    """Reads a filesystem.

    Args:
        filesystem: pyarrow's or fsspec's.
        authority: What follows the scheme in URIs of this table.
        kind: The scheme of such URIs.
        settings: How long a call may take.
    """

    def __init__(self, filesystem: Any, kind: str, authority: str, settings: StoreSettings) -> None:
        self._filesystem = _arrow(filesystem)
        self._settings = settings
        self.patience = Patience(settings.stall_timeout_s)
        self._base = f"{kind}://{authority}/"
        rooted = kind in ("hdfs", "viewfs", "file", "") or (not authority and kind != "uc")
        name = authority.partition("@")[0]
        self._prefix = "/" if rooted else f"{name}/" if name else ""
        handler = getattr(self._filesystem, "handler", None)
        self._strip = None if kind == "" else getattr(getattr(handler, "fs", None), "_strip_protocol", None)

    def list(self, folder: str, start_after: str, recursive: bool) -> Iterator[Entry]:
        import pyarrow.fs as fs

        base = self._path(folder)
        selector = fs.FileSelector(base, allow_not_found=True, recursive=recursive)
        for info in self._watched(lambda: self._filesystem.get_file_info(selector)):
            name = info.path.lstrip("/").removeprefix(base.lstrip("/")).lstrip("/") if recursive else info.base_name
            if info.type == fs.FileType.File and name > start_after:
                time_ns = info.mtime_ns or 0
                yield name, info.size, time_ns // 1_000_000

    def read(self, path: str, start: int, stop: int | None) -> tuple[pa.Buffer, int]:
        def call() -> tuple[pa.Buffer, int]:
            with self._filesystem.open_input_file(self._path(path)) as file:
                size = file.size()
                end = size if stop is None else min(stop, size)
                data = pa.py_buffer(file.read_at(max(0, end - start), start))
                if data.size != max(0, end - start):
                    raise PassingError(f"the filesystem gave {data.size} bytes instead of {end - start}")
                return data, size

        return self._watched(call)

    def _path(self, path: str) -> str:
        if self._strip is not None:  # fsspec knows best what its paths are
            return str(self._strip(f"{self._base}{path}"))
        return f"{self._prefix}{path}".rstrip("/")

    def _watched(self, call: Callable[[], T]) -> T:
        """Return what a call gives; one that never ends is left to itself, in a thread that holds up nothing."""
        answers: queue.SimpleQueue[tuple[bool, Any]] = queue.SimpleQueue()

        def run() -> None:
            try:
                answers.put((True, call()))
            except BaseException as error:  # deltalake's PanicException is no Exception
                answers.put((False, error))

        threading.Thread(target=run, daemon=True, name="pyloader_delta-store").start()
        try:
            good, answer = answers.get(timeout=self.patience.attempt_s)
        except queue.Empty:
            raise PassingError(f"the filesystem did not answer for {self.patience.attempt_s:g} s") from None
        if good:
            return answer  # type: ignore[no-any-return]
        raise self._error(answer) from None

    def _error(self, error: BaseException) -> Exception:
        if isinstance(error, PassingError):
            return error
        text = f"{type(error).__name__}: {self._settings.clean(str(error))}"
        if isinstance(error, FileNotFoundError) or _MISSING.search(text):
            return FileNotFoundError(text)
        if isinstance(error, PermissionError) or _REFUSED.search(text):
            return PermissionError(text)
        if isinstance(error, NotADirectoryError | IsADirectoryError):
            return type(error)(text)
        return PassingError(text) if isinstance(error, OSError) else OSError(text)


def catalog(uri: str, settings: StoreSettings) -> Any:
    """Return deltalake's filesystem for a table that a catalog names, rooted at the table.

    Raises:
        ConfigError: deltalake cannot resolve the name.
    """
    import pyarrow.fs as fs
    from deltalake.fs import DeltaStorageHandler

    try:
        return fs.PyFileSystem(DeltaStorageHandler(uri, dict(settings.options)))
    except BaseException as error:  # PanicException is no Exception
        if isinstance(error, KeyboardInterrupt | SystemExit):
            raise
        text = settings.clean(str(error))
    raise ConfigError(
        f"deltalake cannot resolve {uri}: {text}; are the catalog's address and token in storage_options or the "
        "environment (databricks_host, databricks_token)?"
    )


def _arrow(filesystem: Any) -> Any:
    import pyarrow.fs as fs

    if isinstance(filesystem, fs.FileSystem):
        return filesystem
    if "fsspec" in sys.modules and isinstance(filesystem, sys.modules["fsspec"].AbstractFileSystem):
        return fs.PyFileSystem(fs.FSSpecHandler(filesystem))
    raise ConfigError(f"filesystem= must be a filesystem of pyarrow or fsspec, got a {type(filesystem).__name__}")


def _kind(filesystem: Any) -> str:
    """Return the scheme for URIs in a filesystem; empty where paths are local ones."""
    name = str(filesystem.type_name)
    if name == "local":
        return ""
    if name.startswith("py::"):
        protocol = getattr(getattr(filesystem.handler, "fs", None), "protocol", "filesystem")
        name = protocol if isinstance(protocol, str) else protocol[0]
        name = "" if name in ("file", "local") else name
    return _NAMES.get(name, name)
