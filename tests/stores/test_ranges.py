"""Files read in ranges: the same bytes as the file has, whatever is asked, and no more held than said."""

import io
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pyloader_delta.delta.store import Store, StoreFile, expecting
from pyloader_delta.delta.stores.ranges import WHOLE_BYTES, RangeFile, column_spans

MIB = 1 << 20


class Source:
    """Bytes in a store that counts what is asked of it."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.asked: list[tuple[int, int]] = []

    def __call__(self, start: int, stop: int) -> tuple[pa.Buffer, int]:
        self.asked.append((start, stop))
        return pa.py_buffer(self.data[start:stop]), len(self.data)

    def open(self, size: int | None = None) -> RangeFile:
        return RangeFile(self, size)


def source(size: int) -> Source:
    return Source(np.random.default_rng(0).bytes(size))


@pytest.mark.parametrize("size", [0, 1, WHOLE_BYTES - 1, WHOLE_BYTES, WHOLE_BYTES + 1, 3 * MIB])
@pytest.mark.parametrize("stated", [True, False])
def test_reads_in_any_order_give_the_bytes_of_the_file(size, stated):
    found = source(size)
    file = found.open(size if stated else None)
    assert file.seek(0, io.SEEK_END) == size
    random = np.random.default_rng(1)
    for _ in range(60):
        start, n = int(random.integers(0, size + 10)), int(random.integers(0, 200_000))
        file.seek(start)
        assert bytes(file.read(n)) == found.data[start : start + n]
        assert file.tell() == min(start + n, max(size, min(start, size)))
    file.seek(0)
    assert bytes(file.read()) == found.data


def test_a_small_file_is_asked_for_once():
    found = source(WHOLE_BYTES)
    file = found.open()
    for start in (WHOLE_BYTES - 8, 0, 1000):
        file.seek(start)
        assert bytes(file.read(8)) == found.data[start : start + 8]
    assert found.asked == [(0, WHOLE_BYTES)]


def test_what_is_expected_comes_in_few_requests_and_is_let_go_of():
    found = source(40 * MIB)
    file = found.open(40 * MIB)
    spans = [(0, MIB), (MIB + 1000, 2 * MIB), (10 * MIB, 30 * MIB)]
    with file.expecting(spans, bounded=False):
        for start, stop in spans:
            file.seek(start)
            while file.tell() < stop:
                at = file.tell()
                data = bytes(file.read(min(300_000, stop - at)))
                assert data == found.data[at : at + len(data)]
    assert sorted(found.asked) == [(0, 2 * MIB), (10 * MIB, 26 * MIB), (26 * MIB, 30 * MIB)]
    assert file._held == []


def test_columns_read_side_by_side_hold_a_part_of_each():
    found = source(64 * MIB)
    file = found.open(64 * MIB)
    spans = [(i * 8 * MIB, (i + 1) * 8 * MIB) for i in range(8)]
    most = 0
    with file.expecting(spans, bounded=True):
        for offset in range(0, 8 * MIB, 64 << 10):
            for start, _ in spans:
                file.seek(start + offset)
                assert bytes(file.read(64 << 10)) == found.data[start + offset : start + offset + (64 << 10)]
            most = max(most, sum(block.size for block in file._blocks.values()))
    assert most <= 16 * MIB
    assert len(found.asked) == 8 * 4  # 2 MiB of a column at a time
    assert sum(stop - start for start, stop in found.asked) == 64 * MIB


@pytest.mark.parametrize("change", [lambda data: data[:-1], lambda data: data + b"x"])
def test_a_file_of_another_size_is_refused(change):
    found = source(3 * MIB)
    file = found.open(3 * MIB)
    found.data = change(found.data)
    with pytest.raises(OSError, match=f"the file has {len(found.data)} bytes, not {3 * MIB}"):
        file.read(10)


def test_columns_are_found_by_their_names(tmp_path):
    nested = pa.array([{"b": 1, "c": [1, 2]}] * 100)
    table = pa.table({"a": range(100), "a.b": range(100), "s": nested, "t": ["x"] * 100})
    pq.write_table(table, tmp_path / "f", row_group_size=50)
    footer = pq.read_metadata(tmp_path / "f")
    # A leaf's path does not tell a column a.b from a field of a: more is read then, never less.
    assert [len(column_spans(footer, [1], names)) for names in (["a"], ["a.b"], ["s"], ["s", "t"], [])] == [
        2,
        1,
        2,
        3,
        0,
    ]
    data = (tmp_path / "f").read_bytes()
    for columns in (["a"], ["s", "t"], ["a.b"]):
        found = Source(data + b"")
        file = StoreFile(found.open(len(data)), "r")
        with expecting(file, partial(column_spans, footer, [1], columns)):
            read = pq.ParquetFile(file, metadata=footer).read_row_group(1, columns=columns)
        assert read.column("s" if "s" in columns else columns[0]).equals(
            table.column("s" if "s" in columns else columns[0]).slice(50)
        )


def test_a_disk_is_mapped_and_expects_nothing(tmp_path):
    (tmp_path / "f").write_bytes(b"abc")
    store = Store(str(tmp_path))
    with store.open("f") as file, expecting(file, lambda: pytest.fail("asked")):
        assert isinstance(file, pa.MemoryMappedFile)
        assert file.read() == b"abc"
    assert (store.size("f"), store.read("f").to_pybytes(), store.local) == (3, b"abc", True)
    assert [(name, size) for name, size, _ in store.list("")] == [("f", 3)]
    assert store.list("", start_after="f") == []
