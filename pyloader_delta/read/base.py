"""`DataReader`: how a folder is cut into chunks and how one chunk is read. What its rows mean is not decided here."""

from __future__ import annotations

import operator
import os
import random
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence, Set
from typing import Any, Generic, TypeVar

from pyloader_delta.delta.paths import table_path
from pyloader_delta.errors import ConfigError, ContractError, ReadError, TableError
from pyloader_delta.ours import is_ours
from pyloader_delta.values import Chunk
from pyloader_delta.words import many

T_co = TypeVar("T_co", covariant=True)

Samples = tuple[dict[str, Any], int]


class DataReader(Generic[T_co]):
    """Reads the chunk files of a folder. Subclass it and write `read_file`.

    Settings are class attributes with defaults, so a subclass need not call `super().__init__()`. Each worker has
    its own copy of the reader: what a worker needs for itself (a connection, a file handle) belongs into `open`.

    Args:
        batch_size: Rows in a batch, >= 1. None, here and below: the class attribute of that name.
        shuffle: Mix the rows of each shuffle window (see `DataLoader.shuffle_window`).
        random_seed: Seed of that mixing; any int, 0 included.
    """

    batch_size: int = 16
    shuffle: bool = False
    random_seed: int = 42
    length_advice: str = "define count_samples(self, path)"
    """How the rows of each file can be known before reading, for errors."""
    missing_as_none: bool = False
    """Whether a column that a file lacks reads as None there; otherwise such a file is an error."""

    reads_ahead: bool = False
    """Whether chunks of the next pass may be read before it is asked for (readers of tables that have no `read_chunk`
    of the user's do so anyway): only where they are the same whenever they are read."""

    n_batch: int = 0
    """Number of batches of the file that `load` read last."""
    n_sample: int = 0
    """Number of rows of the file that `load` read last."""

    def __init__(
        self, batch_size: int | None = None, shuffle: bool | None = None, random_seed: int | None = None
    ) -> None:
        if batch_size is not None:  # else a subclass's own attribute holds
            self.batch_size = batch_size
        if shuffle is not None:
            self.shuffle = shuffle
        if random_seed is not None:
            self.random_seed = random_seed

    # What a subclass writes -----------------------------------------------------------------------------------------

    def read_file(self, path: str) -> Any:
        """Return the rows of one chunk file.

        Args:
            path: Absolute path of the file.

        Returns:
            `(columns, n_rows)` with columns a dict of equally long lists, as in PyLoader; or a dict of lists or
            arrays (first axis: rows), a pyarrow Table, RecordBatch, a list or an iterator of record batches, a pandas
            or a polars frame (its index is left out).
        """
        raise NotImplementedError(f"{type(self).__name__} must define read_file(self, path)")

    def count_samples(self, path: str) -> int | None:
        """Return the number of rows of one chunk file, or None where only reading it would tell.

        Cheap and exact counts give the loader an exact length; the loader calls this once a file when it starts. Any
        whole number >= 0 will do, NumPy's too; no bool.
        """
        return None

    def open(self) -> None:
        """Prepare what this worker's copy needs; called once in each worker before its first chunk."""

    def close(self) -> None:
        """Release what `open` acquired; called once in each worker when it ends."""

    # What a subclass may change -------------------------------------------------------------------------------------

    def chunks(self, root: str) -> list[Chunk]:
        """Return the chunks below a folder in path order: one a file.

        Files and folders whose names begin with `_` or `.`, and `*.crc` files, are no chunks. Links are followed, but
        a folder is visited once, by the first of its names, so that links which lead back do no harm.

        Args:
            root: The folder, as a path or a `file:` URI.

        Raises:
            ConfigError: The folder is missing or holds no chunk file.
            ReadError: A folder cannot be listed, or a name leads nowhere (a broken link).
            TableError: The folder is a Delta table, whose files must not be read without its log.
        """
        chunks = [self._file_chunk(path) for path in chunk_files(root)]
        if not chunks:
            raise ConfigError(
                f"root_dir {root!r} holds no chunk file (names that begin with '_' or '.', and *.crc, do not count)"
            )
        return chunks

    def read_chunk(self, chunk: Chunk) -> Any:
        """Return the rows of one chunk; by default `read_file` of its path."""
        return self.read_file(chunk.path)

    @property
    def _is_ours(self) -> bool:
        """Whether no code of the user's reads chunks."""
        method = type(self).read_chunk
        return method is not DataReader.read_chunk and is_ours(method)

    def _together(self, chunks: Sequence[Chunk]) -> list[list[Chunk]]:
        """Return chunks in runs that are read at once: one by one, as a subclass's `read_chunk` gets them."""
        return [[chunk] for chunk in chunks]

    def _read_together(self, chunks: Sequence[Chunk]) -> Any:
        """Return the rows of a run of several chunks that `_together` gave, as an Arrow table."""
        raise NotImplementedError

    def _keep_cursors(self, kept: Collection[tuple[str, int]]) -> None:
        """Close what is open in row groups other than these, given as (path, row group)."""

    # PyLoader's way of using a reader alone -------------------------------------------------------------------------

    def load(self, path: str, read_fn: Callable[[str], Samples] | None = None) -> None:
        """Read one file and cut it into batches for `get_batch`; rows are mixed first if `shuffle`.

        Raises:
            ContractError: Columns differ in length among themselves or from the stated number of rows.
        """
        from pyloader_delta.read.columns import python_samples  # which builds on this module

        columns, n_sample = python_samples((read_fn or self.read_file)(path), place=f"read_file({path!r})")
        order = list(range(n_sample))
        if self.shuffle:
            random.Random(self.random_seed).shuffle(order)
        size = self.batch_size
        self._batches = [
            {name: [values[i] for i in order[start : start + size]] for name, values in columns.items()}
            for start in range(0, n_sample, size)
        ]
        self.n_sample = n_sample
        self.n_batch = len(self._batches)

    def get_batch(self, batch_idx: int) -> Samples:
        """Return batch `batch_idx` of the loaded file, 0-based, and its number of rows."""
        start = batch_idx % max(self.n_batch, 1) * self.batch_size
        return self._batches[batch_idx], min(self.batch_size, self.n_sample - start)

    def __len__(self) -> int:
        return self.n_sample

    def __bool__(self) -> bool:
        return True

    _in_loader: bool = False
    _numbered: bool = False
    _numbers: list[Any] | None = None
    """With `_numbered`: where `read_chunk` leaves the numbers of the rows that it gave, if it knows more of them than
    `Chunk.rows` says."""
    _batches: Sequence[dict[str, list[Any]]] = ()

    def _file_chunk(self, path: str) -> Chunk:
        try:
            size_bytes = os.stat(path).st_size
        except OSError as error:
            broken = "a broken link" if os.path.islink(path) else error.strerror
            raise ReadError(f"cannot read {path}: {broken}") from error
        try:
            n_rows = self.count_samples(path)
        except Exception as error:
            error.add_note(f"in {type(self).__name__}.count_samples({path!r})")
            raise
        n = None if n_rows is None else whole_number(n_rows)
        if n_rows is not None and (n is None or n < 0):
            raise ContractError(
                f"{type(self).__name__}.count_samples({path!r}) must return a number of rows >= 0 or None, "
                f"got {n_rows!r}"
            )
        return Chunk(path, size_bytes, rows=None if n is None else range(n))


def checked_chunks(chunks: Any, name: str) -> list[Chunk]:
    """Return what `chunks` of a reader of that name gave.

    Raises:
        ContractError: It is no list of Chunk.
    """
    if not isinstance(chunks, (list, tuple)):
        raise ContractError(f"{name}.chunks must return a list of Chunk, got {type(chunks).__name__}")
    for chunk in chunks:
        if not isinstance(chunk, Chunk):
            raise ContractError(f"{name}.chunks must return a list of Chunk, got {type(chunk).__name__} in it")
    return list(chunks)


def whole_number(value: Any) -> int | None:
    """Return an int of any kind, NumPy's too, as Python's; None for what is no int, bools included."""
    if isinstance(value, bool) or type(value).__name__ in ("bool", "bool_"):  # NumPy's, by either of its names
        return None
    try:
        return operator.index(value)
    except TypeError:
        return None


_NO_COLUMNS = (str, bytes, bytearray, Mapping, Set)  # they have a length, but no values in an order of rows
_UNSTATED = object()


def samples(value: Any, *, place: str) -> Samples:
    """Return `(columns, n_rows)` of what a `read_file` gave, with lengths checked.

    Raises:
        ContractError: It is no dict of columns, or their lengths differ.
    """
    stated: Any = _UNSTATED
    if isinstance(value, tuple):
        if len(value) != 2:
            raise ContractError(f"{place} must return (columns, n_rows), got a tuple of {len(value)}")
        value, stated = value
    if not isinstance(value, Mapping):
        raise ContractError(
            f"{place} must return (dict of lists, n_rows), a dict, an Arrow table or batches, or a data frame; "
            f"got {type(value).__name__}"
        )
    lengths = {}
    for name, values in value.items():
        if not isinstance(name, str):
            raise ContractError(f"{place}: names of columns must be str, got {name!r}")
        if isinstance(values, _NO_COLUMNS) or not hasattr(values, "__len__") or getattr(values, "shape", 1) == ():
            raise ContractError(f"{place}: column {name!r} must be a list or an array, got {type(values).__name__}")
        lengths[name] = len(values)
    if stated is _UNSTATED:
        stated = next(iter(lengths.values()), 0)
    elif whole_number(stated) is None:
        raise ContractError(f"{place} must return (columns, n_rows), got {stated!r} for n_rows")
    wrong = {name: n for name, n in lengths.items() if n != stated}
    if wrong:
        name, n = next(iter(wrong.items()))
        good = [other for other, m in lengths.items() if m == stated]
        beside = f"column {good[0]!r} has {int(stated)}" if good else f"n_rows is {int(stated)}"
        raise ContractError(f"{place}: column {name!r} has {many(n, 'row')}, but {beside}")
    return dict(value), int(stated)


def chunk_files(root: str, *, hive: bool = False) -> Iterator[str]:
    """Yield the absolute paths of the chunk files below a folder, sorted.

    Args:
        root: The folder, as a path or a `file:` URI.
        hive: Whether folders named `_name=value` are partitions, so that they count.
    """
    root = table_path(root) if root[:5].lower() == "file:" else root
    if os.path.isfile(root):
        raise ConfigError(f"root_dir must be a folder of chunk files, {root!r} is a file")
    if not os.path.isdir(root):
        raise ConfigError(f"root_dir {root!r} does not exist or is no folder")
    found, visited = [], set()
    for folder, folders, names in os.walk(os.path.abspath(root), onerror=_unreadable, followlinks=True):
        if "_delta_log" in folders:
            raise TableError(
                f"{folder} is a Delta table: read it with DeltaDataReader. Its files read without the log give "
                "deleted and rewritten rows"
            )
        real = os.path.realpath(folder)
        if real in visited:
            folders[:] = []
            continue
        visited.add(real)
        folders[:] = sorted(
            name for name in folders if not name.startswith(("_", ".")) or (hive and name[0] == "_" and "=" in name)
        )
        found += [
            os.path.join(folder, name)
            for name in names
            if not name.startswith(("_", ".")) and not name.endswith(".crc")
        ]
    yield from sorted(found)


def _unreadable(error: OSError) -> None:
    raise ReadError(f"cannot list {error.filename}: {error.strerror}") from error
