"""A row group too large to hold is read piece by piece: a cursor goes forward through it and remembers its place."""

from __future__ import annotations

import pyarrow as pa

from pyloader_delta.delta.parquet import DataParquet, Piece

_MIN_ROWS, _MIN_BYTES = 1024, 1 << 20  # less than either at once would cost more calls than decoding


def rows_at_once(n_rows: int, row_bytes: int) -> int:
    """Return how many rows a cursor decodes at once from which so many are taken, >= 1."""
    return max(n_rows, min(_MIN_ROWS, _MIN_BYTES // max(row_bytes, 1)), 1)


class Cursor:
    """The next live row of one row group of one file, which it owns and closes.

    Args:
        file: An open file that no other cursor uses.
        row_group: Number of the row group.
        batch_rows: Rows decoded at once, about what one `take` asks for; see `rows_at_once`.
        filtered: Whether only rows that the file's filter keeps count as live.
    """

    def __init__(self, file: DataParquet, row_group: int, batch_rows: int, *, filtered: bool = False) -> None:
        self.position = 0
        """Number, among the row group's live rows, of the next row."""
        self.file = file
        """The open file."""
        self._pieces = file.pieces(row_group, batch_rows, filtered=filtered)
        self._rest: Piece | pa.Table | None = None  # a table once its rows are logical

    def take(self, n_rows: int) -> pa.Table:
        """Return the next `n_rows` rows, or fewer where the row group ends."""
        found = []
        while n_rows > 0 and (rest := self._next()) is not None:
            # Whole pieces become logical, so that none is converted twice.
            table = rest if isinstance(rest, pa.Table) else rest.table()
            found.append(table.slice(0, n_rows))
            n_rows -= self._drop(table, n_rows)
        return found[0] if len(found) == 1 else pa.concat_tables(found or [pa.Table.from_batches([], self.file.schema)])

    def skip(self, n_rows: int) -> None:
        """Go `n_rows` rows forward."""
        while n_rows > 0 and (rest := self._next()) is not None:
            if isinstance(rest, Piece) and rest.num_rows > n_rows:
                rest = rest.table()
            n_rows -= self._drop(rest, n_rows)

    def close(self) -> None:
        """Close the file."""
        self._rest = None
        self._pieces = iter(())
        self.file.close()

    def _next(self) -> Piece | pa.Table | None:
        while self._rest is None or self._rest.num_rows == 0:
            self._rest = next(self._pieces, None)
            if self._rest is None:
                return None
        return self._rest

    def _drop(self, rest: Piece | pa.Table, n_rows: int) -> int:
        n_dropped: int = min(n_rows, rest.num_rows)
        self._rest = None if isinstance(rest, Piece) or n_dropped == rest.num_rows else rest.slice(n_dropped)
        self.position += n_dropped
        return n_dropped
