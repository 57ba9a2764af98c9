"""How well, and how fast, rows are mixed: in windows of 1 to 64 row groups, and in full. Prints one JSON document.

python -m benchmarks.shuffle
"""

import argparse
import json
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from benchmarks import ours, tables
from benchmarks.throughput import machine
from pyloader_delta import NumpyDataCollator

CHUNKS = (1, 4, 16, 64)
MEANING = {
    "chunks_per_batch": "distinct row groups in a batch, on average",
    "spread": "standard deviation of row numbers inside a batch, as a fraction of a uniform shuffle's",
    "correlation": "of position delivered and position in the table",
    "neighbours": "fraction of neighbours in the order of delivery that are fewer than 1,000 rows apart in the table",
    "rows_per_s": "rows by the clock in passes after the first, from the beginning of an epoch to its end",
    "cpu_s_per_million_rows": "CPU seconds (user and system) of the same",
    "first_batch_s": "from the beginning of such an epoch to its first batch",
    "scratch_mib": "largest size of the scratch file",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=4_000_000, help="of the table, 96 bytes each decoded")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=1024)
    args = parser.parse_args()
    table = tables.tabular(args.rows)
    found: dict[str, list[dict[str, float]]] = {}
    for number in range(args.rounds):
        print(f"round {number + 1} of {args.rounds}", file=sys.stderr)
        for window in (*CHUNKS, "full"):
            name = "full" if window == "full" else f"{window} row groups"
            figures = run(table, args.rows, args.batch_size, window, seed=number)
            found.setdefault(name, []).append(figures)
            print(f"  {name:15} {figures}", file=sys.stderr)
    document = {
        "benchmark": "shuffle",
        "workload": f"{args.rows} rows of 20 float32 and 2 int64, row groups of {tables.ROWS_PER_GROUP} rows, batches "
        f"of {args.batch_size}, two worker threads; full: buckets of 16 row groups",
        "rounds": args.rounds,
        "machine": machine(),
        "meaning": MEANING,
        "medians": {
            name: {figure: float(f"{median(one[figure] for one in rounds):.4g}") for figure in MEANING}
            for name, rounds in found.items()
        },
    }
    print(json.dumps(document, indent=2))


def run(table: Path, n_rows: int, batch_size: int, window: int | str, seed: int) -> dict[str, float]:
    """Return the figures of one way of shuffling; the second epoch is measured, and must have every row."""
    full = window == "full"
    options: dict[str, Any] = {"shuffle_window": tables.ROWS_PER_GROUP * (16 if full else int(window))}
    collator = NumpyDataCollator()
    with ours.loader(
        table, collator, batch_size=batch_size, shuffle="full" if full else True, workers="thread", random_seed=seed,
        **options,
    ) as loader:  # fmt: skip
        for _ in loader:
            pass
        began, cpu, first = time.perf_counter(), time.process_time(), None
        ids, scratch = [], 0
        for batch in loader:
            first = first or time.perf_counter() - began
            ids.append(batch["id"].copy())
            scratch = max(scratch, held(loader))
        seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
    rows = np.concatenate(ids)
    if not np.array_equal(np.sort(rows), np.arange(n_rows)):
        raise SystemExit(f"a window of {window} gave {len(rows)} rows, not each of {n_rows} once")
    return quality(rows, batch_size) | {
        "rows_per_s": n_rows / seconds,
        "cpu_s_per_million_rows": cpu / n_rows * 1e6,
        "first_batch_s": first or seconds,
        "scratch_mib": scratch / 2**20,
    }


def held(loader: Any) -> int:
    """Return the size of the scratch file now."""
    scratch = loader._full and loader._full._scratch
    return scratch.size_bytes if scratch else 0


def quality(rows: np.ndarray, batch_size: int) -> dict[str, float]:
    """Return how well row numbers in order of delivery are mixed."""
    whole = rows[: len(rows) // batch_size * batch_size].reshape(-1, batch_size)
    return {
        "chunks_per_batch": float(np.mean([len(np.unique(batch // tables.ROWS_PER_GROUP)) for batch in whole])),
        "spread": float(whole.std(axis=1, ddof=1).mean() / (len(rows) / 12**0.5)),
        "correlation": float(np.corrcoef(np.arange(len(rows)), rows)[0, 1]),
        "neighbours": float((np.abs(np.diff(rows)) < 1000).mean()),
    }


if __name__ == "__main__":
    main()
