"""How `memory_budget` is shared out, and how much is read at once. What needs too much is found before reading."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from pyloader_delta.engine.tasks import Limits
from pyloader_delta.errors import BudgetError
from pyloader_delta.memory import default_budget
from pyloader_delta.options import Options
from pyloader_delta.plan.epoch import PART_OF_WINDOW, WHOLE_OF_WINDOW, EpochPlan, Order, total_rows
from pyloader_delta.plan.mixture import MAX_LANES, MIN_LANES, OPEN_WINDOWS, lanes
from pyloader_delta.values import Chunk

_STORE, _READY, _LEASED = 0.8, 0.1, 0.1  # how memory_budget is shared out
_WHOLE, _PART = 64 << 20, 16 << 20
"""Where rows keep their order, a row group up to the first size is read whole, a larger one in parts of the second: in
parts costs about twice as much. Less under a small budget; the order does not depend on it."""
_LEAST_WINDOW = 1 << 20
_LARGE_BATCH = 16 << 20  # smaller ones are part of what a process costs
_MIN_BATCH_BYTES = 1 << 20


class Needs(NamedTuple):
    """What an order takes, about."""

    budget: int
    """A budget that holds two neighbouring windows, the cursors that are open in them, and batches."""
    large_batch: int
    """Bytes of a batch, where they are many; else 0."""

    def beside(self, budget: int) -> int:
        """Return what a large batch takes beyond the shares of a budget that are for batches.

        It is there three times: as its rows are gathered, as it is packed, and the one before it in the loop's hands.
        """
        return max(3 * self.large_batch - int(budget * (_READY + _LEASED)), 0)


def needs(order: Order, units: Sequence[Sequence[Chunk]], batch_size: int) -> Needs:
    """Return what an order needs.

    Args:
        order: How the epoch is laid out.
        units: The parts of each row group or file.
        batch_size: Rows in a batch.
    """
    chunks = [chunk for unit in units for chunk in unit]
    total = sum(chunk.size_bytes for chunk in chunks)
    largest = max((chunk.size_bytes for chunk in chunks), default=0)
    open_bytes = max((unit[0].cursor_bytes for unit in units if len(unit) > 1), default=0)
    window, n_open = order.window_bytes + largest, 1
    if order.shuffle_rows and order.window.unit == "chunk":
        window = max((sum(chunk.size_bytes for chunk in unit) for unit in units), default=0)
    elif order.shuffle_rows:
        window = largest + order.window.size_bytes(total, total_rows(chunks))
        n_open = lanes(units, order.window)
        n_open += n_open // 4 + 1  # where a window begins with other row groups before it has ended the older ones
        n_open = min(n_open, sum(len(unit) > 1 for unit in units))
    batch = total * batch_size // (total_rows(chunks) or (1 << 62))
    batch = batch if batch >= _LARGE_BATCH else 0
    store = min(2 * window + batch, total) + n_open * open_bytes
    return Needs(max(int(store / _STORE), store + 3 * batch) + 1, batch)


def budget_bytes(options: Options, needed: Needs) -> int:
    """Return the memory budget: the user's, or one found by what there is now."""
    return default_budget(needed.budget) if options.memory_budget is None else options.memory_budget


def lease_bytes(budget: int) -> int:
    """Return the part of a budget that batches in the training loop's hands may keep of the engine's own memory."""
    return int(budget * _LEASED)


def limits(options: Options, budget: int, needed: Needs) -> Limits:
    """Return what a pass may hold at once."""
    n_workers = options.n_workers
    return Limits(
        n_workers=n_workers,
        store_bytes=max(int(budget * _STORE) - needed.beside(budget), 1),
        batch_bytes=max(int(budget * _READY), _MIN_BATCH_BYTES),
        max_queue_size=options.max_queue_size,
        # decoded, and copied to where other processes find it; a page, too, where that holds a row or two
        read_cost=1 + (options.workers == "process") + bool(needed.large_batch),
        pending_runs=1 if options.workers == "inline" else options.prefetch_factor * n_workers + 1,
    )


def cut_bytes(options: Options, shuffle_rows: bool, chunks: Sequence[Chunk]) -> tuple[int, int]:
    """Return the decoded size above which a row group is read in parts, and that of the parts.

    Where rows are shuffled both are the order's.
    """
    window = options.window
    if not shuffle_rows or window.unit == "chunk":
        budget = default_budget(0) if options.memory_budget is None else options.memory_budget
        share = max(budget // 16, 1)
        return min(_WHOLE, share), min(_PART, share)
    size = window.size_bytes(sum(chunk.size_bytes for chunk in chunks), total_rows(chunks))
    return max(size // WHOLE_OF_WINDOW, 1), max(size // PART_OF_WINDOW, 1)


def check_windows(plan: EpochPlan, budget: int, needed_by: Needs) -> None:
    """Raise where two neighbouring windows, which a batch across their border needs, do not fit together.

    Raises:
        BudgetError: They do not, with one cursor; names sizes that would fit.

    Warns:
        UserWarning: They do, but not with all cursors that should be open then: some will be closed and opened again.
    """
    found = list(_needed(plan))
    needed, windows, cursors = max(found, default=(0, 0, 0))
    batch = needed_by.large_batch
    more = max(batch - windows, 0)  # a batch of many windows needs all of them
    needed, windows = needed + more, windows + more
    share = int(budget * _STORE) - needed_by.beside(budget)
    if needed <= share:
        return
    largest = max((chunk.cursor_bytes for chunk in plan.chunks if chunk.is_part), default=0)
    window = _fitting_window(plan, share) if plan.row_seed is not None else None
    remedies = [] if window is None else [f"shuffle_window='{window}B'"]
    if cursors or not remedies:
        remedies.append("smaller row groups" if cursors else "smaller files or row groups")
    if batch:
        remedies.append("a smaller batch_size")
    also = f", and row groups that are read piece by piece {cursors} more" if cursors else ""
    left = f"{max(share, 0)} are for chunks" + (f" beside batches of about {batch}" if batch else "")
    enough = max(int(needed / _STORE), needed + 3 * batch) + 1
    text = (
        f"memory_budget of {budget} bytes is too small: two neighbouring windows take about {windows} bytes "
        f"decoded{also}, and {left}. Raise memory_budget to {enough} or use {' or '.join(remedies)}"
    )
    if max(windows for _, windows, _ in found) + more + largest > share:
        raise BudgetError(text)
    warnings.warn(f"{text}; as it is, some row groups are read again and again, which costs time", stacklevel=2)


def _fitting_window(plan: EpochPlan, share: int) -> int | None:
    """Return a shuffle_window of which two fit, with the cursors that would be open then; None where none does."""
    groups: Counter[tuple[str, int | None]] = Counter()
    cursor = 0
    for chunk in plan.chunks:
        if chunk.is_part:
            groups[chunk.path, chunk.row_group] += chunk.size_bytes
            cursor = max(cursor, chunk.cursor_bytes)
    largest = max(groups.values(), default=0)
    window = max(share // 3, 1)
    while window >= _LEAST_WINDOW or (window and not cursor):
        n_open = min(max(OPEN_WINDOWS * window // max(largest, 1), MIN_LANES), MAX_LANES, len(groups))
        if window * 9 // 4 + n_open * cursor <= share:
            return window
        window //= 2
    return None


def _needed(plan: EpochPlan) -> Iterator[tuple[int, int, int]]:
    """Yield, for each window but the first: bytes in all, those of it and the one before, and of open cursors."""
    opened: dict[tuple[str, int | None], int] = {}
    before = 0
    for window in plan.windows:
        size, most = 0, sum(opened.values())
        for chunk in plan.chunks[window.start : window.stop]:
            size += chunk.size_bytes
            if not chunk.is_part or chunk.rows is None:
                continue
            key = chunk.path, chunk.row_group
            opened[key] = chunk.cursor_bytes
            most = max(most, sum(opened.values()))
            if chunk.row_group_rows is not None and chunk.rows.stop == chunk.row_group_rows.stop:
                del opened[key]
        yield before + size + most, before + size, most
        before = size
