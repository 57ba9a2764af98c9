"""A table at one version becomes a `Snapshot`: its log replayed, refused where we would misread it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

import pyarrow as pa

from pyloader_delta.delta.paths import scheme, table_path
from pyloader_delta.delta.protocol import check_protocol, refuse_deletion_vector
from pyloader_delta.delta.replay import Add, PartitionValues, State, replay
from pyloader_delta.delta.schema import arrow_schema, mapping_mode, row_id_field, table_fields
from pyloader_delta.errors import TableError
from pyloader_delta.values import DataFile, Snapshot


def is_table(path: str) -> bool:
    """Return whether a local path or `file:` URI is the folder of a Delta table: whether it has a log."""
    return os.path.isdir(os.path.join(table_path(path), "_delta_log"))


def load_snapshot(uri: str, version: int | None = None) -> Snapshot:
    """Return the state of a table at one version.

    Args:
        uri: Local path or `file:` URI of the table's folder.
        version: The version wanted, >= 0; None for the latest.

    Raises:
        TableError: There is no such table or version, its log is broken, or it needs a reader feature that is not
            supported; the text names it.
    """
    table = table_path(uri)
    state = replay(table, version)
    check_protocol(table, state.protocol, state.metadata)
    fields = table_fields(state.metadata["schemaString"], mapping_mode(state.metadata.get("configuration")))
    schema = arrow_schema(fields)
    partition_columns = _partition_columns(table, state, schema)
    make = _Files(table, partition_columns)
    files = [make.file(add) for add in state.adds]
    files.sort(key=lambda file: (file.modification_time_ms, file.path))
    if len({file.path for file in files}) != len(files):
        raise TableError(f"{table} lists a file twice at version {state.version}: its log is broken")
    return Snapshot(
        uri=table,
        table_id=str(state.metadata.get("id") or ""),
        version=state.version,
        timestamp_ms=state.timestamp_ms,
        schema=schema,
        fields=fields,
        partition_columns=tuple(partition_columns.values()),
        files=tuple(files),
        row_ids=row_id_field(state.protocol, state.metadata.get("configuration")),
    )


def _partition_columns(table: str, state: State, schema: pa.Schema) -> dict[str, str]:
    """Return the log's name → the schema's name, which may differ in case."""
    by_lower = {name.lower(): name for name in schema.names}
    names: Sequence[str] = state.metadata.get("partitionColumns") or ()
    if unknown := [name for name in names if name.lower() not in by_lower]:
        raise TableError(f"{table} is partitioned by {unknown[0]!r}, which is none of its columns: its log is broken")
    return {name: by_lower[name.lower()] for name in names}


class _Files:
    """Makes data files of adds. Most share their partition values with many others, so each set is translated once."""

    def __init__(self, table: str, partition_columns: Mapping[str, str]) -> None:
        self._table = table
        self._partition_columns = partition_columns
        self._translated: dict[PartitionValues, PartitionValues] = {}

    def file(self, add: Add) -> DataFile:
        if add.deletion_vector is not None:
            raise refuse_deletion_vector(self._table, add.path)
        if foreign := scheme(add.path):
            raise TableError(
                f"{self._table} has a file at {foreign}://, which is not supported yet: {add.path}; "
                "copy the table into one place"
            )
        values = self._translated.get(add.partition_values)
        if values is None:
            columns = self._partition_columns.items()
            values = tuple((column, self._value(add, name)) for name, column in columns)
            self._translated[add.partition_values] = values
        return DataFile(add.path, add.size_bytes, add.modification_time_ms, add.n_rows, values)

    def _value(self, add: Add, name: str) -> str | None:
        values = dict(add.partition_values)
        if name in values:
            return values[name]
        found = [value for spelled, value in values.items() if spelled.lower() == name.lower()]
        if len(found) != 1:
            raise TableError(
                f"{self._table} states no value of partition column {name!r} for {add.path}: its log is broken"
            )
        return found[0]
