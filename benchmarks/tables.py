"""The tables that are measured, made once under benchmarks/.data, in bounded memory."""

import shutil
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
from deltalake import DeltaTable, WriterProperties, write_deltalake

DATA = Path(__file__).with_name(".data")
FLOATS = tuple(f"f{i:02}" for i in range(20))
INTS = ("id", "label")
ROW_BYTES = 4 * len(FLOATS) + 8 * len(INTS)
IMAGE_BYTES = 784
ROWS_PER_GROUP = 31_250
GROUPS_PER_FILE = 16


def tabular(n_rows: int) -> Path:
    """Return the folder of a table of 20 float32 columns of noise and 2 int64; `id` counts the rows.

    Row groups have 31,250 rows, files 16 row groups, and each file is a commit of its own. Encodings are what
    deltalake writes by default: dictionaries, since so few rows stay below its limit.
    """
    return _make(f"tabular-{n_rows}", n_rows, _noise)


def coarse(n_rows: int) -> Path:
    """Return the same with floats rounded to 3 decimals: 96 bytes a row decoded, about 40 on disk."""
    return _make(f"coarse-{n_rows}", n_rows, partial(_noise, decimals=3))


def images(n_rows: int) -> Path:
    """Return a table of images as people store them, 784 bytes of noise each, and the same two int64."""
    return _make(f"images-{n_rows}", n_rows, _images)


def tokens(n_rows: int) -> Path:
    """Return a table of texts as lists of 1 to 399 int32, 200 on average, of 32,000 words, and the same two int64."""
    return _make(f"tokens-{n_rows}", n_rows, _tokens)


def paths(table: Path) -> list[str]:
    """Return the table's files in the order in which they were committed."""
    return sorted(DeltaTable(table).file_uris(), key=lambda path: Path(path).stat().st_mtime_ns)


def _make(name: str, n_rows: int, columns: Callable[[np.random.Generator, int], dict[str, pa.Array]]) -> Path:
    table = DATA / name
    if table.exists():
        return table
    print(f"making {table}", file=sys.stderr)
    unfinished = table.with_suffix(".unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    writer = WriterProperties(max_row_group_size=ROWS_PER_GROUP)
    step = ROWS_PER_GROUP * GROUPS_PER_FILE
    for start in range(0, n_rows, step):
        n = min(step, n_rows - start)
        rng = np.random.default_rng(start)
        made = columns(rng, n)
        made["id"] = pa.array(np.arange(start, start + n, dtype=np.int64))
        made["label"] = pa.array(rng.integers(0, 10, n, dtype=np.int64))
        write_deltalake(unfinished, pa.table(made), mode="append", writer_properties=writer, target_file_size=2**40)
    unfinished.rename(table)  # a table is there only when it is complete
    return table


def _noise(rng: np.random.Generator, n: int, decimals: int | None = None) -> dict[str, pa.Array]:
    noise = {name: rng.standard_normal(n, dtype=np.float32) for name in FLOATS}
    return {
        name: pa.array(values if decimals is None else np.round(values, decimals)) for name, values in noise.items()
    }


def _images(rng: np.random.Generator, n: int) -> dict[str, pa.Array]:
    pixels = pa.py_buffer(rng.integers(0, 256, n * IMAGE_BYTES, dtype=np.uint8))
    ends = pa.py_buffer(np.arange(0, (n + 1) * IMAGE_BYTES, IMAGE_BYTES, dtype=np.int32))
    return {"image": pa.Array.from_buffers(pa.binary(), n, [None, ends, pixels])}


def _tokens(rng: np.random.Generator, n: int) -> dict[str, pa.Array]:
    ends = np.concatenate([[0], np.cumsum(rng.integers(1, 400, n))]).astype(np.int32)
    words = (rng.random(ends[-1], dtype=np.float32) ** 3 * 32_000).astype(np.int32)  # the first are the commonest
    return {"tokens": pa.ListArray.from_arrays(pa.array(ends), pa.array(words))}
