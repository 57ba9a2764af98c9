"""The log of a table, replayed to one version: protocol, metadata and live adds. Nothing is judged here."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc

from pyloader_delta.delta.adds import AddRows, key, keys
from pyloader_delta.delta.arrays import integers, texts
from pyloader_delta.delta.canonical import canonical
from pyloader_delta.delta.checkpoint import Part, read_part
from pyloader_delta.delta.commit import commit_info, read_actions
from pyloader_delta.delta.listing import LOG
from pyloader_delta.delta.log import Listing, Segment
from pyloader_delta.delta.store import Store
from pyloader_delta.delta.stores.retry import ExhaustedError
from pyloader_delta.errors import TableError

_MAX_THREADS = 8
_Parsed = TypeVar("_Parsed")


class UnansweredError(TableError):
    """The store refuses or does not answer: another way would fare no better."""


class _UnreadableError(TableError):
    """A file of a checkpoint is missing or corrupt; another way may still give the version."""


@dataclass(slots=True)
class State:
    """A table at one version."""

    version: int
    protocol: dict[str, Any]
    metadata: dict[str, Any]
    commit_info: dict[str, Any]
    """The newest commit's; empty where it has none."""
    adds: pa.Table
    """The live ones, with the columns of `ADDS`, in any order."""
    sources: list[str | pa.ChunkedArray]
    """What has the statistics of adds, by number: a Parquet file's path, or texts."""


def replay(store: Store, listing: Listing, version: int | None) -> State:
    """Return the state of a table at a version; None is the latest.

    Raises:
        TableError: There is no such version, or the log is broken.
    """
    unreadable: _UnreadableError | None = None
    for segment in listing.segments(store.root, version):
        try:
            return _Replay(store, segment, listing).state()
        except _UnreadableError as error:
            unreadable = unreadable or error
    raise TableError(f"{unreadable}; no older checkpoint and no complete run of commits can replace it") from unreadable


def read_commits(store: Store, names: Sequence[str], parse: Callable[[pa.Buffer], _Parsed]) -> Iterator[_Parsed]:
    """Yield what each of the log's JSON files holds, in the order of the names; several are fetched at a time.

    Args:
        store: The table's store.
        names: Names of files of the log.
        parse: What to make of each; raises ValueError where it is broken.

    Raises:
        TableError: A file is missing or broken; the text names it.
    """
    found = store.read_many([f"{LOG}/{name}" for name in names])
    for name in names:
        try:
            yield parse(next(found))
        except (OSError, ValueError, RecursionError) as error:
            raise _broken(store, name, error) from error


def _broken(store: Store, name: str, error: Exception) -> TableError:
    text = f"{name} in the log of {store.root} cannot be read: {error}"
    if isinstance(error, (TimeoutError, PermissionError, ExhaustedError)):
        return UnansweredError(text)
    commit = name.endswith(".json") and name.count(".") == 1
    return (TableError if commit else _UnreadableError)(f"{text}; restore it from a copy of the table")


class _Replay:
    """One way to replay a version, newest file first: what was seen once is not overruled by what is older."""

    def __init__(self, store: Store, segment: Segment, listing: Listing) -> None:
        self._store = store
        self._root = store.root
        self._segment = segment
        self._listing = listing
        self._protocol: dict[str, Any] | None = None
        self._metadata: dict[str, Any] | None = None
        self._gone: set[str] = set()
        """Keys of what newer files of the log added or removed."""
        self._rows = AddRows(self._root, source=0)
        self._overruled: set[int] = set()
        """Rows that are not live: another add of the same file stands behind them in the same commit."""
        self._sidecars: list[tuple[str, int | None]] = []

    def state(self) -> State:
        version, newest = self._segment.version, self._listing.commits.get(self._segment.version)
        newest_info: dict[str, Any] = {}
        names = self._segment.commits[::-1]
        if newest is not None and newest not in names:  # only to know when it was
            newest_info = self._commit_info(newest)
        found = read_commits(self._store, names, self._take)
        for name, info in zip(names, found, strict=True):
            newest_info = info if name == newest else newest_info
        try:
            tables, sources = self._checkpoint()
            rows, stats = self._rows.table(), self._rows.stats()
        except UnicodeEncodeError as error:
            raise TableError(f"the log of {self._root} holds a text that is none: {error}; it is broken") from error
        if self._protocol is None:
            raise TableError(f"{self._root} has no protocol at version {version}: its log is broken")
        if self._metadata is None or not isinstance(self._metadata.get("schemaString"), str):
            raise TableError(f"{self._root} has no metadata, so no schema, at version {version}: its log is broken")
        if self._overruled:
            rows = rows.take(integers([i for i in range(len(self._rows)) if i not in self._overruled]))
        adds = pa.concat_tables([rows, *tables])
        return State(version, self._protocol, self._metadata, newest_info, adds, [stats, *sources])

    def _take(self, data: pa.Buffer, *, checkpoint: bool = False) -> dict[str, Any]:
        """Take in one JSON file, all of which is newer than what follows; return its commitInfo.

        The removes of a checkpoint are only notes for VACUUM.
        """
        protocol: dict[str, Any] | None = None
        metadata: dict[str, Any] | None = None
        info: dict[str, Any] = {}
        rows: dict[str, int] = {}
        removed: list[str] = []
        for action in read_actions(data):
            if add := action.get("add"):
                path, name = key(self._root, add)
                if name not in self._gone:
                    if name in rows:
                        self._overruled.add(rows[name])
                    rows[name] = len(self._rows)
                    self._rows.append(path, add)
            elif (remove := action.get("remove")) and not checkpoint:
                removed.append(key(self._root, remove)[1])  # in one commit an add beats a remove of the same file
            elif found := action.get("sidecar"):
                size = found.get("sizeInBytes")
                self._sidecars.append((str(found.get("path")), size if isinstance(size, int) else None))
            protocol = action.get("protocol") or protocol
            metadata = action.get("metaData") or metadata
            info = action.get("commitInfo") or info
        self._gone.update(rows, removed)
        self._protocol = self._protocol or protocol
        self._metadata = self._metadata or metadata
        return info

    def _checkpoint(self) -> tuple[list[pa.Table], list[str | pa.ChunkedArray]]:
        """Return the live adds of the checkpoint's Parquet files, and the paths of these files."""
        files: list[tuple[str, int | None]] = []
        for name in self._segment.checkpoint:
            if name.endswith(".json"):
                list(read_commits(self._store, [name], partial(self._take, checkpoint=True)))
            else:
                files.append((f"{LOG}/{name}", self._listing.sizes.get(name)))
        parts = self._parts(files, 1)
        sidecars = [*self._sidecars, *(sidecar for part in parts for sidecar in part.sidecars)]
        files += [(_sidecar(self._root, path), size) for path, size in sidecars]
        parts += self._parts(files[len(parts) :], 1 + len(parts))
        for part in parts:
            self._protocol = self._protocol or part.protocol
            self._metadata = self._metadata or part.metadata
        tables = [adds for part in parts for adds in part.adds]
        if self._gone:
            gone = texts(list(self._gone))
            tables = [adds.filter(pc.invert(pc.is_in(keys(adds), value_set=gone))) for adds in tables]
        return tables, [path for path, _ in files]

    def _parts(self, files: Sequence[tuple[str, int | None]], first_source: int) -> list[Part]:
        if not files:
            return []
        with ThreadPoolExecutor(min(len(files), _MAX_THREADS), thread_name_prefix="pyloader_delta-log") as pool:
            return list(pool.map(self._part, files, range(first_source, first_source + len(files))))

    def _part(self, path_and_size: tuple[str, int | None], source: int) -> Part:
        path, size = path_and_size
        try:
            with self._store.open(path, size) as file:
                return read_part(file, self._root, source)
        except Exception as error:  # a corrupt file makes pyarrow raise nearly anything
            raise _broken(self._store, path.removeprefix(f"{LOG}/"), error) from error

    def _commit_info(self, name: str) -> dict[str, Any]:
        try:
            return next(read_commits(self._store, [name], commit_info))
        except UnansweredError:
            raise
        except TableError:
            return {}  # a newer file of the log has all else that it says


def _sidecar(root: str, path: str) -> str:
    return canonical(root, path) if "/" in path else f"{LOG}/_sidecars/{unquote(path)}"
