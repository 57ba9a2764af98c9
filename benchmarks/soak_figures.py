"""What the soak's processes hold, and whether that grows."""

import os
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import psutil

from benchmarks.measure import _pss_bytes as pss_bytes


class Figures(NamedTuple):
    """What is held after an act."""

    epochs: int
    """Begun so far."""
    main_mib: float
    """PSS of this process."""
    tree_mib: float
    """PSS of this process and its workers."""
    descriptors: int
    """Open in this process."""
    processes: int
    """Worker processes."""


def lives(process: psutil.Process) -> bool:
    """Return whether a process has not ended; it may end at any moment, also while this looks."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def figures_of(epochs: int) -> Figures:
    """Return what is held now, after so many epochs."""
    this = psutil.Process()
    children = this.children(recursive=True)
    alive = [child for child in children if lives(child)]
    main = pss_bytes(this.pid) / 2**20
    tree = main + sum(pss_bytes(child.pid) for child in alive) / 2**20
    return Figures(epochs, main, tree, this.num_fds(), len(alive))


def descriptors_by_kind() -> dict[str, int]:
    """Return how many descriptors this process has open of each kind: slabs (memfd), sockets, files …"""
    found: Counter[str] = Counter()
    for fd in os.listdir("/proc/self/fd"):
        with suppress(OSError):  # the one that lists them
            name = os.readlink(f"/proc/self/fd/{fd}")
            found["slab" if name.startswith("/memfd:") else name.partition(":")[0] if ":[" in name else "file"] += 1
    return dict(sorted(found.items()))


def trend(found: list[Figures]) -> dict[str, Any]:
    """Return how memory and descriptors went over epochs."""
    memory, memory_error = slope([f.epochs for f in found], [f.tree_mib for f in found])
    fds, fds_error = slope([f.epochs for f in found], [f.descriptors for f in found])
    return {
        "mib_an_epoch": round(memory, 4),
        "mib_an_epoch_error": round(memory_error, 4),
        "descriptors_an_epoch": round(fds, 5),
        "descriptors_an_epoch_error": round(fds_error, 5),
        "memory_mib": [round(value) for value in _range([f.tree_mib for f in found])],
        "main_process_mib": [round(value) for value in _range([f.main_mib for f in found])],
        "descriptors": _range([f.descriptors for f in found]),
        "processes": _range([f.processes for f in found]),
    }


def slope(x: list[int], y: list[float]) -> tuple[float, float]:
    """Return the slope of the line that fits best, and its standard error; 0 and 0 of fewer than three points."""
    if len(x) < 3 or len(set(x)) < 2:
        return 0.0, 0.0
    xs, ys = np.asarray(x, float), np.asarray(y, float)
    across = xs - xs.mean()
    steep = float((across * ys).sum() / (across**2).sum())
    rest = ys - ys.mean() - steep * across
    error = float(np.sqrt((rest**2).sum() / (len(xs) - 2) / (across**2).sum()))
    return steep, error


def draw(found: list[Figures], path: Path) -> None:
    """Draw memory and descriptors over epochs; needs matplotlib."""
    import matplotlib.figure

    figure = matplotlib.figure.Figure((8, 4))
    axes = figure.add_subplot()
    epochs = [f.epochs for f in found]
    axes.plot(epochs, [f.tree_mib for f in found], label="memory of all processes, MiB")
    axes.plot(epochs, [f.main_mib for f in found], label="memory of the training process, MiB")
    axes.plot(epochs, [f.descriptors for f in found], label="descriptors")
    axes.set_xlabel("epochs")
    axes.set_ylim(0)
    axes.legend()
    figure.savefig(path)


def _range(values: list[Any]) -> list[Any]:
    return [min(values), max(values)] if values else []
