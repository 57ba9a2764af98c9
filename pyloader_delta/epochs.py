"""The plans of a pass's epochs, from where it begins. Wiring of the plan's functions; it holds no loader."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import count

from pyloader_delta.options import Options
from pyloader_delta.plan.epoch import EpochPlan, Order, plan_epoch
from pyloader_delta.plan.limit import limited
from pyloader_delta.plan.ranks import Place
from pyloader_delta.plan.recut import plan_rest
from pyloader_delta.plan.resume import resumed
from pyloader_delta.state import Extent, Position
from pyloader_delta.values import Chunk


def epoch_plans(
    begins: Position, place: Place, units: Sequence[Sequence[Chunk]], order: Order, options: Options, group: int,
    *, reread: bool,
) -> tuple[EpochPlan, Iterator[EpochPlan], int]:  # fmt: skip
    """Return the plan of the first epoch, those of the others, and how many batches of the first are made once more.

    Args:
        begins: Where the first begins.
        place: The rank.
        units: What the loader reads.
        order: Its order.
        options: Its options.
        group: Batches that may be encoded together.
        reread: Whether all files of the epoch must be read, for their columns.
    """
    source, n_epochs = begins.source, options.num_epoch
    extent = Extent(0, options.batch_size, options.drop_last, options.limit)
    plan = plan_rest(units if source is None else source.units, order, begins.epoch, place, extent.past(begins.history))
    left, again = extent.left(begins.history), 0
    plan = limited(plan, None if left is None else left * options.batch_size)
    if source is not None:
        plan, group = replace(plan, group=source.group), source.group
    if begins.batches:
        plan, again = resumed(
            plan, begins.batches, batch_size=options.batch_size, group=group, reread=reread, window=begins.window
        )
    after = begins.epoch + 1
    epochs: Iterable[int] = (
        count(after) if options.reads_ahead or n_epochs is None else range(after, begins.began + n_epochs)
    )
    others = (limited(plan_epoch(units, order, epoch, place), options.max_rows) for epoch in epochs)
    return plan, others, again
