"""CSV files. Types are found in a first pass over all rows; a row with a cell that is none is rejected."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from pyloader_delta.cli.sources.base import Advance, Piece, Reject, check_names, identity, total_bytes, unpacked
from pyloader_delta.errors import ConfigError, ReadError

_BLOCK_BYTES = 4 << 20
_TEXT = 200
_WHOLE = r"^(0|-?[1-9][0-9]*)$"
_DECIMAL = r"^-?(0|[1-9][0-9]*)?(\.[0-9]*)?([eE][+-]?[0-9]+)?$"
_LONG = "^-?[0-9]{16,}$"  # more digits than a double keeps
_DATE = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$"
_TIME = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}[ T][0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,6})?)?"
_CANDIDATES: tuple[tuple[pa.DataType, str], ...] = (
    (pa.int64(), _WHOLE),
    (pa.float64(), rf"{_DECIMAL}|^(nan|NaN|-?inf|-?Infinity)$"),
    (pa.bool_(), "^(true|false|True|False|TRUE|FALSE)$"),
    (pa.date32(), _DATE),
    (pa.timestamp("us"), f"{_TIME}$"),
    (pa.timestamp("us", "UTC"), f"{_TIME}(Z|[+-][0-9]{{2}}:?[0-9]{{2}})$"),
)
"""Types and how their texts are spelled: `007` is no number, for it would come back as 7."""


class Csv:
    """Rows of CSV files that have one header.

    Args:
        files: The files, each with a header.
        root: The folder that they are named by.
        types: Column → its type, of columns whose type is not to be found.
        nulls: Cells that are NULL.
        delimiter: One character.
        advance: Told how many bytes the first pass has read.

    Raises:
        ConfigError: Headers differ, or `types` names no column.
        ReadError: A file is no CSV.
    """

    opaque: tuple[str, ...] = ()

    def __init__(
        self, files: Sequence[Path], root: Path, types: Mapping[str, pa.DataType], nulls: Sequence[str], delimiter: str,
        advance: Advance,
    ) -> None:  # fmt: skip
        self._files, self._root, self._forced = files, root, dict(types)
        self._nulls = pa.array([text.encode() for text in nulls], pa.binary())
        self._delimiter = delimiter
        self._names = self._header(files[0])
        check_names(self._names, str(files[0]))
        for path in files[1:]:
            if (other := self._header(path)) != self._names:
                raise ConfigError(f"{path} has the columns {other}, but {files[0]} has {self._names}")
        if unknown := [name for name in types if name not in self._names]:
            raise ConfigError(f"--type names {unknown[0]!r}, which is none of the columns {self._names}")
        self.total_bytes = total_bytes(files)
        self.schema = self._found(advance)
        options = ["csv", [str(kind) for kind in self.schema.types], list(nulls), delimiter]
        self.identity = identity(files, root, options)

    def pieces(self, skip: int) -> Iterator[Piece]:
        for path in self._files:
            row = 0
            for batch, n_bytes, rejects in self._batches(path):
                left = max(batch.num_rows - skip, 0)
                skip -= batch.num_rows - left
                row += batch.num_rows - left
                table, wrong = self._typed(batch.slice(batch.num_rows - left), path, row)
                row += left
                yield Piece(table if table.num_rows else None, left, n_bytes, [*rejects, *wrong])

    def _header(self, path: Path) -> list[str]:
        with self._opened(path, [], None) as (reader, _):
            return list(reader.schema.names)

    def _opened(self, path: Path, rejects: list[Reject], names: Sequence[str] | None) -> Any:
        return _Opened(path, self._name(path), rejects, names, self._delimiter)

    def _name(self, path: Path) -> str:
        return path.relative_to(self._root).as_posix()

    def _batches(self, path: Path) -> Iterator[tuple[pa.RecordBatch, int, list[Reject]]]:
        """Yield (cells as bytes, bytes of the file read for them, rows that are none)."""
        rejects: list[Reject] = []
        before = 0
        with self._opened(path, rejects, self._names) as (reader, raw):
            while True:
                try:
                    batch = reader.read_next_batch()
                except StopIteration:
                    break
                except (pa.ArrowInvalid, OSError) as error:
                    raise ReadError(f"{path} cannot be read as CSV: {error}") from error
                n_bytes, before = raw.tell() - before, raw.tell()
                yield batch, n_bytes, list(rejects)
                rejects.clear()
            yield _empty(reader.schema), 0, list(rejects)

    def _found(self, advance: Advance) -> pa.Schema:
        """Return the type of each column: the first that all its cells are spelled in; else text."""
        left = {name: list(range(len(_CANDIDATES))) for name in self._names if name not in self._forced}
        some = dict.fromkeys(left, False)
        for path in self._files:
            for batch, n_bytes, _ in self._batches(path):
                advance(n_bytes)
                for name, candidates in left.items():
                    cells = batch.column(name)
                    cells = cells.filter(pc.invert(pc.is_in(cells, value_set=self._nulls)))
                    if candidates and len(cells):
                        some[name] = True
                        texts = _text(cells)
                        left[name] = [i for i in candidates if texts is not None and _all_are(texts, *_CANDIDATES[i])]
        kinds = {
            name: _CANDIDATES[found[0]][0] if found and some[name] else pa.string() for name, found in left.items()
        }
        return pa.schema([(name, (kinds | self._forced)[name]) for name in self._names])

    def _typed(self, batch: pa.RecordBatch, path: Path, first: int) -> tuple[pa.Table, list[Reject]]:
        """Return the rows whose cells are all of their columns' types, and the others as rejects.

        Args:
            batch: Cells as bytes.
            path: Their file.
            first: Rows of the file before them.
        """
        columns: list[pa.Array] = []
        wrong: dict[int, str] = {}
        for field, cells in zip(self.schema, batch.columns, strict=True):
            cells = pc.if_else(pc.is_in(cells, value_set=self._nulls), pa.scalar(None, pa.binary()), cells)
            column, bad = _cast(cells, field.type)
            columns.append(column)
            for row in bad:
                text = cells[row].as_py().decode("utf-8", "backslashreplace")
                wrong.setdefault(row, f"column {field.name!r}: {text[:_TEXT]!r} is no {field.type}")
        table = pa.Table.from_arrays(columns, schema=self.schema)
        if wrong:
            good = np.ones(batch.num_rows, bool)
            good[list(wrong)] = False
            table = table.filter(pa.array(good))
        place = self._name(path)
        return table, [Reject(f"{place}, row {first + row + 1}", reason) for row, reason in sorted(wrong.items())]


class _Opened:
    """A CSV file that is read in blocks; rows with too few or too many cells go to the rejects."""

    def __init__(
        self, path: Path, name: str, rejects: list[Reject], names: Sequence[str] | None, delimiter: str
    ) -> None:
        self._path, self._file = path, unpacked(path)

        def reject(row: Any) -> str:
            line = "" if row.number is None else f", line {row.number}"
            reason = f"{row.actual_columns} cells, not {row.expected_columns}: {row.text[:_TEXT]!r}"
            rejects.append(Reject(f"{name}{line}", reason))
            return "skip"

        self._parse = csv.ParseOptions(delimiter=delimiter, newlines_in_values=True, invalid_row_handler=reject)
        self._convert = csv.ConvertOptions(column_types=dict.fromkeys(names or (), pa.binary()), check_utf8=False)

    def __enter__(self) -> tuple[csv.CSVStreamingReader, Any]:
        stream, raw = self._file.__enter__()
        try:
            options = csv.ReadOptions(use_threads=False, block_size=_BLOCK_BYTES)
            return csv.open_csv(stream, options, self._parse, self._convert), raw
        except (pa.ArrowInvalid, OSError, UnicodeDecodeError) as error:
            self._file.__exit__(None, None, None)
            raise ReadError(f"{self._path} cannot be read as CSV: {error}") from error

    def __exit__(self, *error: Any) -> None:
        self._file.__exit__(*error)


def _empty(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([], field.type) for field in schema], schema=schema)


def _text(cells: pa.Array) -> pa.Array | None:
    """Return bytes as text; None where they are none."""
    try:
        return cells.cast(pa.string())
    except pa.ArrowInvalid:
        return None


def _all_are(texts: pa.Array, kind: pa.DataType, spelled: str) -> bool:
    if not pc.all(pc.match_substring_regex(texts, pattern=spelled)).as_py():
        return False
    if kind == pa.float64() and pc.any(pc.match_substring_regex(texts, pattern=_LONG)).as_py():
        return False
    try:
        texts.cast(kind)
    except pa.ArrowInvalid:
        return False
    return True


def _cast(cells: pa.Array, kind: pa.DataType) -> tuple[pa.Array, list[int]]:
    """Return cells as a type, and which are none; these are NULL there."""
    try:
        return cells.cast(pa.string()).cast(kind), []
    except pa.ArrowInvalid:
        if len(cells) == 1:
            return pa.nulls(1, kind), [0]
    half = len(cells) // 2
    (left, bad), (right, worse) = _cast(cells[:half], kind), _cast(cells[half:], kind)
    return pa.concat_arrays([left, right]), [*bad, *(half + i for i in worse)]
