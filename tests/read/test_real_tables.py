"""Tables that other projects published, beside the checkout: each gives exactly its rows, or a reason why not."""

import importlib.util
import json
import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fakes import ArrowThrough
from reading import gather, in_parts

from pyloader_delta import DataLoader, Dataset, NumpyDataCollator
from pyloader_delta.errors import ReadError, TableError
from pyloader_delta.read.delta import DeltaDataReader

ROOT = Path(os.environ.get("PYLOADER_DELTA_TABLES") or Path(__file__).parents[3] / "shared" / "tables")
INDEX = json.loads((ROOT / "index.json").read_text()) if (ROOT / "index.json").is_file() else []
needs_tables = pytest.mark.skipif(
    not INDEX, reason=f"no collection of real tables at {ROOT}; PYLOADER_DELTA_TABLES may name its folder"
)
EMPTY = "kafka-delta-ingest__zero_offset"
"""Listed as one to refuse, but the log that is there is whole and names no file: a table without rows."""
LARGE = 100_000  # rows of which comparing each takes longer than reading


def named(expect: str) -> list[dict]:
    return [pytest.param(t, id=t["name"]) for t in INDEX if t["expect"] == expect and t["name"] != EMPTY]


@pytest.fixture(scope="module")
def canon():
    spec = importlib.util.spec_from_file_location("canon", ROOT / "canon.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@needs_tables
@pytest.mark.parametrize("table", named("rows") or [None])
def test_a_readable_table_gives_exactly_its_rows_and_types(table, canon):
    path = ROOT / table["name"]
    expected = pq.read_table(path / "expected.parquet")
    reader = DeltaDataReader()
    chunks = reader.chunks(str(path / "table"))
    found = gather(reader, chunks)
    assert canon.schema_sig(found.schema) == canon.schema_sig(expected.schema)
    assert sum(chunk.n_rows for chunk in chunks) == found.num_rows == table["n_rows"]
    if found.num_rows >= LARGE:
        by = [(name, "ascending") for name in found.column_names]
        assert found.sort_by(by).equals(expected.select(found.column_names).cast(found.schema).sort_by(by))
    else:
        assert canon.rows(found) == canon.rows(expected)
        assert gather(reader, in_parts(chunks, 7)).equals(found)


@needs_tables
@pytest.mark.parametrize("table", named("refuse") or [None])
def test_a_table_that_cannot_be_read_is_refused_with_the_reason(table):
    reader = DeltaDataReader()
    with pytest.raises((TableError, ReadError)) as raised:
        gather(reader, reader.chunks(str(ROOT / table["name"] / "table")))
    reader.close()
    text = str(raised.value)
    assert len(text) > 40
    for word in ("catalogManaged", "catalogOwned", "shredded", "reader version", "missing"):
        stated = table["why"].replace("reader features catalog", "catalog")
        if word in stated and "no metaData" not in stated and "no protocol" not in stated:
            assert word in text


@needs_tables
def test_a_log_that_names_no_file_is_a_table_without_rows():
    assert DeltaDataReader().chunks(str(ROOT / EMPTY / "table")) == []


class Counted(Dataset):
    """Encodes each row as 1, whatever its columns are."""

    input_format = "arrow"

    def batch_encode(self, batch_data):
        return {"n": np.ones(batch_data.num_rows, np.int64)}


class AllTables(DeltaDataReader):
    """Reads many tables as if they were one; of their columns it hands on which table a row is of."""

    def chunks(self, root):
        self.readers = {table: DeltaDataReader() for table in sorted(READABLE)}
        return [chunk for table, reader in self.readers.items() for chunk in reader.chunks(f"{root}/{table}/table")]

    def read_chunk(self, chunk):
        table = Path(chunk.path).relative_to(ROOT).parts[0]
        n_rows = self.readers[table].read_chunk(chunk).num_rows
        return pa.table({"n": np.full(n_rows, sorted(READABLE).index(table))})

    def close(self):
        for reader in self.readers.values():
            reader.close()


READABLE = {t["name"]: t["n_rows"] for t in INDEX if t["expect"] == "rows" and t["n_rows"] < LARGE}


def counted(table: str, workers: str) -> int:
    reader = DeltaDataReader(batch_size=1000, shuffle=True)
    with DataLoader(
        reader,
        Counted(),
        NumpyDataCollator(),
        str(ROOT / table / "table"),
        shuffle=True,
        num_workers=1,
        workers=workers,
    ) as loader:
        return sum(len(batch["n"]) for batch in loader)


@needs_tables
@pytest.mark.filterwarnings("ignore:.* has no rows")
def test_a_loader_with_threads_delivers_each_readable_table_whole():
    assert {table: counted(table, "thread") for table in READABLE} == READABLE


@needs_tables
@pytest.mark.filterwarnings("ignore:.* has no rows")
@pytest.mark.parametrize("feature", ["dv", "cm-name", "cm-id", "type:variant", "typeChanges", "cp-v2-json"])
def test_a_loader_with_processes_delivers_tables_of_each_feature_whole(feature):
    table = next(t for t in INDEX if feature in t["features"] and t["name"] in READABLE)
    assert counted(table["name"], "process") == table["n_rows"]


@needs_tables
def test_processes_read_all_tables_whole():
    with DataLoader(
        AllTables(batch_size=1000), ArrowThrough(), NumpyDataCollator(), str(ROOT), num_workers=2, workers="process"
    ) as loader:
        found = np.bincount(np.concatenate([batch["n"] for batch in loader]), minlength=len(READABLE))
    assert dict(zip(sorted(READABLE), found.tolist(), strict=True)) == READABLE
