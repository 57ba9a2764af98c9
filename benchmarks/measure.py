"""Runs one contender in a fresh process and says what it cost: CPU of all its processes, time, memory."""

import ctypes
import json
import os
import resource
import subprocess
import sys
import threading
import time
from pathlib import Path
from statistics import median
from typing import Any

import psutil

MEANING = {
    "cpu_s_per_million_rows": "CPU seconds (user and system) of all processes, in passes after the first: steady",
    "ratio_to_limit": "the same, divided by the limit's in the same round",
    "first_pass_cpu_s_per_million_rows": "the same for the first pass: with making the loader and starting its workers",
    "whole_cpu_s": "CPU seconds from the process's start to its end: with interpreter and imports, all passes",
    "start_cpu_s": "CPU seconds before the first row: interpreter, imports, making the loader, starting its workers",
    "rows_per_s": "rows by the wall clock, in passes after the first",
    "first_pass_rows_per_s": "the same for the first pass: with making the loader and starting its workers",
    "first_batch_s": "from making the loader, imports done, to its first batch",
    "peak_pss_mib": "peak of the sum of PSS over all processes: torch and mapped pages of the files included",
}
_SAMPLE_EVERY_S = 0.5  # reading it costs tens of milliseconds and stops page faults meanwhile
_PR_SET_CHILD_SUBREAPER = 36


def tree_cpu_s(root: int) -> float:
    """Return the CPU seconds of all descendants of a process, and of the children that they have waited for."""
    total = 0.0
    for process in psutil.Process(root).children(recursive=True):
        try:
            times = process.cpu_times()
            total += _cpu_clock_s(process.pid, times.user + times.system) + times.children_user + times.children_system
        except psutil.NoSuchProcess:
            pass
    return total


def run(arguments: list[str], python: str | Path = sys.executable, timeout_s: float | None = None) -> dict[str, Any]:
    """Run `python -m benchmarks.contender` with these arguments and return its figures, but for the ratio.

    Raises:
        ContenderFailed: It failed, with the last line that it wrote, or took too long.
    """
    # Orphans (torch's shared-memory manager makes itself one) come to us, so that their CPU is counted too.
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    before = _children_cpu_s()
    command = [str(python), "-m", "benchmarks.contender", *arguments]
    # Ours, run from a checkout, may keep what was compiled, as what pip has installed is
    env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    with _PeakPss() as peak, subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=Path(__file__).parents[1], text=True, env=env
    ) as process:  # fmt: skip
        try:
            out, errors = process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            raise ContenderFailed(f"not done after {timeout_s:.0f} s") from None
        finally:
            _end_descendants()
    if process.returncode:
        lines = errors.strip().splitlines() or [f"exit code {process.returncode}"]
        raise ContenderFailed(next((line for line in reversed(lines) if "Error" in line), lines[-1])[:300])
    printed = json.loads(out.splitlines()[-1])  # some print more
    return figures_of(printed["marks"]) | {
        "first_batch_s": printed["first_batch_s"],
        "whole_cpu_s": _children_cpu_s() - before,
        "peak_pss_mib": peak.size_bytes / 2**20,
        "n_rows": [mark["n_rows"] for mark in printed["marks"][1:]],
        "digest": printed["digest"],
    }


class ContenderFailed(Exception):
    """A contender did not do its work; says how."""


def medians(rounds: list[dict[str, float]]) -> dict[str, float]:
    """Return the median of each figure over the rounds, rounded to 4 significant digits."""
    return {name: float(f"{median(figures[name] for figures in rounds):.4g}") for name in MEANING}


def figures_of(marks: list[dict[str, float]]) -> dict[str, float]:
    start, first, last = marks[0], marks[1], marks[-1]
    steady_rows = sum(mark["n_rows"] for mark in marks[2:])
    cpu_s = (last["cpu_s"] - first["cpu_s"]) / steady_rows
    return {
        "cpu_s_per_million_rows": cpu_s * 1e6,
        "start_cpu_s": max(first["cpu_s"] - first["n_rows"] * cpu_s, start["cpu_s"]),
        "rows_per_s": steady_rows / (last["s"] - first["s"]),
        "first_pass_cpu_s_per_million_rows": (first["cpu_s"] - start["cpu_s"]) / first["n_rows"] * 1e6,
        "first_pass_rows_per_s": first["n_rows"] / (first["s"] - start["s"]),
    }


def _cpu_clock_s(pid: int, ticks_s: float) -> float:
    """Return the CPU time of a live process in nanosecond steps; /proc counts in steps of 10 ms."""
    try:
        return time.clock_gettime((~pid << 3) | 2)  # clock_getcpuclockid(3), which Python does not have
    except OSError:
        return ticks_s


def _children_cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def _end_descendants() -> None:
    """Wait for what the contender left behind; end it where it does not end by itself."""
    _, alive = psutil.wait_procs(psutil.Process().children(recursive=True), timeout=0.1)
    if alive:
        _, alive = psutil.wait_procs(alive, timeout=10)
    for process in alive:
        process.kill()
    psutil.wait_procs(alive, timeout=30)


class _PeakPss:
    """Samples the memory of our descendants while it is open; a page shared by n of them counts 1/n in each."""

    def __init__(self) -> None:
        self.size_bytes = 0
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)

    def __enter__(self) -> "_PeakPss":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closed.set()
        self._thread.join()

    def _sample(self) -> None:
        while not self._closed.wait(0.05 if self.size_bytes == 0 else _SAMPLE_EVERY_S):
            now = sum(_pss_bytes(process.pid) for process in psutil.Process(os.getpid()).children(recursive=True))
            self.size_bytes = max(self.size_bytes, now)


def _pss_bytes(pid: int) -> int:
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except OSError:  # it has just ended
        return 0
    return sum(int(line.split()[1]) for line in text.splitlines() if line.startswith("Pss:")) * 1024
