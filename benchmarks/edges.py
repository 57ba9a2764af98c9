"""Edges of speed: the start, the second epoch, Python in workers, small files, one huge row group, odd shapes.

    python -m benchmarks.edges                       # all; writes the page's table, prints JSON
    python -m benchmarks.edges --only start --rounds 1

Each case runs in processes of its own, `--rounds` times; figures are medians. Times are by the clock where a case is
about waiting, else CPU seconds of all processes.
"""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import psutil

from benchmarks import edge_tables, handmade, limit, page, tables
from benchmarks.throughput import machine

FIGURES = Path(__file__).with_name("edges.json")
Found = dict[str, float]


def start() -> Found:
    """Seconds from the first `iter()` to the first batch, unshuffled and shuffled in windows of 500,000 rows."""
    table, found = tables.tabular(1_000_000), {}
    for workers in ("thread", "process"):
        for shuffled in ("", " shuffled"):
            with _loader(table, workers=workers, shuffle=bool(shuffled)) as loader:
                found[f"{workers}{shuffled}, s"] = _first_batch_s(loader)
    return found


def second_epoch() -> Found:
    """Seconds from an epoch's last batch to the next one's first, of one loop over two epochs and of a loop each."""
    table, found = tables.tabular(1_000_000), {}
    for workers in ("thread", "process"):
        with _loader(table, workers=workers, shuffle=True, num_epoch=2) as loader:
            found[f"{workers}, one loop, s"] = _gaps(iter(loader))[len(loader) // 2]
        with _loader(table, workers=workers, shuffle=True) as loader:
            n_batches = len(loader)
            found[f"{workers}, a loop an epoch, s"] = _gaps(b for _ in range(2) for b in loader)[n_batches]
    return found


def scaling() -> Found:
    """Rows a second of encoding in Python: two worker processes, over what each core gives to one alone; 1 is ideal.

    Cores differ in speed, so a single worker is measured on each, pinned. By CPU seconds the same is told on a busy
    machine: what two workers take over what one does, and the least worker's share of the rows' time.
    """
    found: Found = {}
    alone = {core: min(_encoding(1, [core])["wall"] for _ in range(2)) for core in (0, 1)}
    both = min((_encoding(2, [0, 1]) for _ in range(2)), key=lambda one: one["wall"])
    found["of the two cores' rates"] = 1 / both["wall"] / sum(1 / wall for wall in alone.values())
    found["CPU of two over one"] = both["cpu"] / min(_encoding(1, [core])["cpu"] for core in (0, 1))
    found["least worker's share of the CPU"] = both["least"]
    return found


def _encoding(n_workers: int, cores: list[int]) -> Found:
    """Return the seconds of a pass by the clock and of CPU, and the least worker's share, with workers on cores."""
    from benchmarks.edge_datasets import PurePython
    from pyloader_delta import DataLoader, DeltaDataReader, NumpyDataCollator

    reader = DeltaDataReader(1024, columns=["id", "f00"])
    collator, table = NumpyDataCollator(), str(tables.tabular(62_500))
    with DataLoader(reader, PurePython(), collator, table, num_workers=n_workers, workers="process") as loader:
        _count(loader)
        workers = psutil.Process().children()
        for worker, core in zip(workers, cores, strict=True):
            worker.cpu_affinity([core])
        before = [sum(worker.cpu_times()[:2]) for worker in workers]
        wall = _timed(lambda: _count(loader))
        cpu = [sum(worker.cpu_times()[:2]) - start for worker, start in zip(workers, before, strict=True)]
    return {"wall": wall, "cpu": sum(cpu), "least": min(cpu) / sum(cpu)}


def small_files() -> Found:
    """CPU seconds per million rows of 4 million in 10,000 files, in 500 and in 16; ours, and decoding alone."""
    found = {}
    for n_files in (16, 500, 10_000):
        table = edge_tables.split(n_files, 4_000_000 // n_files)
        paths = handmade.paths(table)
        with _loader(table, workers="thread") as loader:
            _count(loader)
            found[f"{n_files} files"] = _cpu(lambda loader=loader: _count(loader)) / 4
        found[f"{n_files} files, decoding alone"] = _cpu(lambda paths=paths: sum(limit.decoded(paths))) / 4
    found["ours over alone, 16 files"] = found["16 files"] / found["16 files, decoding alone"]
    found["ours over alone, 10,000 files"] = found["10000 files"] / found["10000 files, decoding alone"]
    found["ours, 500 files over 16"] = found["500 files"] / found["16 files"]
    found["ours, 10,000 files over 16"] = found["10000 files"] / found["16 files"]
    found["alone, 10,000 files over 16"] = found["10000 files, decoding alone"] / found["16 files, decoding alone"]
    return found


def one_row_group() -> Found:
    """One row group of 4 million rows: CPU seconds per million rows, and the least share of reading of a worker."""
    table, found = edge_tables.one_row_group(4_000_000), {}
    for workers in ("thread", "process"):
        with _loader(table, workers=workers, num_workers=2, trace=True) as loader:
            _count(loader)
            found[f"{workers}"] = _cpu(lambda loader=loader: _count(loader)) / 4
            loader.to_chrome_trace(edge_tables.TRACE)
        spans = json.loads(edge_tables.TRACE.read_text())["traceEvents"]
        busy = [sum(e["dur"] for e in spans if e["ph"] == "X" and e["tid"] == worker) for worker in (1, 2)]
        found[f"{workers}, least worker's share of the work"] = min(busy) / sum(busy)
    return found


def batch_of_one() -> Found:
    """Batches of 1 row with 22 tensors: microseconds of CPU a batch."""
    table = tables.tabular(62_500)
    found = {}
    for workers in ("thread", "process"):
        with _loader(table, workers=workers, batch_size=1) as loader:
            _count(loader)
            found[f"{workers}, µs"] = _cpu(lambda loader=loader: _count(loader)) / 62_500 * 1e6
    return found


def batch_of_a_million() -> Found:
    """Batches of 1 million rows with 22 tensors: CPU seconds a batch, that is, per million rows."""
    table, found = tables.tabular(4_000_000), {}
    for workers in ("thread", "process"):
        with _loader(table, workers=workers, batch_size=1_000_000) as loader:
            _count(loader)  # the first pass has new memory, and torch to import
            found[workers] = _cpu(lambda loader=loader: _count(loader)) / 4
    return found


def columns_2000() -> Found:
    """2,000 float32 columns as 2,000 tensors a batch of 1,024: CPU seconds per million rows, and the limit's."""
    table, n_rows = edge_tables.columns(2_000, 25_000), 25_000
    found = {}
    for workers in ("thread", "process"):
        with _loader(table, workers=workers) as loader:
            _count(loader)
            found[workers] = _cpu(lambda loader=loader: _count(loader)) / n_rows * 1e6
    paths = handmade.paths(table)
    return found | {"decoding alone": _cpu(lambda: sum(limit.decoded(paths))) / n_rows * 1e6}


CASES: dict[str, Callable[[], Found]] = {
    case.__name__: case
    for case in (
        start, second_epoch, scaling, small_files, one_row_group, batch_of_one, batch_of_a_million, columns_2000,
    )
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--case", choices=CASES, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.case:
        print(json.dumps(CASES[args.case]()))
        return
    document: dict[str, Any] = json.loads(FIGURES.read_text()) if FIGURES.exists() else {"cases": {}}
    for name in args.only:
        print(name, file=sys.stderr)
        rounds = [_in_its_own_process(name) for _ in range(args.rounds)]
        figures = {key: float(f"{median(one[key] for one in rounds):.4g}") for key in rounds[0]}
        document["cases"][name] = {"text": CASES[name].__doc__.strip(), "figures": figures, "rounds": args.rounds}
        print(f"  {figures}", file=sys.stderr)
        FIGURES.write_text(
            json.dumps(document | {"machine": machine()}, indent=1) + "\n"
        )  # each, so that it can be cut off
    page.write_edges(document)
    print(json.dumps(document | {"machine": machine()}, indent=2))


def _in_its_own_process(name: str) -> Found:
    command = [sys.executable, "-m", "benchmarks.edges", "--case", name]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, cwd=Path(__file__).parents[1])
    return json.loads(done.stdout)


def _loader(table: Path, *, batch_size: int = 1024, shuffle: bool = False, **options: Any) -> Any:
    from benchmarks import ours

    window = {"shuffle_window": 500_000} if shuffle else {}
    return ours.tensors("tabular", table, batch_size=batch_size, shuffle=shuffle, **window, **options)


def _first_batch_s(loader: Any) -> float:
    import pyarrow.parquet  # noqa: F401  imported before the clock starts
    import torch  # noqa: F401

    began = time.perf_counter()
    next(iter(loader))
    return time.perf_counter() - began


def _gaps(batches: Any) -> list[float]:
    """Return the seconds that were waited for each batch, by a loop that takes 0.2 ms for each."""
    waited, before = [], time.perf_counter()
    for _ in batches:
        now = time.perf_counter()
        waited.append(now - before)
        while time.perf_counter() - now < 0.0002:
            pass
        before = time.perf_counter()
    return waited


def _count(loader: Any) -> int:
    return sum(len(batch["id"]) for batch in loader)


def _timed(work: Callable[[], Any]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def _cpu(work: Callable[[], Any]) -> float:
    """Return the CPU seconds of this process and its children."""
    before = _cpu_s()
    work()
    return _cpu_s() - before


def _cpu_s() -> float:
    from benchmarks.measure import tree_cpu_s

    own = psutil.Process().cpu_times()
    return tree_cpu_s(psutil.Process().pid) + own.user + own.system


if __name__ == "__main__":
    main()
