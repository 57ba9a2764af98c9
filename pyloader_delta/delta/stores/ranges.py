"""A file in a store that is read in ranges: few requests, and no more bytes held than are needed next."""

from __future__ import annotations

import io
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pyarrow as pa
import pyarrow.parquet as pq

Span = tuple[int, int]
"""First byte, and the one after the last."""

WHOLE_BYTES = 256 << 10
"""Files up to this size are read at once, whatever is asked of them."""
_SMALL_BYTES = 2 << 20  # files up to this size are read at once where rows are asked for
_TAIL_BYTES = 64 << 10  # what pyarrow reads of a footer first
_HOLE_BYTES = 512 << 10  # read along rather than asked around
_PART_BYTES = 16 << 20  # of one request
_MAX_REQUESTS = 4  # at a time, for one file
_BLOCK_BYTES = 1 << 20
_AHEAD_BYTES = 16 << 20  # held of a row group that is read piece by piece
_MIN_AHEAD_BYTES = 64 << 10  # of one column


class RangeFile(io.RawIOBase):
    """A file for pyarrow, whose bytes are fetched in ranges and held while they are expected to be read.

    Args:
        fetch: Returns bytes `start` to `stop`, fewer where the file ends, and the file's size.
        size: Size in bytes where it is known; else the first request tells.
    """

    def __init__(self, fetch: Callable[[int, int], tuple[pa.Buffer, int]], size: int | None) -> None:
        super().__init__()
        self._fetch = fetch
        self._position = 0
        self._held: list[tuple[int, pa.Buffer]] = []
        """What is expected to be read: starts, ascending, and bytes."""
        self._starts: list[int] = []
        self._blocks: OrderedDict[int, pa.Buffer] = OrderedDict()
        """What was read without being expected."""
        self._streams: list[Span] = []
        self._ahead_bytes = _BLOCK_BYTES
        if size is None:
            first, size = fetch(0, WHOLE_BYTES)
            self._hold([(0, first)])
        self._size = size
        self._tail_start = 0 if size <= WHOLE_BYTES else size - _TAIL_BYTES
        self._tail: pa.Buffer | None = self._held[0][1] if self._held and size <= WHOLE_BYTES else None

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._position = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        return self._position

    def read(self, size: int = -1) -> pa.Buffer:  # which pyarrow takes without a copy
        start = min(self._position, self._size)
        stop = self._size if size < 0 else min(start + size, self._size)
        self._position = stop
        return self._bytes(start, stop)

    read_buffer = read

    @contextmanager
    def expecting(self, spans: Sequence[Span], *, bounded: bool) -> Iterator[None]:
        """Have the bytes at hand that are about to be read, and let go of them afterwards.

        Args:
            spans: What will be read, one of a column each.
            bounded: Hold a part of each only, where all of it is much; it is to be read from its start to its end.
        """
        n_bytes = sum(stop - start for start, stop in spans)
        if self._size <= _SMALL_BYTES and spans:
            self._read_whole()
            spans = []
        elif bounded and n_bytes > _AHEAD_BYTES:
            self._streams = sorted(spans)
            self._ahead_bytes = max(_MIN_AHEAD_BYTES, _AHEAD_BYTES // len(spans))
            spans = []
        try:
            self._hold(self._fetched(list(_parts(_joined(spans)))))
            yield
        finally:
            self._hold([])
            self._blocks.clear()
            self._streams, self._ahead_bytes = [], _BLOCK_BYTES

    def _read_whole(self) -> None:
        if self._tail is None or self._tail_start:
            self._tail = self._get(0, self._size)
            self._tail_start = 0

    def _bytes(self, start: int, stop: int) -> pa.Buffer:
        """Return bytes that are held, else fetch them."""
        if stop <= start:
            return pa.py_buffer(b"")
        for first, held in (*self._near(start), *((s, b) for s, b in reversed(self._blocks.items()))):
            if first <= start and stop <= first + held.size:
                return held.slice(start - first, stop - start)
        if start >= self._tail_start:
            if self._tail is None:
                self._tail = self._get(self._tail_start, self._size)
            return self._tail.slice(start - self._tail_start, stop - start)
        if covering := self._covering(start, stop):
            return covering
        first, last = start, max(stop, min(start + self._ahead_bytes, self._limit(start)))
        found = self._get(first, last)
        self._blocks[first] = found
        while len(self._blocks) > max(len(self._streams), _AHEAD_BYTES // _BLOCK_BYTES):
            self._blocks.popitem(last=False)
        self._drop_behind(start)
        return found.slice(0, stop - start)

    def _covering(self, start: int, stop: int) -> pa.Buffer | None:
        """Return bytes that lie in several neighbours of what is held."""
        place, found = start, []
        for first, held in self._held:
            if first <= place < first + held.size:
                until = min(stop, first + held.size)
                found.append(memoryview(held)[place - first : until - first])
                place = until
        return pa.py_buffer(b"".join(found)) if place == stop else None

    def _near(self, start: int) -> Iterable[tuple[int, pa.Buffer]]:
        place = bisect_right(self._starts, start)
        return self._held[place - 1 : place] if place else ()

    def _limit(self, start: int) -> int:
        """Return where reading ahead from `start` ends: at the end of its column, or of the file."""
        place = bisect_right(self._streams, (start, self._size)) - 1
        return self._streams[place][1] if place >= 0 and start < self._streams[place][1] else self._size

    def _drop_behind(self, start: int) -> None:
        """Let go of what lies before `start` in its column: it is read forward."""
        place = bisect_right(self._streams, (start, self._size)) - 1
        if place >= 0:
            begin = self._streams[place][0]
            for first in [first for first in self._blocks if begin <= first < start]:
                del self._blocks[first]

    def _hold(self, held: list[tuple[int, pa.Buffer]]) -> None:
        self._held, self._starts = held, [start for start, _ in held]

    def _fetched(self, parts: list[Span]) -> list[tuple[int, pa.Buffer]]:
        if len(parts) < 2:
            return [(start, self._get(start, stop)) for start, stop in parts]
        with ThreadPoolExecutor(min(len(parts), _MAX_REQUESTS), thread_name_prefix="pyloader_delta-ranges") as pool:
            found = pool.map(lambda part: self._get(*part), parts)
            return [(start, data) for (start, _), data in zip(parts, found, strict=True)]

    def _get(self, start: int, stop: int) -> pa.Buffer:
        data, size = self._fetch(start, stop)
        if size != self._size or data.size != stop - start:
            raise OSError(f"the file has {size} bytes, not {self._size}: it was cut, or is another one by now")
        return data


def column_spans(metadata: pq.FileMetaData, row_groups: Iterable[int], names: Iterable[str]) -> list[Span]:
    """Return where the columns of row groups lie in their file.

    Args:
        metadata: The file's footer.
        row_groups: Their numbers.
        names: Top-level columns, as the file calls them.
    """
    wanted = set(names)
    found = []
    for column in (group.column(i) for group in map(metadata.row_group, row_groups) for i in range(group.num_columns)):
        if not wanted.isdisjoint(_prefixes(column.path_in_schema)):
            start = column.data_page_offset
            if column.has_dictionary_page and column.dictionary_page_offset:
                start = min(start, column.dictionary_page_offset)
            found.append((start, start + column.total_compressed_size))
    return found


def _prefixes(path: str) -> Iterator[str]:
    """Yield what may be the column of a leaf: names may have dots, too."""
    parts = path.split(".")
    return (".".join(parts[:n]) for n in range(1, len(parts) + 1))


def _joined(spans: Iterable[Span]) -> Iterator[Span]:
    """Yield spans with those as one that are close to each other."""
    current: Span | None = None
    for start, stop in sorted(spans):
        if current is not None and start <= current[1] + _HOLE_BYTES:
            current = (current[0], max(current[1], stop))
            continue
        if current is not None:
            yield current
        current = (start, stop)
    if current is not None:
        yield current


def _parts(spans: Iterable[Span]) -> Iterator[Span]:
    """Yield spans, cut where they are too long for one request."""
    for start, stop in spans:
        for first in range(start, stop, _PART_BYTES):
            yield first, min(first + _PART_BYTES, stop)
