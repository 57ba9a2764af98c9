"""Planning beside deltalake's, and reading beside decoding. Prints one JSON document.

python -m benchmarks.planning
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path
from statistics import median

from benchmarks import logs, reading
from benchmarks.throughput import machine

CONTENDERS = ("ours", "deltalake")
MEANING = {
    "s": "seconds by the clock from a path to the list of live files, imports done",
    "cpu_s": "CPU seconds (user and system) of the same",
    "peak_rss_mib": "peak resident memory of the process, interpreter and libraries included",
    "import_rss_mib": "the same before planning began",
    "n_files": "live files that were found",
}
MOST = {"checkpoint": {"s": 1.0, "peak_rss_mib": 400}, "commits": {"s": 5.0}}
"""What ours may cost."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--files", type=int, default=300_000, help="in the table whose log is a checkpoint")
    parser.add_argument("--commits", type=int, default=5_000, help="of the table whose log is commits alone")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--rows", type=int, default=4_000_000, help="of the tables that are read; 0: only planning")
    args = parser.parse_args()
    made = {"checkpoint": logs.checkpointed(args.files), "commits": logs.committed(args.commits)}
    planned = {name: figures(table, args.rounds) for name, table in made.items()}
    document = {
        "benchmark": "planning",
        "workload": f"a checkpoint of {args.files} files that deltalake wrote; {args.commits} commits without one",
        "rounds": args.rounds,
        "machine": machine(),
        "meaning": MEANING,
        "medians": planned,
        "to_reach": {
            name: {
                figure: {"at_most": most, "reached": planned[name]["ours"][figure] <= most}
                for figure, most in limits.items()
            }
            for name, limits in MOST.items()
        },
    }
    if args.rows:
        document["reading"] = reading.figures(args.rows, args.rounds)
    print(json.dumps(document, indent=2))


def figures(table: Path, rounds: int) -> dict[str, dict[str, float]]:
    """Return the medians of each contender, each run in a process of its own, in turns."""
    found: dict[str, list[dict[str, float]]] = {name: [] for name in CONTENDERS}
    for _ in range(rounds):
        for name in CONTENDERS:
            found[name].append(run(name, table))
    counts = {figures["n_files"] for rounds_of in found.values() for figures in rounds_of}
    if len(counts) != 1:
        raise SystemExit(f"{table.name}: contenders found different numbers of files: {sorted(counts)}")
    return {
        name: {figure: float(f"{median(one[figure] for one in rounds_of):.4g}") for figure in MEANING}
        for name, rounds_of in found.items()
    }


def run(name: str, table: Path) -> dict[str, float]:
    """Run one contender once in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.planner", name, str(table)]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, cwd=Path(__file__).parents[1])
    figures: dict[str, float] = json.loads(done.stdout)
    return figures


if __name__ == "__main__":
    main()
