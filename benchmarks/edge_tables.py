"""Tables for `benchmarks.edges`: files of few rows, one huge row group, thousands of columns."""

import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import convert_to_deltalake

from benchmarks import tables
from benchmarks.handmade import FLOATS

TRACE = tables.DATA / "edges-trace.json"


def split(n_files: int, rows: int) -> Path:
    """Return a table of so many files of so many rows of the workload "tabular", a row group each at most 62,500."""

    def write(folder: Path) -> None:
        for number in range(n_files):
            _write(folder / f"{number:05}.parquet", _noise(FLOATS, number * rows, rows))

    return _made(f"split-{n_files}x{rows}", write)


def one_row_group(n_rows: int) -> Path:
    """Return a table of one file with one row group."""
    return _made(f"group-{n_rows}", lambda folder: _write(folder / "0.parquet", _noise(FLOATS, 0, n_rows)))


def columns(n_columns: int, n_rows: int) -> Path:
    """Return a table of so many float32 columns, beside two int64, in row groups of 2,500 rows."""
    names = tuple(f"f{number:04}" for number in range(n_columns))

    def write(folder: Path) -> None:
        _write(folder / "0.parquet", _noise(names, 0, n_rows), row_group_size=2_500)

    return _made(f"columns-{n_columns}x{n_rows}", write)


def _noise(names: tuple[str, ...], start: int, n: int) -> pa.Table:
    rng = np.random.default_rng(start)
    made = {name: rng.standard_normal(n, dtype=np.float32) for name in names}
    made["id"] = np.arange(start, start + n, dtype=np.int64)
    made["label"] = rng.integers(0, 10, n, dtype=np.int64)
    return pa.table(made)


def _write(path: Path, table: pa.Table, row_group_size: int = 2**31) -> None:
    pq.write_table(table, path, row_group_size=row_group_size)


def _made(name: str, write: Callable[[Path], None]) -> Path:
    table = tables.DATA / name
    if table.exists():
        return table
    print(f"making {table}", file=sys.stderr)
    unfinished = table.with_suffix(".unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    write(unfinished)
    convert_to_deltalake(str(unfinished))
    unfinished.rename(table)  # a table is there only when it is complete
    return table
