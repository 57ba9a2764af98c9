"""The log of a table, replayed to one version: protocol, metadata and live files. Nothing is judged here."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from pyloader_delta.delta.checkpoint import UnreadableCheckpointError, read_checkpoint
from pyloader_delta.delta.commit import commit_time_ms, num_records, read_commit
from pyloader_delta.delta.log import Listing, Segment
from pyloader_delta.delta.paths import data_path
from pyloader_delta.errors import TableError

PartitionValues = tuple[tuple[str, str | None], ...]
"""(name, value), both as the log spells them."""

_Key = tuple[str, str | None]


class Add(NamedTuple):
    """A live file as the log states it."""

    path: str
    """Absolute and decoded; the URI itself if it lies on another store."""
    size_bytes: int
    modification_time_ms: int
    partition_values: PartitionValues
    n_rows: int | None
    deletion_vector: str | None
    """Id of its deletion vector."""


@dataclass(slots=True)
class State:
    """A table at one version."""

    version: int
    protocol: dict[str, Any]
    metadata: dict[str, Any]
    timestamp_ms: int | None
    adds: list[Add]


def replay(table: str, version: int | None) -> State:
    """Return the state of the table at a version; None is the latest.

    Raises:
        TableError: There is no such table or version, or its log is broken.
    """
    log = os.path.join(table, "_delta_log")
    listing = Listing(_entries(table, log))
    unreadable: UnreadableCheckpointError | None = None
    for segment in listing.segments(table, version):
        try:
            return _replay(table, log, segment, listing)
        except UnreadableCheckpointError as error:
            unreadable = unreadable or error
    raise TableError(
        f"{unreadable}; no older checkpoint and no complete run of commits can replace it, "
        "so restore it from a copy of the table"
    ) from unreadable


def _replay(table: str, log: str, segment: Segment, listing: Listing) -> State:
    protocol: dict[str, Any] | None = None
    metadata: dict[str, Any] | None = None
    timestamp_ms: int | None = None
    gone: set[_Key] = set()
    live: list[Add] = []
    newest = listing.commits.get(segment.version)
    for name in reversed(segment.commits):
        actions = read_commit(os.path.join(log, name))
        protocol = protocol or _last(actions, "protocol")
        metadata = metadata or _last(actions, "metaData")
        if name == newest:
            timestamp_ms = _time_ms(actions)
        # In one commit an add beats a remove of the same key.
        adds = {_key(table, add): add for action in actions if (add := action.get("add"))}
        live += [_from_commit(key, add) for key, add in adds.items() if key not in gone]
        gone.update(adds)
        gone.update(_key(table, remove) for action in actions if (remove := action.get("remove")))
    if segment.checkpoint:
        checkpoint = read_checkpoint([os.path.join(log, name) for name in segment.checkpoint])
        if checkpoint.sidecars:
            raise TableError(f"{table} needs reader feature 'v2Checkpoint', not supported yet")
        protocol = protocol or checkpoint.protocol
        metadata = metadata or checkpoint.metadata
        keys = [
            (data_path(table, path), _vector_id(vector))
            for path, vector in zip(checkpoint.paths, checkpoint.deletion_vectors, strict=True)
        ]
        rest = zip(
            keys, checkpoint.sizes, checkpoint.times, checkpoint.partition_values, checkpoint.n_rows, strict=True
        )
        live += [
            Add(key[0], size or 0, time or 0, tuple(values), n_rows, key[1])
            for key, size, time, values, n_rows in rest
            if key not in gone
        ]
        if not segment.commits and newest is not None:
            timestamp_ms = _time_ms(read_commit(os.path.join(log, newest)))
    if protocol is None:
        raise TableError(f"{table} has no protocol at version {segment.version}: its log is broken")
    if metadata is None or not metadata.get("schemaString"):
        raise TableError(f"{table} has no metadata, so no schema, at version {segment.version}: its log is broken")
    return State(segment.version, protocol, metadata, timestamp_ms, live)


def _entries(table: str, log: str) -> list[tuple[str, int]]:
    try:
        with os.scandir(log) as entries:
            return [(entry.name, entry.stat().st_size) for entry in entries if entry.is_file()]
    except (FileNotFoundError, NotADirectoryError) as error:
        if os.path.isdir(table):
            text = f"{table} is no Delta table: it has no folder _delta_log; give the table's own folder"
        else:
            text = f"there is no table at {table}: the folder does not exist; is the path right?"
        raise TableError(text) from error
    except OSError as error:
        raise TableError(f"the log of {table} cannot be listed: {error}") from error


def _last(actions: Iterable[Mapping[str, Any]], kind: str) -> dict[str, Any] | None:
    found = [action[kind] for action in actions if action.get(kind)]
    return found[-1] if found else None


def _time_ms(actions: Iterable[Mapping[str, Any]]) -> int | None:
    commit_info = _last(actions, "commitInfo")
    return None if commit_info is None else commit_time_ms(commit_info)


def _key(table: str, action: Mapping[str, Any]) -> _Key:
    path = action.get("path")
    if not isinstance(path, str):
        raise TableError(f"{table} has an action without a path in its log: {str(action)[:200]}")
    return data_path(table, path), _vector_id(action.get("deletionVector"))


def _vector_id(vector: Mapping[str, Any] | None) -> str | None:
    if not vector or vector.get("storageType") is None:
        return None
    offset = vector.get("offset")
    return f"{vector['storageType']}{vector.get('pathOrInlineDv')}" + ("" if offset is None else f"@{offset}")


def _from_commit(key: _Key, add: Mapping[str, Any]) -> Add:
    values = tuple((add.get("partitionValues") or {}).items())
    if wrong := [pair for pair in values if not isinstance(pair[1], str | None)]:
        name, value = wrong[0]
        raise TableError(
            f"the log states {value!r} as the value of partition column {name!r} for {key[0]}: it is broken"
        )
    size, time = add.get("size") or 0, add.get("modificationTime") or 0
    return Add(key[0], size, time, values, num_records(add.get("stats")), key[1])
