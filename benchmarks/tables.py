"""The tables that are measured, made once under benchmarks/.data, in bounded memory."""

import shutil
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
from deltalake import DeltaTable, WriterProperties, write_deltalake

DATA = Path(__file__).with_name(".data")
FLOATS = tuple(f"f{i:02}" for i in range(20))
INTS = ("id", "label")
ROW_BYTES = 4 * len(FLOATS) + 8 * len(INTS)
ROWS_PER_GROUP = 31_250
GROUPS_PER_FILE = 16


def tabular(n_rows: int) -> Path:
    """Return the folder of a table of 20 float32 columns of noise and 2 int64; `id` counts the rows.

    Row groups have 31,250 rows, files 16 row groups, and each file is a commit of its own. Encodings are what
    deltalake writes by default: dictionaries, since so few rows stay below its limit.
    """
    return _make(f"tabular-{n_rows}", n_rows, decimals=None)


def coarse(n_rows: int) -> Path:
    """Return the same with floats rounded to 3 decimals: 96 bytes a row decoded, about 40 on disk."""
    return _make(f"coarse-{n_rows}", n_rows, decimals=3)


def paths(table: Path) -> list[str]:
    """Return the table's files in the order in which they were committed."""
    return sorted(DeltaTable(table).file_uris(), key=lambda path: Path(path).stat().st_mtime_ns)


def _make(name: str, n_rows: int, *, decimals: int | None) -> Path:
    table = DATA / name
    if table.exists():
        return table
    print(f"making {table}", file=sys.stderr)
    unfinished = table.with_suffix(".unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    writer = WriterProperties(max_row_group_size=ROWS_PER_GROUP)
    step = ROWS_PER_GROUP * GROUPS_PER_FILE
    for start in range(0, n_rows, step):
        rows = _rows(start, min(n_rows, start + step), decimals)
        write_deltalake(unfinished, rows, mode="append", writer_properties=writer, target_file_size=2**40)
    unfinished.rename(table)  # a table is there only when it is complete
    return table


def _rows(start: int, stop: int, decimals: int | None) -> pa.Table:
    rng = np.random.default_rng(start)
    columns: dict[str, np.ndarray] = {}
    for name in FLOATS:
        noise = rng.standard_normal(stop - start, dtype=np.float32)
        columns[name] = noise if decimals is None else np.round(noise, decimals)
    columns["id"] = np.arange(start, stop, dtype=np.int64)
    columns["label"] = rng.integers(0, 10, stop - start, dtype=np.int64)
    return pa.table(columns)
