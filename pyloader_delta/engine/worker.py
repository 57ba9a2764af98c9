"""A worker process: carries out tasks for its parent, and never outlives it."""

from __future__ import annotations

import os
import pickle
import select
import signal
import socket
import sys
import threading
import traceback
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from queue import SimpleQueue
from types import FunctionType
from typing import Any

import cloudpickle
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pyloader_delta.engine.blocks import Blocks
from pyloader_delta.engine.channel import Channel
from pyloader_delta.engine.leases import Lease
from pyloader_delta.engine.mapped import advise
from pyloader_delta.engine.pack import EMPTY, Packed, Tray
from pyloader_delta.engine.region import Layout, load_layout, mix
from pyloader_delta.engine.shared import named
from pyloader_delta.engine.slabs import Slab, capacity_for
from pyloader_delta.engine.tasks import MixTask, ReadTask, RunTask, Segment
from pyloader_delta.engine.window import WindowBlocks
from pyloader_delta.engine.work import Made, Workshop, add_place
from pyloader_delta.errors import ContractError, StageError

_WINDOWS_OPEN = 3
_SHORT = 1 << 14  # bytes of a stream that needs no slab: of rows placed elsewhere, as a rule
_IDLE_MS = 200  # without a task, after which what Arrow has freed and keeps goes back to the system

BlockRef = tuple[int, int] | bytes
"""(slab, bytes from its start that hold an Arrow stream), or a short stream itself; empty where a read gave no rows."""
RegionRef = tuple[int, int, bytes, frozenset[str] | None]
"""(slab, rows, pickled layout, columns placed by all its readers)."""
Reply = tuple[tuple[Any, ...], list[int]]
"""A message and the descriptors with it."""


def main(fd: int, parent: int) -> None:
    """Run until the parent closes the channel or dies."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle: it ends its workers
    _die_with(parent)
    os.set_inheritable(fd, False)  # else a program that user code starts would keep it open when this process is gone
    channel = Channel(socket.socket(fileno=fd))
    os.register_at_fork(after_in_child=channel.close)  # the parent waits for the end of this channel, not of a copy
    try:
        (start, path, cwd), _ = channel.recv()
        sys.path[:] = path
        os.chdir(cwd)
        worker = _Worker(channel, start)
    except EOFError:
        return
    except BaseException as error:
        channel.send(("broken", portable(error)))
        return
    try:
        channel.send(("ready",))
        worker.work()
    except (EOFError, ConnectionError):
        pass  # the parent has closed
    except BaseException as error:
        with suppress(OSError):
            channel.send(("broken", portable(error)))
    finally:
        worker.close()


class _Worker:
    """One worker's slabs and its copy of the user's objects."""

    def __init__(self, channel: Channel, start: bytes) -> None:
        pa.set_cpu_count(1)
        stages = pickle.loads(start)  # the user's own objects, sent by the parent
        _name_main(stages)
        stages.seeds_globals = True
        self._channel, self._workshop = channel, Workshop(stages)
        self._slabs: dict[int, Slab] = {}
        self._fresh: list[Slab] = []
        """Slabs that the parent has not got yet: their descriptors are kept until then."""
        self._made = self._lent = 0
        self._drops: SimpleQueue[int] = SimpleQueue()
        """Leases on windows that user code holds no more."""
        self._windows: OrderedDict[tuple[int, ...], WindowBlocks] = OrderedDict()

    def work(self) -> None:
        """Carry out tasks until the channel ends."""
        waiting = select.poll()
        waiting.register(self._channel.fileno(), select.POLLIN)
        while True:
            if not waiting.poll(_IDLE_MS):
                pa.default_memory_pool().release_unused()
            message, fds = self._channel.recv()
            number, task, windows, regions, granted, new, gone, lends = message
            try:
                self._map(gone, new, fds)
                if isinstance(task, ReadTask):
                    done = self._read(number, task, regions[0], granted)
                elif isinstance(task, MixTask):
                    done = self._mix(number, task, regions[0])
                else:
                    done = self._run(number, task, windows, regions, granted, lends)
            except BaseException as error:
                error.add_note(f"pyloader_delta: {task}")
                self._slabs = {n: slab for n, slab in self._slabs.items() if slab not in self._fresh}
                done = ("failed", number, task.number, portable(error), list(self._slabs)), []
            del message, task, windows
            self._channel.send(*done)
            while self._fresh:
                self._fresh.pop().close()

    def close(self) -> None:
        """Close the user's objects."""
        self._workshop.close()

    def _map(self, gone: list[int], new: list[tuple[int, int]], fds: list[int]) -> None:
        """Let go of slabs and map others; their descriptors are not kept."""
        for slab in gone:
            self._slabs.pop(slab, None)
        left = list(fds)
        try:
            for slab, capacity in new:
                made = Slab(capacity, shared=True, fd=left.pop(0))
                made.close()
                self._slabs[slab] = made
        finally:
            for fd in left:
                os.close(fd)

    def _read(self, number: int, task: ReadTask, ref: RegionRef | None, granted: int | None) -> Reply:
        made = None
        fds: list[int] = []
        blocks = self._workshop.read(task, None if ref is None else self._region(ref))
        size = _stream_size(blocks)
        block: BlockRef
        if size <= _SHORT:
            sink = pa.BufferOutputStream()
            _stream(blocks, sink)
            block = sink.getvalue().to_pybytes()
        else:
            slab, made, fds = self._slab(size, granted)
            _stream(blocks, pa.FixedSizeBufferWriter(pa.py_buffer(self._slabs[slab].map)))
            block = slab, size
        result = blocks.rows, block, blocks.placed_bytes, blocks.types, blocks.placed, blocks.layout, made
        return ("read", number, task.number, *result), fds

    def _mix(self, number: int, task: MixTask, ref: RegionRef | None) -> Reply:
        if ref is not None:
            mix(self._region(ref)[1], ref[3] or (), task.n_rows, task.key, self._workshop.scratch)
        return ("mixed", number, task.number), []

    def _region(self, ref: RegionRef) -> tuple[Layout, dict[str, NDArray[Any]]]:
        slab, n_rows, text, _ = ref
        layout = load_layout(text)
        return layout, layout.arrays(self._slabs[slab].array, n_rows)

    def _run(
        self, number: int, task: RunTask, refs: list[list[BlockRef]], regions: list[RegionRef | None],
        granted: int | None, lends: list[bool],
    ) -> Reply:  # fmt: skip
        slabs: list[tuple[int, int | None, list[int]]] = []

        written = 0  # of what was granted: it may turn out to be too small

        def take(size_bytes: int) -> NDArray[np.uint8]:
            nonlocal written
            slabs.append(self._slab(size_bytes, None if slabs else granted))
            written = size_bytes if slabs[-1][0] == granted else written
            return self._slabs[slabs[-1][0]].array

        windows: list[WindowBlocks] = []
        tray = Tray(take)
        leases: list[Lease | None] = []
        given: dict[int, int] = {}
        for segment, lent in enumerate(lends):
            leases.append(self._lease() if lent else None)
            given |= {self._lent: segment} if lent else {}
        try:
            windows = (
                self._workshop.again(task)
                if task.again and self._workshop.lends
                else [
                    self._window(number, segment, blocks, region)
                    for segment, blocks, region in zip(task.segments, refs, regions, strict=True)
                ]
            )
            made = self._workshop.run(task, windows, tray, leases)
        except BaseException as raised:
            made = Made(EMPTY, 0.0, raised)
        made, names = self._in_slabs(made, refs, regions, slabs, take)
        try:
            packed = _described(made.packed)
        except Exception as raised:
            error = ContractError(f"collate_batch returned something that cannot be pickled: {raised}")
            n_made = _picklable(made.packed)
            add_place(error, task, windows, n_made)
            made = Made(made.packed.first(n_made), made.seconds, error)
            packed = cloudpickle.dumps(made.packed, protocol=5)
        problem = None if made.error is None else portable(made.error)
        used, new, fds = slabs.pop() if slabs and made.packed.size_bytes else (None, None, [])
        kept = slabs[0][0] if tray.kept else None
        for slab, capacity, _ in slabs:
            if capacity is not None or slab == kept:
                self._slabs.pop(slab).close()  # too small and seen by nobody else, or the user's own now
        result = packed, names, made.packed.size_bytes, used, new, made.seconds, problem, kept, written
        del tray, made, windows
        leases.clear()
        return ("run", number, task.number, *result, *self._ended(given)), fds

    def _lease(self) -> Lease:
        self._lent += 1
        return Lease(self._lent, self._drops)

    def _ended(self, given: dict[int, int]) -> tuple[list[tuple[int, int]], list[int]]:
        """Return which leases user code still holds of those just given, with their segments, and which older ones end.

        Args:
            given: Segment of the run by the number of the lease on its window.
        """
        ended = set()
        while not self._drops.empty():
            ended.add(self._drops.get())
        kept = [(lease, segment) for lease, segment in given.items() if lease not in ended]
        return kept, list(ended - given.keys())

    def _in_slabs(
        self, made: Made, refs: list[list[BlockRef]], regions: list[RegionRef | None],
        slabs: list[tuple[int, int | None, list[int]]], take: Callable[[int], NDArray[np.uint8]],
    ) -> tuple[Made, list[int | None]]:  # fmt: skip
        """Return what was made as the parent finds it, and which slab each of its memories is."""
        if not made.packed.lent:
            return made, []

        def own(size_bytes: int) -> NDArray[np.uint8]:
            there = self._slabs[slabs[-1][0]].array if made.packed.size_bytes else None
            if there is not None and len(there) >= size_bytes:
                return there
            room = take(size_bytes)
            if there is not None:
                room[: made.packed.size_bytes] = there[: made.packed.size_bytes]
            return room

        numbers = {ref[0] for window in refs for ref in window if isinstance(ref, tuple)}
        numbers |= {region[0] for region in regions if region is not None}
        packed, names = named(made.packed, {number: self._slabs[number].array for number in numbers}, own)
        return replace(made, packed=packed), names

    def _slab(self, size: int, granted: int | None) -> tuple[int, int | None, list[int]]:
        """Return a slab that takes so many bytes: (its number, its capacity and descriptor if it is new)."""
        if granted is not None and self._slabs[granted].capacity >= size:
            return granted, None, []
        slab = Slab(capacity_for(size, shared=True), shared=True)
        self._fresh.append(slab)
        self._made += 1
        number = (os.getpid() << 32) + self._made  # no other worker's: numbers are the pool's names for all of them
        self._slabs[number] = slab
        assert slab.fd is not None
        return number, slab.capacity, [slab.fd]

    def _window(self, number: int, segment: Segment, refs: list[BlockRef], ref: RegionRef | None) -> WindowBlocks:
        key = (number, *segment.reads)
        window = self._windows.get(key)
        if window is None:
            batches = [batch for block in refs for batch in _opened(self._stream_of(block))]
            layout, arrays = (None, None) if ref is None else self._region(ref)
            mixed = frozenset() if ref is None or ref[3] is None else ref[3]
            memories = [self._slabs[block[0]].array for block in refs if isinstance(block, tuple)]
            window = self._windows[key] = WindowBlocks(
                batches, layout=layout, region=arrays, mixed=mixed, key=segment.key, own=True, memories=memories
            )
            while len(self._windows) > _WINDOWS_OPEN:
                self._windows.popitem(last=False)
        self._windows.move_to_end(key)
        return window

    def _stream_of(self, block: BlockRef) -> pa.Buffer:
        if isinstance(block, bytes):
            return pa.py_buffer(block)
        slab, size = block
        return pa.py_buffer(self._slabs[slab].map).slice(0, size)


def portable(error: BaseException) -> bytes:
    """Return an error pickled with the worker's traceback as a note; a StageError with its text where it cannot be.

    `__cause__` does not survive pickling, so its text is in that traceback.
    """
    advise(error)
    text = "".join(traceback.format_exception(error)).rstrip()
    error.add_note(f"in worker process {os.getpid()}:\n{text}")
    try:
        pickled = cloudpickle.dumps(error)
        if type(pickle.loads(pickled)) is type(error):
            return pickled  # type: ignore[no-any-return]
    except BaseException:  # a user's own __reduce__ may raise anything
        pass
    try:
        substitute = StageError(f"{type(error).__name__}: {error}")
    except BaseException:  # a user's own __str__ may raise anything
        substitute = StageError(f"{type(error).__name__}, whose text cannot be had")
    for note in error.__notes__:
        substitute.add_note(note)
    return cloudpickle.dumps(substitute)  # type: ignore[no-any-return]


def _name_main(stages: Any) -> None:
    """Give this process's main module the classes and functions of the script's or notebook's that came by value.

    So their objects pickle by name here, as they do there; with the class itself each would take kilobytes.
    """
    main = sys.modules["__main__"]
    kinds = {kind for owner in vars(stages).values() for kind in type(owner).__mro__ if kind.__module__ == "__main__"}
    for kind in kinds:
        for value in (kind, *vars(kind).values()):
            for found in (value, *getattr(value, "__globals__", {}).values()):
                by_name = isinstance(found, type | FunctionType) and found.__qualname__ == found.__name__
                if by_name and found.__module__ == "__main__":
                    setattr(main, found.__name__, found)


def _picklable(packed: Packed) -> int:
    """Return how many batches, from the first, can be pickled."""
    for number, (layout, _, _) in enumerate(packed.batches):
        try:
            cloudpickle.dumps(packed.layouts[layout], protocol=5)
        except Exception:
            return number
    return len(packed.batches)


def _described(packed: Packed) -> bytes:
    with suppress(Exception):
        pickled = pickle.dumps(packed, protocol=5)
        if b"__main__" not in pickled:  # else there may be another class of that name by now
            return pickled
    return cloudpickle.dumps(packed, protocol=5)  # type: ignore[no-any-return]


def _stream_size(blocks: Blocks) -> int:
    sink = pa.MockOutputStream()
    _stream(blocks, sink)
    return int(sink.size())


def _stream(blocks: Blocks, sink: Any) -> None:
    for batch in blocks.batches:
        with pa.ipc.new_stream(sink, batch.schema) as writer:
            writer.write_batch(batch)


def _opened(stream: pa.Buffer) -> list[pa.RecordBatch]:
    source = pa.BufferReader(stream)
    batches = []
    while source.tell() < stream.size:
        batches += list(pa.ipc.open_stream(source))
    return batches


def _die_with(parent: int) -> None:
    """End this process when the parent ends, also where it ended before the kernel was asked to tell (see `launch`)."""
    if os.getppid() != parent:
        os._exit(1)
    watched = os.pidfd_open(parent)

    def watch() -> None:
        ended = select.poll()
        ended.register(watched, select.POLLIN)
        ended.poll()
        os._exit(1)

    threading.Thread(target=watch, name="pyloader_delta-parent-watch", daemon=True).start()
