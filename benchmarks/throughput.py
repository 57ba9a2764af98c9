"""Speed: our loader beside the limit and rivals, in interleaved rounds. Prints one JSON document.

python -m benchmarks.throughput --workload tabular|matrix|wide|images|jpeg|tokens|text
"""

import argparse
import json
import platform
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks import environments, measure
from benchmarks.contenders import CONTENDERS, NAMES
from benchmarks.workloads import WORKLOADS

USUAL = (
    "threads",
    "threads shuffled",
    "threads2",
    "threads2 shuffled",
    "processes",
    "processes shuffled",
    "torch",
    "torch shuffled",
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workload", choices=WORKLOADS, default="tabular")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--passes", type=int, help="over the table in a run, >= 2; without it, each contender's")
    parser.add_argument("--rows", type=int, help="of each contender's table; without it, as the workload has")
    parser.add_argument("--batch-size", type=int, help="without it, the workload's")
    parser.add_argument("--only", nargs="+", choices=NAMES[1:], default=USUAL, metavar="CONTENDER")
    args = parser.parse_args()
    workload = WORKLOADS[args.workload]
    contenders = ["limit", *args.only]

    rounds = []
    for index in range(args.rounds):
        print(f"round {index + 1} of {args.rounds}", file=sys.stderr)
        figures: dict[str, dict[str, Any]] = {}
        for name in contenders:
            found = run(args.workload, name, n_rows=args.rows, batch_size=args.batch_size, passes=args.passes)
            figures[name] = found | {"ratio_to_limit": ratio(found, figures.get("limit", found))}
            print(f"  {name:20} {measure.medians([figures[name]])}", file=sys.stderr)
        rounds.append(figures)

    medians = {name: measure.medians([figures[name] for figures in rounds]) for name in contenders}
    document = {
        "benchmark": "throughput",
        "workload": f"{args.workload}: {workload.text}; batches of {args.batch_size or workload.batch_size}, "
        f"shuffled over {workload.shuffle_rows} rows",
        "rows_per_pass": {name: args.rows or rows(args.workload, name) for name in contenders},
        "passes": {name: args.passes or passes_of(name) for name in contenders},
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


def run(
    workload: str, name: str, *, n_rows: int | None = None, batch_size: int | None = None,
    passes: int | None = None, check: bool = False, timeout_s: float | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Return the figures of one contender, run once; each of its passes must give every row.

    Raises:
        ContenderFailed: It failed, gave other rows, or took too long.
    """
    contender, _, shuffled = name.partition(" ")
    sizes, n_rows, passes = WORKLOADS[workload], n_rows or rows(workload, name), passes or passes_of(name)
    options = ["--workload", workload, "--passes", str(passes), "--batch-size", str(batch_size or sizes.batch_size)]
    if shuffled:
        options += ["--shuffle-rows", str(sizes.shuffle_rows)]
    python = environments.python(CONTENDERS[contender].environment)
    table = str(sizes.table(n_rows))
    figures = measure.run([contender, table, *options, *["--check"] * check], python, timeout_s)
    counted = figures.pop("n_rows")
    if counted != [n_rows] * passes:
        raise measure.ContenderFailed(f"gives {counted} rows in its passes, not {n_rows}")
    return figures


def rows(workload: str, name: str) -> int:
    """Return how many rows a contender gets."""
    return getattr(WORKLOADS[workload], CONTENDERS[name.partition(" ")[0]].rows)


def passes_of(name: str) -> int:
    """Return how often a contender goes over its table in a run."""
    return CONTENDERS[name.partition(" ")[0]].passes


def ratio(figures: dict[str, Any], limit: dict[str, Any]) -> float:
    """Return CPU a row divided by the limit's."""
    return figures["cpu_s_per_million_rows"] / limit["cpu_s_per_million_rows"]


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
