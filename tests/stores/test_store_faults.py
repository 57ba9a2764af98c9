"""Stores that fail: an epoch is whole under faults that pass, and ends in a named error under those that stay."""

import time

import numpy as np
import pytest
from fakes import ArrowThrough
from reading import read

from pyloader_delta import DataLoader, DeltaDataReader, NumpyDataCollator
from pyloader_delta.errors import ReadError, TableError

PASSING = {
    "a third of requests refused for now": {"fail": 0.3},
    "too many requests": {"fail": 0.3, "status": 429},
    "a third of bodies cut": {"cut": 0.3},
    "slow": {"rate": 4_000_000},
}
STALL_S = 1.5
THREADS = {"num_workers": 2, "workers": "thread"}
PROCESSES = {"num_workers": 1, "workers": "process"}


class Numbers(ArrowThrough):
    rowwise = True


def epoch(reader: DeltaDataReader, uri: str, **options: object) -> np.ndarray:
    with DataLoader(reader, Numbers(), NumpyDataCollator(), uri, **options) as loader:
        return np.concatenate([batch["i"] for batch in loader])


@pytest.fixture
def uri(s3, folder):
    return s3.put(folder, "bucket/faulty")


@pytest.mark.parametrize("faults", PASSING.values(), ids=PASSING)
def test_an_epoch_is_whole_under_faults_that_pass(s3, proxy, uri, faults):
    options = s3.behind(proxy.port).storage_options
    proxy.faults(**faults)
    reader = DeltaDataReader(500, columns=["i"], shuffle=True, storage_options=options)
    found = epoch(reader, uri, shuffle=True, **THREADS)
    assert np.array_equal(np.sort(found), np.delete(np.arange(60_000), 7))
    assert proxy.faults()


def test_an_epoch_is_whole_in_processes(s3, proxy, uri):
    options = s3.behind(proxy.port).storage_options
    proxy.faults(fail=0.3, cut=0.2)
    found = epoch(DeltaDataReader(500, columns=["i"], storage_options=options), uri, **PROCESSES)
    assert np.array_equal(np.sort(found), np.delete(np.arange(60_000), 7))


def test_each_client_repeats_what_failed(server, its_proxy, folder):
    uri = server.put(folder, "bucket/repeated")
    its_proxy.faults(fail=0.3, cut=0.2)
    options = server.behind(its_proxy.port).storage_options
    table = read(uri, columns=["i"], storage_options=options, stall_timeout=9)
    assert sorted(table["i"].to_pylist()) == [i for i in range(60_000) if i != 7]


def test_row_groups_read_in_parts_are_whole_under_faults(s3, proxy, large):
    uri = s3.put(large, "bucket/large_faulty")
    proxy.faults(cut=0.3)
    reader = DeltaDataReader(1000, columns=["i"], storage_options=s3.behind(proxy.port).storage_options)
    found = epoch(reader, uri, shuffle_window="1MiB", num_workers=0)
    assert np.array_equal(found, np.arange(300_000))


@pytest.mark.parametrize(
    ("faults", "error"),
    [
        ({"stall": True}, "no answer within stall_timeout=1.5 s"),
        ({"fail": 1.0}, "503"),
        ({"fail": 1.0, "status": 403}, "s3://bucket refused access; are the credentials right"),
        ({"fail": 1.0, "status": 401}, "s3://bucket refused access; are the credentials right"),
        ({"fail": 1.0, "status": 404}, "is missing; was the table vacuumed"),
    ],
)
@pytest.mark.parametrize("where", [{"num_workers": 0}, THREADS], ids=["inline", "threads"])
def test_a_fault_that_stays_ends_in_a_named_error(s3, proxy, uri, faults, error, where):
    options = s3.behind(proxy.port).storage_options
    reader = DeltaDataReader(500, storage_options=options, stall_timeout=STALL_S)
    with DataLoader(reader, Numbers(), NumpyDataCollator(), uri, **where) as loader:
        batches = iter(loader)
        proxy.faults(only=".parquet", **faults)
        with pytest.raises(ReadError, match=error) as found:
            list(batches)
        assert "parquet" in str(found.value)
        assert "not-a-secret" not in str(found.value)
        proxy.faults()


@pytest.mark.parametrize(("status", "n_requests"), [(403, 1), (404, 1), (400, 1), (503, 3), (429, 3), (500, 3)])
def test_only_what_may_pass_is_asked_for_again(s3, proxy, status, n_requests):
    options = s3.behind(proxy.port).storage_options | {"max_retries": 2}
    proxy.faults(fail=1.0, status=status)
    with pytest.raises(TableError, match=str(status)):
        read("s3://bucket/t", storage_options=options)
    assert len([request for request in proxy.faults() if "list-type" in request]) == n_requests


def test_a_log_that_stalls_ends_within_the_timeout(s3, proxy, uri):
    proxy.faults(stall=True)
    start = time.monotonic()
    with pytest.raises(TableError, match=r"cannot be listed: .*no answer within stall_timeout=1.5 s"):
        read(uri, storage_options=s3.behind(proxy.port).storage_options, stall_timeout=STALL_S)
    assert time.monotonic() - start < 60  # or it hung
    proxy.faults()


@pytest.mark.filterwarnings("ignore:VACUUM may delete")
def test_a_slow_answer_is_no_stall(s3, proxy, uri):
    proxy.faults(rate=100_000, only=".parquet")
    options = s3.behind(proxy.port).storage_options
    table = read(uri, filter="p = 'a b'", version=0, storage_options=options, stall_timeout=STALL_S)
    assert table.num_rows == 6667
    assert table.nbytes > 2 * STALL_S * 100_000


def test_wrong_credentials_are_named(running, folder):
    server = running["az"]
    if isinstance(server, str):
        pytest.skip(server)
    uri = server.put(folder, "bucket/refused")
    wrong = server.storage_options | {"azure_storage_account_key": "bm90LXRoZS1yaWdodC1rZXk="}
    with pytest.raises(TableError, match="az://bucket refused access; are the credentials right") as found:
        read(uri, storage_options=wrong)
    assert "bm90LXRoZS1yaWdodC1rZXk" not in str(found.value)


def test_a_bucket_that_goes_away_during_an_epoch_is_named(s3, folder):
    s3.filesystem.create_dir("leaving")
    uri = s3.put(folder, "leaving/t")
    reader = DeltaDataReader(500, storage_options=s3.storage_options)
    with DataLoader(reader, Numbers(), NumpyDataCollator(), uri, num_workers=0) as loader:
        batches = iter(loader)
        s3.filesystem.delete_dir_contents("leaving")
        with pytest.raises(ReadError, match="is missing"):
            list(batches)


def test_a_port_where_nobody_listens_is_named(s3):
    options = s3.behind(1).storage_options | {"max_retries": 1}
    with pytest.raises(TableError, match=r"cannot be listed: .*tried 2 times"):
        read("s3://bucket/t", storage_options=options)
