"""`preview_shuffle`: how well a loader will mix, from its plan alone; of the data only the label column is read."""

from __future__ import annotations

import copy
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pyloader_delta.columns import numbers
from pyloader_delta.errors import ConfigError
from pyloader_delta.options import whole
from pyloader_delta.plan.epoch import EpochPlan, plan_epoch
from pyloader_delta.plan.limit import limited
from pyloader_delta.read.tables import TableReader
from pyloader_delta.shuffling.labels import grouped
from pyloader_delta.shuffling.picture import UNIT, draw
from pyloader_delta.shuffling.places import RowsOf, Table, delivered
from pyloader_delta.words import many

if TYPE_CHECKING:
    from pyloader_delta.loader import DataLoader


@dataclass(frozen=True, slots=True)
class ShufflePreview:
    """How the rows of some batches of one epoch lie in the table. `print` shows the figures, `save` draws them."""

    batch_size: int
    """Rows of a batch; all looked at are whole, unless the epoch is shorter than one."""
    n_batches: int
    """Batches in the epoch."""
    n_chunks: int
    """Row groups or files of the table."""
    n_rows: int
    """Rows of the table."""
    windows: int
    """Windows of the epoch that are mixed; 0 where rows keep their order."""
    batches: NDArray[np.int64]
    """Numbers of the batches looked at, shape (n,)."""
    sources: NDArray[np.int64]
    """Row numbers in the table, in order of delivery, shape (n, batch_size)."""
    chunks_per_batch: NDArray[np.int64]
    """Distinct row groups or files in each of them, shape (n,)."""
    label: str | None
    """The label column."""
    labels: tuple[str, ...]
    """Its values, or groups of them."""
    shares: NDArray[np.float64]
    """Their shares of each batch, shape (n, len(labels))."""

    @property
    def spread(self) -> float:
        """Mean standard deviation of row numbers inside a batch, as a fraction of a full shuffle's.

        About 1 is best; batches of one row have 0.
        """
        uniform = self.n_rows / 12**0.5
        return float(self.sources.std(axis=1, ddof=1).mean()) / uniform if self.sources.shape[1] > 1 else 0.0

    @property
    def correlation(self) -> float:
        """Correlation of position delivered and position in the table: 1 unshuffled, about 0 is best; 0 for one row."""
        first = np.repeat(self.batches * self.batch_size, self.sources.shape[1])
        delivered = first + np.tile(np.arange(self.sources.shape[1]), len(self.batches))
        rows = self.sources.ravel()
        return float(np.corrcoef(delivered, rows)[0, 1]) if len(rows) > 1 else 0.0

    @property
    def label_distance(self) -> float:
        """How far a batch's mix of labels is from that of all looked at, 0 to 1 (total variation), on average."""
        return float(np.abs(self.shares - self.shares.mean(axis=0)).sum(axis=1).mean() / 2) if self.label else 0.0

    @property
    def label_distance_of_chance(self) -> float:
        """About the same for a full shuffle: chance alone makes batches differ."""
        part = self.shares.mean(axis=0)
        return float(np.sqrt(part * (1 - part) / (2 * np.pi * self.sources.shape[1])).sum()) if self.label else 0.0

    def figures(self) -> dict[str, float]:
        """Return the figures by name, fit for JSON."""
        found = {
            "n_rows": self.n_rows, "n_chunks": self.n_chunks, "n_batches": self.n_batches, "windows": self.windows,
            "batches_looked_at": len(self.batches), "chunks_per_batch_mean": float(self.chunks_per_batch.mean()),
            "chunks_per_batch_min": int(self.chunks_per_batch.min()), "spread": self.spread,
            "correlation": self.correlation,
        }  # fmt: skip
        if self.label is not None:
            found |= {
                "label_distance": self.label_distance,
                "label_distance_of_chance": self.label_distance_of_chance,
            }
        return found

    def save(self, path: str | os.PathLike[str]) -> None:
        """Draw it into a file, PNG or what its ending says; needs matplotlib (`pip install pyloader_delta[plot]`).

        Raises:
            ConfigError: matplotlib is not installed or writes no such format, or there is no such folder.
        """
        draw(self, path)

    def __str__(self) -> str:
        mixed = f"mixed in {many(self.windows, 'window')}" if self.windows else "in their order inside these"
        least = self.chunks_per_batch.min()
        batches = many(self.n_batches, "batch", "batches")
        lines = [
            f"{len(self.batches)} of {batches} of {many(self.batch_size, 'row')} looked at",
            f"{many(self.n_rows, 'row')} in {many(self.n_chunks, *UNIT)}, {mixed}",
            f"row groups or files in a batch: {self.chunks_per_batch.mean():.1f} on average, at least {least}",
            f"spread of rows inside a batch: {self.spread:.3f} of a full shuffle's",
            f"correlation of delivery and table: {self.correlation:.3f} (unshuffled 1, full shuffle about 0)",
        ]
        if self.label is not None:
            lines.append(
                f"mix of {self.label!r}: a batch is {self.label_distance:.3f} from all, by chance alone about "
                f"{self.label_distance_of_chance:.3f} (0: alike, 1: nothing in common)"
            )
        return "\n".join(lines)


def preview_shuffle(
    loader: DataLoader[Any], label: str | None = None, *, epoch: int = 0, batches: int = 64
) -> ShufflePreview:
    """Return how an epoch's batches mix the table, by the loader's plan; no worker is started.

    Args:
        loader: Any loader whose lengths are known before reading.
        label: A column of the table, to compare the batches' mixes of it; the only data that are read, and of them
            the row groups that the batches looked at have rows in. None: read nothing.
        epoch: Which epoch, from 0.
        batches: How many batches to look at, spread over the epoch, >= 1.

    Raises:
        ConfigError: Lengths are unknown, there are no rows, or the label is no such column.
    """
    epoch, batches = whole(epoch, "epoch", at_least=0), whole(batches, "batches", at_least=1)
    reader = loader.datareader
    if loader.rows_per_epoch is None:
        raise ConfigError(
            f"preview_shuffle() needs the length of each file before reading: {reader.length_advice} in "
            f"{type(reader).__name__}"
        )
    table = Table(loader._units)
    plan, rows_of = _plan(loader, table, epoch)
    n_rows = min(plan.n_rows or 0, plan.max_rows or plan.n_rows or 0)
    if not n_rows:
        raise ConfigError(f"{loader.root_dir} has no rows to preview")
    size = min(loader.batch_size, n_rows)
    chosen = np.unique(np.linspace(0, n_rows // size - 1, batches).astype(np.int64))
    sources = np.stack([delivered(plan, rows_of, int(batch) * size, (int(batch) + 1) * size) for batch in chosen])
    names: list[str] = []
    shares = np.zeros((len(chosen), 0))
    if label is not None:
        names, groups = grouped(_labels(loader, table, label, sources.ravel()), label)
        shares = np.stack([np.bincount(row, minlength=len(names)) / size for row in groups.reshape(sources.shape)])
    return ShufflePreview(
        batch_size=loader.batch_size,
        n_batches=-(-n_rows // loader.batch_size),
        n_chunks=len(table.units),
        n_rows=table.n_rows,
        windows=0 if plan.row_seed is None else len(plan.windows),
        batches=chosen,
        sources=sources,
        chunks_per_batch=np.array([len(np.unique(table.units_of(row))) for row in sources], dtype=np.int64),
        label=label,
        labels=tuple(names),
        shares=shares,
    )


def _plan(loader: DataLoader[Any], table: Table, epoch: int) -> tuple[EpochPlan, RowsOf]:
    full = loader._full
    units = loader._units if full is None else full.units
    plan = limited(plan_epoch(units, loader._order, epoch, loader._place()), loader._options.max_rows)
    return plan, table.rows_of if full is None else full.of(epoch).rows_of


def _labels(loader: DataLoader[Any], table: Table, label: str, rows: NDArray[np.int64]) -> list[Any]:
    """Return the label of each row, read from that column alone."""
    own = loader.datareader
    if not isinstance(own, TableReader):
        raise ConfigError(f"label needs a reader of tables, as {type(own).__name__} cannot read one column alone")
    reader = copy.copy(own)
    reader._pin = copy.deepcopy(own._pin)  # its open files are not ours to close
    reader.columns, reader._numbered = [label], False
    reader.chunks(loader.root_dir)
    found: list[Any] = [None] * len(rows)
    units = table.units_of(rows)
    try:
        for number in np.unique(units).tolist():
            start = int(table.starts[number])
            for chunk in table.units[number]:
                end = start + (chunk.n_rows or 0)
                here = np.flatnonzero((rows >= start) & (rows < end))
                if len(here):
                    column = TableReader.read_chunk(reader, chunk).column(label).take(numbers(rows[here] - start))
                    for row, value in zip(here.tolist(), column.to_pylist(), strict=True):
                        found[row] = value
                start = end
    finally:
        reader.close()
    return found
