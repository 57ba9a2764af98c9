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

from benchmarks import checking, handmade
from benchmarks.contenders import LIMITS
from benchmarks.measure import tree_cpu_s

Pass = Callable[[], Iterator[Any]]


def consume(batch: dict[str, Any]) -> int:
    """Return the number of rows of a batch.

    Its values are not touched: 22 calls a batch would be the harness's own cost, a tenth of decoding the rows.
    """
    return len(batch["id"])


# Each imports what it needs itself: another's imports would count in its memory.


@contextmanager
def limit(table: Path, args: argparse.Namespace) -> Iterator[Pass]:
    from benchmarks import limit

    yield partial(limit.decoded_on_each_core, handmade.paths(table), args.workload, args.shuffle_rows)


@contextmanager
def limit_batches(table: Path, args: argparse.Namespace, *, sent: bool) -> Iterator[Pass]:
    from benchmarks import limit_batches

    yield partial(limit_batches.batches, handmade.paths(table), args.workload, args.batch_size, sent=sent)


@contextmanager
def ours(table: Path, args: argparse.Namespace, *, workers: str, num_workers: int) -> Iterator[Pass]:
    from benchmarks import ours

    window = {"shuffle_window": args.shuffle_rows} if args.shuffle_rows else {}
    options = {"batch_size": args.batch_size, "shuffle": bool(args.shuffle_rows), "workers": workers}
    with ours.tensors(args.workload, table, num_workers=num_workers, **options, **window) as loader:
        yield partial(iter, loader)


@contextmanager
def rival(table: Path, args: argparse.Namespace) -> Iterator[Pass]:
    """Open the one that `benchmarks.rival_<name>` makes: iterated over once for each pass."""
    module = import_module(f"benchmarks.rival_{args.name}")
    yield partial(
        iter, module.loader(handmade.paths(table), args.batch_size, args.shuffle_rows, workload=args.workload)
    )


OWN = {
    "limit": limit,
    "limit-batches": partial(limit_batches, sent=False),
    "limit-sent": partial(limit_batches, sent=True),
    "threads": partial(ours, workers="thread", num_workers=1),
    "threads2": partial(ours, workers="thread", num_workers=2),
    "processes": partial(ours, workers="process", num_workers=2),
}


def imports(name: str) -> list[str]:
    """Return the modules that are imported before the clock starts."""
    if name in LIMITS:
        return ["benchmarks.limit" if name == "limit" else "benchmarks.limit_batches"]
    return ["benchmarks.ours", "torch", "pyarrow.parquet"] if name in OWN else [f"benchmarks.rival_{name}"]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("name")
    parser.add_argument("table", type=Path)
    parser.add_argument("--workload", default="tabular")
    parser.add_argument("--passes", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=1024)
    parser.add_argument("--shuffle-rows", type=int, default=0)
    parser.add_argument("--check", action="store_true", help="end with a pass that is not timed, and print its digest")
    args = parser.parse_args()
    for module in imports(args.name):
        import_module(module)

    count = (lambda n_rows: n_rows) if args.name == "limit" else consume
    marks = []

    def mark(n_rows: int) -> None:
        marks.append({"s": time.monotonic(), "cpu_s": tree_cpu_s(os.getppid()), "n_rows": n_rows})

    mark(0)
    with OWN.get(args.name, rival)(args.table, args) as one_pass:
        first_s = None
        for _ in range(args.passes):
            n_rows = 0
            for batch in one_pass():
                if first_s is None:
                    first_s = time.monotonic() - marks[0]["s"]
                n_rows += count(batch)
                del batch  # a consumer that holds on to a batch would make the loader copy it
            mark(n_rows)
        digest = checking.digest(one_pass()) if args.check else None
    print(json.dumps({"first_batch_s": first_s, "marks": marks, "digest": digest}))


if __name__ == "__main__":
    main()
