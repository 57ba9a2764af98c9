"""What a reader, a dataset and a collator must keep to, each tried alone: no loader, no workers."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import cloudpickle
import numpy as np

from pyloader_delta.collate.base import DataCollator
from pyloader_delta.collate.numpy import NumpyDataCollator
from pyloader_delta.encode.base import Dataset
from pyloader_delta.encode.inputs import Inputs
from pyloader_delta.engine.gather import gather
from pyloader_delta.engine.kinds import Kinds, file_types
from pyloader_delta.engine.tasks import Segment
from pyloader_delta.engine.tree import private_copy, put_together, take_apart
from pyloader_delta.engine.window import WindowBlocks
from pyloader_delta.errors import ConfigError, ContractError
from pyloader_delta.options import check_parts
from pyloader_delta.read.base import DataReader, checked_chunks
from pyloader_delta.read.columns import python_samples, to_batches
from pyloader_delta.stages import Stages, finalized
from pyloader_delta.testing.compare import difference, unlike
from pyloader_delta.values import Chunk, Columns


class _AsTheyAre(Dataset[Any]):
    def batch_encode(self, batch_data: Any) -> Any:
        return batch_data


class _Nothing(DataReader[Any]):
    def read_file(self, path: str) -> Any:
        return {}


def check_reader(reader: DataReader[Any], root_dir: str, *, max_chunks: int | None = None) -> None:
    """Check that a reader's chunks are what it says, whoever reads them, in whatever order, and how often.

    Args:
        reader: The reader.
        root_dir: A folder, or a table, that it reads.
        max_chunks: Read no more than so many chunks; None for all.

    Raises:
        AssertionError: A promise is not kept; names the chunk.
        LoaderError: As the loader would raise it.
    """
    check_parts(reader, _AsTheyAre(), NumpyDataCollator())
    name = type(reader).__name__
    chunks = checked_chunks(reader.chunks(root_dir), name)
    if unlike(checked_chunks(reader.chunks(root_dir), name), chunks):
        raise AssertionError(f"{name}.chunks({root_dir!r}) gives other chunks when it is called again")
    chunks = chunks[:max_chunks]
    other = _travelled(reader)
    kinds = Kinds(strict=False, missing_as_none=reader.missing_as_none)
    found: list[tuple[dict[str, Any], int]] = []
    try:
        for one in (reader, other):
            one.open()
        for chunk in chunks:
            found.append(_read(reader, chunk))
            blocks = to_batches(reader.read_chunk(chunk), exact=True, place=f"{name} of {chunk.path}")
            error = kinds.add(file_types([(chunk.path, block.schema) for block in blocks if block.num_rows]))
            if error is not None:
                raise error
            if chunk.n_rows is not None and found[-1][1] != chunk.n_rows:
                raise AssertionError(f"{chunk} gave {found[-1][1]} rows, not what chunks() and count_samples() say")
        for chunk, first in reversed(list(zip(chunks, found, strict=True))):
            _expect(_read(other, chunk), first, f"{chunk} read by a pickled copy of {name}, last chunk first,")
            if chunk.row_group is not None and chunk.rows is not None and len(chunk.rows) > 1:
                half = len(chunk.rows) // 2
                parts = [_read(other, replace(chunk, rows=part)) for part in (chunk.rows[:half], chunk.rows[half:])]
                _expect(_joined(parts), first, f"{chunk} read in two parts")
    finally:
        for one in (reader, other):
            one.close()


def check_dataset(dataset: Dataset[Any], rows: Any) -> None:
    """Check that a dataset encodes rows one value a row, the same each time, in whatever company it promises.

    Args:
        dataset: The dataset.
        rows: Two rows or more, as a reader's `read_file` would return them: a dict of lists, say.

    Raises:
        AssertionError: A promise is not kept; names the output.
        LoaderError: As the loader would raise it.
    """
    check_parts(_Nothing(), dataset, NumpyDataCollator())
    name = type(dataset).__name__
    columns = _columns(rows, exact=dataset.input_format == "python")
    if columns.n_rows < 2:
        raise ConfigError(f"rows must be two or more, got {columns.n_rows}")
    half = columns.n_rows // 2
    other = _travelled(dataset)
    for one in (dataset, other):
        one.open()
    try:
        whole = _encoded(dataset, columns, 0, columns.n_rows)
        drew = _drew(dataset)
        for one, place in ((dataset, "again"), (other, "by a copy, as a worker process has it")):
            text = difference(_encoded(one, columns, 0, columns.n_rows), whole)
            if text is not None:
                raise AssertionError(
                    f"{name}.batch_encode gave the same rows {place} otherwise: {text}; take random numbers from "
                    "self.rng, and keep nothing from call to call"
                )
        parts = [_encoded(dataset, columns, 0, half), _encoded(dataset, columns, half, columns.n_rows)]
        _encoded(dataset, columns, 0, 1)
        if dataset.rowwise and not drew:
            for key in whole:
                cut = None if whole[key] is None else [whole[key][:half], whole[key][half:]]
                text = None if cut is None else unlike(cut, [part[key] for part in parts])
                if text is not None:
                    raise AssertionError(
                        f"{name} is rowwise, but encodes rows otherwise together than apart: output {key!r}: {text}"
                    )
    finally:
        for one in (dataset, other):
            one.close()


def check_collator(collator: DataCollator[Any], features: Any) -> None:
    """Check that a collator's batches can travel, are the same each time, and can be cut if it promises so.

    Args:
        collator: The collator.
        features: What a dataset's `batch_encode` returned, of two rows or more.

    Raises:
        AssertionError: A promise is not kept; names the output.
        LoaderError: As the loader would raise it.
    """
    check_parts(_Nothing(), _AsTheyAre(), collator)
    name = type(collator).__name__
    n_rows = next((len(values) for values in features.values() if values is not None), 0)
    if n_rows < 2:
        raise ConfigError(f"features must be of two rows or more, got {n_rows}")
    other = _travelled(collator)
    for one in (collator, other):
        one.open()
    try:
        batch = _collated(collator, features, (n_rows,))[0]
        text = difference(_sent(batch, name), batch)
        if text is not None:
            raise AssertionError(f"{name}.collate_batch: the batch does not arrive as it left a worker: {text}")
        for one, place in ((collator, "again"), (other, "by a copy, as a worker process has it")):
            text = difference(_collated(one, features, (n_rows,))[0], batch)
            if text is not None:
                raise AssertionError(f"{name}.collate_batch gave the same rows {place} otherwise: {text}")
        if finalized(collator, private_copy(batch)) is None:
            raise AssertionError(f"{name}.finalize returned None; is a return missing?")
        if collator.rowwise:
            _check_cuts(collator, features, n_rows)
    finally:
        for one in (collator, other):
            one.close()


def _check_cuts(collator: DataCollator[Any], features: Any, n_rows: int) -> None:
    half = (n_rows + 1) // 2
    together = _collated(collator, features, (half, n_rows - half))
    start = 0
    for rows, batch in zip((half, n_rows - half), together, strict=True):
        part = {key: None if v is None else v[start : start + rows] for key, v in features.items()}
        text = difference(batch, _collated(collator, part, (rows,))[0])
        start += rows
        if text is not None:
            raise AssertionError(
                f"{type(collator).__name__} is rowwise, but collates rows otherwise together than apart: {text}"
            )


def _read(reader: DataReader[Any], chunk: Chunk) -> tuple[dict[str, Any], int]:
    return python_samples(reader.read_chunk(chunk), place=f"{type(reader).__name__} of {chunk.path}")


def _joined(parts: Sequence[tuple[dict[str, Any], int]]) -> tuple[dict[str, Any], int]:
    names = parts[0][0]
    return {name: [v for columns, _ in parts for v in columns[name]] for name in names}, sum(n for _, n in parts)


def _expect(found: tuple[dict[str, Any], int], expected: tuple[dict[str, Any], int], place: str) -> None:
    ours, theirs = ({name: list(values) for name, values in columns.items()} for columns, _ in (found, expected))
    text = unlike(ours, theirs)
    if text is not None:
        raise AssertionError(f"{place} is not what it was at first: {text}")


def _travelled(owner: Any) -> Any:
    """Return what a worker process gets of a user's object.

    Raises:
        ConfigError: It cannot be pickled.
    """
    try:
        return pickle.loads(cloudpickle.dumps(owner))
    except Exception as error:
        raise ConfigError(
            f"{type(owner).__name__} cannot be sent to a worker process: {error}; make what cannot be pickled in open()"
        ) from error


def _columns(rows: Any, *, exact: bool) -> Columns:
    blocks = [block for block in to_batches(rows, exact=exact, place="rows") if block.num_rows]
    n_rows = sum(block.num_rows for block in blocks)
    return gather([WindowBlocks(blocks)], [Segment(0, n_rows, 0, n_rows, None, ())])


def _encoded(dataset: Dataset[Any], columns: Columns, start: int, stop: int) -> Any:
    stages = Stages(_Nothing(), dataset, NumpyDataCollator(), seed=0)
    rows = Inputs(columns, dataset.input_format).cut(start, stop)
    return stages._encode(private_copy(rows) if isinstance(rows, dict) else rows, stop - start, (0, 0, 0))


def _drew(dataset: Dataset[Any]) -> bool:
    """Return whether the last call used `self.rng`: what it gave depends on where the call began then."""
    return vars(dataset).get("_rng") is not None


def _collated(collator: DataCollator[Any], features: Any, rows: tuple[int, ...]) -> list[Any]:
    """Return the batches of some features, collated as the loader does it: as one if they are several."""
    stages = Stages(_Nothing(), _AsTheyAre(), collator, seed=0)
    features = private_copy(dict(features))
    if len(rows) == 1:
        return [stages._collate(features, (0, 0, 0))]
    group = stages._collated_group(features, rows, (0, 0, 0))
    found, start = [], 0
    for number, n in enumerate(rows):
        batch = {}
        for key, entry in group.batch.items():
            if type(entry) is np.ndarray:
                batch[key] = entry[start : start + n]
            else:  # ragged: each of its arrays is cut where the group says
                arrays: list[Any] = []
                spec = take_apart(entry, arrays)
                cuts = [group.cuts.get(id(array)) for array in arrays]
                parts = [
                    a[start : start + n] if c is None else a[c[number] : c[number + 1]]
                    for a, c in zip(arrays, cuts, strict=True)
                ]
                batch[key] = put_together(spec, iter(parts).__next__)
        found.append(batch)
        start += n
    return found


def _sent(batch: Any, name: str) -> Any:
    """Return a batch as it arrives from a worker process."""
    arrays: list[Any] = []
    spec = take_apart(batch, arrays)
    try:
        spec = pickle.loads(cloudpickle.dumps(spec, protocol=5))
    except Exception as error:
        raise ContractError(f"{name}.collate_batch returned something that cannot be pickled: {error}") from error
    copies: Iterable[Any] = [array.copy() for array in arrays]
    return put_together(spec, iter(copies).__next__)
