"""JSON lines: an object a line. Types are found in a first pass over all lines; what fits none of them is rejected."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
from pyarrow import types as kinds

from pyloader_delta.cli.sources.base import Advance, Piece, Reject, identity, storable, total_bytes, unpacked
from pyloader_delta.errors import ConfigError, ReadError

_BLOCK_BYTES = 4 << 20
_TEXT = 200


class _Block(NamedTuple):
    """Lines that follow each other."""

    objects: list[dict[str, Any]]
    lines: list[int]
    """Number of each object's line, from 1."""
    before: int
    """Lines of the file before them."""
    n_lines: int
    """Lines in all, empty and wrong ones too."""
    n_bytes: int
    """Bytes of the file read for them."""
    rejects: list[Reject]


class JsonLines:
    """Objects of files with one on each line; a key that a line lacks is NULL.

    Args:
        files: The files.
        root: The folder that they are named by.
        types: Key → its type, of keys whose type is not to be found. Under string, what is no text is kept as JSON.
        advance: Told how many bytes the first pass has read.

    Raises:
        ConfigError: The values of a key are of types that have no common one; or there is no object.
    """

    opaque: tuple[str, ...] = ()

    def __init__(self, files: Sequence[Path], root: Path, types: Mapping[str, pa.DataType], advance: Advance) -> None:
        self._files, self._root, self._forced = files, root, dict(types)
        self.total_bytes = total_bytes(files)
        found = self._found(advance)
        if unknown := [name for name in types if name not in found]:
            raise ConfigError(f"--type names {unknown[0]!r}, which is none of the keys {list(found)}")
        self.schema = storable(pa.schema(list(found.items())))
        self.identity = identity(files, root, ["jsonl", str(self.schema)])

    def pieces(self, skip: int) -> Iterator[Piece]:
        for path in self._files:
            for block in self._blocks(path):
                skipped = min(skip, block.n_lines)
                skip -= skipped
                n_records = block.n_lines - skipped
                left = [i for i, line in enumerate(block.lines) if line > block.before + skipped]
                block = block._replace(objects=[block.objects[i] for i in left], lines=[block.lines[i] for i in left])
                table, wrong = self._table(block, path)
                yield Piece(table if table.num_rows else None, n_records, block.n_bytes, [*block.rejects, *wrong])

    def _blocks(self, path: Path) -> Iterator[_Block]:
        try:
            with unpacked(path) as (stream, raw):
                before, number, rest = 0, 0, b""
                while True:
                    data = stream.read(_BLOCK_BYTES)
                    if not number and not rest and data.lstrip().startswith(b"["):
                        raise ConfigError(f"{path} is a JSON array; write its objects one a line, without commas")
                    lines = (rest + data).split(b"\n")
                    rest = lines.pop()
                    if not data and rest:  # a last line without an end
                        lines.append(rest)
                    n_bytes, before = raw.tell() - before, raw.tell()
                    yield self._block(lines, path, number, n_bytes)
                    number += len(lines)
                    if not data:
                        return
        except OSError as error:
            raise ReadError(f"{path} cannot be read: {error}") from error

    def _block(self, lines: Sequence[bytes], path: Path, before: int, n_bytes: int) -> _Block:
        block = _Block([], [], before, len(lines), n_bytes, [])
        for number, line in enumerate(lines, before + 1):
            if not line.strip():
                continue
            try:
                value = json.loads(line, object_pairs_hook=_object)
                if not isinstance(value, dict):
                    raise ValueError(f"a {type(value).__name__}, not an object")
            except (ValueError, RecursionError) as error:
                block.rejects.append(Reject(self._place(path, number), f"{error}: {line[:_TEXT]!r}"))
            else:
                block.objects.append(value)
                block.lines.append(number)
        return block

    def _place(self, path: Path, line: int) -> str:
        return f"{path.relative_to(self._root).as_posix()}, line {line}"

    def _found(self, advance: Advance) -> dict[str, pa.DataType]:
        found: dict[str, pa.DataType] = {}
        for path in self._files:
            for block in self._blocks(path):
                advance(block.n_bytes)
                for key in dict.fromkeys(key for one in block.objects for key in one):
                    if key in self._forced:
                        found[key] = self._forced[key]
                        continue
                    try:
                        found[key] = _merged(found.get(key, pa.null()), _type([one.get(key) for one in block.objects]))
                    except _MixedError as error:
                        first, last = (self._place(path, block.lines[i]) for i in (0, -1))
                        raise ConfigError(
                            f"key {key!r}, {first} to {last}: {error}; give its type by --type {key}=…; with string, "
                            "what is no text is kept as JSON"
                        ) from None
        if not found:
            raise ConfigError(f"{self._root} holds no object with a key: is it JSON lines, an object on each line?")
        return found

    def _table(self, block: _Block, path: Path) -> tuple[pa.Table, list[Reject]]:
        wrong: dict[int, str] = {}
        columns = []
        for field in self.schema:
            values = [one.get(field.name) for one in block.objects]
            if field.name in self._forced and kinds.is_string(field.type):
                values = [v if v is None or isinstance(v, str) else json.dumps(v, ensure_ascii=False) for v in values]
            columns.append(_array(values, field, wrong))
        table = pa.Table.from_arrays(columns, schema=self.schema)
        if wrong:
            table = table.filter(pa.array([row not in wrong for row in range(len(table))]))
        return table, [Reject(self._place(path, block.lines[row]), reason) for row, reason in sorted(wrong.items())]


class _MixedError(Exception):
    """Values have no common type."""


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key stands in one object twice")
    return found


def _type(values: Sequence[Any]) -> pa.DataType:
    """Return the type that JSON values have in common."""
    try:
        return pa.array(values).type
    except (pa.ArrowException, OverflowError, UnicodeEncodeError):
        pass
    found = pa.null()
    for value in values:
        try:
            found = _merged(found, pa.array([value]).type)
        except (pa.ArrowException, OverflowError, UnicodeEncodeError) as error:
            raise _MixedError(f"{str(value)[:_TEXT]!r} has no type that a table holds ({error})") from None
    return found


def _merged(one: pa.DataType, other: pa.DataType) -> pa.DataType:
    if one == other or kinds.is_null(other):
        return one
    if kinds.is_null(one):
        return other
    if {one, other} == {pa.int64(), pa.float64()}:
        return pa.float64()
    if kinds.is_list(one) and kinds.is_list(other):
        return pa.list_(_merged(one.value_type, other.value_type))
    if kinds.is_struct(one) and kinds.is_struct(other):
        fields = {field.name: field.type for field in one}
        for field in other:
            fields[field.name] = _merged(fields.get(field.name, pa.null()), field.type)
        return pa.struct(list(fields.items()))
    raise _MixedError(f"values are {one} and {other}")


def _array(values: Sequence[Any], field: pa.Field, wrong: dict[int, str]) -> pa.Array:
    """Return values as a type; what is none is NULL, and noted in `wrong`."""
    try:
        return pa.array(values, field.type)
    except (pa.ArrowException, OverflowError, UnicodeEncodeError, TypeError, ValueError):
        pass
    kept = list(values)
    for row, value in enumerate(values):
        try:
            pa.array([value], field.type)
        except (pa.ArrowException, OverflowError, UnicodeEncodeError, TypeError, ValueError):
            kept[row] = None
            wrong.setdefault(row, f"key {field.name!r}: {str(value)[:_TEXT]!r} is no {field.type}")
    return pa.array(kept, field.type)
