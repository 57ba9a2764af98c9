"""What reading costs beside decoding: CPU of `read_chunk` over that of `read_row_group` on the same files.

The table has 20 float32 columns and 2 int64 in row groups of 31,250 rows: as it is, with mapped names, and with 5 % of
its rows deleted by deletion vectors. Both sides run in this process with one thread, in turns; figures are the least
of the rounds, in CPU seconds per million rows of the files.
"""

import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from benchmarks import limit, tables
from pyloader_delta import DeltaDataReader
from tests.vectors import delete_rows

DELETED = 0.05
MOST = {"plain": 1.1, "mapped": 1.15, "deleted": 1.6}
"""What each may cost of raw decoding."""


def plain(n_rows: int) -> Path:
    """Return the table as it is."""
    return tables.tabular(n_rows)


def mapped(n_rows: int) -> Path:
    """Return the same table with other names in its files than in its schema."""
    return _derived("mapped", plain(n_rows), _map_names)


def deleted(n_rows: int) -> Path:
    """Return the same table with 5 % of each file's rows deleted, at random."""
    return _derived("deleted", plain(n_rows), _delete_rows)


def figures(n_rows: int, rounds: int = 5) -> dict[str, dict[str, float]]:
    """Return, for each table, CPU seconds per million rows of reading and of raw decoding, and their ratio."""
    found = {}
    for name, make in (("plain", plain), ("mapped", mapped), ("deleted", deleted)):
        table = make(n_rows)
        paths = sorted(map(str, table.glob("*.parquet")))
        reader = DeltaDataReader()
        chunks = reader.chunks(str(table))
        ours, raw = [], []
        for _ in range(rounds):
            raw.append(_cpu_s(lambda paths=paths: sum(limit.decoded(paths))))
            ours.append(_cpu_s(lambda reader=reader, chunks=chunks: [reader.read_chunk(c).num_rows for c in chunks]))
        reader.close()
        million = n_rows / 1e6
        found[name] = {
            "cpu_s_per_million_rows": round(min(ours) / million, 4),
            "raw_cpu_s_per_million_rows": round(min(raw) / million, 4),
            "ratio": round(min(ours) / min(raw), 3),
            "ratio_at_most": MOST[name],
        }
    return found


def _cpu_s(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def _derived(name: str, source: Path, change: Callable[[Path], None]) -> Path:
    table = source.with_name(f"{source.name}-{name}")
    if table.exists():
        return table
    unfinished = table.with_suffix(".unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    shutil.copytree(source, unfinished)
    change(unfinished)
    unfinished.rename(table)  # a table is there only when it is complete
    return table


def _delete_rows(table: Path) -> None:
    rng = np.random.default_rng(0)
    gone = {}
    for path in table.glob("*.parquet"):
        n_rows = pq.read_metadata(path).num_rows
        gone[path.name] = rng.choice(n_rows, int(n_rows * DELETED), replace=False).tolist()
    delete_rows(table, gone)


def _map_names(table: Path) -> None:
    sizes = {}
    for path in table.glob("*.parquet"):
        source = pq.ParquetFile(path)
        schema = source.schema_arrow
        renamed = [f"col-{name}" for name in schema.names]
        new = path.with_suffix(".new")
        with pq.ParquetWriter(new, schema.empty_table().rename_columns(renamed).schema) as writer:
            for i in range(source.num_row_groups):
                writer.write_table(source.read_row_group(i).rename_columns(renamed), row_group_size=2**31)
        new.replace(path)
        sizes[path.name] = path.stat().st_size
    for commit in (table / "_delta_log").glob("*.json"):
        actions = [_mapped(json.loads(line), sizes) for line in commit.read_text().splitlines()]
        commit.write_text("".join(f"{json.dumps(action)}\n" for action in actions))


def _mapped(action: dict, sizes: dict[str, int]) -> dict:
    if "protocol" in action:
        action["protocol"] = {"minReaderVersion": 2, "minWriterVersion": 5}
    if "add" in action:
        action["add"]["size"] = sizes[action["add"]["path"]]
    if "metaData" in action:
        schema = json.loads(action["metaData"]["schemaString"])
        for number, field in enumerate(schema["fields"]):
            field["metadata"] |= {
                "delta.columnMapping.id": number,
                "delta.columnMapping.physicalName": f"col-{field['name']}",
            }
        action["metaData"]["schemaString"] = json.dumps(schema)
        action["metaData"]["configuration"] = {"delta.columnMapping.mode": "name"}
    return action
