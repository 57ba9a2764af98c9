"""The batches of one run laid out in memory, and read from it again without a copy."""

from __future__ import annotations

import sys
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from operator import itemgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyloader_delta.arrays import ALIGNMENT, address
from pyloader_delta.engine.notes import NOTHING, Notes
from pyloader_delta.engine.slabs import aligned, put
from pyloader_delta.engine.tree import Spec, has_rest, put_together

Place = tuple[np.dtype[Any], tuple[int, ...], int, int, int, Sequence[int] | None]
"""(dtype, shape, bytes from the batch's start, bytes to the same array of the next batch, memory, cuts).

Memory 0 is the slab; an array lies there at the batch's start + offset + steps * step. In lent memory the start does
not count. With cuts it is one array over several batches, and that of steps i is its part cuts[i]..cuts[i + 1]."""


@dataclass(frozen=True, slots=True)
class Part:
    """A batch taken apart, or several alike whose arrays hold all their rows."""

    spec: Spec
    arrays: list[NDArray[Any]]
    rows: tuple[int, ...] | None = None
    """Rows of each batch, all but the last equal, where the part is several; None where it is one."""
    cuts: Sequence[Sequence[int] | None] | None = None
    """Where each batch's part of each array begins and ends, first axis; None for an array, or all, cut by rows."""


@dataclass(frozen=True, slots=True)
class Packed:
    """Where the arrays of some batches lie, in a slab or in lent memory. Batches of one shape share a layout."""

    layouts: tuple[tuple[Spec, tuple[Place, ...]], ...]
    batches: tuple[tuple[int, int, int], ...]
    """(layout, bytes from the slab's start, steps) of each batch."""
    size_bytes: int
    """Bytes from the slab's start that are used."""
    lent: tuple[Any, ...] = ()
    """Memory 1, 2, ...: arrays of this process; None for the slab once more."""
    notes: Notes = NOTHING
    """What is known of them beside."""

    @property
    def total_bytes(self) -> int:
        """Bytes of memory that the batches take."""
        return max(self.size_bytes, sum(self.sizes()))

    def first(self, n_batches: int) -> Packed:
        """Return the first batches alone, in the same memory."""
        batches = self.batches[:n_batches]
        used = sorted({layout for layout, _, _ in batches})
        numbers = {layout: number for number, layout in enumerate(used)}
        return Packed(
            tuple(self.layouts[layout] for layout in used),
            tuple((numbers[layout], start, steps) for layout, start, steps in batches),
            self.size_bytes if batches else 0,
            self.lent,
            self.notes,
        )

    def sizes(self) -> list[int]:
        """Return the bytes of each batch's arrays."""
        whole = [sum(_nbytes(place[0], place[1]) for place in places if place[5] is None) for _, places in self.layouts]
        cut = [
            [(_nbytes(dtype, shape[1:]), cuts) for dtype, shape, *_, cuts in places if cuts is not None]
            for _, places in self.layouts
        ]
        return [
            whole[layout] + sum(size * (cuts[step + 1] - cuts[step]) for size, cuts in cut[layout])
            for layout, _, step in self.batches
        ]


EMPTY = Packed((), (), 0)


class Tray:
    """The memory of one run: columns are gathered into it, and arrays that user code passes on stay where they are.

    Args:
        take: Returns memory of at least so many bytes, 64-byte aligned; called again only if the first was too small.
        adopts: Whether batches may stay in memory of user code's own: the training loop is in this process.
    """

    def __init__(self, take: Callable[[int], NDArray[np.uint8]], *, adopts: bool = False) -> None:
        self._take, self._adopts = take, adopts
        self._memory: NDArray[np.uint8] | None = None
        self._first: NDArray[np.uint8] | None = None
        self._used = self._address = self._views = 0
        self._lent: list[NDArray[Any]] = []
        self._ranges: list[tuple[int, int, int]] = []  # (address, bytes, number) of what `keep_bytes` took
        self._number_of: dict[int, int] = {}  # id of a lent array → its number as memory, from 1
        self.kept = False
        """Whether user code still holds arrays on the memory that was taken first, which is its own from now on."""

    def open(self, size_bytes: int) -> None:
        """Make room for columns of so many bytes together, each rounded up to the alignment."""
        self._memory = self._take(size_bytes)
        if self._first is None:
            self._first = self._memory
            self._views = sys.getrefcount(self._first)  # each array on it is one more
        self._address = address(self._memory)

    def column(self, dtype: np.dtype[Any], n_rows: int) -> NDArray[Any]:
        """Return room for a column, undefined values."""
        assert self._memory is not None
        start, self._used = self._used, self._used + aligned(n_rows * dtype.itemsize)
        return self._memory[start : start + n_rows * dtype.itemsize].view(dtype)

    def keep(self, array: NDArray[Any]) -> NDArray[Any]:
        """Take note of an array of lent memory (see `leases.lent`), where batches may stay as well; return it."""
        self._lent.append(array)
        self._number_of[id(array)] = len(self._lent)
        return array

    def keep_bytes(self, memory: NDArray[np.uint8]) -> None:
        """Take note of lent memory that batches may be views of without having it as their base."""
        self.keep(memory)
        self._ranges.append((address(memory), memory.nbytes, len(self._lent)))

    def own(self, arrays: Sequence[NDArray[Any]]) -> list[NDArray[Any]]:
        """Return arrays that user code, called again, will not write to: copies of those of memory of its own."""
        return [array if self._knows(array) else array.copy() for array in arrays]

    def pack(self, parts: Sequence[Part]) -> Packed:
        """Lay out the batches, copying only arrays that do not lie in this memory, or lent memory, already."""
        used = self._used if any(self._holds(array) for part in parts for array in part.arrays) else 0
        plan = _Plan(used, self._place)
        for part in parts:
            plan.add(part)
        if plan.end > (0 if self._memory is None else len(self._memory)):
            if self._memory is not None:  # what lies there moves as well
                plan = _Plan(
                    0, lambda array, rows: None if (place := self._place(array, rows)) and not place[0] else place
                )
                for part in parts:
                    plan.add(part)
            self.open(plan.end)
        for array, offset, rows, step in plan.copies:
            if not array.nbytes:
                continue
            assert self._memory is not None
            _copy(array, self._memory, offset, rows, step)
        return Packed(tuple(plan.layouts), tuple(plan.batches), plan.end, tuple(self._lent))

    def leave(self, packed: Packed) -> Packed:
        """Leave memory to user code if that has kept arrays on it (its input, say); what was packed there moves.

        To be called when all others that had such arrays have dropped them. Returns where the batches lie now.
        """
        self._number_of.clear()
        kept = [i for i in range(len(packed.lent)) if sys.getrefcount(self._lent[i]) > _REFERENCES]
        moved = tuple(array.copy() if i in kept else array for i, array in enumerate(packed.lent))
        first, size = self._first, packed.size_bytes
        if first is not None and self._used:
            elsewhere = self._memory is not first
            self.kept = sys.getrefcount(first) - 1 > self._views - elsewhere  # `first` here is one, too
            if self.kept and size and not elsewhere:
                self.open(size)
                assert self._memory is not None
                self._memory[:size] = first[:size]
        return replace(packed, lent=moved) if kept else packed

    def _knows(self, array: NDArray[Any]) -> bool:
        if id(array) in self._number_of or id(array.base) in self._number_of or self._holds(array):
            return True
        return any(0 <= address(array) - start < size for start, size, _ in self._ranges)

    def _holds(self, array: NDArray[Any]) -> bool:
        if self._memory is None or array.flags.owndata:
            return False
        return 0 <= address(array) - self._address < len(self._memory)

    def _place(self, array: NDArray[Any], rows: int | None) -> tuple[int, int] | None:
        """Return (memory, bytes from its start) of an array that can stay there; `rows`: of each of its batches."""
        number = self._number_of.get(id(array))
        if number is not None:
            return number, 0
        if not array.flags.c_contiguous:
            return None
        number = self._number_of.get(id(array.base))
        if number is not None:
            return number, address(array) - address(self._lent[number - 1])
        for start, size, number in self._ranges:
            if address(array) - start >= 0 and address(array) - start + array.nbytes <= size:
                return number, address(array) - start
        if rows is not None and _bytes_of(array, rows) % ALIGNMENT:
            return None
        if self._holds(array):
            offset = address(array) - self._address
            return None if offset % ALIGNMENT else (0, offset)
        return self._adopted(array)

    def _adopted(self, array: NDArray[Any]) -> tuple[int, int] | None:
        """Return the place of an array of user code's own that need not move: large, new, and aligned as ours are."""
        owner = array.base
        if not self._adopts or array.nbytes < _LARGE or not isinstance(owner, np.ndarray) or not owner.flags.owndata:
            return None
        if address(array) % ALIGNMENT or not array.flags.writeable:
            return None
        self.keep(owner)
        return len(self._lent), address(array) - address(owner)


_LARGE = 1 << 16
_REFERENCES = 3  # to a lent array that nobody has kept: the tray's, that of what is packed, and the count's own


_ADDRESS_BITS = 48  # no memory is larger


class _Plan:
    """Places for the arrays of a run, one after the other."""

    def __init__(self, end: int, kept: Callable[[NDArray[Any], int | None], tuple[int, int] | None]) -> None:
        self.end = end
        self.layouts: list[tuple[Spec, tuple[Place, ...]]] = []
        self.batches: list[tuple[int, int, int]] = []
        self.copies: list[tuple[NDArray[Any], int, int | None, int]] = []
        self._kept = kept
        self._known: dict[Any, int] = {}
        self._taken: list[int] = []  # where arrays that stay begin and end, in turn, sorted (see `_claimed`)

    def add(self, part: Part) -> None:
        if part.cuts is not None and part.rows is not None:
            self._add_cut(part, part.rows, part.cuts)
            return
        rows = None if part.rows is None else part.rows[0]
        start = self.end
        stays = [self._stays(array, rows) for array in part.arrays]
        if any(kept is not None and not kept[0] for kept in stays):
            start = 0
        places: list[Place] = []
        for array, kept in zip(part.arrays, stays, strict=True):
            shape, step = array.shape, 0
            if rows is not None:
                shape, step = (rows, *shape[1:]), _bytes_of(array, rows)
                step = step if kept is not None else aligned(step)
            memory, offset = (0, self.end) if kept is None else kept
            if kept is None:
                self.copies.append((array, offset, rows, step))
                self.end += aligned(array.nbytes) if part.rows is None else step * len(part.rows)
            places.append((array.dtype, shape, offset if memory else offset - start, step, memory, None))
        layout = self._layout(part.spec, tuple(places))
        if part.rows is None:
            self.batches.append((layout, start, 0))
            return
        self.batches += [(layout, start, i) for i in range(len(part.rows) - 1)]
        if part.rows[-1] != rows:
            layout = self._layout(part.spec, _shortened(places, part.rows[-1]))
        self.batches.append((layout, start, len(part.rows) - 1))

    def _add_cut(self, part: Part, rows: Sequence[int], cuts: Sequence[Sequence[int] | None]) -> None:
        """Add batches whose arrays differ in length.

        Arrays that are cut by rows begin aligned in each batch, the others where the batch before ends; these may stay.
        """
        places: list[Place] = []
        for array, bounds in zip(part.arrays, cuts, strict=True):
            if bounds is None:
                shape = (rows[0], *array.shape[1:])
                step = aligned(_bytes_of(array, rows[0]))
                places.append((array.dtype, shape, self.end, step, 0, None))
                self.copies.append((array, self.end, rows[0], step))
                self.end += step * len(rows)
                continue
            kept = self._stays(array, None)
            memory, start = kept or (0, self.end)
            places.append((array.dtype, array.shape, start, 0, memory, bounds))
            if kept is None:
                self.copies.append((array, start, None, 0))
                self.end += aligned(array.nbytes)
        self.layouts.append((part.spec, tuple(places)))
        if rows[-1] != rows[0]:
            self.layouts.append((part.spec, _shortened(places, rows[-1])))
        first = len(self.layouts) - 1 - (rows[-1] != rows[0])
        self.batches += [(first, 0, i) for i in range(len(rows) - 1)]
        self.batches.append((len(self.layouts) - 1, 0, len(rows) - 1))

    def _stays(self, array: NDArray[Any], rows: int | None) -> tuple[int, int] | None:
        """Return where an array can stay; None where it must be copied, lest two share memory: each gets its own."""
        kept = self._kept(array, rows)
        return kept if kept is not None and self._claimed(*kept, array.nbytes) else None

    def _claimed(self, memory: int, start: int, size_bytes: int) -> bool:
        """Let an array stay where it lies; False where another one that stays lies there, in whole or in part."""
        if not size_bytes:
            return True
        begin = (memory << _ADDRESS_BITS) + start
        end = begin + size_bytes
        place = bisect_right(self._taken, begin)
        if place % 2 or (place < len(self._taken) and self._taken[place] < end):
            return False
        self._taken[place:place] = begin, end
        return True

    def _layout(self, spec: Spec, places: tuple[Place, ...]) -> int:
        layout = (spec, places)
        if has_rest(spec):
            self.layouts.append(layout)
            return len(self.layouts) - 1
        number = self._known.setdefault(layout, len(self.layouts))
        if number == len(self.layouts):
            self.layouts.append(layout)
        return number


def unpack(packed: Packed, memory: NDArray[np.uint8]) -> Iterator[Any]:
    """Yield the batches; their arrays are views of `memory` and of what is lent, as writable as these are."""
    memories = (memory, *(memory if array is None else array for array in packed.lent))
    for (number, start), batches in groupby(packed.batches, key=itemgetter(0, 1)):
        steps = [step for _, _, step in batches]
        spec, places = packed.layouts[number]
        for arrays in _arrays(places, memories, start, steps):
            if spec[0] == "arrays":
                yield dict(zip(spec[1], arrays, strict=True))
            else:
                yield put_together(spec, iter(arrays).__next__)


def _arrays(
    places: Sequence[Place], memories: Sequence[NDArray[Any]], start: int, steps: Sequence[int]
) -> Iterator[tuple[NDArray[Any], ...]]:
    """Yield the arrays of some batches of one layout."""
    if places and len(steps) > 1 and steps[-1] - steps[0] == len(steps) - 1:
        yield from zip(*(_neighbours(place, memories, start, steps) for place in places), strict=True)
    else:
        for number in steps:
            yield tuple(_array(place, memories, start, number) for place in places)


def _array(place: Place, memories: Sequence[NDArray[Any]], start: int, number: int) -> NDArray[Any]:
    """Return the array of one batch."""
    dtype, shape, offset, step, at, cuts = place
    array: NDArray[Any] = np.ndarray(shape, dtype, memories[at], offset + (0 if at else start) + number * step)
    return array if cuts is None else array[cuts[number] : cuts[number + 1]]


def _neighbours(
    place: Place, memories: Sequence[NDArray[Any]], start: int, steps: Sequence[int]
) -> Iterable[NDArray[Any]]:
    """Return the arrays of neighbouring batches: of one array over all of them, twice as fast as one by one."""
    dtype, shape, offset, step, at, cuts = place
    origin = offset + (0 if at else start)
    if cuts is not None:
        whole = np.ndarray(shape, dtype, memories[at], origin)
        return [whole[cuts[number] : cuts[number + 1]] for number in steps]
    strides = _strides(dtype, shape, step)
    return np.ndarray((len(steps), *shape), dtype, memories[at], origin + steps[0] * step, strides)


def _shortened(places: Sequence[Place], n_rows: int) -> tuple[Place, ...]:
    """Return the places of a last batch that has fewer rows."""
    return tuple(
        (d, s if cuts is not None else (n_rows, *s[1:]), at, step, m, cuts) for d, s, at, step, m, cuts in places
    )


def _strides(dtype: np.dtype[Any], shape: tuple[int, ...], step: int) -> tuple[int, ...]:
    """Return the strides of an array whose items, C-contiguous, lie so many bytes apart."""
    strides = [dtype.itemsize]
    for n in reversed(shape[1:]):
        strides.append(strides[-1] * n)
    return step, *reversed(strides)


def _copy(array: NDArray[Any], memory: NDArray[np.uint8], offset: int, rows: int | None, step: int) -> None:
    if rows is None or step == _bytes_of(array, rows):
        put(np.ndarray(array.shape, array.dtype, memory, offset), array)
        return
    for number, start in enumerate(range(0, len(array), rows)):
        part = array[start : start + rows]
        put(np.ndarray(part.shape, array.dtype, memory, offset + number * step), part)


def _bytes_of(array: NDArray[Any], rows: int) -> int:
    """Return the bytes of so many rows of an array that has some."""
    return array.nbytes // len(array) * rows


def _nbytes(dtype: np.dtype[Any], shape: tuple[int, ...]) -> int:
    size = dtype.itemsize
    for n in shape:
        size *= n
    return size
