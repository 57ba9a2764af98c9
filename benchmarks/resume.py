"""What a state costs, and what going on from it costs, early and late in an epoch. Prints one JSON document.

python -m benchmarks.resume
"""

import argparse
import json
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from benchmarks import tables
from benchmarks.ours import Columns
from benchmarks.throughput import machine
from pyloader_delta import DataLoader, DeltaDataReader, NumpyDataCollator

PLACES = (0.1, 0.5, 0.9)
STATE_MEANING = {
    "state_bytes": "of the state as JSON",
    "state_dict_us": "microseconds of one state_dict(), between two batches",
}
MEANING = {
    "read_mib": "decoded bytes that are read before the first batch, without reading ahead",
    "window_mib": "decoded bytes of a window",
    "row_groups": "row groups, or parts of them, that these are",
    "first_batch_s": "seconds from making the loader to its first batch, with two worker threads",
}
WINDOW_ROWS = 500_000
MOST_US = 50


class Counted(DeltaDataReader):
    """Counts what is asked of it. For a loader without workers."""

    def read_chunk(self, chunk: Any) -> Any:
        table = super().read_chunk(chunk)
        COUNTS.append(table.nbytes)
        return table


COUNTS: list[int] = []


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=25_000_000, help="of the table, 96 bytes each decoded")
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    table = tables.coarse(args.rows)
    states, state_figures = taken(table)
    document = {
        "benchmark": "resume",
        "workload": f"{args.rows} rows of 20 float32 and 2 int64, row groups of {tables.ROWS_PER_GROUP} rows, batches "
        f"of 1024, shuffled in windows of {WINDOW_ROWS} rows",
        "rounds": args.rounds,
        "machine": machine(),
        "meaning": STATE_MEANING | MEANING,
        "state": state_figures,
        "medians": {
            f"at {place:.0%}": resumed(table, state, expected, args.rounds)
            for place, (state, expected) in states.items()
        },
        "to_reach": {
            "state_dict_us": {"at_most": MOST_US, "reached": state_figures["state_dict_us"] <= MOST_US},
        },
    }
    print(json.dumps(document, indent=2))


def make(table: Path, num_workers: int, reader: Any = DeltaDataReader) -> DataLoader[Any]:
    """Return the loader that is resumed."""
    options: dict[str, Any] = {"workers": "thread", "shuffle_window": WINDOW_ROWS, "shuffle": True}
    return DataLoader(
        reader(1024, shuffle=True), Columns(), NumpyDataCollator(), str(table), num_workers=num_workers, **options
    )


def taken(table: Path) -> tuple[dict[float, tuple[str, np.ndarray]], dict[str, float]]:
    """Return the states at some places of an epoch with the ids that come next, and what a state costs."""
    found: dict[float, tuple[str, np.ndarray]] = {}
    costs: dict[str, float] = {}
    with make(table, 2) as loader:
        wanted = {int(len(loader) * place): place for place in PLACES}
        waiting: tuple[float, str] | None = None
        for number, batch in enumerate(loader, 1):
            if waiting is not None:
                found[waiting[0]], waiting = (waiting[1], batch["id"].copy()), None
            if number in wanted:
                print(f"a state at {wanted[number]:.0%}", file=sys.stderr)
                waiting = wanted[number], json.dumps(loader.state_dict())
                costs = {"state_bytes": len(waiting[1]), "state_dict_us": _microseconds(loader)}
            if len(found) == len(PLACES):
                break
    return found, costs


def resumed(table: Path, state: str, expected: np.ndarray, rounds: int) -> dict[str, float]:
    """Return what going on from a state costs; the first batch must be the one that was to come."""
    seconds = []
    for _ in range(rounds):
        began = time.perf_counter()
        with make(table, 2) as loader:
            loader.load_state_dict(json.loads(state))
            batch = next(iter(loader))
            seconds.append(time.perf_counter() - began)
            if not np.array_equal(batch["id"], expected):
                raise SystemExit("the batch after a state is another one than without interruption")
    COUNTS.clear()
    with make(table, 0, Counted) as loader:
        loader.load_state_dict(json.loads(state))
        next(iter(loader))
    figures = {
        "read_mib": sum(COUNTS) / 2**20,
        "window_mib": WINDOW_ROWS * tables.ROW_BYTES / 2**20,
        "row_groups": len(COUNTS),
        "first_batch_s": median(seconds),
    }
    return {name: float(f"{value:.4g}") for name, value in figures.items()}


def _microseconds(loader: DataLoader[Any], calls: int = 2000) -> float:
    began = time.perf_counter()
    for _ in range(calls):
        loader.state_dict()
    return float(f"{(time.perf_counter() - began) / calls * 1e6:.4g}")


if __name__ == "__main__":
    main()
