"""A soak: many epochs under random faults. Each row must come, in its order; nothing may grow; nothing may stay.

    python -m benchmarks.soak --minutes 10 [--seed S] [--acts N] [--plot soak.png]

Loaders of worker processes and of threads, shuffled or not, with a user's own reader, skipping or not, read one table
again and again. Workers are killed, stopped and held up, the loop pauses, leaves, fails, begins anew, goes on from a
state in another loader. First each loader is opened and takes some epochs undisturbed, so that what grows later grows
for good. Prints one JSON document, and its seed first: the same seed does the same. Exits with 0 if every epoch was
right, memory, descriptors and processes stayed flat, and nothing is left in the end; else with 1.
"""

import argparse
import gc
import json
import os
import secrets
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.soak_acts import Act
from benchmarks.soak_figures import Figures, descriptors_by_kind, figures_of, trend
from benchmarks.soak_loaders import SETUPS, Loaders, Wrong
from pyloader_delta.cli.bar import bar

MOST_MIB_AN_EPOCH = 1.0
_MOST_FAILURES = 5
_WARM_UP_EPOCHS = 3
_POLLS, _POLL_S = 100, 0.05
_MEANING = {
    "mib_an_epoch": "slope of a straight line through memory (PSS of all our processes) over epochs",
    "mib_an_epoch_error": "its standard error",
    "limit": "memory is flat if the slope is below 1 MiB an epoch, beyond two standard errors",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=None, help="default: another one each time")
    parser.add_argument("--acts", type=int, default=None, help="stop after so many acts; what grows is not judged")
    parser.add_argument("--plot", type=Path, default=None, help="draw memory and descriptors into this file")
    args = parser.parse_args()
    seed = secrets.randbelow(10**6) if args.seed is None else args.seed
    print(f"seed {seed}", file=sys.stderr)
    with tempfile.TemporaryDirectory(prefix="soak-") as folder:
        loaders = Loaders(Path(folder))
        before = figures_of(0)  # deltalake, which writes the table, keeps descriptors
        try:
            if args.acts is None:
                warm_up(loaders)
            document, figures = soaked(loaders, seed, args.minutes * 60, args.acts)
        finally:
            loaders.close()
    document["left"] = left(before)
    document["flat"] = flat(figures) if args.acts is None else {}
    good = not document["failures"] and not document["left"] and all(document["flat"].values())
    print(json.dumps({"benchmark": "soak", "seed": seed, "meaning": _MEANING, **document}, indent=2))
    if args.plot is not None:
        from benchmarks.soak_figures import draw

        draw(figures, args.plot)
    raise SystemExit(0 if good else 1)


def warm_up(loaders: Loaders) -> None:
    """Open the loaders of all setups, which stay open, and take epochs of each; keep all batches of one."""
    with bar("warm-up", len(SETUPS) * _WARM_UP_EPOCHS, "epochs") as move:
        for setup in SETUPS:
            for epoch in range(_WARM_UP_EPOCHS):
                kept = list(loaders.get(setup)) if not epoch else []
                ids = np.concatenate([batch["id"] for batch in kept or loaders.get(setup)])
                loaders.check_rows(setup, epoch + 1, ids, whole=True)
                move(1)


def soaked(loaders: Loaders, seed: int, seconds: float, most_acts: int | None) -> tuple[dict[str, Any], list[Figures]]:
    """Do acts for so long; return what came of them and what was held after each."""
    counts: Counter[str] = Counter()
    failures: list[dict[str, str]] = []
    found: list[Figures] = []
    epochs = batches = acts = 0
    kinds = descriptors_by_kind()
    began = time.monotonic()
    with bar("soak", int(seconds), "s") as move:
        shown = 0
        while time.monotonic() - began < seconds and acts != most_acts and len(failures) < _MOST_FAILURES:
            act = Act(loaders, f"{seed}:{acts}", counts)
            acts += 1
            try:
                epochs += act.run()
                _settle(loaders)
                found.append(figures_of(epochs))
            except Exception as error:
                text = "".join(traceback.format_exception(error))
                failures.append({"act": f"{seed}:{acts - 1}", "what": str(act), "error": text})
                print(f"act {seed}:{acts - 1}, {act}\n{text}", file=sys.stderr)
                loaders.close()
            batches += act.n_batches
            now = int(time.monotonic() - began)
            move(now - shown)
            shown = now
    document = {
        "seconds": round(time.monotonic() - began, 1),
        "acts": acts,
        "epochs": epochs,
        "batches": batches,
        "done": dict(sorted(counts.items())),
        "failures": failures,
        "descriptors_by_kind": {"before": kinds, "after": descriptors_by_kind()},
        **trend(found),
    }
    return document, found


def _settle(loaders: Loaders) -> None:
    """Wait until there are as many worker processes as there should be.

    Raises:
        Wrong: There are others.
    """
    gc.collect()
    for _ in range(_POLLS):  # polls, not seconds: on a busy machine this process may be stopped for long
        there = figures_of(0).processes
        if there == loaders.n_processes:
            return
        time.sleep(_POLL_S)
    raise Wrong(f"there are {there} worker processes instead of {loaders.n_processes}")


def flat(figures: list[Figures]) -> dict[str, bool]:
    """Return what stayed flat."""
    found = trend(figures)
    return {
        "memory": found["mib_an_epoch"] - 2 * found["mib_an_epoch_error"] < MOST_MIB_AN_EPOCH,
        "descriptors": found["descriptors_an_epoch"] - 2 * found["descriptors_an_epoch_error"] < 0.05,
    }


def left(before: Figures) -> list[str]:
    """Return what is there now and was not before, after waiting for it to go."""
    for _ in range(_POLLS):
        gc.collect()
        now = figures_of(0)
        threads = [t.name for t in threading.enumerate() if t.name.startswith("pyloader_delta")]
        found = [f"thread {name}" for name in threads]
        found += [f"{now.processes} processes"] if now.processes else []
        found += [f"{now.descriptors - before.descriptors} descriptors"] if now.descriptors > before.descriptors else []
        found += [f"/dev/shm/{name}" for name in os.listdir("/dev/shm") if "pyloader_delta" in name]
        if not found:
            return []
        time.sleep(_POLL_S)
    return found


if __name__ == "__main__":
    main()
