"""Memory for blocks and batches: reused slabs, private or shared with worker processes. Never resized, never named."""

from __future__ import annotations

import mmap
import os
from collections import Counter
from collections.abc import Callable, KeysView
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from pyloader_delta.arrays import ALIGNMENT
from pyloader_delta.engine.mapped import empty, has_memfd, map_memory, new_memory, private_memory

_SMALLEST = 1 << 20
_STEP = 4  # capacities are 1 MiB, 4 MiB, 16 MiB, ...; pages that were never touched cost nothing
_MOST_FREE = 64  # each costs a descriptor, and a map in each worker
_TAKEN_STEP = 1 << 16  # multiples of which they are where pages cost whether touched or not


def aligned(size_bytes: int) -> int:
    """Return the size rounded up to the alignment."""
    return -(-size_bytes // ALIGNMENT) * ALIGNMENT


def capacity_for(size_bytes: int, *, shared: bool) -> int:
    """Return the capacity of the slab that takes so many bytes."""
    if shared and not has_memfd():
        return max(-(-size_bytes // _TAKEN_STEP), 1) * _TAKEN_STEP
    capacity = _SMALLEST
    while capacity < size_bytes and capacity < 1 << 30:
        capacity *= _STEP
    return max(capacity, -(-size_bytes // mmap.PAGESIZE) * mmap.PAGESIZE)


def put(target: NDArray[Any], values: NDArray[Any]) -> None:
    """Copy the values of an array into another one of the same shape and dtype.

    NumPy gives up the GIL for each copy, however short. To get it back beside busy threads costs more than to copy what
    fits into a processor's cache.
    """
    if target.nbytes > _SHORT or not (target.flags.c_contiguous and values.flags.c_contiguous):
        target[...] = values
    elif target.ndim == 1 and _has_format(target.dtype) and target.dtype.char == values.dtype.char:
        memoryview(cast(Any, target))[:] = cast(Any, values)  # a third of what the other way takes
    elif target.nbytes:
        into, source = (memoryview(array.reshape(-1).view(np.uint8)) for array in cast(Any, (target, values)))
        into[:] = source


_SHORT = 1 << 18


def _has_format(dtype: np.dtype[Any]) -> bool:
    """Return whether Python's views of memory know a dtype."""
    return dtype.char in "bBhHiIlLqQfd" and dtype.isnative


class Slab:
    """A run of memory, zero when new, page-aligned.

    Args:
        capacity: Its size in bytes, >= 1.
        shared: Whether other processes can map it.
        fd: Its descriptor, if another process made it; the slab owns it from now on.
    """

    __slots__ = ("array", "capacity", "fd", "map", "touched")

    def __init__(self, capacity: int, *, shared: bool, fd: int | None = None) -> None:
        self.capacity = capacity
        self.fd = fd
        self.touched = 0
        """Bytes from the start that were ever written: what the slab costs."""
        if shared and fd is None:
            self.fd = new_memory(capacity)
        try:
            self.map: Any = private_memory(capacity) if self.fd is None else map_memory(self.fd, capacity)
        except BaseException:
            self.close()
            raise
        self.array: NDArray[np.uint8] = np.frombuffer(self.map, dtype=np.uint8)

    def forget(self) -> None:
        """Give the memory back to the system, for every process that maps the slab, but keep the slab."""
        if self.fd is None:
            self.map.madvise(mmap.MADV_DONTNEED)
        else:
            empty(self.fd, self.capacity)
        self.touched = 0

    def close(self) -> None:
        """Close the descriptor; the memory goes when the last array on it goes."""
        if self.fd is not None:
            os.close(self.fd)
            self.fd = None


class SlabPool:
    """Slabs by number, taken and given back.

    Args:
        shared: Whether worker processes map them.
        max_bytes: What slabs may cost together, with what is held beside them; beyond it free ones are emptied.
        beside: Returns the bytes that are held beside them.
    """

    def __init__(self, *, shared: bool, max_bytes: int, beside: Callable[[], int] = int) -> None:
        self._shared, self._max_bytes, self._beside = shared, max_bytes, beside
        self._slabs: dict[int, Slab] = {}
        self._free: list[int] = []
        self._next = 0
        self._cost = 0
        self._pins: Counter[int] = Counter()
        self._doomed: set[int] = set()

    def __getitem__(self, number: int) -> Slab:
        return self._slabs[number]

    def __contains__(self, number: int) -> bool:
        return number in self._slabs

    @property
    def numbers(self) -> KeysView[int]:
        """Numbers of all slabs."""
        return self._slabs.keys()

    def find(self, size_bytes: int) -> int | None:
        """Take a free slab of at least so many bytes, the one that is warmest for them; None where there is none.

        Not one that costs much more: the rest of its memory could not be given back meanwhile.
        """
        most = _STEP * max(size_bytes, _SMALLEST)
        fitting = [n for n in self._free if self._slabs[n].capacity >= size_bytes and self._slabs[n].touched <= most]
        if not fitting:
            return None

        def waste(number: int) -> tuple[bool, int]:
            slab = self._slabs[number]
            return slab.touched < size_bytes, abs(slab.touched - size_bytes)

        number = min(fitting, key=waste)
        self._free.remove(number)
        return number

    def take(self, size_bytes: int) -> int:
        """Take a slab of at least so many bytes, new if need be."""
        number = self.find(size_bytes)
        if number is not None:
            return number
        return self.add(Slab(capacity_for(size_bytes, shared=self._shared), shared=self._shared))

    def add(self, slab: Slab, number: int | None = None) -> int:
        """Take in a slab made elsewhere, as taken, under a number that its maker chose; return its number."""
        if number is None:
            self._next += 1
            number = self._next
        self._slabs[number] = slab
        return number

    def touch(self, number: int, size_bytes: int) -> None:
        """Note that so many bytes of a slab were written."""
        slab = self._slabs[number]
        if size_bytes > slab.touched:
            self._cost += size_bytes - slab.touched
            slab.touched = size_bytes
            self.trim()

    def pin(self, number: int) -> None:
        """Note that a task uses a slab: given back meanwhile, it is not taken before the task ends."""
        self._pins[number] += 1

    def unpin(self, number: int) -> None:
        """Note that such a task has ended."""
        self._pins[number] -= 1
        if not self._pins[number]:
            del self._pins[number]
            if number in self._doomed:
                self._doomed.remove(number)
                self.give(number)

    def give(self, number: int) -> None:
        """Give a slab back; nobody reads it any more, but for tasks that have pinned it."""
        if number in self._pins:
            self._doomed.add(number)
            return
        slab = self._slabs.get(number)
        if slab is None:
            return  # the pool was closed while a task was under way
        self._free.append(number)
        self.trim()
        if len(self._free) > _MOST_FREE:
            self.disown(self._free.pop(0))

    def trim(self) -> None:
        """Empty free slabs, the one given back last first, while there is no place for all that is held."""
        most = self._max_bytes - self._beside()
        for number in self._free[::-1] if self._cost > most else ():
            slab = self._slabs[number]
            if not slab.touched:
                continue
            if self._shared and not has_memfd():  # its bytes could not be had again for sure: a page without room kills
                self._free.remove(number)
                self.disown(number)
            else:
                self._cost -= slab.touched
                slab.forget()
            if self._cost <= most:
                return

    def disown(self, number: int) -> None:
        """Leave a slab to whoever holds it: its memory goes with the last view of it."""
        slab = self._slabs.pop(number)
        self._cost -= slab.touched
        slab.close()

    def close(self) -> None:
        """Close every slab; arrays of the training loop keep theirs."""
        for slab in self._slabs.values():
            slab.close()
        self._slabs.clear()
        self._free.clear()

    @property
    def cost_bytes(self) -> int:
        """Bytes of memory that the slabs cost."""
        return self._cost
