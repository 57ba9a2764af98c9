"""What a good engineer writes by hand: batches of NumPy arrays out of the row groups of Parquet files.

Each rival puts its own machinery of workers, queues and tensors around it. It needs NumPy and PyArrow alone, for it
runs in the rivals' environments too.
"""

import random
from collections.abc import Iterator
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

INTS = ("id", "label")
FLOATS = tuple(f"f{i:02}" for i in range(20))
WIDE = tuple(f"f{i:03}" for i in range(500))
IMAGE_BYTES = 784
JPEG_SIZE = (224, 224)
N_TOKENS = 64
N_WORDS = 20_000
WHOLE = ("tabular", "matrix", "wide", "images", "text")
"""Workloads whose rows become rows of arrays a whole table at a time; those of the others are made batch by batch."""

Batch = dict[str, np.ndarray]
Group = tuple[str, int]


def paths(table: Path) -> list[str]:
    """Return a table's files in the order in which they were written; it must never have lost one."""
    return [str(path) for path in sorted(table.resolve().glob("*.parquet"), key=lambda path: path.stat().st_mtime_ns)]


def batches(
    workload: str, paths: list[str], batch_size: int, shuffle_rows: int = 0, *,
    epoch: int = 0, worker: int = 0, n_workers: int = 1, seed: int = 0,
) -> Iterator[Batch]:  # fmt: skip
    """Yield one worker's batches of an epoch.

    Workers share the row groups. Each reads its own until it has enough rows, mixes them if asked to, and cuts batches
    from them; what is left over is carried on, so that only a worker's last batch is short.
    """
    enough = max(shuffle_rows // n_workers, batch_size)
    rng = np.random.default_rng([seed, epoch, worker]) if shuffle_rows else None
    tables, n_rows = [], 0
    for group in groups(paths, epoch if shuffle_rows else None, seed)[worker::n_workers]:
        tables.append(read(group))
        n_rows += tables[-1].num_rows
        if n_rows >= enough:
            rest = n_rows % batch_size
            table = pa.concat_tables(tables)
            yield from cut(workload, table.slice(0, n_rows - rest), batch_size, rng)
            tables, n_rows = [table.slice(n_rows - rest)], rest
    if n_rows:
        yield from cut(workload, pa.concat_tables(tables), batch_size, rng)


def windows(paths: list[str], shuffle_rows: int = 0, *, epoch: int = 0, seed: int = 0) -> list[list[Group]]:
    """Return the row groups in runs: of one, or in random order of as many as it takes for `shuffle_rows` rows."""
    found = groups(paths, epoch if shuffle_rows else None, seed)
    size = max(1, -(-shuffle_rows // pq.read_metadata(paths[0]).row_group(0).num_rows))
    return [found[start : start + size] for start in range(0, len(found), size)]


def window(workload: str, run: list[Group], batch_size: int, key: list[int] | None = None) -> list[Batch]:
    """Return the batches of a run of row groups, mixed by a key if there is one; the last may be short."""
    rng = None if key is None else np.random.default_rng(key)
    return list(cut(workload, pa.concat_tables(map(read, run)), batch_size, rng))


def groups(paths: list[str], epoch: int | None, seed: int = 0) -> list[Group]:
    """Return (path, number) of each row group; in a random order of the epoch, if there is one."""
    found = [(path, number) for path in paths for number in range(pq.read_metadata(path).num_row_groups)]
    if epoch is not None:
        random.Random(f"{seed} {epoch}").shuffle(found)
    return found


def read(group: Group) -> pa.Table:
    """Return a row group."""
    path, number = group
    return pq.ParquetFile(path, memory_map=True).read_row_group(number, use_threads=False)


def cut(workload: str, table: pa.Table, batch_size: int, rng: np.random.Generator | None = None) -> Iterator[Batch]:
    """Yield a table's batches, its rows mixed if there is a generator."""
    order = None if rng is None else rng.permutation(table.num_rows)
    if workload in WHOLE:
        columns = arrays(workload, table)
        if order is not None:
            columns = {name: values[order] for name, values in columns.items()}
        for start in range(0, table.num_rows, batch_size):
            yield {name: values[start : start + batch_size] for name, values in columns.items()}
        return
    table = (table if order is None else table.take(order)).combine_chunks()
    for start in range(0, table.num_rows, batch_size):
        yield arrays(workload, table.slice(start, batch_size))


def arrays(workload: str, table: pa.Table) -> Batch:
    """Return the arrays that a workload makes of these rows."""
    if workload == "tabular":
        return _numbers(table)
    made = _numbers(table.select(INTS))
    if workload in ("matrix", "wide"):
        made["features"] = np.stack(list(_numbers(table.drop_columns(INTS)).values()), axis=1)
    elif workload == "images":
        made["image"] = pixels(table["image"])
    elif workload == "jpeg":
        made["image"] = decoded(table["image"].to_pylist())
    elif workload == "text":
        made["text"] = token_ids(table["text"])
    else:
        made["tokens"], made["tokens_lengths"] = padded(table["tokens"])
    return made


def pixels(column: pa.ChunkedArray) -> np.ndarray:
    """Return binary values of 784 bytes as uint8 (N, 28, 28)."""
    pieces = [
        np.frombuffer(chunk.buffers()[2], np.uint8, IMAGE_BYTES * len(chunk), IMAGE_BYTES * chunk.offset)
        for chunk in column.chunks
    ]
    return (pieces[0] if len(pieces) == 1 else np.concatenate(pieces)).reshape(-1, 28, 28)


def decoded(rows: list[bytes]) -> np.ndarray:
    """Return JPEG images as uint8 (N, 224, 224, 3): by simplejpeg where installed, and made that size by Pillow."""
    out = np.empty((len(rows), *JPEG_SIZE, 3), np.uint8)
    for number, row in enumerate(rows):
        out[number] = _resized(row)
    return out


def padded(column: pa.ChunkedArray) -> tuple[np.ndarray, np.ndarray]:
    """Return lists of int32 as int32 (N, longest), filled up with 0, and their lengths."""
    lists = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    words, ends = lists.values.to_numpy(), lists.offsets.to_numpy()
    lengths = np.diff(ends).astype(np.int64)
    out = np.zeros((len(lengths), lengths.max()), np.int32)
    out[np.arange(out.shape[1]) < lengths[:, None]] = words[ends[0] : ends[-1]]
    return out, lengths


def token_ids(column: pa.ChunkedArray | pa.Array) -> np.ndarray:
    """Return texts as int32 (N, 64): 1 + each word's place in the vocabulary, 0 where there is no (such) word."""
    lists = pc.utf8_split_whitespace(column)
    lists = lists.combine_chunks() if isinstance(lists, pa.ChunkedArray) else lists
    found = pc.fill_null(pc.add(pc.index_in(lists.values, value_set=words()), 1), 0).to_numpy(zero_copy_only=False)
    ends = lists.offsets.to_numpy()
    lengths, found = np.diff(ends), found[ends[0] : ends[-1]]
    place = np.arange(len(found)) - np.repeat(ends[:-1] - ends[0], lengths)
    out = np.zeros((len(lengths), N_TOKENS), np.int32)
    out[np.arange(N_TOKENS) < lengths[:, None]] = found[place < N_TOKENS]
    return out


@cache
def words() -> pa.Array:
    """Return the vocabulary: about 20,000 words of 2 to 8 letters."""
    rng = np.random.default_rng(5)
    letters = rng.integers(97, 123, (N_WORDS, 8), dtype=np.uint8)
    letters[np.arange(8) >= rng.integers(2, 9, N_WORDS)[:, None]] = 0
    return pa.array(np.unique(letters.view("S8")).tolist(), pa.binary()).cast(pa.string())


def _numbers(table: pa.Table) -> Batch:
    return {name: table[name].to_numpy() for name in table.column_names}


def _resized(row: bytes) -> Any:
    from PIL import Image

    try:
        from simplejpeg import decode_jpeg
    except ImportError:
        image = Image.open(BytesIO(row)).convert("RGB")
    else:
        image = Image.fromarray(decode_jpeg(row))
    return image.resize(JPEG_SIZE[::-1], Image.Resampling.BILINEAR)
