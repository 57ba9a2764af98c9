"""Memory: whole tables through our loader, shuffled, inside a cgroup that would kill it for swelling.

    python -m benchmarks.memory [--rows 25000000] [--runs process thread …] [--list] [--keep]

Two sets of runs: 2.4 GB through 300 MiB, by each kind of worker and of output; and 8 GB through 1 GiB, by processes and
by threads, with row groups of 8 MB, of 128 MB and of 1 GB, with 500 columns, with more than 2 GiB of texts in a column,
and with rows of 50 MB. The limit comes on top of what the imports take, which is measured first. Prints one JSON
document, and on standard error a bar for each run and a table in the end. Exits with 0 if every row came and nothing
was killed, 1 if not, 77 without memory cgroups.
"""

import argparse
import json
import sys
from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks import memory_cases
from benchmarks.cgroup import MemoryCgroup, NoCgroup
from benchmarks.memory_run import measured

NO_CGROUP = 77
_MEANING = {
    "imports_mib": "memory that the cgroup is charged for processes that hold the imports and nothing else",
    "limit_mib": "imports and allowance: what the kernel enforces",
    "peak_mib": "the highest use the kernel saw: with page cache, which grows up to the limit and is given back",
    "peak_own_mib": "highest sum of anonymous and shared memory seen, page cache left out",
    "beside_imports_mib": "the same without the imports: to be compared with the budget",
    "budget_mib": "the loader's memory_budget",
    "told_mib": "the most that loader.memory() told of",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=25_000_000, help="of the table that goes through 300 MiB")
    parser.add_argument("--runs", nargs="+", metavar="RUN", help="some of the runs that --list names")
    parser.add_argument("--list", action="store_true", help="name the runs")
    parser.add_argument("--keep", action="store_true", help="keep the tables that were made for the runs of 1 GiB")
    args = parser.parse_args()
    cases = {case.name: case for case in [*memory_cases.coarse(args.rows), *memory_cases.large()]}
    if args.list:
        print("\n".join(f"{name:22} {case.what}" for name, case in cases.items()))
        return
    unknown = sorted(set(args.runs or ()) - cases.keys())
    if unknown:
        parser.error(f"there is no run {unknown[0]!r}; --list names them")
    try:
        with MemoryCgroup("pyloader_delta"):
            pass
    except NoCgroup as error:
        print(error, file=sys.stderr)
        raise SystemExit(NO_CGROUP) from None
    runs = {name: measured(cases[name]) for name in args.runs or cases}
    if not args.keep:
        memory_cases.free_tables()
    print(json.dumps({"benchmark": "memory", "rows": args.rows, "meaning": _MEANING, "runs": runs}, indent=2))
    Console(stderr=True).print(readable(runs))
    if not all(run["complete"] and run["oom_kills"] == 0 for run in runs.values()):
        raise SystemExit(1)


def readable(runs: Mapping[str, Mapping[str, Any]]) -> Table:
    """Return the runs as a table to read."""
    found = Table("run", title="MiB")
    for name in ("decoded", "limit", "imports", "peak", "own", "beside", "budget", "told", "s", ""):
        found.add_column(name, justify="right", no_wrap=True)
    for name, run in runs.items():
        keys = ("decoded", "limit", "imports", "peak", "peak_own", "beside_imports", "budget", "told")
        figures = [str(run[f"{key}_mib"]) for key in keys]
        good = run["complete"] and not run["oom_kills"]
        found.add_row(name, *figures, str(run["seconds"]), "ok" if good else "FAILED")
    return found


if __name__ == "__main__":
    main()
