"""One run of `benchmarks.memory`: a reading process in a cgroup, watched from outside."""

import functools
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from benchmarks.cgroup import MemoryCgroup
from benchmarks.memory_cases import Case
from pyloader_delta.cli.bar import bar

_ROOT = Path(__file__).parents[1]
_SAMPLE_EVERY_S = 0.05
_N_WORKERS = 2

_IMPORTS_ONLY = """
import importlib, sys
import numpy, pyarrow.parquet, benchmarks.memory_reader
if sys.argv[1]:
    importlib.import_module(sys.argv[1])
print("imported", flush=True)
sys.stdin.read()
"""


def measured(case: Case) -> dict[str, Any]:
    """Read a table in a cgroup of its own and return what came and what it took."""
    table = case.make()
    imports_bytes = imports((case.framework, *[""] * (_N_WORKERS if case.workers == "process" else 0)))
    drop_from_page_cache(table)
    start_s = time.monotonic()
    own_bytes = 0
    with MemoryCgroup("pyloader_delta") as cgroup:
        cgroup.limit(imports_bytes + case.allowance_bytes)
        command = cgroup.command([sys.executable, "-m", "benchmarks.memory_reader", json.dumps(request(case, table))])
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=_ROOT) as process:
            said: dict[str, Any] = {}
            listeners = [
                threading.Thread(target=_listen, args=(process.stdout, case, said)),
                threading.Thread(target=lambda: said.update(errors=process.stderr.read())),
            ]
            for listener in listeners:
                listener.start()
            while process.poll() is None:
                usage = cgroup.usage()
                own_bytes = max(own_bytes, usage["anonymous"] + usage["shared"])
                time.sleep(_SAMPLE_EVERY_S)
            for listener in listeners:
                listener.join()
        peak_bytes, oom_kills = cgroup.peak_bytes(), cgroup.oom_kills()
    errors = said.pop("errors", "")
    if process.returncode:
        print(errors, file=sys.stderr)
    expected = {"rows": case.n_rows, "numbers": case.n_rows * (case.n_rows - 1) // 2}
    return {
        "what": case.what,
        "complete": process.returncode == 0 and all(said.get(key) == value for key, value in expected.items()),
        "rows": said.get("rows"),
        "delivered_mib": said.get("bytes", 0) >> 20,
        "decoded_mib": case.decoded_bytes >> 20,
        "exit_code": process.returncode,
        "error": errors.strip().splitlines()[-1] if process.returncode and errors.strip() else None,
        "seconds": round(time.monotonic() - start_s, 1),
        "imports_mib": imports_bytes >> 20,
        "limit_mib": (imports_bytes + case.allowance_bytes) >> 20,
        "peak_mib": peak_bytes >> 20,
        "peak_own_mib": own_bytes >> 20,
        "beside_imports_mib": (own_bytes - imports_bytes) >> 20,
        "budget_mib": said.get("budget", 0) >> 20,
        "told_mib": said.get("told", 0) >> 20,
        "oom_kills": oom_kills,
    }


def request(case: Case, table: Path) -> dict[str, Any]:
    """Return what the reading process is asked to do."""
    options = {"workers": case.workers, "num_workers": _N_WORKERS, "batch_size": case.batch_size, **case.options}
    return {"table": str(table), "through": case.through, "file_rows": case.file_rows, "options": options}


def _listen(lines: Iterable[str], case: Case, said: dict[str, Any]) -> None:
    with bar(f"{case.name:22}", case.n_rows, "rows") as move:
        for line in lines:
            before = said.get("rows", 0)
            said.update(json.loads(line))
            move(said["rows"] - before)


def drop_from_page_cache(table: Path) -> None:
    """Make the kernel forget the table's files, so that reading them is charged to the cgroup that reads."""
    for path in table.rglob("*.parquet"):
        with path.open("rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


@functools.cache
def imports(frameworks: tuple[str, ...]) -> int:
    """Return the bytes that a cgroup is charged for processes that have imported what the loader needs.

    Args:
        frameworks: What each of them imports beside that, "" for nothing.
    """
    with MemoryCgroup("pyloader_delta-imports") as cgroup:
        commands = [cgroup.command([sys.executable, "-c", _IMPORTS_ONLY, name]) for name in frameworks]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        processes = [subprocess.Popen(command, **pipes, cwd=_ROOT) for command in commands]
        try:
            for process in processes:
                if process.stdout.readline() != b"imported\n":
                    raise RuntimeError("the imports failed")
            usage = cgroup.usage()
        finally:
            for process in processes:
                process.communicate()
    return usage["anonymous"] + usage["shared"]
