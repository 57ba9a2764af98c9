"""What travels between the stages: frozen, picklable values. Nothing is opened, read or sent here."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class DeletionVector:
    """Where the log says it is written which rows of a file are deleted."""

    storage_type: str
    """`i`: inline; `u`: a file named by a UUID below the table; `p`: a file at an absolute URI."""
    path_or_inline_dv: str
    """The vector itself, the coded UUID after an optional folder, or the URI, as the log spells it."""
    offset: int | None
    """Where in the file it begins; None: behind the first byte."""
    size_in_bytes: int
    """Size of the vector, without the size before it and the checksum behind it."""
    cardinality: int
    """Number of deleted rows."""


@dataclass(frozen=True, slots=True)
class DataFile:
    """One live data file of a table."""

    path: str
    """Absolute path, decoded."""
    size_bytes: int
    """Size of the file as the log states it."""
    modification_time_ms: int
    """Modification time as the log states it, milliseconds since 1970 UTC."""
    n_rows: int | None
    """Rows in the file that are not deleted; None where the log has no statistics."""
    partition_values: tuple[tuple[str, str | None], ...]
    """(partition column, value as the log spells it); None is NULL."""
    deletion_vector: DeletionVector | None = None
    """Which rows are deleted; None for none."""
    base_row_id: int | None = None
    """Row id of the file's first row, of a table that tracks rows."""


TENSOR = b"pyloader_delta.tensor"
"""Key of a field's metadata: JSON of the shape of the tensors that a column's lists are; see `columns.tensor_shape`."""


@dataclass(frozen=True, slots=True)
class TableField:
    """A field of a table, at any depth: its name and type to whoever reads it, and how the table's files spell it."""

    name: str
    """Logical name; `element`, `key` and `value` inside lists and maps."""
    stored_name: str
    """Name in data files, statistics and partition values; the logical one unless the table maps its columns."""
    stored_id: int | None
    """Parquet field id that finds it in a file which has ids; None: `stored_name` finds it."""
    type: pa.DataType
    """Logical type; null for a type that cannot be read."""
    nullable: bool
    """Whether it may be NULL."""
    children: tuple[TableField, ...] = ()
    """Fields of a struct, the element of a list, key and value of a map."""
    variant: bool = False
    """Whether it is a variant, as the struct of its two binary parts."""
    unreadable: str | None = None
    """Why it cannot be selected, naming it; None where it can."""
    tensor: str | None = None
    """What the table states of a column of lists that are tensors of one shape: JSON of "shape" and "permutation"."""

    @property
    def arrow(self) -> pa.Field:
        """Name, type and nullability, and in the metadata the shape of tensors."""
        import pyarrow as pa  # values import nothing that takes long

        metadata = None if self.tensor is None else {TENSOR: self.tensor}
        return pa.field(self.name, self.type, self.nullable, metadata)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A Delta table at one version. All workers and epochs of a loader read this one."""

    uri: str
    """The table's location as the user gave it, made absolute."""
    table_id: str
    """The id in the table's metadata."""
    version: int | None
    """Number of the last commit that counts; None only inside, for a folder of plain files."""
    timestamp_ms: int | None
    """Time of that commit as its commitInfo states it, milliseconds since 1970 UTC; None where it states none."""
    schema: pa.Schema
    """Logical schema, in the table's column order, partition columns included."""
    fields: tuple[TableField, ...]
    """Its columns, with what they are called in files."""
    partition_columns: tuple[str, ...]
    """Names of the partition columns."""
    files: Sequence[DataFile]
    """Live files by (modification time, path)."""
    row_ids: TableField | None = None
    """The hidden column of row ids; None where the table does not track rows."""
    configuration: Mapping[str, str] = field(default_factory=dict)
    """The table's properties."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """A run of rows of one file: the unit of reading, prefetching and retrying."""

    path: str
    """Absolute path of the file."""
    size_bytes: int
    """Decoded size in memory, an estimate from the file's own metadata; >= 0."""
    rows: range | None = None
    """Row numbers among the file's rows; None where the file must be read to know its length. Rows that are deleted, or
    that the reader's filter does not keep, do not count."""
    row_group: int | None = None
    """Number of the Parquet row group that holds the rows; None for other formats."""
    row_group_rows: range | None = None
    """Row numbers of that whole row group, counted alike."""
    partition_values: tuple[tuple[str, str | None], ...] = ()
    """(partition column, value as the log spells it)."""
    version: int | None = None
    """Version of the table; None for a folder of files."""
    file_bytes: int | None = None
    """Size of the file as the log states it."""
    deletion_vector: DeletionVector | None = None
    """Which rows of the file are deleted."""
    base_row_id: int | None = None
    """Row id of the file's first row, deleted ones counted, of a table that tracks rows."""
    cursor_bytes: int = 0
    """What is held, beside the rows that it gave, while the row group is read piece by piece: an estimate; >= 0."""
    filtered: bool = False
    """Whether the reader's filter leaves out rows of the row group; its rows are then those that are kept."""

    @property
    def n_rows(self) -> int | None:
        """Number of rows; None where unknown before reading."""
        return None if self.rows is None else len(self.rows)

    @property
    def is_whole_row_group(self) -> bool:
        """Whether it holds all rows of a Parquet row group, which are known."""
        return self.row_group is not None and self.rows is not None and self.rows == self.row_group_rows

    @property
    def is_part(self) -> bool:
        """Whether it holds some rows of a Parquet row group, which is read piece by piece."""
        return self.row_group is not None and self.rows is not None and self.row_group_rows not in (None, self.rows)

    def __str__(self) -> str:
        rows = "" if self.rows is None else f" rows {self.rows.start}..{self.rows.stop - 1}"
        return named(f"{self.path}{rows}", self.version)


def named(path: str, version: int | None) -> str:
    """Return a file as errors name it: with the version of its table, if it has one."""
    return path if version is None else f"{path} of version {version}"


@dataclass(frozen=True, slots=True)
class WindowSize:
    """How much is shuffled together."""

    unit: Literal["bytes", "rows", "chunk", "table"]
    """Decoded bytes, rows, one row group or file, or all that there is."""
    amount: int
    """Number of those, >= 1; for "table" more bytes than any table has."""

    def size_bytes(self, total_bytes: int, n_rows: int | None) -> int:
        """Return its decoded bytes, about, in data of so many bytes and rows. Not for "chunk"."""
        return total_bytes * self.amount // (n_rows or 1) if self.unit == "rows" else self.amount


@dataclass(frozen=True, slots=True)
class Columns:
    """Rows gathered for encoding: equally long columns."""

    schema: pa.Schema
    """Names, types and, in the fields' metadata, how Arrow values stand for Python or NumPy ones."""
    arrays: list[Any]
    """One a field: a private, writable NumPy array for numbers without nulls and for rows of arrays; a list of Python
    values where files disagree on a column's type; an Arrow array for all else."""
    n_rows: int
    """Number of rows, >= 0."""


Others = Callable[[int, int], Iterator[Columns]]
"""Yields, for a row of some that are encoded and a number of rows, rows of other chunks, up to so many of each: they
may stand in for a batch that ends with the row."""


@dataclass(frozen=True, slots=True)
class Group:
    """Several batches collated as one: each array holds the rows of all of them."""

    batch: dict[str, Any]
    """Arrays by name, and named tuples of arrays."""
    rows: tuple[int, ...]
    """Rows of each batch; all but the last are equal."""
    cuts: Mapping[int, Sequence[int]] = field(default_factory=dict)
    """Where each batch's part of an array begins and ends, first axis, for arrays that are not cut by rows: by id."""


@dataclass(frozen=True, slots=True)
class Rest:
    """What is left of a mixed window of which an earlier process, or another rank, delivered some places."""

    key: tuple[int | str, ...]
    """Key of the window's mixing."""
    start: int
    """First place of the mixed window that is left."""
    stop: int
    """One past the last."""


class EpochLike(Protocol):
    """The chunks of one epoch in order of delivery, as the plan states them and the engine carries them out."""

    @property
    def epoch(self) -> int: ...
    @property
    def chunks(self) -> tuple[Chunk, ...]: ...
    @property
    def windows(self) -> tuple[range, ...]: ...
    @property
    def row_seed(self) -> int | None: ...
    @property
    def units(self) -> tuple[int, ...]: ...
    @property
    def n_rows(self) -> int | None: ...
    @property
    def first_batch(self) -> int: ...
    @property
    def first_row(self) -> int: ...
    @property
    def first_window(self) -> int: ...
    @property
    def first_window_row(self) -> int | None: ...
    @property
    def max_rows(self) -> int | None: ...
    @property
    def origin(self) -> int: ...
    @property
    def rests(self) -> Mapping[int, Rest]: ...
    @property
    def group(self) -> int | None: ...
