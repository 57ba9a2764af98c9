"""`DeltaDataReader`: a Delta table as chunks, at one version that is pinned when they are listed."""

from __future__ import annotations

import warnings
import zoneinfo
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NoReturn

from pyloader_delta import delta
from pyloader_delta.delta.store import Store
from pyloader_delta.errors import ConfigError, TableError
from pyloader_delta.read.base import T_co, whole_number
from pyloader_delta.read.tables import Computed, TableReader
from pyloader_delta.values import Chunk, Snapshot


class DeltaDataReader(TableReader[T_co]):
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
        storage_options: How an object store is reached, under delta-rs's names, beside the usual environment.
        filesystem: A pyarrow or fsspec filesystem to read from, in place of our own clients.
        stall_timeout: Seconds without any progress of a store, > 0, after which reading fails; until then requests are
            repeated.
    """

    version: int | None = None
    timestamp: datetime | str | None = None
    partition_timezone: str = "UTC"

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
        storage_options: Mapping[str, object] | None = None,
        filesystem: Any = None,
        stall_timeout: float | None = None,
    ) -> None:
        super().__init__(
            batch_size,
            shuffle,
            random_seed,
            columns=columns,
            filter=filter,
            version=version,
            timestamp=timestamp,
            exact_length=exact_length,
            partition_timezone=partition_timezone,
            page_checksums=page_checksums,
            storage_options=storage_options,
            filesystem=filesystem,
            stall_timeout=stall_timeout,
        )

    @Computed
    def snapshot(self) -> Snapshot | None:
        """The table as it is read; None before `chunks`."""
        return self._known_snapshot()

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
        store = self._store(root)
        version, time_ms = self._moment()
        request = store.root, version, time_ms, store.settings
        same = self._pin is not None and self._pin.request == request
        snapshot = (self._known_snapshot() if same else None) or _load(store, version, time_ms)
        return self._listed(request, store, snapshot, self._timezone())

    def read_file(self, path: str) -> NoReturn:
        """Not used: a table's files mean nothing without its log."""
        raise ConfigError(
            f"{type(self).__name__} does not read single files such as {path!r}: a table's files without its log give "
            "deleted and rewritten rows; use chunks(root) and read_chunk(chunk)"
        )

    def _known_snapshot(self) -> Snapshot | None:
        pin = self._pin
        if pin is not None and pin.snapshot is None:
            snapshot = delta.load_snapshot(pin.request[0], pin.version, settings=pin.request[3])
            if snapshot.table_id != pin.table_id:
                raise TableError(f"{snapshot.uri} is now another table than when its chunks were listed")
            pin.snapshot = snapshot
        return None if pin is None else pin.snapshot

    def _moment(self) -> tuple[int | None, int | None]:
        """Return the version wanted, and the time wanted in milliseconds since 1970 UTC; None for none."""
        if self.timestamp is None:
            return _checked_version(self.version), None
        if self.version is not None:
            raise ConfigError(
                f"version and timestamp of {type(self).__name__} exclude each other, got {self.version!r} and "
                f"{self.timestamp!r}"
            )
        return None, delta.moment_ms(self.timestamp)

    def _timezone(self) -> str:
        name, zone = type(self).__name__, self.partition_timezone
        try:
            zoneinfo.ZoneInfo(zone)
        except (TypeError, ValueError, OSError) as error:  # not found: an OSError too where it names a folder
            raise ConfigError(
                f"partition_timezone of {name} must be the name of a zone, such as 'Europe/Berlin', got {zone!r}"
            ) from error
        except zoneinfo.ZoneInfoNotFoundError as error:
            raise ConfigError(f"partition_timezone of {name}: no zone {zone!r} is known here") from error
        return zone


def _load(store: Store, version: int | None, time_ms: int | None) -> Snapshot:
    log = delta.TableLog(store)
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
