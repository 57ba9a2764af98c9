"""What is read under a memory limit: tables, how they are read, and what the limit leaves beside the imports."""

import shutil
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import memory_tables, tables
from benchmarks.memory_tables import Shape

GIB, MIB = 1 << 30, 1 << 20


@dataclass(frozen=True)
class Case:
    """One thing to be proven."""

    name: str
    what: str
    """In words, for the table that people read."""
    make: Callable[[], Path]
    """Makes the table if it is not there."""
    n_rows: int
    decoded_bytes: int
    file_rows: int
    """Rows of a file: `file * file_rows + id` counts the rows. 0 where `id` does."""
    allowance_bytes: int
    """What the kernel lets all processes have beside their imports."""
    batch_size: int
    workers: str
    through: str = "arrays"
    """Arrays of numbers, texts by their lengths, "torch" tensors, or a tf.data.Dataset ("to_tf")."""
    framework: str = ""
    """What the reading process imports beside numpy and pyarrow."""
    options: dict[str, Any] = field(default_factory=dict)
    """Of the loader."""


_COARSE = {"shuffle_window": "40MiB", "memory_budget": "120MiB"}


def coarse(n_rows: int) -> list[Case]:
    """Return the cases of many small row groups in little memory, for each kind of worker and of output."""
    found = []
    for name, workers, through, framework in (
        ("process", "process", "arrays", ""),
        ("thread", "thread", "arrays", ""),
        ("torch", "process", "torch", "torch"),
        ("to_tf", "thread", "to_tf", "tensorflow"),
    ):
        made, size = partial(tables.coarse, n_rows), n_rows * tables.ROW_BYTES
        what = f"22 columns, row groups of 3 MB, {name}"
        found.append(Case(name, what, made, n_rows, size, 0, 300 * MIB, 1024, workers, through, framework, _COARSE))
    return found


_SHAPES = {
    "groups-8mb": ("23 columns, row groups of 8 MB", Shape("floats", 8, 10_240_000, 80_000), 4096),
    "groups-128mb": ("23 columns, row groups of 128 MB", Shape("floats", 8, 10_240_000, 1_280_000), 4096),
    "groups-1gb": ("23 columns, row groups of 1 GB", Shape("floats", 8, 10_240_000, 10_240_000), 4096),
    "wide": ("500 columns, row groups of 32 MB", Shape("wide", 8, 512_000, 16_000), 1024),
    "texts": ("texts of 10 kB, 2.2 GB of them in a row group", Shape("texts", 4, 220_000, 220_000), 256),
    "rows-50mb": ("rows of 50 MB", Shape("blobs", 8, 20, 1), 4),
}
_MORE: dict[str, dict[str, Any]] = {
    "wide": {"shuffle_window": "32MiB", "memory_budget": "700MiB"},
    "rows-50mb": {"memory_budget": "900MiB", "shuffle_window": "50MiB"},
}


def large() -> list[Case]:
    """Return the cases of 8 GB through 1 GiB."""
    found = []
    for name, (what, shape, batch_size) in _SHAPES.items():
        made = partial(memory_tables.make, shape)
        through = {"texts": "texts", "blobs": "blobs"}.get(shape.kind, "arrays")
        options = _MORE.get(name, {})
        size = shape.decoded_bytes
        case = Case(
            name, what, made, shape.n_rows, size, shape.file_rows, GIB, batch_size, "", through, options=options
        )
        found += [replace(case, name=f"{name}-{w}", workers=w, what=f"{what}, {w}") for w in ("process", "thread")]
    return found


def free_tables() -> None:
    """Remove the tables of `large`."""
    for _, shape, _ in _SHAPES.values():
        shutil.rmtree(memory_tables.place(shape), ignore_errors=True)
