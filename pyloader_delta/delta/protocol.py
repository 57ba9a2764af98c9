"""The gate: tables that need a reader feature we do not have are refused here, by the feature's name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyloader_delta.errors import TableError

SUPPORTED_READER_FEATURES = frozenset(
    {
        "columnMapping",
        "deletionVectors",
        "timestampNtz",  # only a type, read like any other
        "typeWidening",
        "typeWidening-preview",
        "v2Checkpoint",
        "vacuumProtocolCheck",  # asks something of VACUUM, nothing of readers
        "variantType",
        "variantType-preview",
        "variantShredding",  # refused where a selected column is shredded
        "variantShredding-preview",
    }
)
_HIGHEST_READER_VERSION = 3
_ADVICE = "read it with an engine that has it and write a plain copy, or drop the feature from the table"


def check_protocol(table: str, protocol: Mapping[str, Any], metadata: Mapping[str, Any]) -> None:
    """Refuse a table that cannot be read right.

    Args:
        table: The table's path, for errors.
        protocol: The `protocol` action in force.
        metadata: The `metaData` action in force.

    Raises:
        TableError: A reader feature or version, or a file format, is not supported; named in the text.
    """
    version = protocol.get("minReaderVersion")
    if not isinstance(version, int):
        raise TableError(f"{table} states no minReaderVersion in its protocol: its log is broken")
    if not 1 <= version <= _HIGHEST_READER_VERSION:
        raise TableError(
            f"{table} needs reader version {version}, which is not supported (highest: {_HIGHEST_READER_VERSION}); "
            "is there a newer release of pyloader_delta?"
        )
    needed = set(protocol.get("readerFeatures") or ()) if version == _HIGHEST_READER_VERSION else set()
    if missing := sorted(needed - SUPPORTED_READER_FEATURES):
        names = ", ".join(map(repr, missing))
        plural = "s" if len(missing) > 1 else ""
        raise TableError(f"{table} needs reader feature{plural} {names}, not supported yet; {_ADVICE}")
    provider = str((metadata.get("format") or {}).get("provider") or "parquet")
    if provider.lower() != "parquet":
        raise TableError(f"{table} keeps its data as {provider!r}; only 'parquet' is supported")
