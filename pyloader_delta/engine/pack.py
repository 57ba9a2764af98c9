"""The batches of one run laid out in one slab, and read from it again without a copy."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyloader_delta.engine.slabs import aligned
from pyloader_delta.engine.tree import Spec, has_rest, put_together

Part = tuple[Spec, list[NDArray[Any]]]
"""A batch taken apart: what it is made of, and its arrays."""


@dataclass(frozen=True, slots=True)
class Packed:
    """Where the arrays of some batches lie in a slab. Batches of one shape share a layout."""

    layouts: tuple[tuple[Spec, tuple[tuple[np.dtype[Any], tuple[int, ...], int], ...]], ...]
    """(spec, (dtype, shape, bytes from the batch's start) of each array)."""
    batches: tuple[tuple[int, int], ...]
    """(layout, bytes from the slab's start) of each batch."""
    size_bytes: int
    """Bytes from the slab's start that are used."""

    def sizes(self) -> list[int]:
        """Return the bytes of each batch, alignment included."""
        starts = [start for _, start in self.batches]
        return [stop - start for start, stop in zip(starts, [*starts[1:], self.size_bytes], strict=False)]


def lay_out(parts: list[Part]) -> Packed:
    """Return a place for each array; nothing is copied yet."""
    layouts: list[Any] = []
    known: dict[Any, int] = {}
    batches = []
    end = 0
    for spec, arrays in parts:
        offset, places = 0, []
        for array in arrays:
            places.append((array.dtype, array.shape, offset))
            offset += aligned(array.nbytes)
        layout = (spec, tuple(places))
        key = None if has_rest(spec) else layout
        number = known.get(key, -1) if key is not None else -1
        if number < 0:
            number = len(layouts)
            layouts.append(layout)
            if key is not None:
                known[key] = number
        batches.append((number, end))
        end += offset
    return Packed(tuple(layouts), tuple(batches), end)


def write(packed: Packed, parts: list[Part], memory: NDArray[np.uint8]) -> None:
    """Copy the arrays to their places."""
    for (number, start), (_, arrays) in zip(packed.batches, parts, strict=True):
        for (dtype, shape, offset), array in zip(packed.layouts[number][1], arrays, strict=True):
            np.ndarray(shape, dtype, buffer=memory, offset=start + offset)[...] = array


def unpack(packed: Packed, memory: NDArray[np.uint8]) -> Iterator[Any]:
    """Yield the batches; their arrays are views of `memory`, aligned and as writable as it is."""
    for number, start in packed.batches:
        spec, places = packed.layouts[number]
        arrays = iter([np.ndarray(shape, dtype, buffer=memory, offset=start + at) for dtype, shape, at in places])
        yield put_together(spec, arrays.__next__)
