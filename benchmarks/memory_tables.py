"""Tables that are large decoded and small on disk, made once under benchmarks/.data: copies of one file, told apart.

Each has `id` (int64), which counts the rows of a file, and `file` (int32), a partition column that counts the files, so
that `file * rows of a file + id` counts the rows of the table.
"""

import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import Field, Schema, convert_to_deltalake
from deltalake.schema import PrimitiveType

from benchmarks import tables

TEXT_BYTES = 10_000
BLOB_BYTES = 50_000_000
_TEXTS_AT_ONCE = 100_000  # Arrow's plain strings end at 2 GiB


@dataclass(frozen=True)
class Shape:
    """What a table is to be."""

    kind: str
    """A key of `KINDS`."""
    files: int
    file_rows: int
    group_rows: int

    @property
    def n_rows(self) -> int:
        return self.files * self.file_rows

    @property
    def decoded_bytes(self) -> int:
        return self.n_rows * KINDS[self.kind].row_bytes


@dataclass(frozen=True)
class Kind:
    """The columns beside `id` and `file`."""

    columns: Callable[[np.random.Generator, int], dict[str, Any]]
    row_bytes: int
    """Decoded, `id` and `file` counted."""
    options: dict[str, Any]
    """How they are written."""


def place(shape: Shape) -> Path:
    """Return where a table is, or would be."""
    return tables.DATA / f"{shape.kind}-{shape.files}x{shape.file_rows}-in-{shape.group_rows}"


def make(shape: Shape) -> Path:
    """Return the folder of a table, made if it is not there."""
    table = place(shape)
    if table.exists():
        return table
    print(f"making {table}", file=sys.stderr)
    unfinished = table.with_suffix(".unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    first = unfinished / "file=0" / "part.parquet"
    first.parent.mkdir(parents=True)
    _write(first, shape)
    for number in range(1, shape.files):
        copy = unfinished / f"file={number}" / "part.parquet"
        copy.parent.mkdir()
        shutil.copyfile(first, copy)
    partitions = Schema([Field("file", PrimitiveType("integer"))])
    convert_to_deltalake(str(unfinished), partition_by=partitions, partition_strategy="hive")
    unfinished.rename(table)  # a table is there only when it is complete
    return table


def _write(path: Path, shape: Shape) -> None:
    kind, writer = KINDS[shape.kind], None
    for start in range(0, shape.file_rows, shape.group_rows):
        n = min(shape.group_rows, shape.file_rows - start)
        made = kind.columns(np.random.default_rng(start), n)
        group = pa.table({"id": pa.array(np.arange(start, start + n, dtype=np.int64)), **made})
        if writer is None:
            writer = pq.ParquetWriter(path, group.schema, compression="zstd", store_schema=False, **kind.options)
        writer.write_table(group, row_group_size=n)
    assert writer is not None
    writer.close()


def _floats(n_columns: int, rng: np.random.Generator, n: int) -> dict[str, Any]:
    """Return columns of float32 in runs of equal values, which zstd makes small and plain encoding leaves large."""
    runs = [rng.integers(0, 64, n // 64 + 1).astype(np.float32) for _ in range(n_columns)]
    return {f"f{i:03}": pa.array(np.repeat(values, 64)[:n]) for i, values in enumerate(runs)}


def _texts(rng: np.random.Generator, n: int) -> dict[str, Any]:
    """Return one column of texts, all of one length, of 16 different ones."""
    words = pa.array([f"{i:04}" * (TEXT_BYTES // 4) for i in range(16)])
    chosen = rng.integers(0, len(words), n)
    parts = [chosen[start : start + _TEXTS_AT_ONCE] for start in range(0, n, _TEXTS_AT_ONCE)]
    return {"text": pa.chunked_array([words.take(pa.array(part)) for part in parts])}


def _blobs(rng: np.random.Generator, n: int) -> dict[str, Any]:
    """Return one column of bytes, one value a row throughout."""
    blobs = [np.full(BLOB_BYTES, rng.integers(256), np.uint8).tobytes() for _ in range(n)]
    return {"blob": pa.array(blobs, pa.binary()) if n * BLOB_BYTES < 2**31 else pa.chunked_array([[b] for b in blobs])}


def _numbers(n_columns: int) -> Kind:
    def columns(rng: np.random.Generator, n: int) -> dict[str, Any]:
        return _floats(n_columns, rng, n)

    return Kind(columns, 4 * n_columns + 12, {"use_dictionary": False})


KINDS = {
    "floats": _numbers(22),
    "wide": _numbers(498),
    "texts": Kind(_texts, TEXT_BYTES + 4 + 12, {"dictionary_pagesize_limit": 1 << 20}),
    "blobs": Kind(_blobs, BLOB_BYTES + 4 + 12, {"use_dictionary": False, "write_batch_size": 1}),
}
