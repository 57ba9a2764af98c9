"""The rest of an epoch of which some batches were delivered by an earlier process. Pure."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import replace
from itertools import accumulate

from pyloader_delta.plan.epoch import EpochPlan
from pyloader_delta.units import Borders, together_with


def resumed(
    plan: EpochPlan, batch: int, *, batch_size: int, group: int, reread: bool = False,
    window: tuple[int, int] | None = None,
) -> tuple[EpochPlan, int]:  # fmt: skip
    """Return a plan of the epoch from batch `batch` on, and how many batches before it must be made once more.

    These are the ones that are encoded in one call with it: what the call's random numbers do to them depends on where
    it begins.

    Args:
        plan: The whole epoch.
        batch: First batch that was not delivered, >= 0.
        batch_size: Rows in a batch.
        group: Batches that may be encoded in one call.
        reread: Read the windows before it too, without encoding them: for files whose columns must be learned in order.
        window: Where lengths are unknown: number and first row of the window that holds the batch's first row; None to
            read the windows before it too.
    """
    first = group_start(plan, batch, batch_size, group)
    row, number, window_row = first * batch_size, 0, None
    if reread:
        pass
    elif plan.n_rows is not None:
        starts = window_starts(plan)
        number = max(min(bisect_right(starts, row) - 1, len(plan.windows) - 1), 0)
    elif window is not None and window[0] < len(plan.windows) and window[1] <= row:
        number, window_row = window
    found = replace(plan, first_batch=first, first_row=row, first_window=number, first_window_row=window_row)
    return found, batch - first


def window_starts(plan: EpochPlan) -> list[int]:
    """Return the first row of each window, and the end of the last; lengths are known."""
    return list(accumulate((plan.rows_of(number) or 0 for number in range(len(plan.windows))), initial=0))


def group_start(plan: EpochPlan, batch: int, batch_size: int, group: int) -> int:
    """Return the first batch of those that are encoded together with a batch, as the engine cuts them.

    See `EpochPlan.units`.
    """
    n_rows = plan.n_rows
    if group == 1 or n_rows is None or batch * batch_size >= n_rows:
        return batch
    borders = Borders()
    for unit, end in zip(plan.units, window_starts(plan)[1:], strict=True):
        borders.add(unit, end)

    def unit_of(number: int) -> tuple[int, int] | None:
        """Return where the unit that a batch lies in begins and ends; None where it lies in several."""
        unit = borders.around(number * batch_size)
        return unit if min((number + 1) * batch_size, n_rows) <= unit[1] else None

    around = unit_of(batch)
    if around is None:
        first = batch
        while first and unit_of(first - 1) is None:
            first -= 1
    else:
        first = -(-around[0] // batch_size)
    return together_with(batch, first, group)
