"""The main job: make two Delta tables, train a model on each in PyTorch and in TensorFlow 2, and account for every row.

Run `python -m examples.demo`. It ends with a table of what happened, and with exit status 1 if a row is missing or one
too many, or if a model is not as good as it should be. Each model trains in a process of its own, as it would alone.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for `python examples/demo.py`

from examples import tables

ROOT = Path(__file__).resolve().parents[1]
SAMPLE_S = 0.2


class PeakMemory(threading.Thread):
    """Watches the memory of a process and its descendants: `mib` is the largest sum seen, None where it is hidden.

    Shared memory is counted once: each process has its proportional share (PSS), as Linux tells it.
    """

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self.pid = pid
        self.mib: float | None = None
        self.n_processes = 0
        self.ended = threading.Event()

    def run(self) -> None:
        while not self.ended.wait(SAMPLE_S):
            sizes = [size for size in map(pss_kib, process_tree(self.pid)) if size is not None]
            if sizes:
                self.mib = max(self.mib or 0, sum(sizes) / 1024)
                self.n_processes = max(self.n_processes, len(sizes))


def process_tree(pid: int) -> list[int]:
    """Return a process and its descendants, as far as they can be seen."""
    children: list[int] = []
    for tasks in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            children += map(int, tasks.read_text().split())
        except OSError:  # it ended meanwhile
            continue
    return [pid, *(descendant for child in children for descendant in process_tree(child))]


def pss_kib(pid: int) -> int | None:
    """Return the proportional memory of one process."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) for line in lines if line.startswith("Pss:")), None)


def installed(framework: str) -> bool:
    """Return whether a framework can be imported, without importing it."""
    return importlib.util.find_spec(framework) is not None


def train(module: str, folder: str, epochs: int | None) -> dict[str, Any]:
    """Run one example in a process of its own, its output in sight, and return what it reports.

    Raises:
        SystemExit: The example failed.
    """
    with tempfile.TemporaryDirectory() as scratch:
        report = Path(scratch) / "report.json"
        command = [sys.executable, "-m", f"examples.{module}", "--folder", folder, "--report", str(report)]
        command += [] if epochs is None else ["--epochs", str(epochs)]
        started = time.monotonic()
        process = subprocess.Popen(command, cwd=ROOT)
        memory = PeakMemory(process.pid)
        memory.start()
        try:
            status = process.wait()
        except BaseException:
            process.terminate()
            process.wait()
            raise
        finally:
            memory.ended.set()
            memory.join()
        if status:
            raise SystemExit(f"demo: {' '.join(command)} ended with status {status}")
        result: dict[str, Any] = json.loads(report.read_text())
    return {**result, "seconds": time.monotonic() - started, "peak_mib": memory.mib, "processes": memory.n_processes}


def faults(name: str, result: dict[str, Any], footprint: tables.Footprint) -> list[str]:
    """Return what is wrong with a training, in words: rows missing or too many, or a model below its goal."""
    found = []
    planned = {part: result[part]["rows_planned_total"] for part in ("train", "test")}
    for part, n_planned in planned.items():
        for counted, n_rows in (
            ("the loader counted", result[part]["rows_delivered_total"]),
            ("the training loop saw", result[f"{part}_rows_seen"]),
        ):
            if n_rows != n_planned:
                found.append(f"{name}, {part}: {n_planned} rows planned, but {counted} {n_rows}")
    in_table = planned["train"] / result["epochs"] + planned["test"]
    if in_table != footprint.rows:
        found.append(f"{name}: the log has {footprint.rows} live rows, an epoch and the test had {in_table:g}")
    if result["accuracy"] < result["goal"]:
        found.append(f"{name}: test accuracy {result['accuracy']:.1%} is below the goal {result['goal']:.1%}")
    return found


def summary(results: dict[str, dict[str, Any]], footprints: dict[str, tables.Footprint]) -> str:
    """Return the table of results: a line for each figure, a column for each model."""

    def both(result: dict[str, Any], key: str) -> Any:
        return result["train"][key] + result["test"][key]

    def memory(result: dict[str, Any]) -> str:
        if result["peak_mib"] is None:
            return "not known on this system"
        return f"{result['peak_mib']:.0f} MiB, {result['processes']} processes"

    figures: list[tuple[str, Callable[[dict[str, Any], tables.Footprint], str]]] = [
        ("live rows in the table", lambda _, disk: f"{disk.rows:,}"),
        ("  dead rows in the same folder", lambda _, disk: f"{disk.dead_rows:,}"),
        ("files, live + dead", lambda _, disk: f"{disk.live_files} + {disk.dead_files}"),
        ("kB on disk, live + dead", lambda _, disk: f"{disk.live_bytes // 1000:,} + {disk.dead_bytes // 1000:,}"),
        ("epochs of training", lambda result, _: str(result["epochs"])),
        ("rows planned, training + test", lambda result, _: f"{both(result, 'rows_planned_total'):,}"),
        ("rows delivered, training + test", lambda result, _: f"{both(result, 'rows_delivered_total'):,}"),
        ("rows/s in training", lambda result, _: f"{result['train']['rows_per_second']:,.0f}"),
        ("seconds waited for data, training", lambda result, _: f"{result['train']['wait_seconds_total']:.2f}"),
        ("seconds in all, with the imports", lambda result, _: f"{result['seconds']:.1f}"),
        ("peak memory of all processes (PSS)", lambda result, _: memory(result)),
        ("test accuracy", lambda result, _: f"{result['accuracy']:.1%}"),
        ("  base rate; goal", lambda result, _: f"{result['base_rate']:.1%}; {result['goal']:.1%}"),
    ]
    heading = " " * 36 + "".join(f"{name:>26}" for name in results)
    lines = (
        f"{title:36}" + "".join(f"{figure(results[name], footprints[name]):>26}" for name in results)
        for title, figure in figures
    )
    return "\n".join((heading, *lines))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", default=str(tables.FOLDER), help="where the tables are kept (default: %(default)s)")
    parser.add_argument("--epochs", type=int, help="epochs of each training (default: as each example has it)")
    options = parser.parse_args()

    print("Making two Delta tables, with appends, an overwrite, a DELETE and an OPTIMIZE in their past ...", flush=True)
    results: dict[str, dict[str, Any]] = {}
    footprints: dict[str, tables.Footprint] = {}
    wrong: list[str] = []
    for name, module, framework, make in (
        ("digits, PyTorch", "digits_torch", "torch", tables.digits),
        ("flights, TensorFlow 2", "flights_tensorflow", "tensorflow", tables.flights),
    ):
        if not installed(framework):
            print(f"\n{name}: left out, {framework} is not installed (it has no wheels for every Python)", flush=True)
            continue
        table = make(options.folder)
        print(f"\n{name}, reading {table}", flush=True)
        footprints[name] = tables.footprint(table)
        results[name] = train(module, options.folder, options.epochs)
        wrong += faults(name, results[name], footprints[name])
    if not results:
        wrong.append("neither torch nor tensorflow is installed: pip install 'pyloader_delta[all]'")
    print("\n" + summary(results, footprints))
    if wrong:
        raise SystemExit("\n".join(["", *wrong]))
    print("\nRows delivered, rows planned and live rows of the log agree, and each model reaches its goal.")


if __name__ == "__main__":
    main()
