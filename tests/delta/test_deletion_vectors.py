"""Where deletion vectors lie, and what of them is checked."""

import struct
from pathlib import Path

import pytest
from vectors import vector, write_vectors, z85

from pyloader_delta.delta.store import Store
from pyloader_delta.delta.vectors import deleted_rows
from pyloader_delta.errors import ReadError
from pyloader_delta.values import DeletionVector

FIRST, SECOND = [3, 4, 7, 11, 18, 29], [0, 99]


def described(descriptor: dict, **changes: object) -> DeletionVector:
    names = ("storageType", "pathOrInlineDv", "offset", "sizeInBytes", "cardinality")
    values = dict(zip(DeletionVector.__slots__, (descriptor.get(name) for name in names), strict=True))
    return DeletionVector(**values | changes)


def read(root: object, found: DeletionVector, n_rows: int = 100) -> list[int]:
    return deleted_rows(Store(str(root)), found, n_rows, file="/t/f.parquet", version=7).tolist()


@pytest.mark.parametrize(("kind", "folder"), [("i", ""), ("u", ""), ("u", "a1"), ("p", ""), ("p", "é %25 b")])
def test_a_vector_is_found_wherever_it_may_lie(tmp_path, kind, folder):
    found = write_vectors(tmp_path, {"a": FIRST, "b": SECOND, "c": []}, kind, folder)
    assert [read(tmp_path, described(found[file])) for file in "abc"] == [FIRST, SECOND, []]


def test_the_known_inline_vector_of_another_engine_is_read(tmp_path):
    text = "^Bg9^0rr910000000000iXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L"
    assert read(tmp_path, DeletionVector("i", text, None, 44, 6)) == FIRST


def test_without_an_offset_the_vector_follows_the_version_byte(tmp_path):
    (descriptor,) = write_vectors(tmp_path, {"a": FIRST}).values()
    assert read(tmp_path, described(descriptor, offset=None)) == FIRST


def damaged(path: Path, at: int, byte: int) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= byte
    path.write_bytes(content)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"cardinality": 5}, "it has 6 rows, but the log says 5"),
        ({"size_in_bytes": 40}, "states 44 bytes, but the log says 40"),
        ({"offset": 0}, r"states \d+ bytes, but the log says 44"),
        ({"offset": 1 << 20}, "its file ends before the 44 bytes"),
        ({"storage_type": "x"}, "stored in way 'x', which is not supported"),
        ({"path_or_inline_dv": "~" * 20}, "is no Z85"),
        ({"path_or_inline_dv": "#" * 20}, "is no Z85"),
        ({"path_or_inline_dv": "abc"}, "is no Z85"),
    ],
)
def test_a_vector_that_is_not_what_the_log_says_is_refused(tmp_path, changes, reason):
    (descriptor,) = write_vectors(tmp_path, {"a": FIRST}).values()
    with pytest.raises(ReadError, match=rf"deletion vector of /t/f\.parquet at version 7 cannot be read .*{reason}"):
        read(tmp_path, described(descriptor, **changes))


@pytest.mark.parametrize("n_bytes", [1, 4, 5, 8])
def test_a_vector_whose_file_is_cut_is_refused(tmp_path, n_bytes):
    (descriptor,) = write_vectors(tmp_path, {"a": FIRST}).values()
    (path,) = tmp_path.glob("*.bin")
    path.write_bytes(path.read_bytes()[:-n_bytes])
    with pytest.raises(ReadError, match="its file ends before the 44 bytes"):
        read(tmp_path, described(descriptor))


def test_each_flipped_byte_of_a_vectors_file_is_noticed(tmp_path):
    (descriptor,) = write_vectors(tmp_path, {"a": FIRST}).values()
    (path,) = tmp_path.glob("*.bin")
    good = path.read_bytes()
    for at in range(1, len(good)):
        damaged(path, at, 0x10)
        with pytest.raises(ReadError, match=r"cannot be read from deletion_vector_.*\.bin: .*(bytes|checksum)"):
            read(tmp_path, described(descriptor))
        path.write_bytes(good)


def test_an_inline_vector_of_another_size_is_refused(tmp_path):
    data = vector(FIRST)
    short = DeletionVector("i", z85(data[:40]), None, len(data), 6)
    with pytest.raises(ReadError, match="cannot be read from the log itself: it has 40 bytes, but the log says 44"):
        read(tmp_path, short)
    with pytest.raises(ReadError, match="it has 48 bytes, but the log says 44"):
        read(tmp_path, DeletionVector("i", z85(data + struct.pack("<I", 0)), None, len(data), 6))


def test_a_vector_that_deletes_rows_which_the_file_has_not_is_refused(tmp_path):
    (descriptor,) = write_vectors(tmp_path, {"a": SECOND}).values()
    with pytest.raises(ReadError, match="it deletes row 99 of a file with 99 rows"):
        read(tmp_path, described(descriptor), n_rows=99)


def test_a_missing_vector_is_named(tmp_path):
    (descriptor,) = write_vectors(tmp_path, {"a": FIRST}).values()
    (path,) = tmp_path.glob("*.bin")
    path.unlink()
    with pytest.raises(ReadError, match=rf"of /t/f\.parquet at version 7 is missing: {path.name}; was the table vac"):
        read(tmp_path, described(descriptor))
