"""Where an engine's bytes are."""

from __future__ import annotations

from collections.abc import Sequence

from pyloader_delta.engine.leases import Leases
from pyloader_delta.engine.regions import Regions
from pyloader_delta.engine.scheduler import Scheduler
from pyloader_delta.engine.slabs import SlabPool


def beside_slabs(scheduler: Scheduler | None, regions: Regions, *, shared: bool) -> int:
    """Return bytes of chunks, and of what reading them takes, that are in no slab; see `held`."""
    if scheduler is None:
        return 0
    in_slabs = scheduler.store.held if shared else min(regions.size_bytes, scheduler.store.held)
    return scheduler.store_bytes - in_slabs


def held(
    scheduler: Scheduler | None, pool: SlabPool, regions: Regions, leases: Leases, ready: Sequence[int], *, shared: bool
) -> dict[str, float]:
    """Return bytes and counts of what is held now.

    Args:
        scheduler: Of the pass; None between two.
        pool: All slabs.
        regions: Of shuffled windows.
        leases: What the training loop has.
        ready: Bytes of each run that is ready.
        shared: Whether chunks lie in slabs, for other processes; else they lie beside them, but for regions.
    """
    store = cursors = n_cursors = 0
    if scheduler is not None:
        store, n_cursors = scheduler.store_bytes, len(scheduler.cursors)
        cursors = scheduler.cursors.size_bytes
    beside = beside_slabs(scheduler, regions, shared=shared) + (0 if shared else leases.window_bytes)
    found = {
        "store_bytes": store - cursors,
        "cursor_bytes": cursors,
        "open_cursors": n_cursors,
        "ready_runs": len(ready),
        "ready_bytes": sum(ready),
        "leased_bytes": leases.size_bytes,
        "slab_bytes": pool.cost_bytes,
        "held_bytes": pool.cost_bytes + beside,
    }
    return {name: float(value) for name, value in found.items()}
