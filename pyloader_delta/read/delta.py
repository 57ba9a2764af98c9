"""`DeltaDataReader`: a Delta table as chunks, at one version that is pinned when they are listed."""

from __future__ import annotations

import os
import warnings
import zoneinfo
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, Generic, NoReturn, TypeVar

import pyarrow as pa

from pyloader_delta.delta import TableLog, load_snapshot, moment_ms
from pyloader_delta.delta.chunks import list_chunks
from pyloader_delta.delta.files import OpenFiles
from pyloader_delta.delta.filters.explain import Explanation
from pyloader_delta.delta.filters.rows import row_filter
from pyloader_delta.delta.paths import table_path
from pyloader_delta.delta.selection import Selection, selected
from pyloader_delta.delta.store import Store
from pyloader_delta.errors import ConfigError, TableError
from pyloader_delta.read.base import DataReader, T_co, whole_number
from pyloader_delta.values import Chunk, Snapshot

V = TypeVar("V")


class _Computed(Generic[V]):
    """A property without a setter in the way: a subclass may give an attribute of that name a value of its own."""

    def __init__(self, compute: Callable[[Any], V]) -> None:
        self._compute = compute
        self.__doc__ = compute.__doc__

    def __get__(self, owner: Any, kind: type) -> V:
        return self if owner is None else self._compute(owner)  # type: ignore[return-value]


class DeltaDataReader(DataReader[T_co]):
    """Reads a Delta table, one row group or part of one at a time. No method must be written.

    To change columns as they are read, override `read_chunk`, call `super().read_chunk(chunk)` and keep the number
    of rows. Settings may also be class attributes of a subclass, which need not call `super().__init__()`.

    Args:
        batch_size: Rows in a batch, >= 1. None, here and below: the class attribute of that name.
        shuffle: Mix the rows of each shuffle window (see `DataLoader.shuffle_window`).
        random_seed: Seed of that mixing; any int, 0 included.
        columns: Names of the columns to read, in this order; None for all in the table's order. A table that tracks
            rows also has `_row_id`, an int64 that stays with a row for as long as it lives.
        filter: Which rows to read: a predicate in SQL, a list of (column, operator, value) or of such lists, or a
            pyarrow expression. Rows for which it is NULL are left out. Its columns need not be among `columns`.
        exact_length: Count the rows that the filter keeps before reading, from its columns alone; else the length of
            an epoch is known only at its end.
        version: Version of the table to read, >= 0; None for the latest when chunks are first listed.
        timestamp: Read the newest version that was there at this time: a datetime or an ISO 8601 text, either with its
            time zone. Not beside `version`.
        partition_timezone: Zone, such as `Europe/Berlin`, of timestamps in partition columns that state none; Spark
            writes them in the zone of its session, others in UTC.
        page_checksums: Verify the checksums of Parquet pages, where the files have them; costs about a sixth of
            reading, and finds damage on the way that nothing else would.
    """

    columns: Sequence[str] | None = None
    length_advice = "set exact_length=True"
    filter: Any = None
    version: int | None = None
    timestamp: datetime | str | None = None
    exact_length: bool = True
    partition_timezone: str = "UTC"
    page_checksums: bool = False

    _pin: _Pin | None = None

    def __init__(
        self,
        batch_size: int | None = None,
        shuffle: bool | None = None,
        random_seed: int | None = None,
        *,
        columns: Sequence[str] | None = None,
        filter: Any = None,  # noqa: A002
        version: int | None = None,
        timestamp: datetime | str | None = None,
        exact_length: bool | None = None,
        partition_timezone: str | None = None,
        page_checksums: bool | None = None,
    ) -> None:
        super().__init__(batch_size, shuffle=shuffle, random_seed=random_seed)
        if columns is not None:  # else a subclass's own attribute holds
            self.columns = columns
        if version is not None:
            self.version = version
        if timestamp is not None:
            self.timestamp = timestamp
        if filter is not None:
            self.filter = filter
        if exact_length is not None:
            self.exact_length = exact_length
        if partition_timezone is not None:
            self.partition_timezone = partition_timezone
        if page_checksums is not None:
            self.page_checksums = page_checksums

    @_Computed
    def snapshot(self) -> Snapshot | None:
        """The table as it is read; None before `chunks`."""
        return None if self._pin is None else self._pin.snapshot

    @_Computed
    def schema(self) -> pa.Schema:
        """Names and types of the selected columns, as `read_chunk` gives them; known after `chunks`."""
        return self._pinned().schema

    def chunks(self, root: str) -> list[Chunk]:
        """Return one chunk a row group that has rows to read, in (modification time, path) order of the files.

        The first call pins the snapshot: called again for the same table, it gives the same rows, whatever was
        committed since. Another reader sees the table as it then is.

        Warns:
            UserWarning: Files of the version may be deleted while it is read; or no commit states when it was made, and
                `timestamp` had to go by the times of the log's files.

        Raises:
            ConfigError: `root`, `columns` or another setting is wrong.
            TableError: There is no such table or version, it needs a feature that is not supported, or a selected
                column has a type that cannot be read.
            ReadError: A data file is missing or corrupt.
        """
        if not isinstance(root, str | os.PathLike):
            raise ConfigError(f"root_dir must be the path or URI of a table, got {root!r}")
        root = table_path(os.fspath(root))
        request, known, store = (root, *self._moment()), self._pin, Store(root)
        snapshot = known.snapshot if known is not None and known.request == request else _load(store, *request[1:])
        selection = self._selection(snapshot)
        chunks, explanation = list_chunks(store, snapshot, selection, exact_length=self._exact_length())
        self._release()
        self._pin = _Pin(request, snapshot, OpenFiles(store, selection), selection.schema, explanation)
        return chunks

    def explain(self, root: str | None = None) -> Explanation:
        """Return how many files, row groups, bytes and rows the filter left out, step by step; `print` shows a table.

        Args:
            root: The table; None for the one whose chunks were listed last.

        Raises:
            ConfigError: No chunks were listed yet. With `root` also what `chunks` raises.
        """
        if root is not None:
            self.chunks(root)
        return self._pinned().explanation

    def read_chunk(self, chunk: Chunk) -> Any:
        """Return the rows of a chunk as an Arrow table with exactly `schema`; all chunks, concatenated, are the table.

        A chunk may be cut into parts, by `rows`: asked for in order, they are read through one open cursor.

        Raises:
            ConfigError: `chunks` was not called, or the chunk is not one of this snapshot.
            ReadError: The file is missing, corrupt or changed; the text names file and version.
        """
        pin = self._pinned()
        if chunk.version != pin.version:
            raise ConfigError(
                f"{chunk} is not of the pinned version {pin.version} of {pin.request[0]}; take chunks from chunks()"
            )
        return pin.files.read(chunk)

    def read_file(self, path: str) -> NoReturn:
        """Not used: a table's files mean nothing without its log."""
        raise ConfigError(
            f"{type(self).__name__} does not read single files such as {path!r}: a table's files without its log give "
            "deleted and rewritten rows; use chunks(root) and read_chunk(chunk)"
        )

    def close(self) -> None:
        """Close files and cursors; a later `read_chunk` opens them again."""
        self._release()

    def _moment(self) -> tuple[int | None, int | None]:
        """Return the version wanted, and the time wanted in milliseconds since 1970 UTC; None for none."""
        if self.timestamp is None:
            return _checked_version(self.version), None
        if self.version is not None:
            raise ConfigError(
                f"version and timestamp of {type(self).__name__} exclude each other, got {self.version!r} and "
                f"{self.timestamp!r}"
            )
        return None, moment_ms(self.timestamp)

    def _selection(self, snapshot: Snapshot) -> Selection:
        name, zone, checksums = type(self).__name__, self.partition_timezone, self.page_checksums
        if not isinstance(checksums, bool):
            raise ConfigError(f"page_checksums of {name} must be True or False, got {checksums!r}")
        try:
            zoneinfo.ZoneInfo(zone)
        except (TypeError, ValueError, OSError) as error:  # not found: an OSError too where it names a folder
            raise ConfigError(
                f"partition_timezone of {name} must be the name of a zone, such as 'Europe/Berlin', got {zone!r}"
            ) from error
        except zoneinfo.ZoneInfoNotFoundError as error:
            raise ConfigError(f"partition_timezone of {name}: no zone {zone!r} is known here") from error
        table = f"version {snapshot.version} of {snapshot.uri}"
        fields, row_id = selected(snapshot.fields, self.columns, table, row_ids=snapshot.row_ids)
        if self.filter is None:
            return Selection(fields, zone, checksums, row_id)
        made = row_filter(self.filter, snapshot.schema)
        tested = selected(snapshot.fields, made.columns, table)[0] if made.columns else ()
        return Selection(fields, zone, checksums, row_id, made, tested)

    def _exact_length(self) -> bool:
        if not isinstance(self.exact_length, bool):
            raise ConfigError(f"exact_length of {type(self).__name__} must be True or False, got {self.exact_length!r}")
        return self.exact_length

    def _release(self) -> None:
        if self._pin is not None:
            self._pin.files.close()

    def _pinned(self) -> _Pin:
        if self._pin is None:
            raise ConfigError(f"call chunks(root) of {type(self).__name__} first: it pins the version of the table")
        return self._pin


class _Pin:
    """The snapshot that a reader and its copies read. It travels without the list of files and open handles."""

    def __init__(
        self,
        request: tuple[str, int | None, int | None],
        snapshot: Snapshot,
        files: OpenFiles,
        schema: pa.Schema,
        explanation: Explanation,
    ) -> None:
        self.request = request
        self.version = snapshot.version
        self.schema = schema
        self.files = files
        self.explanation = explanation
        self._table_id = snapshot.table_id
        self._snapshot: Snapshot | None = snapshot

    @property
    def snapshot(self) -> Snapshot:
        if self._snapshot is None:  # a copy: chunks are all that it needs as a rule
            snapshot = load_snapshot(self.request[0], self.version)
            if snapshot.table_id != self._table_id:
                raise TableError(f"{snapshot.uri} is now another table than when its chunks were listed")
            self._snapshot = snapshot
        return self._snapshot

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_snapshot": None}


def _load(store: Store, version: int | None, time_ms: int | None) -> Snapshot:
    log = TableLog(store)
    snapshot = log.snapshot(version, time_ms=time_ms)
    if risk := log.retention_risk(snapshot):
        warnings.warn(risk, UserWarning, stacklevel=3)
    return snapshot


def _checked_version(version: object) -> int | None:
    if version is None:
        return None
    number = whole_number(version)
    if number is None or number < 0:
        raise ConfigError(f"version must be an int >= 0 or None, got {version!r}")
    return number
