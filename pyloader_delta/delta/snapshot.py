"""A table at one version becomes a `Snapshot`: its log replayed, refused where we would misread it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from pyloader_delta.delta.adds import keys
from pyloader_delta.delta.commit import commit_time_ms
from pyloader_delta.delta.history import version_at
from pyloader_delta.delta.listing import LOG, recent_log, whole_log
from pyloader_delta.delta.livefiles import files_of, live_files
from pyloader_delta.delta.log import Listing
from pyloader_delta.delta.paths import table_path
from pyloader_delta.delta.protocol import check_protocol
from pyloader_delta.delta.replay import State, UnansweredError, replay
from pyloader_delta.delta.retention import retention, risk
from pyloader_delta.delta.schema import arrow_schema, mapping_mode, row_id_field, table_fields
from pyloader_delta.delta.store import Store, table_root
from pyloader_delta.delta.stores.settings import StoreSettings
from pyloader_delta.errors import TableError
from pyloader_delta.values import Snapshot, TableField

_URI = "^[A-Za-z][A-Za-z0-9+.-]*://"


def is_table(path: str) -> bool:
    """Return whether a local path or `file:` URI is the folder of a Delta table: whether it has a log."""
    return os.path.isdir(os.path.join(table_path(path), LOG))


def load_snapshot(
    uri: str, version: int | None = None, *, time_ms: int | None = None, settings: StoreSettings | None = None
) -> Snapshot:
    """Return the state of a table at one version.

    Args:
        uri: Path or URI of the table's folder.
        version: The version wanted, >= 0; None for the latest.
        time_ms: Milliseconds since 1970 UTC: the newest version that was there then. Not beside `version`.
        settings: How the table's store is reached.

    Raises:
        ConfigError: The time lies in the future, or the settings are wrong.
        TableError: There is no such table or version, its log is broken, or it needs a reader feature that is not
            supported; the text names it.
    """
    return TableLog(Store(table_root(uri, settings), settings)).snapshot(version, time_ms=time_ms)


class TableLog:
    """The log of a table.

    Args:
        store: The table's store.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._listing: Listing | None = None

    def snapshot(self, version: int | None = None, *, time_ms: int | None = None) -> Snapshot:
        """Return the state at a version, or at a time; see `load_snapshot`."""
        if time_ms is not None:
            version = version_at(self._store, self._whole(), time_ms)
        return self.judged(self.state(version))

    def judged(self, state: State) -> Snapshot:
        """Return what a replayed log means; refused where it would be misread."""
        store = self._store
        check_protocol(store.root, state.protocol, state.metadata)
        configuration = state.metadata.get("configuration") or {}
        if not isinstance(configuration, dict):
            raise TableError(f"{store.root} has the properties {configuration!r}, which are none: its log is broken")
        fields = table_fields(state.metadata["schemaString"], mapping_mode(configuration))
        partition_columns = _partition_columns(store.root, state.metadata, fields)
        files = live_files(store, state, partition_columns)
        _check_stores(store, files.table.column("path"))
        return Snapshot(
            uri=store.root,
            table_id=str(state.metadata.get("id") or ""),
            version=state.version,
            timestamp_ms=commit_time_ms(state.commit_info),
            schema=arrow_schema(fields),
            fields=fields,
            partition_columns=tuple(partition_columns),
            files=files,
            row_ids=row_id_field(state.protocol, configuration),
            configuration=configuration,
        )

    def retention_risk(self, snapshot: Snapshot) -> str | None:
        """Return why files of a snapshot may be deleted while it is read, and when; None where that is far off."""
        listing = self._listing or self._whole()
        latest = listing.latest
        if latest is None or snapshot.version is None:
            return None
        n_dropped = 0
        if latest != snapshot.version:
            try:
                live = replay(self._store, listing, None).adds
            except TableError:
                return None  # what the table has become cannot be read, so neither what it dropped
            held = keys(files_of(snapshot).table)
            n_dropped = len(held) - (pc.sum(pc.is_in(held, value_set=_one(keys(live)))).as_py() or 0)
        return risk(
            uri=snapshot.uri,
            version=snapshot.version,
            latest=latest,
            n_files=len(snapshot.files),
            n_dropped=n_dropped,
            time_ms=snapshot.timestamp_ms,
            kept=retention(snapshot.configuration),
        )

    def _whole(self) -> Listing:
        self._listing = whole_log(self._store)
        return self._listing

    def state(self, version: int | None = None) -> State:
        """Return the log replayed to a version, whatever it needs; None is the latest."""
        listing = self._listing or recent_log(self._store, version)
        if listing is not None:
            try:
                state = replay(self._store, listing, version)
            except UnansweredError:
                raise
            except TableError:
                pass  # what came before may help, or else gives the reason
            else:
                self._listing = listing
                return state
        return replay(self._store, self._whole(), version)


def _partition_columns(
    table: str, metadata: Mapping[str, object], fields: Sequence[TableField]
) -> dict[str, list[str]]:
    """Return the name of each partition column → how the log may spell it, the best first."""
    by_lower = {field.name.lower(): field for field in fields}
    names = metadata.get("partitionColumns") or ()
    found = {}
    for name in names if isinstance(names, list | tuple) else ():
        field = by_lower.get(str(name).lower())
        if field is None:
            raise TableError(f"{table} is partitioned by {name!r}, which is none of its columns: its log is broken")
        found[field.name] = list(dict.fromkeys([field.stored_name, str(name), field.name]))
    return found


def _check_stores(store: Store, paths: pa.ChunkedArray) -> None:
    """Refuse files in places that the table's store does not reach."""
    elsewhere = paths.filter(pc.match_substring_regex(paths, pattern=_URI))
    for path in pc.unique(pc.replace_substring_regex(elsewhere, "^([^:]*://[^/]*).*", "\\1/")).to_pylist():
        store.check(path)


def _one(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks)
