"""Tables in S3, Google Cloud Storage and Azure are read as they are from a disk, in few requests."""

import pickle

import pyarrow as pa
import pytest
from reading import gather, in_parts, read

from pyloader_delta import DeltaDataReader
from pyloader_delta.delta.store import Store
from pyloader_delta.delta.stores.objects import ObjectClient
from pyloader_delta.delta.stores.settings import StoreSettings
from pyloader_delta.errors import ConfigError, ReadError, TableError


def sorted_rows(table: pa.Table) -> pa.Table:
    return table.sort_by("i")


@pytest.fixture
def uri(server, folder):
    return server.put(folder, "bucket/some folder/t%20 ü")


def test_a_table_is_the_same_in_each_store(server, folder, uri):
    assert sorted_rows(read(uri, storage_options=server.storage_options)).equals(sorted_rows(read(folder)))


@pytest.mark.filterwarnings("ignore:VACUUM may delete")
def test_older_versions_are_read(server, uri):
    table = read(uri, storage_options=server.storage_options, version=0)
    assert sorted(table["i"].to_pylist()) == list(range(20_000))


def test_a_filter_and_columns_are_read(server, uri):
    table = read(uri, storage_options=server.storage_options, filter="i < 10 AND p = 'a b'", columns=["i"])
    assert table.to_pydict() == {"i": [0, 3, 6, 9]}


def test_any_filesystem_of_pyarrow_reads_the_same(server, folder, uri):
    found = read(uri.split("://")[1], filesystem=server.filesystem)
    assert sorted_rows(found).equals(sorted_rows(read(folder)))


def test_a_folder_is_listed_by_any_spelling(server, uri):
    store = Store(uri, StoreSettings(server.storage_options))
    assert len(store.list("_delta_log")) == len(store.list("_delta_log/")) == 6
    assert all(size == 0 for _, size, _ in store.list(""))  # objects that stand for folders
    assert sum(name.endswith(".parquet") for name, _, _ in store.walk()) == len(store.walk()) - 5
    with pytest.raises(OSError, match="empty path segment"):
        store.read("a//b")


def test_a_bucket_that_is_not_there_is_named(server, uri):
    with pytest.raises(TableError, match=r"no table at .*nobucket/t: .*no bucket|500.*no bucket named nobucket"):
        read(f"{server.kind}://nobucket/t", storage_options=server.storage_options | {"max_retries": 0})


def test_a_table_that_is_not_there_is_named(server, uri):
    with pytest.raises(TableError, match=r"no table at .*bucket/none: there is no folder _delta_log"):
        read(f"{server.kind}://bucket/none", storage_options=server.storage_options)


def test_a_file_that_is_gone_is_named(server, folder):
    uri = server.put(folder, "bucket/gone")
    reader = DeltaDataReader(storage_options=server.storage_options)
    chunks = reader.chunks(uri)
    server.filesystem.delete_file(chunks[0].path.split("://")[1])
    with pytest.raises(ReadError, match="is missing; was the table vacuumed"):
        reader.read_chunk(chunks[0])
    reader.close()


def test_a_file_that_was_replaced_is_named(server, folder):
    uri = server.put(folder, "bucket/replaced")
    with server.filesystem.open_output_stream(f"bucket/replaced/{next(folder.rglob('*.parquet')).name}") as file:
        file.write(b"x" * 100)
    for path in folder.rglob("*.parquet"):
        if "_delta_log" not in str(path):
            place = f"bucket/replaced/{path.relative_to(folder)}"
            with server.filesystem.open_output_stream(place) as file:
                file.write(path.read_bytes()[:-100])
    with pytest.raises(ReadError, match=r"cannot read .*bytes|the file ends before|has \d+ bytes"):
        read(uri, storage_options=server.storage_options)


def test_the_clones_of_a_table_lie_in_another_bucket(s3, folder, tmp_path):
    uri = s3.put(folder, "bucket/original")
    log = tmp_path / "_delta_log"
    log.mkdir()
    lines = (folder / "_delta_log" / f"{0:020}.json").read_text()
    (log / f"{0:020}.json").write_text(lines.replace('"path":"', f'"path":"{uri}/'.replace("s3:", "s3a:")))
    s3.filesystem.create_dir("elsewhere")
    clone = s3.put(tmp_path, "elsewhere/clone")
    assert sorted(read(clone, storage_options=s3.storage_options)["i"].to_pylist()) == list(range(20_000))
    assert sorted(read(tmp_path, storage_options=s3.storage_options)["i"].to_pylist()) == list(range(20_000))


@pytest.mark.parametrize("n_rows", [None, 3001])
def test_a_row_group_costs_about_one_request(s3, proxy, large, n_rows):
    uri = s3.put(large, "bucket/large")
    reader = DeltaDataReader(storage_options=s3.behind(proxy.port).storage_options)
    chunks = reader.chunks(uri)
    proxy.faults()
    table = gather(reader, in_parts(chunks, n_rows) if n_rows else chunks)
    requests = proxy.faults()
    assert table.equals(read(large))
    assert len(requests) == 1 + 3, requests  # the footer, and each row group


def test_few_columns_are_few_bytes(s3, proxy, large):
    uri = s3.put(large, "bucket/large")
    reader = DeltaDataReader(columns=["i"], storage_options=s3.behind(proxy.port).storage_options)
    chunks = reader.chunks(uri)
    proxy.faults()
    assert gather(reader, chunks).equals(read(large, columns=["i"]))
    spans = [request.split("=")[-1].split("-") for request in proxy.faults() if "bytes=" in request]
    assert sum(int(last) - int(first) + 1 for first, last in spans) < 3_200_000


def test_opening_a_table_takes_few_requests(s3, proxy, folder):
    uri = s3.put(folder, "bucket/few")
    proxy.faults()
    reader = DeltaDataReader(storage_options=s3.behind(proxy.port).storage_options)
    chunks = reader.chunks(uri)
    requests = proxy.faults()
    assert len([request for request in requests if "_delta_log" in request]) <= 4, requests
    assert len(requests) <= 4 + len(chunks), requests
    reader.close()


def test_a_copy_reads_on_and_shows_no_secret(s3, folder):
    uri = s3.put(folder, "bucket/copied")
    reader = DeltaDataReader(storage_options=s3.storage_options)
    chunks = reader.chunks(uri)
    copy = pickle.loads(pickle.dumps(reader))
    assert copy.read_chunk(chunks[0]).equals(reader.read_chunk(chunks[0]))
    assert copy.snapshot == reader.snapshot
    for shown in (reader, copy, reader.snapshot, chunks, copy._pin.files._store, copy._pin.files._store.settings):
        assert "not-a-secret" not in repr(shown)
    copy.close()
    reader.close()


def test_another_process_may_not_use_a_client_over_a_fork(s3, folder, monkeypatch):
    uri = s3.put(folder, "bucket/forked")
    reader = DeltaDataReader(storage_options=s3.storage_options)
    reader.chunks(uri)
    monkeypatch.setattr("os.getpid", lambda: -1)  # as a forked child would see it
    with pytest.raises(ConfigError, match="forked from one that had read s3://"):
        ObjectClient("s3", "bucket", reader._pin.files._store.settings).read("x", 0, None)
    monkeypatch.undo()
    reader.close()
