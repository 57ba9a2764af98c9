"""Slabs in the hands of the training loop: lent for as long as any array on them lives, then taken back."""

from __future__ import annotations

import os
import weakref
from queue import Empty, SimpleQueue
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyloader_delta.engine.slabs import ALIGNMENT, Slab, SlabPool


class Lease:
    """A slab in the hands of the training loop: NumPy views of it keep the lease alive, and its end is announced.

    Args:
        slab: The memory.
        size_bytes: Bytes from its start that are lent.
        number: What is put into `ended`, from whatever thread drops the last view.
        ended: Where to.
    """

    __slots__ = ("__array_interface__", "__weakref__", "_slab")

    def __init__(self, slab: Slab, size_bytes: int, number: int, ended: SimpleQueue[int]) -> None:
        self._slab = slab
        self.__array_interface__: dict[str, Any] = {
            "version": 3,
            "shape": (size_bytes,),
            "typestr": "|u1",
            "data": (slab.array.__array_interface__["data"][0], False),
        }
        # A finalizer may run anywhere, also in the middle of a critical section: it takes no lock but this queue's own
        weakref.finalize(self, _announce, os.getpid(), number, ended).atexit = False

    @property
    def array(self) -> NDArray[np.uint8]:
        """A writable view of what is lent; every view of it holds the lease."""
        return np.asarray(self)


def _announce(pid: int, number: int, ended: SimpleQueue[int]) -> None:
    if os.getpid() == pid:
        ended.put(number)


class Leases:
    """The slabs that are lent.

    Args:
        pool: Where they come from and go back to.
        max_bytes: What may be lent; beyond it the training loop gets memory of its own.
    """

    def __init__(self, pool: SlabPool, max_bytes: int) -> None:
        self._pool, self._max_bytes = pool, max_bytes
        self._ended: SimpleQueue[int] = SimpleQueue()
        self._lent: dict[int, tuple[int, int]] = {}  # lease → (slab, bytes)
        self._next = 0

    @property
    def size_bytes(self) -> int:
        """Bytes that are lent."""
        return sum(size for _, size in self._lent.values())

    def lend(self, slab: int, size_bytes: int) -> NDArray[np.uint8]:
        """Return the first bytes of a slab as memory that belongs to the caller alone; the slab is ours no more."""
        self.take_back()
        memory = self._pool[slab].array[:size_bytes]
        if self.size_bytes + size_bytes > self._max_bytes:
            if self._pool[slab].fd is None:
                self._pool.disown(slab)
                return memory
            copy = _aligned_copy(memory)
            self._pool.give(slab)
            return copy
        self._next += 1
        self._lent[self._next] = (slab, size_bytes)
        return Lease(self._pool[slab], size_bytes, self._next, self._ended).array

    def take_back(self) -> None:
        """Give back to the pool what the training loop has dropped."""
        while True:
            try:
                lease = self._ended.get_nowait()
            except Empty:
                return
            self._pool.give(self._lent.pop(lease)[0])


def _aligned_copy(memory: NDArray[np.uint8]) -> NDArray[np.uint8]:
    room = np.empty(len(memory) + ALIGNMENT, dtype=np.uint8)
    start = -room.ctypes.data % ALIGNMENT
    copy = room[start : start + len(memory)]
    copy[...] = memory
    return copy
