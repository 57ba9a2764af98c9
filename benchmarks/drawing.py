"""Plots of the picture, into img/."""

from pathlib import Path
from typing import Any

import matplotlib

from benchmarks.contenders import CONTENDERS, OURS
from benchmarks.workloads import WORKLOADS

IMG = Path(__file__).parents[1] / "img"
OURS_COLOR, LIMIT, RIVAL = "#1f6f8b", "#8a8a8a", "#d9a441"
CPU = "CPU seconds of all processes per million rows (log)"


def draw(document: dict[str, Any]) -> None:
    """Write a picture of CPU by workload, one of rows a second, and one of batch sizes; each where it was measured."""
    matplotlib.use("Agg")
    matplotlib.rcParams |= {"svg.fonttype": "none", "svg.hashsalt": "pyloader_delta", "font.size": 9}
    if document["medians"]:
        _bars(document["medians"], "cpu_s_per_million_rows", CPU, IMG / "performance_cpu.svg")
        _bars(document["medians"], "rows_per_s", "rows a second by the clock (log)", IMG / "performance_rows.svg")
    if document["batch_sizes"]:
        _lines(document["batch_sizes"], IMG / "performance_batch_size.svg")


def _bars(medians: dict[str, Any], figure: str, label: str, path: Path) -> None:
    from matplotlib import pyplot

    workloads = [name for name in WORKLOADS if name in medians]
    n_rows = -(-len(workloads) // 2)
    whole, panels = pyplot.subplots(n_rows, 2, figsize=(10, 2.9 * n_rows), layout="constrained", squeeze=False)
    for panel, workload in zip(panels.flat, workloads, strict=False):
        found = medians[workload]
        names = [name for name in CONTENDERS if name in found or f"{name} shuffled" in found]
        for offset, suffix, filled in ((-0.2, "", True), (0.2, " shuffled", False)):
            for place, name in enumerate(names):
                if name + suffix in found:
                    value = found[name + suffix][figure]
                    colour = _colour(name)
                    panel.barh(place + offset, value, 0.36, color=colour if filled else "white", edgecolor=colour)
                    panel.text(value, place + offset, f" {_short(value)}", va="center", fontsize=7)
        panel.set_yticks(range(len(names)), names)
        panel.invert_yaxis()
        panel.set_xscale("log")
        panel.margins(x=0.12)
        panel.spines[["top", "right"]].set_visible(False)
        panel.set_title(workload, loc="left", fontweight="bold")
    for panel in panels.flat[len(workloads) :]:
        panel.set_visible(False)
    whole.supxlabel(f"{label}; filled: in the table's order, hollow: shuffled")
    _write(whole, path)


def _lines(found: dict[str, Any], path: Path) -> None:
    from matplotlib import pyplot

    whole, panel = pyplot.subplots(figsize=(7, 4), layout="constrained")
    for name, by_size in found.items():
        sizes = sorted(by_size, key=int)
        values = [by_size[size]["cpu_s_per_million_rows"] for size in sizes]
        style = "-o" if name in OURS else "--s"
        panel.plot([int(size) for size in sizes], values, style, label=name, markersize=4)
        panel.annotate(f" {name}", (int(sizes[-1]), values[-1]), fontsize=8, va="center")
    panel.set_xscale("log", base=2)
    panel.set_yscale("log")
    panel.set_xticks([32, 256, 1024, 4096], ["32", "256", "1024", "4096"])
    panel.margins(x=0.14)
    panel.set_xlabel("batch_size, rows; workload tabular, 22 tensors a batch")
    panel.set_ylabel(CPU)
    panel.spines[["top", "right"]].set_visible(False)
    panel.grid(alpha=0.3)
    _write(whole, path)


def _write(figure: Any, path: Path) -> None:
    from matplotlib import pyplot

    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)


def _colour(name: str) -> str:
    return LIMIT if name.startswith("limit") else OURS_COLOR if name in OURS else RIVAL


def _short(value: float) -> str:
    for unit, size in (("M", 1e6), ("k", 1e3)):
        if value >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value:.3g}"
