"""A table made piece by piece: each commit says how much of the source it holds, so that one cut off goes on."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
from deltalake import ColumnProperties, CommitProperties, DeltaTable, Transaction, WriterProperties, write_deltalake

from pyloader_delta.cli.leftovers import Leftovers
from pyloader_delta.cli.sources.base import Piece, Reject, Source
from pyloader_delta.delta.stores.settings import StoreSettings
from pyloader_delta.errors import ConfigError, TableError

_FILE_BYTES = 1 << 30  # a commit is one file


class TableWriter:
    """Writes what a source gives.

    Args:
        uri: Path or URI of the table.
        source: What becomes of it.
        storage_options: How its store is reached.
        append: Whether a table that is there already, and was not begun from this source, may grow.
        commit_bytes: Of rows in memory that make a commit.
        group_bytes: Of rows in memory that make a row group.
        rejects: File that rejected records are listed in, as JSON lines.

    Raises:
        ConfigError: There is a table already, which was not begun from this source; or another conversion writes to it.
        TableError: The place cannot be reached, or what is there cannot be opened.
    """

    def __init__(
        self, uri: str, source: Source, storage_options: Mapping[str, str], *, append: bool, commit_bytes: int,
        group_bytes: int, rejects: Path,
    ) -> None:  # fmt: skip
        self._uri, self._source, self._options = uri, source, dict(storage_options) or None
        self._app = f"pyloader_delta.convert.{source.identity}"
        self._commit_bytes, self._group_bytes = commit_bytes, group_bytes
        self._rejects, self._known = rejects, _listed(rejects, source.identity)
        self._pending: list[pa.Table] = []
        self._bytes = 0
        self.n_rows = 0
        """Rows written now."""
        self._left = None if "://" in uri else Leftovers(Path(uri))
        self._table: DeltaTable | None = None
        """As it was when this conversion wrote last, so that another one that wrote since makes the commit fail."""
        self.done = 0
        """Records of the source that are in the table or rejected."""
        try:
            self._table = self._opened()
            if self._table is not None:
                self.done = self._done(append)
            if self._left is not None:
                self._left.find(self._names())
        except BaseException:
            self.close()
            raise
        self.began_at = self.done

    def __enter__(self) -> TableWriter:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None and self._left is not None:
            self._left.remove(self._names(), self._app)
        self.close()

    def close(self) -> None:
        """Let others write to the table."""
        if self._left is not None:
            self._left.close()

    @property
    def n_rejects(self) -> int:
        """Records rejected, of earlier runs too."""
        return len(self._known)

    def add(self, piece: Piece) -> None:
        """Take in a piece; a commit is made when enough has come."""
        self._list([reject for reject in piece.rejects if reject.place not in self._known])
        self.done += piece.n_records
        if piece.table is not None:
            self._pending.append(piece.table)
            self._bytes += piece.table.nbytes
        if self._bytes >= self._commit_bytes:
            self.commit()

    def commit(self) -> None:
        """Write what has come since the last commit; a table without a row is made of none."""
        if not self._pending and self._table is not None:
            return
        rows = pa.concat_tables(self._pending) if self._pending else self._source.schema.empty_table()
        properties = self._properties(rows)
        self._pending, self._bytes = [], 0
        rows = rows.combine_chunks()  # delta-rs writes chunks in any order
        try:
            write_deltalake(
                self._table or self._uri,
                rows,
                mode="append" if self._table else "error",
                storage_options=self._options,
                target_file_size=_FILE_BYTES,
                writer_properties=properties,
                commit_properties=CommitProperties(
                    custom_metadata={"pyloader_delta.convert": f"{self.done} records"},
                    app_transactions=[Transaction(self._app, self.done)],
                ),
            )
        except Exception as error:  # delta-rs raises nearly anything
            text = self._told(error)
            raise TableError(f"{self._uri} cannot be written: {text}; run the command again to go on") from error
        if self._table is None:
            self._table = DeltaTable(self._uri, storage_options=self._options)
        self.n_rows += rows.num_rows
        del rows
        pa.default_memory_pool().release_unused()

    def _opened(self) -> DeltaTable | None:
        try:
            if DeltaTable.is_deltatable(self._uri, self._options):
                return DeltaTable(self._uri, storage_options=self._options)
        except Exception as error:  # delta-rs raises nearly anything
            raise TableError(f"{self._uri} cannot be looked for: {self._told(error)}") from error
        return None

    def _told(self, error: Exception) -> str:
        """Return the text of an error of delta-rs's, which may hold a signed URL."""
        return StoreSettings(self._options).clean(str(error))

    def _properties(self, rows: pa.Table) -> WriterProperties:
        row_bytes = max(self._bytes // max(rows.num_rows, 1), 1)
        opaque = ColumnProperties(dictionary_enabled=False, statistics_enabled="NONE")
        return WriterProperties(
            compression="SNAPPY",
            max_row_group_size=max(self._group_bytes // row_bytes, 1),
            column_properties=dict.fromkeys(self._source.opaque, opaque) or None,
        )

    def _names(self) -> set[str]:
        """Return the names of the table's files."""
        if self._table is None:
            return set()
        return {unquote(uri.rsplit("/", 1)[-1]) for uri in self._table.file_uris()}

    def _done(self, append: bool) -> int:
        assert self._table is not None
        done = self._table.transaction_version(self._app)
        if done is None and not append:
            raise ConfigError(
                f"there is a table at {self._uri} already, and it was not begun from this source as it is now; name "
                "another one, or take --append"
            )
        return done or 0

    def _list(self, rejects: Sequence[Reject]) -> None:
        if not rejects:
            return
        with open(self._rejects, "a", encoding="utf-8", errors="surrogateescape") as file:
            for reject in rejects:
                file.write(json.dumps(reject._asdict() | {"conversion": self._source.identity}, ensure_ascii=False))
                file.write("\n")
                self._known.add(reject.place)


def _listed(path: Path, conversion: str) -> set[str]:
    """Return the places that a list of rejects names of an earlier run of this conversion."""
    if not path.exists():
        return set()
    places = set()
    _mend(path)
    for line in path.read_text(encoding="utf-8", errors="surrogateescape").split("\n"):
        try:
            found: Any = json.loads(line)
            if found["conversion"] == conversion:
                places.add(str(found["place"]))
        except (ValueError, TypeError, KeyError):
            continue  # a line of something else
    return places


def _mend(path: Path) -> None:
    """Take off a last line that was cut off in the middle: its record comes again."""
    with open(path, "rb+") as file:
        content = file.read()
        last = content[content.rfind(b"\n") + 1 :]
        if not last:
            return
        try:
            json.loads(last)
        except ValueError:
            file.truncate(len(content) - len(last))
        else:
            file.write(b"\n")
