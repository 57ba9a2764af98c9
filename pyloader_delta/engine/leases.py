"""Memory in the hands of the training loop: lent for as long as any array on it lives, then taken back."""

from __future__ import annotations

import os
import weakref
from collections.abc import Hashable, Sequence
from queue import Empty, SimpleQueue
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pyloader_delta.arrays import empty_aligned
from pyloader_delta.engine.slabs import SlabPool

_MOST_LENT = 64  # pieces of memory: each costs a descriptor or a map of the system's, of which there are few


class Lease:
    """Memory in the hands of the training loop: what `lent` gives keeps the lease alive, and its end is announced.

    Args:
        number: What is put into `ended`, from whatever thread drops the last view.
        ended: Where to.
    """

    __slots__ = ("__weakref__",)

    def __init__(self, number: int, ended: SimpleQueue[int]) -> None:
        # A finalizer may run anywhere, also in the middle of a critical section: it takes no lock but this queue's own
        weakref.finalize(self, _announce, os.getpid(), number, ended).atexit = False


class _Lent(np.ndarray[Any, Any]):
    """Lent memory."""

    __slots__ = ("lease",)  # no dict: with thousands of columns the cyclic collector's time is the number of objects

    lease: Lease


def lent(array: NDArray[Any], lease: Lease) -> NDArray[Any]:
    """Return an array on the memory of another one, C-contiguous: the base of all views of it, and it holds the lease.

    NumPy goes through bases that are arrays to the memory's owner, but not through a buffer of Arrow's.
    """
    held = array.view(_Lent)
    held.lease = lease
    return np.ndarray(array.shape, array.dtype, pa.py_buffer(held))


def _announce(pid: int, number: int, ended: SimpleQueue[int]) -> None:
    if os.getpid() == pid:
        ended.put(number)


class Leases:
    """What is lent.

    Args:
        pool: Where slabs come from and go back to.
        max_bytes: What may be lent; beyond it, or many pieces, the training loop gets memory of its own. One piece may
            be lent beside the one that the loop is about to drop, however large: a copy would cost as much.
    """

    def __init__(self, pool: SlabPool, max_bytes: int) -> None:
        self._pool, self._max_bytes = pool, max_bytes
        self._ended: SimpleQueue[int] = SimpleQueue()
        self._slabs: dict[int, tuple[int, int]] = {}  # lease → (slab, bytes)
        self._windows: dict[int, tuple[Hashable, Sequence[int]]] = {}  # lease → (window, slabs it lies in)
        self._sizes: dict[Hashable, list[int]] = {}  # window → [leases on it, bytes]
        self._next = 0

    @property
    def size_bytes(self) -> int:
        """Bytes that are lent; of a window all, however little of it is."""
        return sum(size for _, size in self._slabs.values()) + self.window_bytes

    @property
    def window_bytes(self) -> int:
        """Of these, bytes of windows."""
        return sum(size for _, size in self._sizes.values())

    def lend(self, slab: int, size_bytes: int) -> NDArray[np.uint8]:
        """Return the first bytes of a slab as memory that belongs to the caller alone; the slab is ours no more."""
        self.take_back()
        memory = self._pool[slab].array[:size_bytes]
        if len(self._slabs) > 1 and self._full(size_bytes):
            if self._pool[slab].fd is None and 2 * size_bytes > self._pool[slab].capacity:
                self._pool.disown(slab)
                return memory
            copy = _aligned_copy(memory)
            self._pool.give(slab)
            return copy
        lease = self._lease()
        self._slabs[self._next] = (slab, size_bytes)
        return lent(memory, lease)

    def lend_window(self, window: Hashable, size_bytes: int, slabs: Sequence[int]) -> Lease | None:
        """Return a lease for batches that stay where their window lies; None where they must be copied out of it."""
        self.take_back()
        if window not in self._sizes and self._full(size_bytes):
            return None
        lease = self._lease()
        for slab in slabs:
            self._pool.pin(slab)
        self._windows[self._next] = (window, slabs)
        self._sizes.setdefault(window, [0, size_bytes])[0] += 1
        return lease

    def take_back(self) -> None:
        """Give back to the pool what the training loop has dropped."""
        while True:
            try:
                number = self._ended.get_nowait()
            except Empty:
                return
            if number in self._slabs:
                self._pool.give(self._slabs.pop(number)[0])
                continue
            window, slabs = self._windows.pop(number)
            for slab in slabs:
                self._pool.unpin(slab)
            self._sizes[window][0] -= 1
            if not self._sizes[window][0]:
                del self._sizes[window]

    def _full(self, size_bytes: int) -> bool:
        too_many = len(self._slabs) + len(self._sizes) >= _MOST_LENT
        return too_many or self.size_bytes + size_bytes > self._max_bytes

    def _lease(self) -> Lease:
        self._next += 1
        return Lease(self._next, self._ended)


def _aligned_copy(memory: NDArray[np.uint8]) -> NDArray[np.uint8]:
    copy = empty_aligned(memory.shape, memory.dtype)
    copy[...] = memory
    return copy
