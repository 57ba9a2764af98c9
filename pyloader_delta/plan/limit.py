"""An epoch that ends early: its first rows in the same order, and no window read beyond them. Pure."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import replace

from pyloader_delta.plan.epoch import EpochPlan
from pyloader_delta.plan.resume import window_starts


def limited(plan: EpochPlan, max_rows: int | None) -> EpochPlan:
    """Return the plan of an epoch's first rows.

    Args:
        plan: The whole epoch.
        max_rows: How many, >= 1; None for all.
    """
    if max_rows is None:
        return plan
    n_rows = plan.n_rows
    if n_rows is None or n_rows <= max_rows:
        return replace(plan, max_rows=max_rows)
    windows = plan.windows[: bisect_left(window_starts(plan), max_rows)]
    chunks = plan.chunks[: windows[-1].stop]  # a repeated row has a window of its own, the last
    rests = {number: rest for number, rest in plan.rests.items() if number < len(windows)}
    return replace(plan, chunks=chunks, windows=windows, rests=rests, max_rows=max_rows, padded=0)
