"""Speed: our loader beside the limit and the rival, in interleaved rounds. Prints one JSON document.

python -m benchmarks.throughput --workload tabular|images|tokens|matrix
"""

import argparse
import json
import platform
import sys
from importlib.metadata import version
from pathlib import Path

from benchmarks import measure, tables
from benchmarks.workloads import WORKLOADS

CONTENDERS = ("limit", "threads", "threads shuffled", "processes", "processes shuffled", "rival", "rival shuffled")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workload", choices=WORKLOADS, default="tabular")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--passes", type=int, default=2, help="over the table in each run, at least 2")
    parser.add_argument("--rows", type=int, help="of the table; without it, as many as the workload has")
    parser.add_argument("--rival-rows", type=int, help="the same for the rival, which has fewer as it takes long")
    parser.add_argument("--only", nargs="+", choices=CONTENDERS[1:], default=CONTENDERS[1:], metavar="CONTENDER")
    args = parser.parse_args()
    workload = WORKLOADS[args.workload]
    contenders = ["limit", *args.only]
    rows, rival_rows = args.rows or workload.rows, args.rival_rows or workload.rival_rows
    n_rows = {name: rival_rows if name.startswith("rival") else rows for name in contenders}
    made = {rows: workload.table(rows) for rows in set(n_rows.values())}

    rounds = []
    for index in range(args.rounds):
        print(f"round {index + 1} of {args.rounds}", file=sys.stderr)
        figures = {}
        for name in contenders:
            figures[name] = run(args.workload, name, made[n_rows[name]], n_rows[name], args.passes)
            figures[name]["ratio_to_limit"] = (
                figures[name]["cpu_s_per_million_rows"] / figures["limit"]["cpu_s_per_million_rows"]
            )
            print(f"  {name:20} {measure.medians([figures[name]])}", file=sys.stderr)
        rounds.append(figures)

    medians = {name: measure.medians([figures[name] for figures in rounds]) for name in contenders}
    document = {
        "benchmark": "throughput",
        "workload": f"{args.workload}: {workload.text}; row groups of {tables.ROWS_PER_GROUP} rows, "
        f"batches of {workload.batch_size}, two workers, shuffled over {workload.shuffle_rows} rows",
        "rows_per_pass": n_rows,
        "passes": args.passes,
        "rounds": args.rounds,
        "machine": machine(),
        "meaning": measure.MEANING,
        "medians": medians,
        "to_reach": {
            name: {"ratio_to_limit": limit, "reached": medians[name]["ratio_to_limit"] <= limit}
            for name, limit in workload.max_ratio.items()
            if name in medians
        },
    }
    print(json.dumps(document, indent=2))


def run(workload: str, name: str, table: Path, n_rows: int, passes: int) -> dict[str, float]:
    """Run one contender once; each of its passes must give every row."""
    contender, _, shuffled = name.partition(" ")
    sizes = WORKLOADS[workload]
    options = ["--workload", workload, "--passes", str(passes), "--batch-size", str(sizes.batch_size)]
    if shuffled:
        options += ["--shuffle-rows", str(sizes.shuffle_rows)]
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
