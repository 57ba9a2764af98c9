"""One contender in a process of its own: passes over a table, and prints the time and the CPU spent at each mark.

    python -m benchmarks.contender NAME TABLE --workload tabular --passes 2 --batch-size 1024 [--shuffle-rows 500000]

It is run by `benchmarks.measure`, whose other descendants it counts as its own.
"""

import argparse
import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from benchmarks.measure import tree_cpu_s

Pass = Callable[[], Iterator[Any]]


def consume(batch: dict[str, Any]) -> int:
    """Return the number of rows of a batch.

    Its values are not touched: 22 calls a batch would be the harness's own cost, a tenth of decoding the rows.
    """
    return len(batch["id"])


# Each imports what it needs itself: another's imports would count in its memory.


@contextmanager
def limit(table: Path, _: argparse.Namespace) -> Iterator[Pass]:
    from benchmarks import limit, tables

    yield partial(limit.decoded, tables.paths(table))


@contextmanager
def rival(table: Path, args: argparse.Namespace) -> Iterator[Pass]:
    from benchmarks import rival_torch, tables

    loader = rival_torch.loader(tables.paths(table), args.batch_size, args.shuffle_rows, workload=args.workload)
    yield partial(iter, loader)


@contextmanager
def ours(table: Path, args: argparse.Namespace, *, workers: str) -> Iterator[Pass]:
    from benchmarks import ours

    window = {"shuffle_window": args.shuffle_rows} if args.shuffle_rows else {}
    options = {"batch_size": args.batch_size, "shuffle": bool(args.shuffle_rows), "workers": workers}
    with ours.tensors(args.workload, table, **options, **window) as loader:
        yield partial(iter, loader)


CONTENDERS = {
    "limit": limit,
    "rival": rival,
    "threads": partial(ours, workers="thread"),
    "processes": partial(ours, workers="process"),
}
IMPORTS = {
    "limit": ["benchmarks.limit", "benchmarks.tables"],
    "rival": ["benchmarks.rival_torch", "benchmarks.tables"],
    "threads": ["benchmarks.ours", "torch", "pyarrow.parquet"],
    "processes": ["benchmarks.ours", "torch", "pyarrow.parquet"],
}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("name", choices=CONTENDERS)
    parser.add_argument("table", type=Path)
    parser.add_argument("--workload", default="tabular")
    parser.add_argument("--passes", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=1024)
    parser.add_argument("--shuffle-rows", type=int, default=0)
    args = parser.parse_args()
    for module in IMPORTS[args.name]:  # before the clock starts
        import_module(module)

    count = (lambda n_rows: n_rows) if args.name == "limit" else consume
    marks = []

    def mark(n_rows: int) -> None:
        marks.append({"s": time.monotonic(), "cpu_s": tree_cpu_s(os.getppid()), "n_rows": n_rows})

    mark(0)
    with CONTENDERS[args.name](args.table, args) as one_pass:
        first_s = None
        for _ in range(args.passes):
            n_rows = 0
            for batch in one_pass():
                if first_s is None:
                    first_s = time.monotonic() - marks[0]["s"]
                n_rows += count(batch)
                del batch  # a consumer that holds on to a batch would make the loader copy it
            mark(n_rows)
    print(json.dumps({"first_batch_s": first_s, "marks": marks}))


if __name__ == "__main__":
    main()
