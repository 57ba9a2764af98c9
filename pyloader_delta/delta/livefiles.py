"""The live files of a table at one version: a sequence of `DataFile` that is columnar inside."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, overload

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from pyloader_delta.columns import numbers
from pyloader_delta.delta.arrays import integers, view
from pyloader_delta.delta.canonical import absolute
from pyloader_delta.delta.checkpoint import statistics
from pyloader_delta.delta.partitioned import partition_column
from pyloader_delta.delta.replay import State
from pyloader_delta.delta.store import Store
from pyloader_delta.errors import TableError
from pyloader_delta.values import DataFile, DeletionVector, Snapshot

_BLOCK = 4096
_COLUMNS = ("path", "size", "modificationTime", "n_rows", "deletionVector", "baseRowId", "source", "row")


class LiveFiles(Sequence[DataFile]):
    """Live files by (modification time, path). Data files are made when they are asked for.

    A copy, pickled or not, does not know the store, which may hold secrets: it has the statistics of commits alone.

    Args:
        store: The table's store; None where there is no way to it.
        files: One row a file.
        partition_values: Partition column → its values as the log spells them, dictionary-encoded.
        sources: What has the statistics of files, by number: a Parquet file's path, or texts.
        root: The table's absolute path or URI, where there is no store.
    """

    def __init__(
        self,
        store: Store | None,
        files: pa.Table,
        partition_values: Mapping[str, pa.ChunkedArray],
        sources: Sequence[str | pa.ChunkedArray],
        root: str = "",
    ) -> None:
        self._store = store
        self._root = root if store is None else store.root
        self._files = files
        self._partition_values = dict(partition_values)
        self._sources = sources

    def __reduce__(self) -> tuple[type[LiveFiles], tuple[object, ...]]:
        return LiveFiles, (None, self._files, self._partition_values, self._sources, self._root)

    def __len__(self) -> int:
        return int(self._files.num_rows)

    @overload
    def __getitem__(self, i: int) -> DataFile: ...
    @overload
    def __getitem__(self, i: slice) -> LiveFiles: ...
    def __getitem__(self, i: int | slice) -> DataFile | LiveFiles:
        if isinstance(i, slice):
            return self.take(np.arange(len(self), dtype=np.int64)[i])
        row = range(len(self))[i]
        return next(self._block(row, 1))

    def __iter__(self) -> Iterator[DataFile]:
        for start in range(0, len(self), _BLOCK):
            yield from self._block(start, _BLOCK)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence) or len(other) != len(self):
            return NotImplemented if not isinstance(other, Sequence) else False
        return all(mine == theirs for mine, theirs in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<{len(self)} files of {self._root}>"

    @property
    def n_rows(self) -> pa.ChunkedArray:
        """Rows of each file that are not deleted, int64; null where the log has no statistics."""
        return self._files.column("n_rows")

    @property
    def size_bytes(self) -> pa.ChunkedArray:
        """Size of each file as the log states it, int64."""
        return self._files.column("size")

    def partition_values(self, column: str) -> pa.ChunkedArray:
        """Return the values of a partition column as the log spells them, dictionary-encoded strings; null is NULL."""
        return self._partition_values[column]

    @property
    def table(self) -> pa.Table:
        """Their paths and deletion vectors, among others, in columns as `ADDS` has them."""
        return self._files

    def take(self, positions: NDArray[np.int64]) -> LiveFiles:
        """Return some of the files.

        Args:
            positions: int64 array of shape (n,): which, in ascending order.
        """
        taken = numbers(positions)
        partition_values = {name: column.take(taken) for name, column in self._partition_values.items()}
        return LiveFiles(self._store, self._files.take(taken), partition_values, self._sources, self._root)

    def statistics(self, positions: NDArray[np.int64], names: Collection[str]) -> list[str | Mapping[str, Any] | None]:
        """Return the log's statistics of some files, as they are written there.

        They are read from the log only now. Where a checkpoint was deleted meanwhile, its files have none.

        Args:
            positions: int64 array of shape (n,): which files.
            names: Columns whose statistics are wanted, as data files spell them; those of others may be missing.

        Returns:
            For each of those files its statistics as JSON, or as a mapping with some of `numRecords`, `minValues`,
            `maxValues`, `nullCount` and `tightBounds`; None where there are none.
        """
        found: list[str | Mapping[str, Any] | None] = [None] * len(positions)
        sources, rows = (view(_one(self._files.column(name)))[positions] for name in ("source", "row"))
        for number, source in enumerate(self._sources):
            places = np.flatnonzero(sources == number)
            if len(places):
                for i, value in zip(places.tolist(), self._read(source, rows[places], names), strict=True):
                    found[i] = value
        return found

    def _read(self, source: str | pa.ChunkedArray, rows: NDArray[Any], names: Collection[str]) -> list[Any]:
        if not isinstance(source, str):
            return list(source.take(numbers(rows)).to_pylist())
        if self._store is None:
            return [None] * len(rows)
        try:
            with self._store.open(source) as file:
                return statistics(file, rows, names)
        except FileNotFoundError:
            return [None] * len(rows)

    def _block(self, start: int, n_rows: int) -> Iterator[DataFile]:
        columns = [self._files.column(name).slice(start, n_rows).to_pylist() for name in _COLUMNS[:6]]
        names = tuple(self._partition_values)
        values = [column.slice(start, n_rows).to_pylist() for column in self._partition_values.values()]
        each = zip(*values, strict=True) if values else ((),) * len(columns[0])
        for (path, size, time, rows, vector, row_id), own in zip(zip(*columns, strict=True), each, strict=True):
            yield DataFile(
                absolute(self._root, path),
                size,
                time,
                rows,
                tuple(zip(names, own, strict=True)),
                None if vector is None else _vector(vector),
                row_id,
            )


def live_files(store: Store, state: State, partition_columns: Mapping[str, Sequence[str]]) -> LiveFiles:
    """Return the live files of a replayed log.

    Args:
        store: The table's store.
        state: Its state.
        partition_columns: Name of each partition column → how the log may spell it, the best first.

    Raises:
        TableError: The log lists a file twice, states no value of a partition column, or impossible numbers.
    """
    adds, root = state.adds, store.root
    values = {name: partition_column(adds, spelled, root) for name, spelled in partition_columns.items()}
    if pc.count_distinct(adds.column("path")).as_py() != adds.num_rows:
        raise TableError(f"{root} lists a file twice at version {state.version}: its log is broken")
    files = adds.append_column("n_rows", _live_rows(adds, root)).select(list(_COLUMNS))
    for name in ("size", "modificationTime"):
        if files.column(name).null_count:
            known = pc.fill_null(files.column(name), integers([0])[0])
            files = files.set_column(files.schema.get_field_index(name), name, known)
    order = pc.sort_indices(files, sort_keys=[("modificationTime", "ascending"), ("path", "ascending")])
    files = files.take(order).combine_chunks()
    values = {name: column.take(order) for name, column in values.items()}
    return LiveFiles(store, files, values, state.sources)


def files_of(snapshot: Snapshot) -> LiveFiles:
    """Return the files of a snapshot that was loaded here."""
    assert isinstance(snapshot.files, LiveFiles)
    return snapshot.files


def _live_rows(adds: pa.Table, root: str) -> pa.ChunkedArray:
    n_rows, vectors = adds.column("numRecords"), adds.column("deletionVector")
    if vectors.null_count == len(vectors):
        return n_rows
    n_deleted = pc.struct_field(vectors, "cardinality")
    n_rows = pc.subtract(n_rows, pc.fill_null(n_deleted, integers([0])[0]))
    wrong = pc.less(n_rows, integers([0])[0])
    if pc.any(wrong).as_py():
        path = adds.column("path").filter(wrong)[0].as_py()
        raise TableError(f"the log of {root} states more deleted rows of {path} than it has: it is broken")
    return n_rows


def _vector(described: Mapping[str, Any]) -> DeletionVector:
    names = ("storageType", "pathOrInlineDv", "offset", "sizeInBytes", "cardinality")
    return DeletionVector(*(described[name] for name in names))


def _one(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks)
