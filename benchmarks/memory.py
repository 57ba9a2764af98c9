"""Memory: a table of 2.4 GB through our loader, shuffled, inside a cgroup of 300 MiB plus what the imports take.

    python -m benchmarks.memory [--rows 2000000] [--runs process thread torch to_tf]

The runs: arrays out of worker processes and out of threads, torch tensors, and a tf.data.Dataset. Prints one JSON
document. Exits with 0 if every row came and nothing was killed, 1 if not, 77 without memory cgroups.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

from benchmarks import tables
from benchmarks.cgroup import MemoryCgroup, NoCgroup

OPTIONS = {"batch_size": 1024, "shuffle": True, "shuffle_window": "40MiB", "memory_budget": "120MiB", "num_workers": 2}
RUNS = {  # how the rows come, which workers, and what the reading process imports beside numpy and pyarrow
    "process": ("arrays", "process", ""),
    "thread": ("arrays", "thread", ""),
    "torch": ("torch", "process", "torch"),
    "to_tf": ("to_tf", "thread", "tensorflow"),
}
ALLOWANCE_BYTES = 300 * 2**20
NO_CGROUP = 77
_ROOT = Path(__file__).parents[1]
_SAMPLE_EVERY_S = 0.05

_IMPORTS_ONLY = """
import importlib, sys
import numpy, pyarrow.parquet, benchmarks.ours
if sys.argv[1]:
    importlib.import_module(sys.argv[1])
print("imported", flush=True)
sys.stdin.read()
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=25_000_000)
    parser.add_argument("--runs", nargs="+", choices=RUNS, default=list(RUNS))
    args = parser.parse_args()
    try:
        with MemoryCgroup("pyloader_delta"):
            pass
    except NoCgroup as error:
        print(error, file=sys.stderr)
        raise SystemExit(NO_CGROUP) from None

    table = tables.coarse(args.rows)
    runs = {name: measured(name, table, args.rows) for name in args.runs}
    document = {
        "benchmark": "memory",
        "rows": args.rows,
        "decoded_mib": round(args.rows * tables.ROW_BYTES / 2**20),
        "allowance_mib": ALLOWANCE_BYTES >> 20,
        "options": OPTIONS,
        "meaning": {
            "imports_mib": "memory that the cgroup is charged for processes that hold the imports and nothing else",
            "limit_mib": "imports and allowance: what the kernel enforces",
            "peak_mib": "memory.max_usage_in_bytes: with page cache, which grows up to the limit and is given back",
            "peak_own_mib": "highest sum of anonymous and shared memory seen, page cache left out",
        },
        "runs": runs,
    }
    print(json.dumps(document, indent=2))
    if not all(run["complete"] and run["oom_kills"] == 0 for run in runs.values()):
        raise SystemExit(1)


def measured(name: str, table: Path, n_rows: int) -> dict[str, object]:
    """Read the table in a cgroup of its own and return what came and what it took."""
    through, workers, framework = RUNS[name]
    print(f"reading {n_rows} rows, {name}", file=sys.stderr)
    imports_bytes = imports([framework] + [""] * (OPTIONS["num_workers"] if workers == "process" else 0))
    options = json.dumps(OPTIONS | {"workers": workers})
    command = [sys.executable, "-m", "benchmarks.memory_reader", str(table), through, options]
    own_bytes = 0
    drop_from_page_cache(table)
    start_s = time.monotonic()
    with MemoryCgroup("pyloader_delta") as cgroup:
        cgroup.limit(imports_bytes + ALLOWANCE_BYTES)
        with subprocess.Popen(cgroup.command(command), stdout=subprocess.PIPE, text=True, cwd=_ROOT) as process:
            while process.poll() is None:
                usage = cgroup.usage()
                own_bytes = max(own_bytes, usage["anonymous"] + usage["shared"])
                time.sleep(_SAMPLE_EVERY_S)
            printed = process.stdout.read()
        peak_bytes, oom_kills = cgroup.peak_bytes(), cgroup.oom_kills()
    came = json.loads(printed) if process.returncode == 0 else {"rows": None, "sum_of_ids": None}
    return {
        "complete": came == {"rows": n_rows, "sum_of_ids": n_rows * (n_rows - 1) // 2},
        **came,
        "exit_code": process.returncode,
        "seconds": round(time.monotonic() - start_s, 2),
        "imports_mib": imports_bytes >> 20,
        "limit_mib": (imports_bytes + ALLOWANCE_BYTES) >> 20,
        "peak_mib": peak_bytes >> 20,
        "peak_own_mib": own_bytes >> 20,
        "oom_kills": oom_kills,
    }


def drop_from_page_cache(table: Path) -> None:
    """Make the kernel forget the table's files, so that reading them is charged to the cgroup that reads."""
    for path in table.glob("*.parquet"):
        with path.open("rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def imports(frameworks: list[str]) -> int:
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


if __name__ == "__main__":
    main()
