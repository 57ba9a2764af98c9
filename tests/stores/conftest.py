"""Real stores on loopback, started once for all tests that ask for them."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import servers
from deltalake import DeltaTable, write_deltalake
from servers import Proxy, Server


@pytest.fixture(autouse=True)
def no_credentials_of_others(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Keep the machine's own credentials away."""
    for name in ("AWS_PROFILE", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


@pytest.fixture(scope="session")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Server | str]]:
    """Kind of a store → the server, or why there is none."""
    with contextlib.ExitStack() as stack:
        found: dict[str, Server | str] = {}
        for start in (servers.s3, servers.gs, servers.az):
            folder = tmp_path_factory.mktemp(start.__name__)
            try:
                found[start.__name__] = stack.enter_context(contextlib.contextmanager(start)(folder))
            except LookupError as error:
                found[start.__name__] = str(error)
        yield found


def _one(running: dict[str, Server | str], kind: str) -> Server:
    server = running[kind]
    if isinstance(server, str):
        pytest.skip(server)
    return server


@pytest.fixture(params=["s3", "gs", "az"])
def server(request: pytest.FixtureRequest, running: dict[str, Server | str]) -> Server:
    """Each store in turn, with `bucket` in it."""
    return _one(running, request.param)


@pytest.fixture
def s3(running: dict[str, Server | str]) -> Server:
    """S3 only."""
    return _one(running, "s3")


@pytest.fixture(scope="session")
def _proxies(running: dict[str, Server | str]) -> Iterator[dict[str, Proxy]]:
    with contextlib.ExitStack() as stack:
        yield {
            kind: stack.enter_context(servers.proxy(server.port))
            for kind, server in running.items()
            if isinstance(server, Server)
        }


@pytest.fixture
def proxy(_proxies: dict[str, Proxy]) -> Iterator[Proxy]:
    """A proxy before S3, without faults yet."""
    if "s3" not in _proxies:
        pytest.skip("moto is not installed")
    yield from _clean(_proxies["s3"])


@pytest.fixture
def its_proxy(_proxies: dict[str, Proxy], server: Server) -> Iterator[Proxy]:
    """The proxy before `server`."""
    yield from _clean(_proxies[server.kind])


def _clean(proxy: Proxy) -> Iterator[Proxy]:
    proxy.faults()
    yield proxy
    proxy.faults()


def numbers(n_rows: int, n_columns: int = 4) -> pa.Table:
    """Return rows with their number as `i`, columns that do not compress, and nasty values of `p`."""
    random = np.random.default_rng(0)
    columns = {f"f{k}": random.random(n_rows) for k in range(n_columns)}
    names = np.array(["a b", "x%20y", "ü/é+:&?#"])
    return pa.table({"i": np.arange(n_rows), **columns, "p": names[np.arange(n_rows) % 3]})


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table of 3 × 20,000 rows, 4 versions, a checkpoint and rows deleted by rewriting."""
    folder = tmp_path_factory.mktemp("tables") / "t"
    rows = numbers(60_000)
    for start in (0, 20_000, 40_000):
        write_deltalake(folder, rows.slice(start, 20_000), partition_by=["p"], mode="append")
    table = DeltaTable(folder)
    table.create_checkpoint()
    table.delete("i = 7")
    return folder


@pytest.fixture(scope="session")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table of one file of 24 MB with three row groups of 8 MB."""
    folder = tmp_path_factory.mktemp("tables") / "large"
    write_deltalake(folder, numbers(3, 9).slice(0, 0).drop_columns("p"))
    rows = numbers(300_000, 9).drop_columns("p")
    write_deltalake(folder, rows, mode="append", writer_properties=_groups(100_000))
    (file,) = folder.glob("*.parquet")
    assert pq.ParquetFile(file).num_row_groups == 3
    return folder


def _groups(n_rows: int) -> object:
    from deltalake import WriterProperties

    return WriterProperties(max_row_group_size=n_rows, write_batch_size=n_rows)
