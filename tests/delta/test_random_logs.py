"""Logs made at random give what the model of their table says, at every version, and what another reader gives."""

import datetime as dt
import random

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder
from pyarrow.fs import LocalFileSystem
from random_logs import RandomTable, Version
from reading import read

from pyloader_delta.delta import load_snapshot
from pyloader_delta.values import DeletionVector

N_SEEDS = 24


def grown(tmp_path, seed: int, *, common: bool = False) -> RandomTable:
    table = RandomTable(tmp_path / "a table", random.Random(seed), common=common)
    table.grow(8)
    return table


def as_sorted(rows: list[dict]) -> list[str]:
    return sorted(str(sorted(row.items())) for row in rows)


def described(version: Version) -> dict[str, tuple]:
    """Return path of each live file → what its snapshot must say of it."""
    found = {}
    for path, file in version.files.items():
        vector = file.add.get("deletionVector")
        n_rows = len(file.rows) - len(file.deleted) if file.add["stats"] else None
        found[path] = (
            file.add["size"],
            file.add["modificationTime"],
            n_rows,
            tuple(file.add["partitionValues"].values()),
            vector
            and DeletionVector(
                vector["storageType"],
                vector["pathOrInlineDv"],
                vector.get("offset"),
                vector["sizeInBytes"],
                vector["cardinality"],
            ),
        )
    return found


@pytest.mark.parametrize("seed", range(N_SEEDS))
def test_each_version_of_a_random_log_is_what_its_model_says(tmp_path, seed):
    table = grown(tmp_path, seed)
    for number, version in enumerate(table.versions):
        if number < table.first:
            continue
        snapshot = load_snapshot(str(table.root), number)
        prefix = f"{table.root}/"
        assert {
            file.path.removeprefix(prefix): (
                file.size_bytes,
                file.modification_time_ms,
                file.n_rows,
                tuple(value for _, value in file.partition_values),
                file.deletion_vector,
            )
            for file in snapshot.files
        } == described(version)
        assert snapshot.schema.names == list(version.columns.values())
    latest = table.versions[-1]
    assert as_sorted(read(table.root).to_pylist()) == as_sorted(latest.rows())
    assert as_sorted(read(table.root, filesystem=LocalFileSystem()).to_pylist()) == as_sorted(latest.rows())
    number = random.Random(seed).randrange(table.first, len(table.versions))
    moment = dt.datetime.fromtimestamp(table.versions[number].time_ms / 1000, dt.UTC)
    expected = as_sorted(table.versions[number].rows())
    assert as_sorted(read(table.root, version=number).to_pylist()) == expected
    assert as_sorted(read(table.root, timestamp=moment).to_pylist()) == expected


@pytest.mark.parametrize("seed", range(1000, 1000 + N_SEEDS // 2))
def test_a_random_log_gives_what_deltalake_gives(tmp_path, seed):
    table = grown(tmp_path, seed, common=True)
    for number in {len(table.versions) - 1, random.Random(seed).randrange(table.first, len(table.versions))}:
        oracle = QueryBuilder().register("t", DeltaTable(table.root, version=number)).execute("select * from t")
        theirs = as_sorted(pa.table(oracle.read_all()).to_pylist())
        assert theirs == as_sorted(table.versions[number].rows())
        assert as_sorted(read(table.root, version=number).to_pylist()) == theirs
