"""The whole picture: every contender on every workload, in interleaved rounds. Writes plots and the page's tables.

    python -m benchmarks.picture                       # goes on where it was cut off, then draws
    python -m benchmarks.picture --only hf --rounds 1  # what is missing of some contenders
    python -m benchmarks.picture --anew                # forget what was measured
    python -m benchmarks.picture --draw                # draw what there is

What was measured is kept, a run a line, in benchmarks/.data/picture.jsonl; medians go to benchmarks/picture.json. On a
machine without the first, workloads that are not measured keep their medians in the second.
"""

import argparse
import json
import sys
from collections.abc import Iterator
from typing import Any

from benchmarks import checking, handmade, measure, tables, throughput
from benchmarks.contenders import CONTENDERS, NAMES, RIVALS
from benchmarks.workloads import WORKLOADS

KEPT = tables.DATA / "picture.jsonl"
BATCH_SIZES = (32, 256, 1024, 4096)
SWEPT = ("threads", "processes", "inline", "torch", "tf", "hf")
"""Contenders that are measured with each batch size, on the workload "tabular"."""
TIMEOUT_S = 900

Run = dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5, help="of the limit and ours")
    parser.add_argument("--rival-rounds", type=int, default=2, help="of the rivals: they are far off, and slow")
    parser.add_argument("--workloads", nargs="+", choices=WORKLOADS, default=list(WORKLOADS))
    parser.add_argument("--only", nargs="+", choices=CONTENDERS, default=list(CONTENDERS), metavar="CONTENDER")
    parser.add_argument("--anew", action="store_true", help="forget what was measured before")
    parser.add_argument("--draw", action="store_true", help="measure nothing")
    args = parser.parse_args()
    if args.anew:
        KEPT.unlink(missing_ok=True)
    if not args.draw:
        for wanted in missing(args, kept()):
            keep(measured(wanted))
    from benchmarks import drawing, page

    document = summary(kept())
    if not args.anew:
        document = completed(document, json.loads(page.FIGURES.read_text()))
    drawing.draw(document)
    page.write(document)
    print(json.dumps({"benchmark": "picture", "failed": document["failed"], "machine": document["machine"]}, indent=2))


def missing(args: argparse.Namespace, done: list[Run]) -> Iterator[Run]:
    """Yield what is still to be measured, rounds interleaved: the limit comes first in each round of a workload."""
    have = {key(run) for run in done}
    failed = {run["name"] + run["workload"] for run in done if "failed" in run}
    for number in range(max(args.rounds, args.rival_rounds)):
        for wanted in _round(args, number):
            name, workload = wanted["name"], wanted["workload"]
            contender = name.partition(" ")[0]
            rounds = args.rival_rounds if contender in RIVALS or wanted["batch_size"] else args.rounds
            skipped = contender not in args.only and contender != "limit"
            if number < rounds and not skipped and key(wanted) not in have and name + workload not in failed:
                yield wanted


def _round(args: argparse.Namespace, number: int) -> Iterator[Run]:
    for workload in args.workloads:
        for name in NAMES:
            if workload in CONTENDERS[name.partition(" ")[0]].workloads:
                yield {"workload": workload, "name": name, "round": number, "batch_size": None}
        if workload == "tabular":
            for size in BATCH_SIZES:
                for name in SWEPT:
                    yield {"workload": workload, "name": name, "round": number, "batch_size": size}


def key(run: Run) -> tuple[Any, ...]:
    return tuple(run[part] for part in ("workload", "name", "round", "batch_size"))


def measured(wanted: Run) -> Run:
    """Return a run with its figures, or with why it failed. In its first round a contender is checked as well."""
    workload, name, size = wanted["workload"], wanted["name"], wanted["batch_size"]
    check = wanted["round"] == 0 and size is None and name.partition(" ")[0] != "limit"
    n_rows = WORKLOADS[workload].rival_rows if size else throughput.rows(workload, name)
    print(f"{workload} {name} {size or ''}, round {wanted['round'] + 1}: ", end="", file=sys.stderr, flush=True)
    try:
        figures = throughput.run(workload, name, n_rows=n_rows, batch_size=size, check=check, timeout_s=TIMEOUT_S)
        digest = figures.pop("digest")
        wrong = checking.difference(digest, reference(workload, n_rows)) if digest else None
        if wrong:
            raise measure.ContenderFailed(wrong)
    except measure.ContenderFailed as error:
        print(f"FAILED: {error}", file=sys.stderr)
        return wanted | {"failed": str(error), "n_rows": n_rows}
    print(f"{figures['cpu_s_per_million_rows']:.3g} CPU s a million rows", file=sys.stderr)
    return wanted | figures | {"n_rows": n_rows, "passes": throughput.passes_of(name)}


def reference(workload: str, n_rows: int) -> checking.Digest:
    """Return the digest of what the batches must hold, as made by hand."""
    table, size = WORKLOADS[workload].table(n_rows), WORKLOADS[workload].batch_size
    place = table / "digest.json"
    if not place.exists():
        digest = checking.digest(handmade.batches(workload, handmade.paths(table), size))
        place.write_text(json.dumps({workload: digest}))
    found = json.loads(place.read_text())
    if workload not in found:  # two workloads may have one table
        found[workload] = checking.digest(handmade.batches(workload, handmade.paths(table), size))
        place.write_text(json.dumps(found))
    return found[workload]


def summary(runs: list[Run]) -> dict[str, Any]:
    """Return the medians over the rounds, by workload and contender."""
    runs = sorted(runs, key=lambda run: list(WORKLOADS).index(run["workload"]))
    limits = {(run["workload"], run["round"]): run for run in runs if run["name"] == "limit"}
    groups: dict[tuple[Any, ...], list[Run]] = {}
    for run in runs:
        if "failed" not in run:
            rated = run | {"ratio_to_limit": throughput.ratio(run, limits[run["workload"], run["round"]])}
            groups.setdefault((run["workload"], run["name"], run["batch_size"]), []).append(rated)
    found: dict[str, Any] = {"medians": {}, "batch_sizes": {}, "failed": {}}
    for (workload, name, size), group in groups.items():
        medians = measure.medians(group) | {"rounds": len(group), "n_rows": group[0]["n_rows"]}
        place = found["batch_sizes"].setdefault(name, {}) if size else found["medians"].setdefault(workload, {})
        place[size or name] = medians
    for run in runs:
        if "failed" in run:
            found["failed"].setdefault(run["workload"], {})[run["name"]] = run["failed"]
    return found | {"machine": throughput.machine(), "meaning": measure.MEANING}


def completed(document: dict[str, Any], before: dict[str, Any]) -> dict[str, Any]:
    """Return a summary with an earlier one's figures of the workloads that it has none of."""
    done = {*document["medians"], *document["failed"]}
    parts = {
        part: {w: found for w in WORKLOADS if (found := (document if w in done else before)[part].get(w))}
        for part in ("medians", "failed")
    }
    return document | parts | {"batch_sizes": document["batch_sizes"] or before["batch_sizes"]}


def kept() -> list[Run]:
    return [json.loads(line) for line in KEPT.read_text().splitlines()] if KEPT.exists() else []


def keep(run: Run) -> None:
    KEPT.parent.mkdir(exist_ok=True)
    with KEPT.open("a") as lines:
        lines.write(json.dumps(run) + "\n")


if __name__ == "__main__":
    main()
