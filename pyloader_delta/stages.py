"""The user's three objects as a worker calls them. Errors gain the name of the method that raised them."""

from __future__ import annotations

import time
import warnings
from collections.abc import Collection, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pyloader_delta.collate.base import DataCollator
from pyloader_delta.encode.base import Dataset, checked_features
from pyloader_delta.encode.inputs import Inputs
from pyloader_delta.errors import ContractError, IncompleteEpochError, LoaderError, ReadError
from pyloader_delta.ours import is_ours
from pyloader_delta.ragged import Ragged, RaggedBatch, cuts
from pyloader_delta.read.base import DataReader
from pyloader_delta.read.columns import to_batches
from pyloader_delta.rng import key_rng, seed_globals
from pyloader_delta.spill.buckets import Bucket
from pyloader_delta.spill.streams import read_bucket
from pyloader_delta.values import Chunk, Columns, Group, Others
from pyloader_delta.words import many


class named:
    """Note on an error in which of the user's methods it was raised; a StopIteration must not end the training loop."""

    def __init__(self, owner: Any, method: str, place: str = "") -> None:
        self._owner, self._method, self._place = owner, method, place

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if error is None or isinstance(error, LoaderError):
            return
        name = f"{_name(self._owner)}.{self._method}"
        if isinstance(error, StopIteration):
            stopped = RuntimeError(f"{name} raised StopIteration")
            stopped.add_note(f"in {name}{self._place}")
            raise stopped from error
        error.add_note(f"in {name}{self._place}")


class Stages:
    """Reader, dataset and collator of one worker.

    Args:
        reader: Reads chunks.
        dataset: Encodes batches.
        collator: Collates them.
        seed: Keys `rng` of the last two, with epoch and batch.
        numbered: Whether each row is to be followed by its number in its file.
    """

    def __init__(
        self, reader: DataReader[Any], dataset: Dataset[Any], collator: DataCollator[Any], *, seed: int,
        numbered: bool = False,
    ) -> None:  # fmt: skip
        self.reader, self.dataset, self.collator = reader, dataset, collator
        self.seed, self.numbered = seed, numbered
        self.careful = False
        self.skipped: list[tuple[int, str]] = []
        self.encode_seconds = 0.0
        self.seeds_globals = False
        """Whether the process's own random states are seeded before each call: only in worker processes."""

    @property
    def passes_numbers(self) -> bool:
        """Whether gathered numbers may reach the batches as they are."""
        return self.dataset.input_format in ("numpy", "columns")

    @property
    def keeps_nothing(self) -> bool:
        """Whether what gets gathered columns keeps no view of them: it is no code of the user's."""
        ours = is_ours(type(self.dataset).batch_encode) and is_ours(type(self.collator).collate_batch)
        return ours and self.dataset.input_format == "columns" and not getattr(self.dataset, "runs_python", True)

    @property
    def copied(self) -> Collection[str]:
        """Columns of which only a copy gets on: what gets them is no code of the user's."""
        return getattr(self.dataset, "copied", ()) if self.keeps_nothing else ()

    @property
    def owns_blocks(self) -> bool:
        """Whether nobody else holds the memory that was read: it is no table of the user's own."""
        return self.reader._is_ours

    def open(self) -> None:
        """Open all three."""
        for owner in (self.reader, self.dataset, self.collator):
            with named(owner, "open"):
                owner.open()

    def close(self) -> None:
        """Close all three; an error of one is a warning, so that the others are closed and no other error is hidden."""
        for owner in (self.reader, self.dataset, self.collator):
            try:
                owner.close()
            except Exception as error:
                text = f"{_name(owner)}.close raised {type(error).__name__}: {error}"
                warnings.warn(text, RuntimeWarning, stacklevel=2)

    @property
    def lends(self) -> bool:
        """Whether batches of worker processes may stay where their windows lie: those can be read again, the same."""
        return self.passes_numbers and not self.numbered

    def together(self, chunks: Sequence[Chunk]) -> list[list[Chunk]]:
        """Return chunks in runs that `read_run` reads at once: they are of one file, and their rows are as planned."""
        return [[chunk] for chunk in chunks] if self.numbered else self.reader._together(chunks)

    def read_run(self, chunks: Sequence[Chunk], *, apart: bool = False) -> list[pa.RecordBatch]:
        """Return the rows of one of these runs; `apart`: blocks of some size need not be joined."""
        if len(chunks) == 1:
            return self.read(chunks[0])
        exact = self.dataset.input_format == "python"
        return to_batches(self.reader._read_together(chunks), exact=exact, place="", apart=apart)

    def keep_cursors(self, kept: Collection[tuple[str, int]]) -> None:
        """Close cursors in row groups other than these, given as (path, row group)."""
        self.reader._keep_cursors(kept)

    def read(self, chunk: Chunk) -> list[pa.RecordBatch]:
        """Return the rows of a chunk."""
        if isinstance(chunk, Bucket):
            return read_bucket(chunk)
        method = "read_file" if type(self.reader).read_chunk is DataReader.read_chunk else "read_chunk"
        exact = self.dataset.input_format == "python"
        place = f"{_name(self.reader)}.{method} of {chunk.path}"
        self.reader._numbers = [] if self.numbered else None
        try:
            with named(self.reader, method, f", reading {chunk}"):
                blocks = to_batches(self.reader.read_chunk(chunk), exact=exact, place=place)
            return blocks if chunk.row_group is not None or chunk.row_group_rows is None else _part(blocks, chunk)
        except OSError as error:
            if isinstance(error, LoaderError):
                raise
            raise ReadError(f"cannot read {chunk}: {error}") from error

    def row_numbers(self, chunk: Chunk, n_rows: int) -> NDArray[np.int64]:
        """Return the numbers in its file of the rows that `read` gave last, int64 of shape (n_rows,).

        They are physical, deleted rows counted, where the reader knows; else as the plan counts them.
        """
        found = self.reader._numbers
        if found and sum(map(len, found)) == n_rows:
            return np.concatenate(found)
        first = 0 if chunk.rows is None else chunk.rows.start
        return np.arange(first, first + n_rows)

    def batches(
        self, columns: Columns, epoch: int, first_batch: int, batch_rows: Sequence[int], groups: Sequence[int],
        others: Others | None = None,
    ) -> Iterator[Any]:  # fmt: skip
        """Yield the collated batches of some consecutive rows.

        Args:
            columns: The rows.
            epoch: 0-based.
            first_batch: Number of the first batch, which chance is keyed by.
            batch_rows: Rows of each batch.
            groups: How many batches are encoded in each call.
            others: What may stand in for them, where rows are skipped.
        """
        inputs = Inputs(columns, self.dataset.input_format)
        start = 0
        first = 0
        for n_batches in groups:
            number = first_batch + first
            sizes = batch_rows[first : first + n_batches]
            first += n_batches
            features = self._encode(inputs.cut(start, start + sum(sizes)), sum(sizes), (self.seed, epoch, number))
            if len(sizes) > 1 and self.collator.rowwise and all(map(_is_cut_later, features.values())):
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
        started = time.perf_counter()
        with named(self.dataset, "batch_encode"):
            features = self.dataset.batch_encode(batch)
        self.encode_seconds += time.perf_counter() - started
        return checked_features(features, n_rows, _name(self.dataset))

    def _collated_group(self, features: Any, rows: tuple[int, ...], key: tuple[int, ...]) -> Group:
        """Collate several batches as one; the engine cuts them."""
        batch, n_rows = self._collate(features, key), sum(rows)
        if type(batch) is dict:
            ragged = [entry for entry in batch.values() if type(entry) is RaggedBatch]
            plain = [entry for entry in batch.values() if type(entry) is not RaggedBatch]
            if all(_is_plain(entry) and len(entry) == n_rows for entry in plain) and all(
                len(entry.lengths[0]) == n_rows for entry in ragged
            ):
                return Group(batch, rows, {k: cut for entry in ragged for k, cut in cuts(entry, rows).items()})
        raise ContractError(
            f"{_name(self.collator)} is rowwise, so collate_batch must return a dict of arrays with one row for each "
            f"of the {n_rows} rows it got"
        )

    def _collate(self, features: Any, key: tuple[int, ...]) -> Any:
        key_rng(self.collator, ("collate", *key))
        with named(self.collator, "collate_batch"):
            batch = self.collator.collate_batch(features)
        if batch is None:
            raise ContractError(f"{_name(self.collator)}.collate_batch returned None; is a return missing?")
        return batch


def finalized(collator: DataCollator[Any], batch: Any) -> Any:
    """Return a batch as the training loop gets it; runs in the training process."""
    try:
        return collator.finalize(batch)
    except BaseException:
        with named(collator, "finalize"):  # entered only now: this runs for each batch
            raise


def _part(blocks: list[pa.RecordBatch], chunk: Chunk) -> list[pa.RecordBatch]:
    """Return a rank's part of a file that was read whole."""
    assert chunk.rows is not None
    assert chunk.row_group_rows is not None
    planned, found = len(chunk.row_group_rows), sum(block.num_rows for block in blocks)
    if found != planned:
        raise IncompleteEpochError(f"{chunk.path}: the plan has {many(planned, 'row')}, reading gave {found:,}")
    part, start = [], 0
    for block in blocks:
        low, high = max(chunk.rows.start - start, 0), min(chunk.rows.stop - start, block.num_rows)
        start += block.num_rows
        if low < high:
            part.append(block.slice(low, high - low))
    return part


def _cut(features: Any, start: int, stop: int) -> dict[str, Any]:
    return {name: None if values is None else values[start:stop] for name, values in features.items()}


def _is_cut_later(values: Any) -> bool:
    """Return whether an entry can be cut after collating."""
    return type(values) is Ragged or _is_plain(values)


def _is_plain(values: Any) -> bool:
    """Return whether a value is an array of numbers, not of objects."""
    return type(values) is np.ndarray and not values.dtype.hasobject


def _name(owner: Any) -> str:
    return type(owner).__name__
