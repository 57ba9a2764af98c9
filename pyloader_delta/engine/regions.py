"""Which windows have a region, who fills it, and when its slab goes back."""

from __future__ import annotations

from pyloader_delta.engine.region import SMALLEST_BYTES, Region, load_layout, wide_names, without
from pyloader_delta.engine.slabs import SlabPool
from pyloader_delta.engine.tasks import ReadTask


class Regions:
    """The regions of one pass.

    Args:
        pool: Where their slabs come from.
        layout: What they will hold, where that is known before reading; else it is learned from the first blocks.
    """

    def __init__(self, pool: SlabPool, layout: bytes | None) -> None:
        self._pool, self._layout = pool, layout
        self._regions: dict[tuple[int, int], Region] = {}  # by (epoch, window)
        self._of_read: dict[int, tuple[int, int]] = {}  # read task → its window, if that has a region
        self._begun: set[tuple[int, int]] = set()  # windows that are read without one
        self._refuted: frozenset[str] = frozenset()

    def get(self, epoch: int, window: int) -> Region | None:
        """Return the region of a window, if it has one."""
        return self._regions.get((epoch, window))

    def enter(self, task: ReadTask) -> Region | None:
        """Return the region that a read task fills, made with the first of its window."""
        if task.window_rows is None:
            return None
        key = (task.epoch, task.window)
        region = self._regions.get(key)
        if region is None:
            size = load_layout(self._layout).size_bytes(task.window_rows) if self._layout is not None else 0
            if self._layout is None or size < SMALLEST_BYTES or key in self._begun:
                self._begun.add(key)
                return None
            region = self._regions[key] = Region(self._pool.take(size), task.window_rows, self._layout)
            self._pool.touch(region.slab, size)
        region.reads.add(task.number)
        self._of_read[task.number] = key
        return region

    def read_done(self, task: ReadTask, placed: frozenset[str] | None, layout: bytes | None) -> bool:
        """Note which columns a read task has placed, and what it could have placed where there was no region.

        Return whether what was placed is to be mixed once all of the window is read.
        """
        region = self.get(task.epoch, task.window)
        if region is not None and placed is not None:
            region.placed = placed if region.placed is None else region.placed & placed
            self._refute(wide_names(region.layout) - placed)
        if layout is not None and (self._layout is None or wide_names(layout) > wide_names(self._layout)):
            self._layout = without(layout, self._refuted)
        return region is not None and placed is not None and not load_layout(region.layout).is_in_order

    def _refute(self, names: frozenset[str]) -> None:
        """Note columns of bytes whose rows turned out to be of several widths: they are not waited for any more."""
        if names - self._refuted and self._layout is not None:
            self._refuted |= names
            self._layout = without(self._layout, self._refuted)

    def leave(self, read: int) -> None:
        """Note that what a read task gave is not needed any more, or that it will give nothing."""
        key = self._of_read.pop(read, None)
        if key is not None:
            region = self._regions[key]
            region.reads.discard(read)
            if not region.reads:
                self._pool.give(self._regions.pop(key).slab)

    @property
    def size_bytes(self) -> int:
        """What all regions take."""
        return sum(self._pool[region.slab].touched for region in self._regions.values())

    def end_pass(self) -> None:
        """Give everything back."""
        for region in self._regions.values():
            self._pool.give(region.slab)
        self._regions.clear()
        self._of_read.clear()
        self._begun.clear()
