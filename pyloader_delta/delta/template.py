"""Footers of Parquet files made anew: a template of what alike files have in common, and the numbers of each.

https://github.com/apache/parquet-format/blob/master/src/main/thrift/parquet.thrift names the fields.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from pyloader_delta.delta.compact import (
    BINARY,
    I32,
    I64,
    LIST,
    STOP,
    STRUCT,
    Reader,
    header,
    list_header,
    signed,
    structs,
)

Numbers = NDArray[np.int64]

_NAMES, _KEY_VALUES, _CREATED_BY = 2, 5, 6  # fields of a footer; names: the schema's elements
WIDTH = 5
"""Bytes of a number, as many for each, so that all have their places: Thrift takes these as well as shorter ones."""


class FooterTemplate:
    """What the footers of files that are alike have in common.

    Args:
        metadata: A footer.
        footer: The same, as it is written.
        end: Where what is behind its row groups begins.
    """

    def __init__(self, metadata: pq.FileMetaData, footer: bytes, end: int) -> None:
        self._metadata, self._arrow_schema = metadata, _arrow_schema(metadata)
        columns = [metadata.schema.column(i) for i in range(metadata.num_columns)]
        self.flat = np.array([column.max_repetition_level == 0 for column in columns])
        """Which columns have one value a row."""
        fields = Reader(footer).fields()
        self._start = header(1, I32) + fields[1] + header(1, LIST) + fields[_NAMES] + header(1, I64)
        self._rest, self._end = footer[end:], b""
        last = 4
        for name, of in ((_KEY_VALUES, LIST), (_CREATED_BY, BINARY)):
            if name in fields:
                self._end += header(name - last, of) + fields[name]
                last = name
        row_group = next(structs(fields[4]))
        self._template, self._codecs, numbers, ends = _template([c[3] for c in structs(row_group[1])])
        self._numbers = (numbers[:, :, None] + np.arange(WIDTH)).reshape(-1)
        self._row_group_numbers = (ends[:, None] + np.arange(WIDTH)).reshape(-1)

    def is_plainly_of(self, footer: bytes, end: int) -> bool:
        """Return whether a footer is alike by its bytes; what is behind its row groups begins at `end`."""
        return footer.startswith(self._start) and footer[end:] == self._rest

    def is_of(self, metadata: pq.FileMetaData) -> bool:
        """Return whether a file with this footer is alike."""
        if metadata.created_by != self._metadata.created_by or not metadata.schema.equals(self._metadata.schema):
            return False
        return bool(_arrow_schema(metadata).equals(self._arrow_schema, check_metadata=True))

    def footer(self, rows: Sequence[int], numbers: Numbers, codecs: NDArray[np.uint8]) -> bytes:
        """Return the footer of row groups.

        Args:
            rows: Of each row group.
            numbers: Shape (row groups, columns, 5): values, bytes decompressed and compressed, offsets of the data and
                of the dictionary; 0 for none.
            codecs: Shape (row groups, columns): as a footer spells the compression.
        """
        n = len(rows)
        found = np.repeat(self._template[None], n, axis=0)
        found[:, self._codecs] = codecs << 1  # zigzag
        found[:, self._numbers] = _padded(numbers.reshape(n, -1))
        of_groups = np.stack([numbers[:, :, 1].sum(axis=1), np.asarray(rows, np.int64)], axis=1)
        found[:, self._row_group_numbers] = _padded(of_groups)
        n_rows = signed(sum(rows)) + header(1, LIST) + list_header(n, STRUCT)
        return self._start + n_rows + found.tobytes() + self._end + STOP


def _arrow_schema(metadata: pq.FileMetaData) -> pa.Schema:
    """Return the schema that Arrow sees, without what writers note beside it, such as pandas' index."""
    return metadata.schema.to_arrow_schema().remove_metadata()


def _padded(numbers: Numbers) -> NDArray[np.uint8]:
    """Return integers, 0 to 2**34 - 1, as fields have them, in 5 bytes each: shape (n, numbers), (n, 5 * numbers)."""
    digits = ((numbers << 1)[:, :, None] >> (7 * np.arange(WIDTH))) & 0x7F
    digits[:, :, :-1] |= 0x80
    return digits.astype(np.uint8).reshape(len(numbers), -1)


def _template(columns: Sequence[bytes]) -> tuple[NDArray[np.uint8], Numbers, Numbers, Numbers]:
    """Return a row group of a footer, and the places in it of its codecs, of its columns' and of its own numbers."""
    made = bytearray(header(1, LIST) + list_header(len(columns), STRUCT))
    codecs, numbers = [], []
    for column in columns:
        known = Reader(column).fields()
        made += header(2, I64) + signed(0) + header(1, STRUCT)  # an offset that nobody reads any more
        made += header(1, I32) + known[1] + header(1, LIST) + known[2] + header(1, LIST) + known[3] + header(1, I32)
        codecs.append(len(made))
        made += b"\0"
        places = []
        for step in (1, 1, 1, 2, 2):
            made += header(step, I64)
            places.append(len(made))
            made += bytes(WIDTH)
        numbers.append(places)
        made += STOP + STOP
    ends = []
    for _ in range(2):
        made += header(1, I64)
        ends.append(len(made))
        made += bytes(WIDTH)
    made += STOP
    return np.frombuffer(bytes(made), np.uint8), np.array(codecs), np.array(numbers), np.array(ends)
