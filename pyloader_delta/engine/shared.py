"""Batches that stay in slabs that both sides map: arrays of one process named so that another finds them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from pyloader_delta.arrays import address
from pyloader_delta.engine.pack import Packed
from pyloader_delta.engine.slabs import aligned


def named(
    packed: Packed, slabs: Mapping[int, NDArray[np.uint8]], memory: Callable[[int], NDArray[np.uint8]]
) -> tuple[Packed, list[int | None]]:
    """Return batches without what was lent, and the slab that stands for each memory of theirs from 1 on.

    Args:
        packed: The batches.
        slabs: Memory of the slabs that they may lie in, by number.
        memory: Returns the run's own slab, with what is packed there, as one of at least so many bytes. Arrays that lie
            in no slab are put into it, and its name is None.
    """
    found = [_slab_of(array, slabs) for array in packed.lent]
    names = list(dict.fromkeys(slab for slab, _ in found))
    end = packed.size_bytes
    bases: list[int] = []
    for array, (slab, offset) in zip(packed.lent, found, strict=True):
        bases.append(aligned(end) if slab is None else offset)
        end = end if slab is not None else bases[-1] + array.nbytes
    if None in names:
        own = memory(end)
        for array, base, (slab, _) in zip(packed.lent, bases, found, strict=True):
            if slab is None:
                own[base : base + array.nbytes] = np.ndarray((array.nbytes,), np.uint8, array)
    layouts = tuple(
        (
            spec,
            tuple(
                (dtype, shape, offset + bases[at - 1], step, names.index(found[at - 1][0]) + 1, cuts)
                if at
                else (dtype, shape, offset, step, 0, cuts)
                for dtype, shape, offset, step, at, cuts in places
            ),
        )
        for spec, places in packed.layouts
    )
    return replace(packed, layouts=layouts, size_bytes=end, lent=()), names


def _slab_of(array: NDArray[np.uint8], slabs: Mapping[int, NDArray[np.uint8]]) -> tuple[int | None, int]:
    """Return the slab that holds an array, None for none, and where in it."""
    for number, memory in slabs.items():
        offset = address(array) - address(memory)
        if 0 <= offset <= len(memory) - array.nbytes:
            return number, offset
    return None, 0


def over(array: NDArray[np.generic], memories: Sequence[NDArray[np.uint8]]) -> NDArray[np.generic] | None:
    """Return a writable array on one of several memories in the place of one that lies there; None if it does not."""
    for memory in memories:
        offset = address(array) - address(memory)
        if array.flags.c_contiguous and 0 <= offset <= len(memory) - array.nbytes:
            return np.ndarray(array.shape, array.dtype, memory, offset)
    return None
