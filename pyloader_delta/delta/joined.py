"""Small Parquet files read as one: their bytes lie one after the other, and one footer says where each part is.

To open a file and to begin each of its columns costs Arrow ten times what decoding 400 rows of it does. Row groups of
one file cost a third of that, and their numbers become one array. So the footers of files that are alike are joined:
https://github.com/apache/parquet-format/blob/master/src/main/thrift/parquet.thrift names their fields.
"""

from __future__ import annotations

import struct
import threading
import zlib
from collections import OrderedDict
from collections.abc import Sequence
from itertools import groupby
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from pyloader_delta.delta.compact import I32, I64, LIST, STOP, STRUCT, Reader, header, list_header, signed, structs
from pyloader_delta.values import Chunk

_TAIL = struct.Struct("<I4s")  # the footer's length, and what Parquet files end with
_MAGIC = b"PAR1"
_MAX_KNOWN_BYTES = 32 << 20
_NAMES, _KEY_VALUES, _CREATED_BY = 2, 5, 6  # fields of a footer; names: the schema's elements
_CODECS = {"UNCOMPRESSED": 0, "SNAPPY": 1, "GZIP": 2, "BROTLI": 4, "ZSTD": 6, "LZ4": 7}  # pyarrow's name of LZ4_RAW
_MAX_KINDS = 8  # that are kept of the files of a table
_ARROW_SCHEMA = b"ARROW:schema"

Numbers = NDArray[np.int64]


class JoinError(Exception):
    """Files cannot be read as one. Each alone says what is wrong, or is read."""


class Parts(NamedTuple):
    """Where the columns of a file's row groups lie, as its footer says."""

    kind: Kind
    checksum: int
    """Of the footer."""
    rows: list[int]
    """Of each row group."""
    numbers: NDArray[np.uint32]
    """Shape (row groups, columns, 5): values, bytes decompressed and compressed, offsets of the data and of the
    dictionary, 0 for none."""
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


class Kind:
    """What the footers of files that are alike have in common.

    Args:
        metadata: A footer.
        footer: The same, as it is written.
    """

    def __init__(self, metadata: pq.FileMetaData, footer: bytes) -> None:
        self._metadata, self._arrow_schema = metadata, _arrow_schema(metadata)
        columns = [metadata.schema.column(i) for i in range(metadata.num_columns)]
        self.flat = np.array([column.max_repetition_level == 0 for column in columns])
        """Which columns have one value a row."""
        fields = Reader(footer).fields()
        self._start = header(1, I32) + fields[1] + header(1, LIST) + fields[_NAMES] + header(1, I64)
        self._end = b""
        last = 4
        for name, of in ((_KEY_VALUES, LIST), (_CREATED_BY, 8)):
            if name in fields:
                self._end += header(name - last, of) + fields[name]
                last = name
        row_group = next(structs(fields[4]))
        self._template, self._codecs, numbers, ends = _template([c[3] for c in structs(row_group[1])])
        self._numbers = (numbers[:, :, None] + np.arange(_WIDTH)).reshape(-1)
        self._row_group_numbers = (ends[:, None] + np.arange(_WIDTH)).reshape(-1)

    def is_of(self, metadata: pq.FileMetaData) -> bool:
        """Return whether a file with this footer is alike."""
        if metadata.created_by != self._metadata.created_by or not metadata.schema.equals(self._metadata.schema):
            return False
        if (metadata.metadata or {}).get(_ARROW_SCHEMA) == (self._metadata.metadata or {}).get(_ARROW_SCHEMA):
            return True
        return bool(_arrow_schema(metadata).equals(self._arrow_schema, check_metadata=True))

    def footer(self, rows: Sequence[int], numbers: Numbers, codecs: NDArray[np.uint8]) -> bytes:
        """Return the footer of row groups.

        Args:
            rows: Of each row group.
            numbers: As `Parts.numbers`, offsets counted from where the first file begins.
            codecs: As `Parts.codecs`.
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


_WIDTH = 5  # bytes of a number: as many for each, so that all have their places


def _padded(numbers: Numbers) -> NDArray[np.uint8]:
    """Return integers, 0 to 2**34 - 1, as fields have them, in 5 bytes each: shape (n, numbers), (n, 5 * numbers)."""
    digits = ((numbers << 1)[:, :, None] >> (7 * np.arange(_WIDTH))) & 0x7F
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
            made += bytes(_WIDTH)
        numbers.append(places)
        made += STOP + STOP
    ends = []
    for _ in range(2):
        made += header(1, I64)
        ends.append(len(made))
        made += bytes(_WIDTH)
    made += STOP
    return np.frombuffer(bytes(made), np.uint8), np.array(codecs), np.array(numbers), np.array(ends)


class Footers:
    """What is known of the footers of small files. Those that were seen last are kept, for all threads that read."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kinds: list[Kind] = []
        self._known: OrderedDict[str, Parts] = OrderedDict()
        self._size_bytes = 0

    def joined(self, chunks: Sequence[Chunk], contents: bytearray) -> pq.FileMetaData:
        """Return the footer of a Parquet file that has the row groups of chunks, in order.

        Args:
            chunks: Whole row groups of several files, one file after the other.
            contents: The files' bytes, one after the other: those of that file.

        Raises:
            JoinError: They are no such files, or not alike.
            Exception: What pyarrow raises of footers that it cannot read.
        """
        whole, start = memoryview(contents), 0
        rows: list[int] = []
        found, starts = [], []
        for path, of_file in groupby(chunks, key=attrgetter("path")):
            chosen = list(of_file)
            end = start + (chosen[0].file_bytes or 0)
            parts = self._parts(path, whole[start:end])
            groups = [chunk.row_group or 0 for chunk in chosen]
            rows += [parts.rows[i] for i in groups]
            starts += [start] * len(groups)
            found.append(parts if len(groups) == len(parts.rows) else parts.some(groups))
            start = end
        if any(parts.kind is not found[0].kind for parts in found):
            raise JoinError("files are not alike")
        if rows != [chunk.n_rows for chunk in chunks]:
            raise JoinError("a file has other rows than it had")
        numbers = np.concatenate([parts.numbers for parts in found]).astype(np.int64)
        offsets = numbers[:, :, 3:]
        offsets += np.where(offsets > 0, np.array(starts)[:, None, None], 0)
        footer = found[0].kind.footer(rows, numbers, np.concatenate([parts.codecs for parts in found]))
        return pq.read_metadata(pa.BufferReader(_MAGIC + footer + _TAIL.pack(len(footer), _MAGIC)))

    def _parts(self, path: str, content: memoryview) -> Parts:
        length, magic = _TAIL.unpack_from(content, len(content) - _TAIL.size)
        begin = len(content) - _TAIL.size - length
        if magic != _MAGIC or content[: len(_MAGIC)] != _MAGIC or begin < len(_MAGIC):
            raise JoinError("this is no Parquet file")
        footer = content[begin : begin + length]
        checksum = zlib.crc32(footer)
        with self._lock:
            known = self._known.get(path)
        if known is None or known.checksum != checksum:
            known = self._learned(content, bytes(footer), checksum)
        with self._lock:
            before = self._known.pop(path, None)
            self._known[path] = known
            self._size_bytes += known.size_bytes - (0 if before is None else before.size_bytes)
            while self._size_bytes > _MAX_KNOWN_BYTES:
                self._size_bytes -= self._known.popitem(last=False)[1].size_bytes
        return known

    def _learned(self, content: memoryview, footer: bytes, checksum: int) -> Parts:
        metadata = pq.read_metadata(pa.BufferReader(pa.py_buffer(content)))
        with self._lock:
            kind = next((kind for kind in self._kinds if kind.is_of(metadata)), None)
            if kind is None:
                if len(self._kinds) == _MAX_KINDS:
                    raise JoinError("hardly any files are alike")
                kind = Kind(metadata, footer)
                self._kinds.append(kind)
        groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
        columns = [[group.column(i) for i in range(metadata.num_columns)] for group in groups]
        if any(column.file_path for of_group in columns for column in of_group):
            raise JoinError("columns lie in other files")
        numbers = np.array([[_numbers(column) for column in of_group] for of_group in columns], np.uint32)
        codecs = np.array([[_CODECS[column.compression] for column in of_group] for of_group in columns], np.uint8)
        rows = [group.num_rows for group in groups]
        _check(numbers.astype(np.int64), rows, kind.flat, len(content) - _TAIL.size - len(footer))
        return Parts(kind, checksum, rows, numbers, codecs)


def _check(numbers: Numbers, rows: Sequence[int], flat: NDArray[np.bool_], end: int) -> None:
    """Raise JoinError where columns do not lie in their file, or have not a value a row: others' would be read.

    Args:
        numbers: As `Parts.numbers`.
        rows: Of each row group.
        flat: As `Kind.flat`.
        end: Where the file's footer begins.
    """
    data, dictionary = numbers[:, :, 3], numbers[:, :, 4]
    starts = np.where((dictionary > 0) & (dictionary < data), dictionary, data)
    inside = (starts >= len(_MAGIC)) & (starts + numbers[:, :, 2] <= end)
    if not inside.all() or (numbers[:, flat, 0] != np.array(rows)[:, None]).any():
        raise JoinError("a footer says what cannot be")


def _numbers(column: Any) -> tuple[int, ...]:
    return (
        column.num_values,
        column.total_uncompressed_size,
        column.total_compressed_size,
        column.data_page_offset,
        column.dictionary_page_offset or 0,
    )
