"""Small Parquet files read as one: their bytes lie one after the other, and one footer says where each part is.

To open a file and to begin each of its columns costs Arrow ten times what decoding 400 rows of it does. Row groups of
one file cost a third of that, and their numbers become one array. So the footers of files that are alike are joined.
"""

from __future__ import annotations

import struct
import threading
import zlib
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from itertools import accumulate

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pyloader_delta.arrays import list_lengths
from pyloader_delta.delta.parts import MAGIC, JoinError, Parts, extents, learned, stated
from pyloader_delta.delta.template import FooterTemplate
from pyloader_delta.values import Chunk

_TAIL = struct.Struct("<I4s")  # the footer's length, and what Parquet files end with
_MAX_KNOWN_BYTES = 32 << 20
_MAX_TEMPLATES = 8  # of a table


class Footers:
    """What is known of the footers of small files. Those that were seen last are kept, for all threads that read."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._templates: list[FooterTemplate] = []
        self._known: OrderedDict[str, Parts] = OrderedDict()
        self._size_bytes = 0

    def joined(self, by_file: Sequence[Sequence[Chunk]], contents: bytearray) -> pq.FileMetaData:
        """Return the footer of a Parquet file that has the row groups of chunks, in order.

        Args:
            by_file: Whole row groups of each of several files.
            contents: The files' bytes, one after the other: those of that file.

        Raises:
            JoinError: They are no such files, or not alike.
            Exception: What pyarrow raises of footers that it cannot read.
        """
        whole, start = memoryview(contents), 0
        rows: list[int] = []
        found, starts = [], []
        for of_file in by_file:
            end = start + (of_file[0].file_bytes or 0)
            parts = self._parts(of_file[0].path, whole[start:end])
            groups = [chunk.row_group or 0 for chunk in of_file]
            rows += [parts.rows[i] for i in groups]
            starts += [start] * len(groups)
            found.append(parts if len(groups) == len(parts.rows) else parts.some(groups))
            start = end
        if any(parts.template is not found[0].template for parts in found):
            raise JoinError("files are not alike")
        if rows != [chunk.n_rows for of_file in by_file for chunk in of_file]:
            raise JoinError("a file has other rows than it had")
        numbers = np.concatenate([parts.numbers for parts in found]).astype(np.int64)
        offsets = numbers[:, :, 3:]
        offsets += np.where(offsets > 0, np.array(starts)[:, None, None], 0)
        counts = stated(np.frombuffer(contents, np.uint8), offsets[:, :, -1].reshape(-1))
        if (counts != numbers[:, :, 0].reshape(-1)).any():
            raise JoinError("a column has several pages, or one with other values than it should have")
        footer = found[0].template.footer(rows, numbers[:, :, :-1], np.concatenate([parts.codecs for parts in found]))
        return pq.read_metadata(pa.BufferReader(MAGIC + footer + _TAIL.pack(len(footer), MAGIC)))

    def _parts(self, path: str, content: memoryview) -> Parts:
        length, magic = _TAIL.unpack_from(content, len(content) - _TAIL.size)
        begin = len(content) - _TAIL.size - length
        if magic != MAGIC or content[: len(MAGIC)] != MAGIC or begin < len(MAGIC):
            raise JoinError("this is no Parquet file")
        checksum = zlib.crc32(content[begin : begin + length])
        with self._lock:
            known = self._known.get(path)
        if known is None or known.checksum != checksum:
            known = self._learned(content, begin, checksum)
        with self._lock:
            before = self._known.pop(path, None)
            self._known[path] = known
            self._size_bytes += known.size_bytes - (0 if before is None else before.size_bytes)
            while self._size_bytes > _MAX_KNOWN_BYTES:
                self._size_bytes -= self._known.popitem(last=False)[1].size_bytes
        return known

    def _learned(self, content: memoryview, end: int, checksum: int) -> Parts:
        file = bytes(content)
        footer = file[end : -_TAIL.size]
        found = extents(footer)
        with self._lock:
            template = next((one for one in self._templates if one.is_plainly_of(footer, found.end)), None)
            if template is None:
                template = self._template(pq.read_metadata(pa.BufferReader(file)), footer, found.end)
        return learned(found, template, checksum, file, end)

    def _template(self, metadata: pq.FileMetaData, footer: bytes, end: int) -> FooterTemplate:
        """Return the template of a footer that is no other's byte by byte."""
        template = next((one for one in self._templates if one.is_of(metadata)), None)
        if template is None:
            if len(self._templates) == _MAX_TEMPLATES:
                raise JoinError("hardly any files are alike")
            template = FooterTemplate(metadata, footer, end)
            self._templates.append(template)
        return template


def are_whole(table: pa.Table, footer: pq.FileMetaData, lists: Mapping[str, int]) -> bool:
    """Return whether row groups that were read as one have their own rows, all of them.

    In a file a list has as many values as it has elements, and one if it has none. So if the lists of a row group's
    rows have as many as its footer says, none is another's, whatever damaged levels say of where rows begin.

    Args:
        table: The rows.
        footer: As `Footers.joined` gives it.
        lists: Of each column of lists, its leaf's number in the footer.
    """
    if table.num_rows != footer.num_rows:
        return False
    if not lists:
        return True
    groups = [footer.row_group(i) for i in range(footer.num_row_groups)]
    starts = list(accumulate((group.num_rows for group in groups[:-1]), initial=0))
    for name, leaf in lists.items():
        lengths = np.concatenate([list_lengths(chunk) for chunk in table[name].chunks])
        values = np.add.reduceat(np.maximum(lengths, 1), starts)
        if values.tolist() != [group.column(leaf).num_values for group in groups]:
            return False
    return True
