"""Rates of a table's way into a training loop, stage by stage and by number of workers; and what bounds them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import cycle
from typing import Any

from pyloader_delta.delta.report import report
from pyloader_delta.delta.store import Store
from pyloader_delta.encode.fields import FieldsDataset, FieldSpec
from pyloader_delta.errors import ConfigError, ValueTypeError
from pyloader_delta.loader import DataLoader
from pyloader_delta.read.delta import DeltaDataReader

_RANGE = 4 << 20
_NEARLY_BEST = 0.95
_STILL_RISING = 1.1


@dataclass(frozen=True, slots=True)
class Rates:
    """Rows a second."""

    storage: float
    """Files read as bytes, one after another, not decoded."""
    decode: float
    """Read and decoded, in one thread."""
    batches: float
    """The whole way to batches, with num_workers=0."""
    by_workers: Mapping[int, float]
    """The whole way, by number of workers."""

    @property
    def best_workers(self) -> int:
        """The fewest workers that reach 95 % of the best rate."""
        best = max(self.by_workers.values())
        return min(n for n, rate in self.by_workers.items() if rate >= _NEARLY_BEST * best)

    def bound(self, n_cpus: int) -> str:
        """Return what bounds the best rate, and what to do."""
        n, best = self.best_workers, max(self.by_workers.values())
        fewer = [rate for workers, rate in self.by_workers.items() if workers < n]
        decode_s = 1 / self.decode
        rest_s = max(1 / self.batches - decode_s, 0.0)
        if best >= 0.8 * self.storage:
            return "storage: files arrive no faster; put the table nearer, or read fewer columns"
        if n == max(self.by_workers) and n < n_cpus and fewer and best > _STILL_RISING * max(fewer):
            return f"num_workers: the rate still rises at {n}; try more (this machine lets us use {n_cpus} CPUs)"
        stage = "decoding" if decode_s >= rest_s else "shuffling, encoding and collating"
        advice = "read fewer columns" if decode_s >= rest_s else "larger batches, or fewer columns"
        share = max(decode_s, rest_s) / (decode_s + rest_s)
        return f"CPU: {stage}, {share:.0%} of the work of a row; {advice}, or more CPUs"


def storage_rate(store: Store, reader: DeltaDataReader[Any], seconds: float) -> float:
    """Return rows/s of reading the files' bytes, in ranges of 4 MiB."""
    snapshot = reader.snapshot
    assert snapshot is not None
    rows: dict[str, int] = {}
    for chunk in reader.chunks(store.root):
        rows[chunk.path] = rows.get(chunk.path, 0) + (chunk.n_rows or 0)

    def read(path: str) -> int:
        with store.open(path) as file:
            for start in range(0, file.size(), _RANGE):
                file.read_at(min(_RANGE, file.size() - start), start)
        return rows[path]

    return _rate(read, list(rows), seconds)


def decode_rate(reader: DeltaDataReader[Any], root: str, seconds: float) -> float:
    """Return rows/s of reading and decoding, in this thread."""
    try:
        return _rate(lambda chunk: int(reader.read_chunk(chunk).num_rows), reader.chunks(root), seconds)
    finally:
        reader.close()


def loader_rate(loader: DataLoader[Any], seconds: float) -> float:
    """Return rows/s that a loader without end delivers, from its second batch on; closes it."""
    with loader:
        batches = iter(loader)
        next(batches)
        before, start = loader.stats()["rows_delivered_total"], time.perf_counter()
        while time.perf_counter() < start + seconds:
            next(batches)
        took = time.perf_counter() - start
        return (loader.stats()["rows_delivered_total"] - before) / took


def _rate(work: Callable[[Any], int], items: list[Any], seconds: float) -> float:
    start, n_rows = time.perf_counter(), 0
    for item in cycle(items):
        n_rows += work(item)
        if time.perf_counter() >= start + seconds:
            break
    return n_rows / (time.perf_counter() - start)


def specs(
    store: Store, version: int | None, schema: Any, columns: Iterable[str] | None, framework: Any
) -> list[FieldSpec]:
    """Return specs by which a framework can hold every column: nulls are marked, what it has no type for is a list.

    Raises:
        ConfigError: There is no such column.
    """
    nulls = {column.name: column.n_nulls for column in report(store, version, max_footers=0, folder=False).columns}
    names = list(columns or schema.names)
    found = []
    for name in names:
        if name not in schema.names:
            raise ConfigError(f"--column names {name!r}, which the table does not have: {', '.join(schema.names)}")
        keeps = framework in ("arrow", "pandas")
        spec = FieldSpec(name, null_mask=nulls.get(name) != 0 and not keeps)
        try:
            FieldsDataset([spec], framework=framework).outputs(schema)
        except ValueTypeError:
            spec = FieldSpec(name, as_list=True)
        found.append(spec)
    return found
