"""Speed: our loader beside the limit and the rival, in interleaved rounds. Prints one JSON document.

python -m benchmarks.throughput --workload tabular
"""

import argparse
import json
import platform
import sys
from importlib.metadata import version
from pathlib import Path

from benchmarks import measure, tables

BATCH_SIZE = 1024
SHUFFLE_ROWS = 500_000
CONTENDERS = ("limit", "threads", "threads shuffled", "processes", "processes shuffled", "rival", "rival shuffled")
MAX_RATIO = {"threads": 1.7, "threads shuffled": 2.5, "processes": 2.2, "processes shuffled": 3.2}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workload", choices=["tabular"], default="tabular")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--passes", type=int, default=2, help="over the table in each run, at least 2")
    parser.add_argument("--rows", type=int, default=4_000_000)
    parser.add_argument("--rival-rows", type=int, default=1_000_000, help="fewer, as it takes a minute for 4 million")
    parser.add_argument("--only", nargs="+", choices=CONTENDERS[1:], default=CONTENDERS[1:], metavar="CONTENDER")
    args = parser.parse_args()
    contenders = ["limit", *args.only]
    n_rows = {name: args.rival_rows if name.startswith("rival") else args.rows for name in contenders}
    made = {rows: tables.tabular(rows) for rows in set(n_rows.values())}

    rounds = []
    for index in range(args.rounds):
        print(f"round {index + 1} of {args.rounds}", file=sys.stderr)
        figures = {}
        for name in contenders:
            figures[name] = run(name, made[n_rows[name]], n_rows[name], args.passes)
            figures[name]["ratio_to_limit"] = (
                figures[name]["cpu_s_per_million_rows"] / figures["limit"]["cpu_s_per_million_rows"]
            )
            print(f"  {name:20} {measure.medians([figures[name]])}", file=sys.stderr)
        rounds.append(figures)

    medians = {name: measure.medians([figures[name] for figures in rounds]) for name in contenders}
    document = {
        "benchmark": "throughput",
        "workload": f"{args.workload}: 20 float32 + 2 int64, row groups of {tables.ROWS_PER_GROUP} rows, "
        f"batches of {BATCH_SIZE}, two workers, shuffled over {SHUFFLE_ROWS} rows",
        "rows_per_pass": n_rows,
        "passes": args.passes,
        "rounds": args.rounds,
        "machine": machine(),
        "meaning": measure.MEANING,
        "medians": medians,
        "to_reach": {
            name: {"ratio_to_limit": limit, "reached": medians[name]["ratio_to_limit"] <= limit}
            for name, limit in MAX_RATIO.items()
            if name in medians
        },
    }
    print(json.dumps(document, indent=2))


def run(name: str, table: Path, n_rows: int, passes: int) -> dict[str, float]:
    """Run one contender once; each of its passes must give every row."""
    contender, _, shuffled = name.partition(" ")
    options = ["--passes", str(passes), "--batch-size", str(BATCH_SIZE)]
    if shuffled:
        options += ["--shuffle-rows", str(SHUFFLE_ROWS)]
    figures = measure.run([contender, str(table), *options])
    counted = figures.pop("n_rows")
    if counted != [n_rows] * passes:
        raise SystemExit(f"{name} gave {counted} rows in its passes, not {n_rows}")
    return figures


def machine() -> dict[str, object]:
    cpuinfo = Path("/proc/cpuinfo")
    models = [line.partition(": ")[2] for line in cpuinfo.read_text().splitlines() if line.startswith("model name")]
    return {
        "cpu": models[0] if models else platform.processor(),
        "cores": len(models),
        "kernel": platform.release(),
        "python": platform.python_version(),
        **{package: version(package) for package in ("pyarrow", "numpy", "torch")},
    }


if __name__ == "__main__":
    main()
