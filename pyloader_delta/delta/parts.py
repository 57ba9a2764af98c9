"""Where the columns of a small Parquet file lie: its footer as numbers, checked so that none reaches into others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pyloader_delta.delta.compact import I32, STRUCT, Reader, header, integer, passed
from pyloader_delta.delta.template import WIDTH, FooterTemplate, Numbers

MAGIC = b"PAR1"
"""What Parquet files begin and end with."""
_DATA_PAGES, _DICTIONARY_PAGE = (0, 3), 2  # types of pages


class JoinError(Exception):
    """Files cannot be read as one. Each alone says what is wrong, or is read."""


class Parts(NamedTuple):
    """Where the columns of a file's row groups lie, as its footer says."""

    template: FooterTemplate
    checksum: int
    """Of the footer."""
    rows: list[int]
    """Of each row group."""
    numbers: NDArray[np.uint32]
    """Shape (row groups, columns, 6): values, bytes decompressed and compressed, offsets of the data, of the dictionary
    (0 for none), and of what the first data page says of its values."""
    codecs: NDArray[np.uint8]
    """Shape (row groups, columns): how a footer spells the compression."""

    def some(self, row_groups: Sequence[int]) -> Parts:
        """Return what is known of some row groups."""
        rows = [self.rows[i] for i in row_groups]
        return self._replace(rows=rows, numbers=self.numbers[row_groups], codecs=self.codecs[row_groups])

    @property
    def size_bytes(self) -> int:
        """Bytes that this takes, about."""
        return int(self.numbers.nbytes + self.codecs.nbytes) + 500


class Extents(NamedTuple):
    """What a footer says of where columns lie."""

    rows: list[int]
    """Of each row group."""
    columns: list[list[dict[int, int]]]
    """Of each row group: numbers of each column, by their fields."""
    end: int
    """Where what is behind the row groups begins."""


def extents(footer: bytes) -> Extents:
    """Return what a footer says. It is not asked of pyarrow, which ends the process where a footer is damaged.

    Raises:
        JoinError: Columns lie in other files, or are encrypted.
        ValueError, IndexError: It is damaged.
    """
    reader = Reader(footer)
    for name, _ in reader.each():
        if name == _ROW_GROUPS:
            return _row_groups(reader)
    raise JoinError("there are no row groups")


def _row_groups(reader: Reader) -> Extents:
    rows, columns = [], []
    for _ in range(reader.items()[0]):
        for name, _ in reader.each():
            if name == 1:
                columns.append([_column(reader) for _ in range(reader.items()[0])])
            elif name == 3:
                rows.append(reader.integer())
    return Extents(rows, columns, reader.at)


def _column(reader: Reader) -> dict[int, int]:
    found: dict[int, int] = {}
    for name, kind in reader.each():
        if name == _METADATA and kind == STRUCT:
            reader.at = _integers(reader.data, reader.at, found)
        elif name in _ELSEWHERE:
            raise JoinError("columns lie in other files, or are encrypted")
    return found


def _integers(data: bytes, at: int, found: dict[int, int]) -> int:
    """Enter the integers of a struct that are wanted, by their fields; return where it ends.

    As `Reader.each` would do it: of all that is done for a footer, this is done most often.
    """
    name = 0
    while byte := data[at]:
        at += 1
        step, kind = byte >> 4, byte & 0xF
        if step:
            name += step
        else:
            name, at = integer(data, at)
        if name in _WANTED:
            found[name], at = integer(data, at)
        else:
            at = passed(data, at, kind)
    return at + 1


_ROW_GROUPS, _METADATA = 4, 3
_CODEC, _DATA, _DICTIONARY = 4, 9, 11  # a column's compression, and the offsets of its pages
_NUMBERS = (5, 6, 7, _DATA)  # its values, bytes decompressed and compressed
_WANTED = {_CODEC, *_NUMBERS, _DICTIONARY}
_ELSEWHERE = (1, 8, 9)  # the path of another file, and what concerns encryption


def learned(found: Extents, template: FooterTemplate, checksum: int, content: bytes, end: int) -> Parts:
    """Return the parts of a file.

    Args:
        found: What its footer says.
        template: That of files like it.
        checksum: Of the footer.
        content: The file.
        end: Where its footer begins.

    Raises:
        JoinError: They do not lie in the file as they should.
        Exception: What the file says makes no sense.
    """
    numbers = np.array([[_numbers(column, content) for column in of_group] for of_group in found.columns], np.uint32)
    codecs = np.array([[column[_CODEC] for column in of_group] for of_group in found.columns], np.uint8)
    _check(numbers.astype(np.int64), found.rows, template.flat, end)
    return Parts(template, checksum, found.rows, numbers, codecs)


def _check(numbers: Numbers, rows: Sequence[int], flat: NDArray[np.bool_], end: int) -> None:
    """Raise JoinError where columns do not lie in their file, or have not a value a row: others' would be read.

    Args:
        numbers: As `Parts.numbers`.
        rows: Of each row group.
        flat: As `FooterTemplate.flat`.
        end: Where the file's footer begins.
    """
    data, dictionary = numbers[:, :, 3], numbers[:, :, 4]
    starts = np.where((dictionary > 0) & (dictionary < data), dictionary, data)
    inside = (starts >= len(MAGIC)) & (starts + numbers[:, :, 2] <= end)
    if not inside.all() or not numbers[:, :, 5].all() or (numbers[:, flat, 0] != np.array(rows)[:, None]).any():
        raise JoinError("a footer says what cannot be")


def _value_count(file: bytes, place: int) -> int:
    """Return where the header of the first data page of a column states how many values it has; 0 for nowhere.

    A page's header has its type, its sizes and perhaps a checksum, and then a struct, of which that is the first field.

    Args:
        file: A Parquet file.
        place: Where a data page begins, or the dictionary before it.
    """
    reader = Reader(file, place)
    page = _page(reader)
    if page.get(1) == _DICTIONARY_PAGE:
        reader.fields()  # the rest of the struct, and then of the header
        reader.fields()
        reader.at += page[3]
        page = _page(reader)
    is_data = page.get(1) in _DATA_PAGES and file[reader.at] == header(1, I32)[0]
    return reader.at + 1 if is_data else 0


def _page(reader: Reader) -> dict[int, int]:
    """Return the integers of a page's header that are before its struct, and go to where this begins."""
    found: dict[int, int] = {}
    for name, kind in reader.each():
        if kind != I32:
            break
        found[name] = reader.integer()
    return found


def stated(contents: NDArray[np.uint8], places: Numbers) -> Numbers:
    """Return the integers that are written at some places."""
    digits = contents[np.minimum(places[:, None] + np.arange(WIDTH), len(contents) - 1)].astype(np.int64)
    digits[:, 1:] *= np.cumprod(digits[:, :-1] >= 0x80, axis=1)
    values: Numbers = ((digits & 0x7F) << (7 * np.arange(WIDTH))).sum(axis=1) >> 1
    return values


def _numbers(column: dict[int, int], file: bytes) -> tuple[int, ...]:
    return *(column[name] for name in _NUMBERS), column.get(_DICTIONARY, 0), _value_count(file, column[_DATA])
