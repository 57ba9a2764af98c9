"""Tables in any filesystem of pyarrow or fsspec; one that never answers ends in a named error."""

import os
import pickle
import threading

import fsspec
import pyarrow.fs as fs
import pytest
from fsspec.implementations.local import LocalFileSystem
from fsspec.implementations.memory import MemoryFileSystem
from reading import read

from pyloader_delta import DeltaDataReader
from pyloader_delta.delta.stores.filesystems import root_of
from pyloader_delta.errors import ConfigError, ReadError, TableError

EXPECTED = [i for i in range(60_000) if i != 7]


def numbers(root: object, **options: object) -> list[int]:
    return sorted(read(root, columns=["i"], **options)["i"].to_pylist())


def test_a_filesystem_of_disks_reads_paths(folder):
    assert numbers(folder, filesystem=fs.LocalFileSystem()) == EXPECTED
    assert numbers(folder, filesystem=LocalFileSystem()) == EXPECTED
    assert numbers(folder.name, filesystem=fs.SubTreeFileSystem(str(folder.parent), fs.LocalFileSystem())) == EXPECTED


@pytest.mark.parametrize("root", ["/tables/t", "memory://tables/t", "tables/t/"])
def test_a_filesystem_of_fsspec_reads_paths_and_its_own_uris(folder, root):
    memory = MemoryFileSystem()
    memory.put(str(folder), "/tables/t", recursive=True)
    try:
        assert numbers(root, filesystem=memory) == EXPECTED
        assert numbers(root, filesystem=fs.PyFileSystem(fs.FSSpecHandler(memory))) == EXPECTED
    finally:
        memory.rm("/tables", recursive=True)


@pytest.mark.parametrize(
    ("uri", "filesystem", "root"),
    [
        ("/t/x/", fs.LocalFileSystem(), "/t/x"),
        ("file:///t/x%20y", LocalFileSystem(), "/t/x y"),
        ("t", LocalFileSystem(), os.path.abspath("t")),
        ("bucket/t", fs.S3FileSystem(anonymous=True, region="us-east-1"), "s3://bucket/t"),
        ("s3://bucket/t", fs.S3FileSystem(anonymous=True, region="us-east-1"), "s3://bucket/t"),
        ("bucket/t", fs.GcsFileSystem(anonymous=True), "gs://bucket/t"),
        ("t", fsspec.filesystem("memory"), "memory://t"),
        ("/t", fsspec.filesystem("memory"), "memory:///t"),
    ],
)
def test_a_path_in_a_filesystem_becomes_a_uri(uri, filesystem, root):
    assert root_of(uri, filesystem) == root


@pytest.mark.parametrize("filesystem", ["s3", object(), LocalFileSystem])
def test_what_is_no_filesystem_is_refused(filesystem):
    with pytest.raises(ConfigError, match="filesystem= must be a filesystem of pyarrow or fsspec, got a"):
        DeltaDataReader(filesystem=filesystem).chunks("t")


def test_a_table_that_is_not_there_is_named(tmp_path):
    with pytest.raises(TableError, match="no table at"):
        read(tmp_path / "none", filesystem=fs.LocalFileSystem())


def test_a_copy_of_a_reader_keeps_its_filesystem(folder):
    reader = DeltaDataReader(columns=["i"], filesystem=fs.LocalFileSystem())
    chunks = reader.chunks(str(folder))
    copy = pickle.loads(pickle.dumps(reader))
    assert copy.read_chunk(chunks[0]).equals(reader.read_chunk(chunks[0]))
    copy.close()
    reader.close()


class Faulty(LocalFileSystem):
    """Fails while opening data files, as told."""

    cachable = False
    go = threading.Event()
    failures: list[BaseException | None]

    def _open(self, path, mode="rb", **kwargs):
        if path.endswith(".parquet") and self.failures:
            failure = self.failures.pop()
            if failure is None:
                self.go.wait()
            else:
                raise failure
        return super()._open(path, mode, **kwargs)


class Panic(BaseException):
    """As a panic of Rust looks."""


@pytest.fixture
def faulty(folder):
    filesystem = Faulty()
    filesystem.failures = []
    reader = DeltaDataReader(columns=["i"], filesystem=filesystem, stall_timeout=1.5)
    chunks = reader.chunks(str(folder))
    Faulty.go.clear()
    yield filesystem, reader, chunks
    Faulty.go.set()
    reader.close()


def test_a_filesystem_that_fails_for_a_while_is_asked_again(faulty):
    filesystem, reader, chunks = faulty
    filesystem.failures = [OSError("503 slow down"), None, TimeoutError("late")]
    assert reader.read_chunk(chunks[0]).num_rows == chunks[0].n_rows


@pytest.mark.parametrize(
    ("failures", "error"),
    [
        ([None] * 9, "no answer within stall_timeout=1.5 s"),
        ([PermissionError("no")], "PermissionError: no"),
        ([OSError("An error occurred (403) when calling HeadObject: Forbidden")], "Forbidden"),
        ([FileNotFoundError("gone")], "is missing"),
        ([Panic("panicked")], "Panic: panicked"),
    ],
)
def test_a_filesystem_that_fails_for_good_is_named(faulty, failures, error):
    filesystem, reader, chunks = faulty
    filesystem.failures = failures
    with pytest.raises(ReadError, match=error):
        reader.read_chunk(chunks[0])
