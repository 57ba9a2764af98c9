"""Logs of tables with many files and many commits, without their data files, made once under benchmarks/.data."""

import json
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from deltalake import DeltaTable

from benchmarks import tables

_COMMITS = 5
_SCHEMA = {
    "type": "struct",
    "fields": [
        {"name": name, "type": kind, "nullable": True, "metadata": {}}
        for name, kind in {"id": "long", "price": "double", "city": "string", "day": "date"}.items()
    ],
}
_START_MS = 1_700_000_000_000


def checkpointed(n_files: int) -> Path:
    """Return a table of `n_files` files, partitioned by day, whose log is one checkpoint that deltalake wrote."""

    def write(table: Path) -> None:
        step = -(-n_files // _COMMITS)
        for version, start in enumerate(range(0, n_files, step)):
            _commit(table, version, (_add(i) for i in range(start, min(start + step, n_files))))
        DeltaTable(table).create_checkpoint()

    return _make(f"log-checkpoint-{n_files}", write)


def committed(n_commits: int) -> Path:
    """Return a table of `n_commits` commits without a checkpoint; each adds four files and removes one."""

    def write(table: Path) -> None:
        for version in range(n_commits):
            removed = [{"remove": {"path": _path(4 * version - 4), "dataChange": True}}] if version else []
            _commit(table, version, [*(_add(4 * version + i) for i in range(4)), *removed])

    return _make(f"log-commits-{n_commits}", write)


def _make(name: str, write: Callable[[Path], None]) -> Path:
    table = tables.DATA / name
    if table.exists():
        return table
    print(f"making {table}", file=sys.stderr)
    unfinished = table.with_suffix(".unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    (unfinished / "_delta_log").mkdir(parents=True)
    write(unfinished)
    unfinished.rename(table)  # a table is there only when it is complete
    return table


def _commit(table: Path, version: int, actions: "Iterator[dict] | list[dict]") -> None:
    first = [{"commitInfo": {"timestamp": _START_MS + version, "operation": "WRITE"}}]
    if version == 0:
        first += [
            {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}},
            {
                "metaData": {
                    "id": "5fba94ed-9794-4965-ba6e-6ee3c0d22af9",
                    "format": {"provider": "parquet", "options": {}},
                    "schemaString": json.dumps(_SCHEMA),
                    "partitionColumns": ["day"],
                    "configuration": {},
                    "createdTime": _START_MS,
                }
            },
        ]
    with (table / "_delta_log" / f"{version:020d}.json").open("w") as file:
        for action in (*first, *actions):
            file.write(json.dumps(action, separators=(",", ":")) + "\n")


def _path(i: int) -> str:
    return f"day={_day(i)}/part-{i:05d}-{i * 2654435761 % 2**32:08x}-9794-4965-ba6e-6ee3c0d22af9-c000.snappy.parquet"


def _day(i: int) -> str:
    return f"2024-{i % 12 + 1:02d}-{i % 28 + 1:02d}"


def _add(i: int) -> dict:
    statistics = {
        "numRecords": 1000 + i % 7,
        "minValues": {"id": i * 1000, "price": i % 97 / 10, "city": "Aachen"},
        "maxValues": {"id": i * 1000 + 999, "price": 100 + i % 89 / 10, "city": "Zwickau"},
        "nullCount": {"id": 0, "price": i % 5, "city": 0},
    }
    return {
        "add": {
            "path": _path(i),
            "partitionValues": {"day": _day(i)},
            "size": 30_000 + i % 1000,
            "modificationTime": _START_MS + i // 10,
            "dataChange": True,
            "stats": json.dumps(statistics, separators=(",", ":")),
        }
    }
