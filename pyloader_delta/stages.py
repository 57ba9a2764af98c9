"""The user's three objects as a worker calls them. Errors gain the name of the method that raised them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from pyloader_delta.collate.base import DataCollator
from pyloader_delta.encode.base import Dataset, checked_features
from pyloader_delta.encode.inputs import Inputs
from pyloader_delta.errors import ContractError, LoaderError, ReadError
from pyloader_delta.read.base import DataReader
from pyloader_delta.read.columns import to_batches
from pyloader_delta.rng import key_rng, seed_globals
from pyloader_delta.values import Chunk, Columns, Group


class Stages:
    """Reader, dataset and collator of one worker.

    Args:
        reader: Reads chunks.
        dataset: Encodes batches.
        collator: Collates them.
        seed: Keys `rng` of the last two, with epoch and batch.
        group: Batches encoded in one call; above 1 only where `dataset.rowwise`.
    """

    def __init__(
        self, reader: DataReader[Any], dataset: Dataset[Any], collator: DataCollator[Any], *, seed: int, group: int
    ) -> None:
        self.reader, self.dataset, self.collator = reader, dataset, collator
        self.seed, self.group = seed, group
        self.seeds_globals = False
        """Whether the process's own random states are seeded before each call: only in worker processes."""

    @property
    def missing_as_none(self) -> bool:
        """Whether a column that a file lacks is None there."""
        return self.reader.missing_as_none

    @property
    def passes_numbers(self) -> bool:
        """Whether gathered numbers may reach the batches as they are."""
        return self.dataset.input_format == "numpy"

    def open(self) -> None:
        """Open all three."""
        for owner in (self.reader, self.dataset, self.collator):
            owner.open()

    def close(self) -> None:
        """Close all three."""
        for owner in (self.reader, self.dataset, self.collator):
            owner.close()

    def read(self, chunk: Chunk) -> list[pa.RecordBatch]:
        """Return the rows of a chunk."""
        try:
            value = self.reader.read_chunk(chunk)
            exact = self.dataset.input_format == "python"
            return to_batches(value, exact=exact, place=f"{_name(self.reader)}.read_file of {chunk.path}")
        except OSError as error:
            if isinstance(error, LoaderError):
                raise
            raise ReadError(f"cannot read {chunk}: {error}") from error
        except LoaderError:
            raise
        except BaseException as error:
            error.add_note(f"in {_name(self.reader)}, reading {chunk}")
            raise

    def batches(self, columns: Columns, epoch: int, first_batch: int, batch_rows: Sequence[int]) -> Iterator[Any]:
        """Yield the collated batches of some consecutive rows."""
        inputs = Inputs(columns, self.dataset.input_format)
        start = 0
        for first in range(0, len(batch_rows), self.group):
            sizes = batch_rows[first : first + self.group]
            number = first_batch + first
            features = self._encode(inputs.cut(start, start + sum(sizes)), sum(sizes), (self.seed, epoch, number))
            if len(sizes) > 1 and self.collator.rowwise and all(type(v) is np.ndarray for v in features.values()):
                yield self._collated_group(features, tuple(sizes), (self.seed, epoch, number))
                start += sum(sizes)
                continue
            end = 0
            for i, n_rows in enumerate(sizes):
                part = features if len(sizes) == 1 else _cut(features, end, end + n_rows)
                yield self._collate(part, (self.seed, epoch, number + i))
                end += n_rows
            start += end

    def _encode(self, batch: Any, n_rows: int, key: tuple[int, ...]) -> Any:
        key_rng(self.dataset, ("encode", *key))
        if self.seeds_globals:
            seed_globals(("encode", *key))
        name = _name(self.dataset)
        try:
            features = self.dataset.batch_encode(batch)
        except BaseException as error:
            error.add_note(f"in {name}.batch_encode")
            raise
        return checked_features(features, n_rows, name)

    def _collated_group(self, features: Any, rows: tuple[int, ...], key: tuple[int, ...]) -> Group:
        """Collate several batches as one; the engine cuts them."""
        arrays, n_rows = self._collate(features, key), sum(rows)
        if type(arrays) is dict and all(type(a) is np.ndarray and len(a) == n_rows for a in arrays.values()):
            return Group(arrays, rows)
        raise ContractError(
            f"{_name(self.collator)} is rowwise, so collate_batch must return a dict of arrays with one row for each of "
            f"the {n_rows} rows it got"
        )

    def _collate(self, features: Any, key: tuple[int, ...]) -> Any:
        key_rng(self.collator, ("collate", *key))
        name = _name(self.collator)
        try:
            batch = self.collator.collate_batch(features)
        except BaseException as error:
            error.add_note(f"in {name}.collate_batch")
            raise
        if batch is None:
            raise ContractError(f"{name}.collate_batch returned None; is a return missing?")
        return batch


def _cut(features: Any, start: int, stop: int) -> dict[str, Any]:
    return {name: None if values is None else values[start:stop] for name, values in features.items()}


def _name(owner: Any) -> str:
    return type(owner).__name__
