"""The tables that are measured, made once under benchmarks/.data, in bounded memory."""

import shutil
import sys
from collections.abc import Callable
from functools import partial
from io import BytesIO
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import WriterProperties, write_deltalake
from PIL import Image

from benchmarks.handmade import FLOATS, IMAGE_BYTES, INTS, WIDE, words

DATA = Path(__file__).with_name(".data")
ROW_BYTES = 4 * len(FLOATS) + 8 * len(INTS)
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


def jpegs(n_rows: int) -> Path:
    """Return a table of JPEG images of 320 x 256 pixels, about 18 KB each, in row groups of 250, and two int64."""
    return _make(f"jpegs-{n_rows}", n_rows, _jpegs, 250)


def texts(n_rows: int) -> Path:
    """Return a table of texts of 5 to 80 words, 42 on average, one in a hundred unknown, and two int64."""
    return _make(f"texts-{n_rows}", n_rows, _texts)


def wide(n_rows: int) -> Path:
    """Return a table of 500 float32 columns of noise in row groups of 6,250, and two int64."""
    return _make(f"wide-{n_rows}", n_rows, partial(_noise, names=WIDE), 6_250)


def _make(
    name: str, n_rows: int, columns: Callable[[np.random.Generator, int], dict[str, pa.Array]], per_group: int = 2**31
) -> Path:
    table = DATA / name
    if table.exists():
        return table
    print(f"making {table}", file=sys.stderr)
    unfinished = table.with_suffix(".unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    per_group = min(per_group, ROWS_PER_GROUP)
    writer = WriterProperties(max_row_group_size=per_group)
    step = per_group * GROUPS_PER_FILE
    for start in range(0, n_rows, step):
        n = min(step, n_rows - start)
        rng = np.random.default_rng(start)
        made = columns(rng, n)
        made["id"] = pa.array(np.arange(start, start + n, dtype=np.int64))
        made["label"] = pa.array(rng.integers(0, 10, n, dtype=np.int64))
        write_deltalake(unfinished, pa.table(made), mode="append", writer_properties=writer, target_file_size=2**40)
    unfinished.rename(table)  # a table is there only when it is complete
    return table


def _noise(
    rng: np.random.Generator, n: int, decimals: int | None = None, names: tuple[str, ...] = FLOATS
) -> dict[str, pa.Array]:
    noise = {name: rng.standard_normal(n, dtype=np.float32) for name in names}
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


def _jpegs(rng: np.random.Generator, n: int) -> dict[str, pa.Array]:
    coarse = rng.integers(0, 256, (n, 16, 20, 3), dtype=np.uint8)
    rough = rng.integers(0, 24, (256, 320, 3), dtype=np.uint8)
    return {"image": pa.array([_jpeg(pixels, rough) for pixels in coarse], pa.binary())}


def _jpeg(coarse: np.ndarray, rough: np.ndarray) -> bytes:
    """Return smooth colours, a little roughened, as JPEG."""
    smooth = np.asarray(Image.fromarray(coarse).resize((320, 256), Image.Resampling.BICUBIC))
    written = BytesIO()
    Image.fromarray(np.where(smooth > 231, smooth, smooth + rough)).save(written, "JPEG", quality=85)
    return written.getvalue()


def _texts(rng: np.random.Generator, n: int) -> dict[str, pa.Array]:
    ends = np.concatenate([[0], np.cumsum(rng.integers(5, 81, n))]).astype(np.int32)
    vocabulary = pa.concat_arrays([words(), pa.array(["Unknown"])])
    places = (rng.random(ends[-1], dtype=np.float32) ** 3 * len(vocabulary)).astype(np.int32)
    places = np.where(rng.random(ends[-1]) < 0.01, len(vocabulary) - 1, np.minimum(places, len(vocabulary) - 1))
    lists = pa.ListArray.from_arrays(pa.array(ends), vocabulary.take(pa.array(places)))
    return {"text": pc.binary_join(lists, " ")}
