"""How `memory_budget` is shared out, and how much is read at once. What needs too much is found before reading."""

from __future__ import annotations

from collections.abc import Sequence

from pyloader_delta.engine.tasks import Limits
from pyloader_delta.errors import BudgetError
from pyloader_delta.memory import default_budget
from pyloader_delta.options import Options
from pyloader_delta.plan.epoch import PART_OF_WINDOW, WHOLE_OF_WINDOW, EpochPlan, total_rows
from pyloader_delta.values import Chunk

_STORE, _READY, _LEASED = 0.8, 0.1, 0.1  # how memory_budget is shared out
_UNSHUFFLED_CHUNK = 16 << 20  # bytes of a row group read at once where rows keep their order, so this changes nothing
_MIN_BATCH_BYTES = 1 << 20


def budget_bytes(options: Options, shuffle_rows: bool) -> int:
    """Return the memory budget: the user's, or one found by what there is now."""
    if options.memory_budget is not None:
        return options.memory_budget
    return default_budget(options.window.amount if shuffle_rows and options.window.unit == "bytes" else 0)


def lease_bytes(budget: int) -> int:
    """Return the part of a budget that batches in the training loop's hands may keep of the engine's own memory."""
    return int(budget * _LEASED)


def limits(options: Options, budget: int) -> Limits:
    """Return what a pass may hold at once."""
    n_workers = options.n_workers
    return Limits(
        n_workers=n_workers,
        store_bytes=int(budget * _STORE),
        batch_bytes=max(int(budget * _READY), _MIN_BATCH_BYTES),
        max_queue_size=options.max_queue_size,
        read_cost=2 if options.workers == "process" else 1,
        pending_runs=1 if options.workers == "inline" else options.prefetch_factor * n_workers + 1,
    )


def cut_bytes(options: Options, shuffle_rows: bool, chunks: Sequence[Chunk]) -> tuple[int, int]:
    """Return the decoded size above which a row group is read in parts, and that of the parts.

    Where rows are shuffled both are the order's.
    """
    window = options.window
    if not shuffle_rows or window.unit == "chunk":
        budget = options.memory_budget
        most = _UNSHUFFLED_CHUNK if budget is None else min(_UNSHUFFLED_CHUNK, max(budget // 16, 1))
        return most, most
    amount = window.amount
    if window.unit == "rows":
        amount = sum(chunk.size_bytes for chunk in chunks) * amount // (total_rows(chunks) or 1)
    return max(amount // WHOLE_OF_WINDOW, 1), max(amount // PART_OF_WINDOW, 1)


def check_windows(plan: EpochPlan, budget: int) -> None:
    """Raise where two neighbouring windows, which a batch across their border needs, do not fit together.

    Raises:
        BudgetError: They do not; names sizes that would fit.
    """
    sizes = [sum(plan.chunks[p].size_bytes for p in window) for window in plan.windows]
    needed = max((a + b for a, b in zip(sizes, [*sizes[1:], 0], strict=False)), default=0)
    share = int(budget * _STORE)
    if needed <= share:
        return
    shuffled = plan.row_seed is not None
    what = f"shuffle_window='{max(share // 3, 1)}B'" if shuffled else "smaller files or row groups"
    raise BudgetError(
        f"memory_budget of {budget} bytes is too small: two neighbouring windows take about {needed} bytes "
        f"decoded, and {share} are for chunks. Raise memory_budget to {int(needed / _STORE) + 1} or use {what}"
    )
