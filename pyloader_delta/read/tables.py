"""What readers of tables share: columns, a filter, row groups as chunks. Which files there are is not decided here."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import pyarrow as pa

from pyloader_delta.columns import opened
from pyloader_delta.delta.files import OpenFiles
from pyloader_delta.delta.selection import Selection, selected
from pyloader_delta.delta.store import Store, table_root
from pyloader_delta.delta.stores.settings import StoreSettings
from pyloader_delta.errors import ConfigError
from pyloader_delta.read.base import DataReader, T_co
from pyloader_delta.values import Chunk, Snapshot

if TYPE_CHECKING:
    from pyloader_delta.delta.filters.explain import Explanation

V = TypeVar("V")


class Computed(Generic[V]):
    """A property without a setter in the way: a subclass may give an attribute of that name a value of its own."""

    def __init__(self, compute: Callable[[Any], V]) -> None:
        self._compute = compute
        self.__doc__ = compute.__doc__

    def __get__(self, owner: Any, kind: type) -> V:
        return self if owner is None else self._compute(owner)  # type: ignore[return-value]


class TableReader(DataReader[T_co]):
    """Reads the row groups of Parquet files, or parts of them. A subclass lists the files."""

    columns: Sequence[str] | None = None
    filter: Any = None
    exact_length: bool = True
    page_checksums: bool = False
    storage_options: Mapping[str, object] | None = None
    filesystem: Any = None
    stall_timeout: float = 60.0
    length_advice = "set exact_length=True"

    _pin: Pin | None = None
    _earlier: Pin | None = None

    def __init__(
        self,
        batch_size: int | None = None,
        shuffle: bool | None = None,
        random_seed: int | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(batch_size, shuffle=shuffle, random_seed=random_seed)
        for name, value in settings.items():
            if value is not None:  # else a subclass's own attribute holds
                setattr(self, name, value)

    @Computed
    def schema(self) -> pa.Schema:
        """Names and types of the selected columns, as `read_chunk` gives them; known after `chunks`."""
        return self._pinned().schema

    def explain(self, root: str | None = None) -> Explanation:
        """Return how many files, row groups, bytes and rows the filter left out, step by step; `print` shows a table.

        Args:
            root: The table; None for the one whose chunks were listed last.

        Raises:
            ConfigError: No chunks were listed yet. With `root` also what `chunks` raises.
        """
        if root is not None:
            self.chunks(root)
        return self._pinned().explanation

    def read_chunk(self, chunk: Chunk) -> Any:
        """Return the rows of a chunk as an Arrow table with exactly `schema`; all chunks, concatenated, are the table.

        A chunk may be cut into parts, by `rows`: asked for in order, they are read through one open cursor.

        Raises:
            ConfigError: `chunks` was not called, or the chunk is not one of this snapshot.
            ReadError: The file is missing, corrupt or changed; the text names it, and the version of a Delta table.
        """
        table = self._pin_of(chunk).files.read(chunk)
        if not self._numbered:
            return table
        numbers, last = table.column(table.num_columns - 1), table.num_columns - 1
        if self._numbers is not None:
            self._numbers += [opened(part, table.schema.field(last)) for part in numbers.chunks]
        return table.remove_column(last)

    def _pin_of(self, chunk: Chunk) -> Pin:
        pin = self._pinned()
        if self._earlier is not None and chunk.version == self._earlier.version:
            pin = self._earlier
        if chunk.version != pin.version:
            raise ConfigError(
                f"{chunk} is not of the pinned version {pin.version} of {pin.request[0]}; take chunks from chunks()"
            )
        return pin

    def _together(self, chunks: Sequence[Chunk]) -> list[list[Chunk]]:
        if not self._is_ours:  # a subclass's `read_chunk` is called for each chunk
            return super()._together(chunks)
        return self._pinned().files.together(chunks)

    def _read_together(self, chunks: Sequence[Chunk]) -> pa.Table:
        return self._pin_of(chunks[0]).files.read_together(chunks)

    def _keep_cursors(self, kept: Collection[tuple[str, int]]) -> None:
        for pin in (self._pin, self._earlier):
            if pin is not None:
                pin.files.keep_cursors(kept)

    def close(self) -> None:
        """Close files and cursors; a later `read_chunk` opens them again."""
        for pin in (self._pin, self._earlier):
            if pin is not None:
                pin.files.close()

    def reads_also(self, reader: TableReader[Any]) -> None:
        """Read chunks of another version of the table too, as another reader has listed them."""
        self._earlier = reader._pinned()

    @property
    def one_schema(self) -> pa.Schema | None:
        """The schema of all chunks that are read; None where versions differ in it."""
        schema = self._pinned().schema
        return schema if self._earlier is None or self._earlier.schema.equals(schema) else None

    def _store(self, root: object) -> Store:
        """Return the store of a path or URI, reached as the reader's settings say."""
        if not isinstance(root, str | os.PathLike):
            raise ConfigError(f"root_dir must be the path or URI of a table or folder, got {root!r}")
        settings = StoreSettings(self.storage_options, self.filesystem, self.stall_timeout)
        return Store(table_root(os.fspath(root), settings), settings)

    def _listed(self, request: tuple[Any, ...], store: Store, snapshot: Snapshot, timezone: str) -> list[Chunk]:
        """Return the chunks of a snapshot, which is pinned.

        Args:
            request: What was asked for; its first part is the table.
            store: The table's store.
            snapshot: The table.
            timezone: Zone of partition timestamps that state none.
        """
        selection = self._selection(snapshot, timezone)
        if not isinstance(self.exact_length, bool):
            raise ConfigError(f"exact_length of {type(self).__name__} must be True or False, got {self.exact_length!r}")
        from pyloader_delta.delta.chunks import list_chunks  # here: worker processes list nothing

        chunks, explanation = list_chunks(store, snapshot, selection, exact_length=self.exact_length)
        self.close()
        self._earlier = None
        self._pin = Pin(request, snapshot, OpenFiles(store, selection), selection.schema, explanation)
        return chunks

    def _selection(self, snapshot: Snapshot, timezone: str) -> Selection:
        name, checksums = type(self).__name__, self.page_checksums
        if not isinstance(checksums, bool):
            raise ConfigError(f"page_checksums of {name} must be True or False, got {checksums!r}")
        table = snapshot.uri if snapshot.version is None else f"version {snapshot.version} of {snapshot.uri}"
        fields, row_id = selected(snapshot.fields, self.columns, table, row_ids=snapshot.row_ids)
        if self.filter is None:
            return Selection(fields, timezone, checksums, row_id, numbered=self._numbered)
        from pyloader_delta.delta.filters.rows import row_filter  # here: worker processes get the filter made

        made = row_filter(self.filter, snapshot.schema)
        tested = selected(snapshot.fields, made.columns, table)[0] if made.columns else ()
        return Selection(fields, timezone, checksums, row_id, made, tested, self._numbered)

    def _pinned(self) -> Pin:
        if self._pin is None:
            raise ConfigError(f"call chunks(root) of {type(self).__name__} first: it pins the version of the table")
        return self._pin


class Pin:
    """What a reader and its copies read. It travels without the list of files and open handles."""

    def __init__(
        self,
        request: tuple[Any, ...],
        snapshot: Snapshot,
        files: OpenFiles,
        schema: pa.Schema,
        explanation: Explanation,
    ) -> None:
        self.request = request
        self.version = snapshot.version
        self.table_id = snapshot.table_id
        self.schema = schema
        self.files = files
        self.explanation = explanation
        self.snapshot: Snapshot | None = snapshot
        """None in a copy: chunks are all that it needs as a rule."""

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"snapshot": None}
