"""What rows take in memory once decoded, from a footer and a sample of the texts. The same on every machine.

Fixed widths are rows × width, or values × width below a list. Texts and bytes are the larger of the footer's size and
values × the mean length in a sample: the footer's size alone is wrong by 100× for dictionary-encoded columns.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from itertools import accumulate
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import types as kinds

from pyloader_delta.delta.arrays import integers
from pyloader_delta.delta.conform import Siblings
from pyloader_delta.delta.cursor import Cursor
from pyloader_delta.delta.match import n_leaves
from pyloader_delta.delta.parquet import DataParquet
from pyloader_delta.values import TableField

_OFFSET_BITS = 32
_SAMPLE_ROWS = 1024
_SAMPLE_BYTES = 16 << 20
_SAMPLE_STEP = 128, 1 << 22  # rows and bytes decoded at once
_PAGE_BYTES = 1 << 20
_DECODER_BYTES, _COLUMN_CHUNK_BYTES = 8 << 10, 1 << 10  # measured on 500 columns in 32 row groups
_ROWS_UNTIL_LOOK = {"parquet-cpp-arrow": 1024, "parquet-cpp": 1024, "parquet-mr": 100, "parquet-rs": 2}

Lengths = dict[str, tuple[int, int]]
"""Place of a variable-width leaf → (bytes, values as a footer counts them) in the sample."""


class Leaf(NamedTuple):
    """Something of a column that takes memory for each of its values."""

    place: str
    """Where it is, such as `orders.element.name`."""
    column: int | None
    """Number of the leaf column in the footer; None where the file lacks it and nulls stand in."""
    bits: int
    """For each value; offsets alone for texts and bytes."""
    variable: bool
    """Whether texts or bytes come on top."""
    repeated: bool
    """Whether it has another number of values than of rows, being below a list."""


def column_leaves(file: DataParquet, field: TableField) -> list[Leaf]:
    """Return the leaves of a selected column that the log does not give."""
    stored = file.columns.stored.get(field.name)
    if stored is None:
        return list(_leaves(field, None, 0, field.name, False))
    return list(_leaves(field, stored.type, file.columns.first_leaf[field.name], field.name, False))


def constant_bytes(value: pa.Scalar, n_rows: int) -> int:
    """Return the size of a partition column."""
    if _variable(value.type):
        length = value.as_buffer().size if value.is_valid else 0
        return int(n_rows * (length + _OFFSET_BITS // 8))
    return n_rows * _bits(value.type) // 8


def sample_lengths(file: DataParquet, row_group: int, row_bytes: int) -> Lengths:
    """Return the lengths of texts and bytes in the first live rows of a row group; closes the file.

    Args:
        file: An open file.
        row_group: Number of the row group.
        row_bytes: What a row takes at least, by the footer.
    """
    step = max(min(_SAMPLE_STEP[0], _SAMPLE_STEP[1] // max(row_bytes, 1)), 1)
    cursor = Cursor(file, row_group, step)
    lengths: Lengths = {}
    try:
        while cursor.position < _SAMPLE_ROWS and sum(n_bytes for n_bytes, _ in lengths.values()) < _SAMPLE_BYTES:
            table = cursor.take(min(step, _SAMPLE_ROWS - cursor.position))
            if not table.num_rows:
                break
            _add_lengths(lengths, table)
    finally:
        cursor.close()
        pa.default_memory_pool().release_unused()  # a row may be large, and this process reads no other
    return lengths


def _add_lengths(lengths: Lengths, table: pa.Table) -> None:
    for name, column in zip(table.column_names, table.columns, strict=True):
        for chunk in column.chunks:
            for place, leaf, n_values in _variable_arrays(chunk, name):
                known_bytes, known_values = lengths.get(place, (0, 0))
                n_bytes = pc.sum(pc.binary_length(leaf)).as_py() or 0
                lengths[place] = (known_bytes + n_bytes, known_values + n_values)


def text_bytes(place: str, n_values: int, footer_bytes: int, lengths: Mapping[str, tuple[int, int]]) -> int:
    """Return the size of a variable-width leaf's texts or bytes, offsets apart."""
    n_bytes, n_sampled = lengths.get(place, (0, 0))
    return max(footer_bytes, n_values * n_bytes // n_sampled if n_sampled else 0)


def cursor_bytes(metadata: pq.FileMetaData, row_group: int, columns: Collection[int]) -> int:
    """Return about what reading leaf columns of a row group piece by piece holds.

    Of each column a page, its dictionary and what decodes them; and the file's footer. Writers close a page when it
    has reached 1 MiB, but look only after so many rows. A row group of no more than a page counts whole, whichever
    columns are read: to look at each would be a quarter of what planning takes where files are small.
    """
    group = metadata.row_group(row_group)
    total, whole = footer_bytes(metadata), int(group.total_byte_size)
    if 0 < whole <= _PAGE_BYTES:
        return total + whole + len(columns) * _DECODER_BYTES
    writer = (metadata.created_by or "").partition(" ")[0]
    for number in columns:
        column = group.column(number)
        size = column.total_uncompressed_size
        page = max(_PAGE_BYTES, _ROWS_UNTIL_LOOK.get(writer, 1) * size // max(column.num_values, 1))
        total += min(size, 2 * page if column.has_dictionary_page else page) + _DECODER_BYTES
    return total


def footer_bytes(metadata: pq.FileMetaData) -> int:
    """Return about what a footer takes in memory."""
    return int(metadata.num_row_groups * metadata.num_columns * _COLUMN_CHUNK_BYTES)


def has_variable(kind: pa.DataType) -> bool:
    """Return whether a type holds texts or bytes at any depth."""
    return _variable(kind) or any(has_variable(kind.field(i).type) for i in range(kind.num_fields))


def _leaves(wanted: TableField, stored: pa.DataType | None, first: int, place: str, repeated: bool) -> Iterator[Leaf]:
    kind = wanted.type
    if isinstance(stored, pa.BaseExtensionType):
        stored = stored.storage_type
    if stored is not None and kind.num_fields and not stored.num_fields:
        stored = None  # nulls
    column = None if stored is None else first
    if kinds.is_struct(kind):
        siblings = Siblings(() if stored is None else stored)
        before = [0, *accumulate(n_leaves(other.type) for other in siblings.fields)]
        for field in wanted.children:
            i = siblings.find(field)
            child = None if i is None else siblings.fields[i].type
            yield from _leaves(field, child, first + before[i or 0], f"{place}.{field.name}", repeated)
    elif kinds.is_map(kind):
        key = value = None
        if stored is not None and kinds.is_map(stored):
            key, value = stored.key_type, stored.item_type
        yield Leaf(place, column, _OFFSET_BITS, False, repeated)
        yield from _leaves(wanted.children[0], key, first, f"{place}.key", True)
        after = 0 if key is None else n_leaves(key)
        yield from _leaves(wanted.children[1], value, first + after, f"{place}.value", True)
    elif kinds.is_list(kind):
        yield Leaf(place, column, _OFFSET_BITS, False, repeated)
        child = None if stored is None else stored.field(0).type
        yield from _leaves(wanted.children[0], child, first, f"{place}.element", True)
    elif _variable(kind):
        yield Leaf(place, column, _OFFSET_BITS, True, repeated)
    else:
        yield Leaf(place, column, _bits(kind), False, repeated)


def _variable(kind: pa.DataType) -> bool:
    return bool(kinds.is_string(kind) or kinds.is_binary(kind))


def _bits(kind: pa.DataType) -> int:
    return 0 if kinds.is_null(kind) else int(kind.bit_width)


def _variable_arrays(array: pa.Array, place: str, absent: int = 0) -> Iterator[tuple[str, pa.Array, int]]:
    """Yield the leaves with texts or bytes, and how many values a footer would count for them.

    A footer counts one for each list that is empty or NULL.

    Args:
        array: A column, or what is inside it.
        place: Where it is.
        absent: Such lists around it.
    """
    kind = array.type
    if _variable(kind):
        yield place, array, len(array) + absent
    elif kinds.is_struct(kind):
        for field, child in zip(kind, array.flatten(), strict=True):
            yield from _variable_arrays(child, f"{place}.{field.name}", absent)
    elif kinds.is_map(kind) or kinds.is_list(kind):
        first, last = (array.offsets[0].as_py(), array.offsets[-1].as_py()) if len(array) else (0, 0)
        lengths = pc.subtract(array.offsets.slice(1), array.offsets.slice(0, len(array)))
        absent += pc.sum(pc.equal(lengths, integers([0])[0])).as_py() or 0  # not 0: that imports pandas
        if kinds.is_map(kind):
            children = {"key": array.keys, "value": array.items}
        else:
            children = {"element": array.values}
        for name, child in children.items():
            yield from _variable_arrays(child.slice(first, last - first), f"{place}.{name}", absent)
