"""`ParquetDataReader`: a folder of plain Parquet files as chunks, one a row group."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

import pyarrow as pa

from pyloader_delta.delta.folder import PlainFile, folder_snapshot
from pyloader_delta.delta.store import Store
from pyloader_delta.errors import ConfigError, ReadError, TableError
from pyloader_delta.read.base import T_co, chunk_files
from pyloader_delta.read.tables import TableReader
from pyloader_delta.values import Chunk


class ParquetDataReader(TableReader[T_co]):
    """Reads a folder of Parquet files that is no Delta table, one row group or part of one at a time.

    Files are those of `DataReader`, in path order. Folders named `name=value` between the root and the files are
    partition columns, which stand behind the files' own; `%` escapes are decoded, `__HIVE_DEFAULT_PARTITION__` is NULL.
    Dictionaries are read as their values. Where files store a column in different types, the wider one is read.

    To change columns as they are read, override `read_chunk`, call `super().read_chunk(chunk)` and keep the number
    of rows. Settings may also be class attributes of a subclass, which need not call `super().__init__()`.

    Args:
        batch_size: Rows in a batch, >= 1. None, here and below: the class attribute of that name.
        shuffle: Mix the rows of each shuffle window (see `DataLoader.shuffle_window`).
        random_seed: Seed of that mixing; any int, 0 included.
        columns: Names of the columns to read, in this order; None for all.
        filter: Which rows to read; see `DeltaDataReader`. Files are left out by their partition columns.
        exact_length: Count the rows that the filter keeps before reading; see `DeltaDataReader`.
        partition_types: Partition column → its Arrow type; others are int64 where all values are whole numbers, else
            string.
        page_checksums: Verify the checksums of Parquet pages, where the files have them.
        storage_options: How an object store is reached; see `DeltaDataReader`, here and below.
        filesystem: A pyarrow or fsspec filesystem to read from.
        stall_timeout: Seconds without any progress of a store after which reading fails.
    """

    partition_types: Mapping[str, pa.DataType] | None = None

    def __init__(
        self,
        batch_size: int | None = None,
        shuffle: bool | None = None,
        random_seed: int | None = None,
        *,
        columns: Sequence[str] | None = None,
        filter: Any = None,  # noqa: A002
        exact_length: bool | None = None,
        partition_types: Mapping[str, pa.DataType] | None = None,
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
            exact_length=exact_length,
            partition_types=partition_types,
            page_checksums=page_checksums,
            storage_options=storage_options,
            filesystem=filesystem,
            stall_timeout=stall_timeout,
        )

    def chunks(self, root: str) -> list[Chunk]:
        """Return one chunk a row group that has rows to read, in path order of the files.

        Raises:
            ConfigError: The folder is missing or holds no file, or a setting is wrong.
            ReadError: A file is corrupt or no Parquet.
            TableError: The folder is a Delta table, whose files must not be read without its log; or its files
                disagree on the partition columns or on the type of a selected column, or one lacks it (see
                `missing_as_none`).
        """
        types = self.partition_types
        if types is not None and not (
            isinstance(types, Mapping) and all(isinstance(kind, pa.DataType) for kind in types.values())
        ):
            raise ConfigError(f"partition_types must be a dict of Arrow types or None, got {types!r}")
        store = self._store(root)
        files = _local_files(store.root) if store.local else _stored_files(store)
        if not files:
            raise ConfigError(
                f"root_dir {store.root!r} holds no Parquet file (names that begin with '_' or '.', and *.crc, do not "
                "count)"
            )
        snapshot = folder_snapshot(store, files, types, missing_as_none=self.missing_as_none)
        return self._listed((store.root,), store, snapshot, "UTC")

    def read_file(self, path: str) -> NoReturn:
        """Not used: files are read by row groups."""
        raise ConfigError(
            f"{type(self).__name__} reads row groups, not whole files such as {path!r}; use chunks(root) and "
            "read_chunk(chunk)"
        )


def _local_files(root: str) -> list[PlainFile]:
    found = []
    for path in chunk_files(root, hive=True):
        stat = os.stat(path)
        name = os.path.relpath(path, root).replace(os.sep, "/")
        found.append(PlainFile(name, stat.st_size, stat.st_mtime_ns // 1_000_000))
    return found


def _stored_files(store: Store) -> list[PlainFile]:
    """Return what `chunk_files` counts as files, below a folder of a store."""
    try:
        entries = store.walk()
    except FileNotFoundError as error:
        raise ConfigError(f"root_dir {store.root!r} does not exist or is empty") from error
    except OSError as error:
        raise ReadError(f"cannot list {store.root}: {error}") from error
    found = []
    for path, size_bytes, time_ms in sorted(entries):
        parts = path.split("/")
        if "_delta_log" in parts:
            folder = "/".join([store.root, *parts[: parts.index("_delta_log")]])
            raise TableError(
                f"{folder} is a Delta table: read it with DeltaDataReader. Its files read without the log give "
                "deleted and rewritten rows"
            )
        hidden = any(part.startswith(".") or (part.startswith("_") and "=" not in part) for part in parts)
        if not hidden and not path.endswith((".crc", "/")):
            found.append(PlainFile(path, size_bytes, time_ms))
    return found
