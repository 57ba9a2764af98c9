"""The tables of docs/performance.md that are generated, between markers."""

import json
import re
from pathlib import Path
from typing import Any

from benchmarks.contenders import CONTENDERS, RIVALS
from benchmarks.workloads import WORKLOADS

PAGE = Path(__file__).parents[1] / "docs" / "performance.md"
HEADS = (
    "", "CPU s per million rows", "to the limit", "rows/s", "first batch s", "CPU s before the first row",
    "peak PSS MiB", "rows, rounds",
)  # fmt: skip
ROUNDS = 2
"""Fewer rounds are no figures to go by, and the page says so."""
FIGURES = Path(__file__).with_name("picture.json")


def write(document: dict[str, Any]) -> None:
    """Write the medians to benchmarks/picture.json and the page's tables anew."""
    FIGURES.write_text(json.dumps(document, indent=1) + "\n")
    text = PAGE.read_text()
    for name, made in (("picture", picture(document)), ("verdict", verdict(document))):
        text = between(text, name, made)
    PAGE.write_text(text)


def write_edges(document: dict[str, Any]) -> None:
    """Write the page's table of `benchmarks.edges` anew."""
    lines = ["| what | measured |", "|---|---|"]
    for case in document["cases"].values():
        figures = "; ".join(f"{name}: {value:.3g}" for name, value in case["figures"].items())
        lines.append(f"| {' '.join(case['text'].split())} | {figures} |")
    PAGE.write_text(between(PAGE.read_text(), "edges", "\n".join(lines) + "\n"))


def between(text: str, name: str, made: str) -> str:
    """Return the text with what stands between the two markers of that name replaced.

    Raises:
        ValueError: It has not exactly one such pair.
    """
    pattern = re.compile(rf"(<!-- {name}: made by \S+ \S+ \S+ -->\n).*?(<!-- end of {name} -->)", re.DOTALL)
    if len(pattern.findall(text)) != 1:
        raise ValueError(f"the page must have the markers of {name} once")
    return pattern.sub(lambda found: f"{found[1]}\n{made}\n{found[2]}", text)


def picture(document: dict[str, Any]) -> str:
    """Return a table for each workload."""
    machine = document["machine"]
    parts = [f"{machine['cpu']}, {machine['cores']} cores, Python {machine['python']}, pyarrow {machine['pyarrow']}."]
    if any(one["rounds"] < ROUNDS for found in document["medians"].values() for one in found.values()):
        parts.append("Some figures are of one round: those by the clock (rows/s, first batch) say little.")
    for workload, sizes in WORKLOADS.items():
        found = document["medians"].get(workload)
        if found:
            failed = document["failed"].get(workload, {})
            mixed = f"batches of {sizes.batch_size}, shuffled over {sizes.shuffle_rows:,} rows"
            parts += [f"**{workload}**: {sizes.text}; {mixed}", _table(found, failed, sizes.max_ratio)]
    return "\n\n".join(parts) + "\n"


def _table(found: dict[str, Any], failed: dict[str, str], wanted: dict[str, float]) -> str:
    lines = [f"| {' | '.join(HEADS)} |", "|---" * len(HEADS) + "|"]
    for name in (f"{name}{end}" for name in CONTENDERS for end in ("", " shuffled")):
        if name in found:
            one = found[name]
            reach = f" ({wanted[name]} wanted)" if name in wanted else ""
            lines.append(
                f"| {name} | {one['cpu_s_per_million_rows']:.3g} | {one['ratio_to_limit']:.3g}{reach} "
                f"| {_thousands(one['rows_per_s'])} | {one['first_batch_s']:.2g} | {one['start_cpu_s']:.2g} "
                f"| {one['peak_pss_mib']:.0f} | {one['n_rows']:,}, {one['rounds']} |"
            )
        elif name in failed:
            lines.append(f"| {name} | fails: {_plain(failed[name])} | | | | | | |")
    return "\n".join(lines)


def verdict(document: dict[str, Any]) -> str:
    """Return where a rival is ahead and where a ratio that was wanted is not reached; nothing is left out."""
    lines = []
    for workload, found in document["medians"].items():
        for end in ("", " shuffled"):
            ours = {name: found[name + end] for name in ("threads", "processes") if name + end in found}
            rivals = {name: found[name + end] for name in RIVALS if name + end in found}
            for figure, text, better in (
                ("cpu_s_per_million_rows", "CPU a row", min), ("rows_per_s", "rows a second", max),
                ("first_batch_s", "time to the first batch", min), ("peak_pss_mib", "memory", min),
            ):  # fmt: skip
                if ours and rivals:
                    best = better(one[figure] for one in ours.values())
                    ahead = [
                        f"{name} ({one[figure]:.3g} to {best:.3g})"
                        for name, one in rivals.items() if better(one[figure], best) != best
                    ]  # fmt: skip
                    if ahead:
                        lines.append(f"- {workload}{end}, {text}: {', '.join(ahead)}")
        for name, wanted in WORKLOADS[workload].max_ratio.items():
            if name in found and found[name]["ratio_to_limit"] > wanted:
                floor, text = _FLOORS["shuffled" if name.endswith(" shuffled") else name]
                alone = f"; {text} alone: {found[floor]['ratio_to_limit']:.3g}" if floor in found else ""
                ratio = found[name]["ratio_to_limit"]
                lines.append(f"- {workload}, {name}: {ratio:.3g} times the limit, {wanted} is wanted{alone}")
    return "\n".join(lines or ["- nowhere"]) + "\n"


_FLOORS = {
    "shuffled": ("limit shuffled", "decoding and mixing"),
    "threads": ("limit-batches", "decoding and making tensors"),
    "processes": ("limit-sent", "decoding, one copy and making tensors"),
}


def _thousands(value: float) -> str:
    return f"{value / 1e6:.3g} M" if value >= 1e6 else f"{value:,.0f}"


def _plain(text: str) -> str:
    return text.replace("|", "/").replace("<", "&lt;").replace("\n", " ")[:160]
