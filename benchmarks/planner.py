"""One contender of the planning benchmark: opens a table's log in this process and prints what it cost.

python -m benchmarks.planner ours|deltalake TABLE
"""

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path


def ours(table: str) -> tuple[Callable[[], object], Callable[[object], int]]:
    from pyloader_delta.delta import load_snapshot

    return lambda: load_snapshot(table), lambda snapshot: len(snapshot.files)  # type: ignore[attr-defined]


def deltalake(table: str) -> tuple[Callable[[], object], Callable[[object], int]]:
    from deltalake import DeltaTable

    return lambda: DeltaTable(table).get_add_actions(flatten=True), lambda adds: adds.num_rows  # type: ignore[attr-defined]


def main() -> None:
    contender, table = sys.argv[1:]
    plan, count = {"ours": ours, "deltalake": deltalake}[contender](table)
    before_mib = _peak_mib()
    start, start_cpu = time.perf_counter(), time.process_time()
    planned = plan()
    seconds, cpu_s = time.perf_counter() - start, time.process_time() - start_cpu
    print(
        json.dumps(
            {
                "s": seconds,
                "cpu_s": cpu_s,
                "peak_rss_mib": _peak_mib(),
                "import_rss_mib": before_mib,
                "n_files": count(planned),
            }
        )
    )


def _peak_mib() -> float:
    # not getrusage's: that begins with what the process that started us had
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) / 1024


if __name__ == "__main__":
    main()
