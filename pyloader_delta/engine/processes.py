"""The executor of worker processes: one thread starts them, hears them, replaces the dead and ends them all."""

from __future__ import annotations

import os
import pickle
import selectors
import subprocess
import threading
import time
import weakref
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyloader_delta.engine.channel import Channel
from pyloader_delta.engine.core import Engine
from pyloader_delta.engine.executor import Executor, started
from pyloader_delta.engine.launch import ending, launch, pickled
from pyloader_delta.engine.leases import Lease, lent
from pyloader_delta.engine.mapped import advise, refused
from pyloader_delta.engine.pack import EMPTY, Packed
from pyloader_delta.engine.region import Region, load_layout
from pyloader_delta.engine.slabs import Slab
from pyloader_delta.engine.tasks import MixTask, ReadTask, RunTask, Task
from pyloader_delta.engine.work import StagesLike
from pyloader_delta.errors import StageError, WorkerDied

if TYPE_CHECKING:
    from pyloader_delta.engine.worker import BlockRef

_GRACE_S = 2.0  # a worker that is told to end may take this long, its user's close() included; kill comes next
_EXIT_S = 5.0
_START_DEATHS = 2  # workers that die before their first task, in a row, until it is an error
_SPARE = 1 << 16  # bytes beyond a read's estimate that its slab should have: an Arrow stream's own


class _Member:
    """One worker process."""

    def __init__(self, process: subprocess.Popen[bytes], channel: Channel) -> None:
        self.process, self.channel = process, channel
        self.ready = False
        self.started = False
        """Whether it was ever ready."""
        self.retired = False
        """Whether it was killed because its task took too long: what it still says is nobody's."""
        self.slabs: set[int] = set()
        """Slabs that it has mapped."""
        self.granted: int | None = None
        """The slab that its task may fill."""
        self.leases: list[tuple[list[int], Lease] | None] = []
        """Of each segment of its run: slabs in which batches may stay, and what keeps these; None where nothing may."""
        self.kept: dict[int, Lease] = {}
        """The same of windows that user code of the worker still holds, by its own number."""


class ProcessExecutor(Executor):
    """Workers that are processes. Blocks and batches travel through shared slabs, only their descriptions as messages.

    Args:
        stages: The user's objects; pickled now.
        n_workers: Workers, >= 1.

    Raises:
        ConfigError: The user's objects cannot be pickled.
    """

    shared = True

    def __init__(self, stages: StagesLike, n_workers: int) -> None:
        self.n_workers = n_workers
        self._start_message = pickled(stages)
        self._lends = stages.lends
        self._members: dict[int, _Member] = {}
        self._run_bytes = self._block_bytes = 0
        self._closing = False
        self._start_deaths = 0
        self._thread: threading.Thread | None = None
        self._wake = -1
        _live.add(self)

    # Under the engine's lock ----------------------------------------------------------------------------------------

    def start(self, engine: Engine) -> None:
        self._engine = engine
        try:
            self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        except OSError as error:
            raise refused(error, "a descriptor for workers") from error
        self._thread = started(threading.Thread(target=self._pump, name="pyloader_delta-processes", daemon=True))

    def available(self, worker: int) -> bool:
        """Whether a worker has started and can take tasks."""
        member = self._members.get(worker)
        return member is not None and member.ready

    def submit(self, worker: int, number: int, task: Task) -> None:
        member, engine, pool = self._members[worker], self._engine, self._engine.pool
        windows = [segment.window for segment in task.segments] if isinstance(task, RunTask) else [task.window]
        regions = [_region_ref(engine.region(number, task.epoch, window)) for window in windows]
        refs: list[list[BlockRef]] = []
        lends: list[bool] = []
        if isinstance(task, RunTask):
            refs = [[engine.blocks[read] for read in segment.reads] for segment in task.segments]
            member.granted = pool.find(self._run_bytes)
            member.leases = [self._lent(number, task, i, refs[i], regions[i]) for i in range(len(refs))]
            lends = [lease is not None for lease in member.leases]
        elif isinstance(task, ReadTask):
            size = sum(chunk.size_bytes for chunk in task.chunks) + _SPARE
            size = size if regions[0] is None else self._block_bytes
            member.granted = pool.find(size) if size else None
        needed = {slab for window in refs for slab in self.slabs(window)}
        needed |= {region[0] for region in regions if region is not None}
        needed |= {member.granted} if member.granted is not None else set()
        new, gone = sorted(needed - member.slabs), member.slabs - pool.numbers
        member.slabs = (member.slabs | needed).difference(gone)
        mapped = [(slab, pool[slab].capacity) for slab in new]
        message = (number, task, refs, regions, member.granted, mapped, gone, lends)
        with suppress(OSError):  # it died; the pump sees the end of its channel and gives the task to another
            member.channel.send(message, [fd for slab in new if (fd := pool[slab].fd) is not None])

    def _lent(
        self, number: int, task: RunTask, segment: int, blocks: list[BlockRef],
        region: tuple[int, int, bytes, frozenset[str] | None] | None,
    ) -> tuple[list[int], Lease] | None:  # fmt: skip
        """Return the slabs of a run's window in which batches may stay, with a lease on them; None for none."""
        if not self._lends or task.again:
            return None
        slabs = self.slabs(blocks)
        size = sum(block[1] for block in blocks if isinstance(block, tuple))
        size += 0 if region is None else load_layout(region[2]).size_bytes(region[1])
        lease = self._engine.lease(number, task.epoch, task.segments[segment].window, size, slabs)
        return None if lease is None else ([*slabs, *([] if region is None else [region[0]])], lease)

    def discard(self, block: BlockRef) -> None:
        if isinstance(block, tuple):
            self._engine.pool.give(block[0])

    def slabs(self, blocks: list[BlockRef]) -> list[int]:
        return [block[0] for block in blocks if isinstance(block, tuple)]

    def wait(self, changed: threading.Condition, timeout_s: float | None) -> None:
        changed.wait(timeout_s)

    def retire(self, worker: int) -> bool:
        member = self._members.get(worker)
        if member is not None:
            member.ready, member.retired = False, True
            member.process.kill()
        return True

    # Without it -----------------------------------------------------------------------------------------------------

    def nudge(self) -> None:
        if self._wake >= 0:
            with suppress(OSError):  # closed meanwhile
                os.eventfd_write(self._wake, 1)

    def close(self, *, wait: bool) -> None:
        self._closing = True
        for member in list(self._members.values()):
            member.channel.shut()  # the pump may be in the middle of a message that a stopped worker does not end
        self.nudge()
        if wait and self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(_GRACE_S + _EXIT_S)

    def after_fork(self) -> None:
        """Let go of the parent's descriptors in a forked child: ends of channels must not stay open there."""
        for member in self._members.values():
            member.channel.close()

    # The pump's thread ----------------------------------------------------------------------------------------------

    def _pump(self) -> None:
        engine = self._engine
        selector = selectors.DefaultSelector()
        selector.register(self._wake, selectors.EVENT_READ)
        try:
            for worker in range(self.n_workers):
                self._launch(worker, selector)
            while not self._closing:
                for key, _ in selector.select():
                    if key.data is None:
                        os.eventfd_read(self._wake)
                        if not self._closing:
                            with engine.lock:
                                engine.look_after()
                    else:
                        self._hear(key.data, selector)
                del key  # an object in a frame that sleeps would stay alive
        except BaseException as error:
            advise(error)
            with engine.lock:
                engine.fail(error)
        finally:
            self._end_all()
            if self._closing:
                with engine.lock:
                    engine.pool.close()
            selector.close()
            wake, self._wake = self._wake, -1
            os.close(wake)

    def _launch(self, worker: int, selector: selectors.BaseSelector) -> None:
        try:
            process, channel = launch(self._start_message)
        except OSError as error:
            raise refused(error, f"a process for worker {worker}") from error
        with self._engine.lock:
            self._members[worker] = _Member(process, channel)
        selector.register(channel, selectors.EVENT_READ, worker)

    def _hear(self, worker: int, selector: selectors.BaseSelector) -> None:
        member = self._members[worker]
        try:
            message, fds = member.channel.recv()
        except (EOFError, ConnectionError):
            selector.unregister(member.channel)
            if self._closing:
                return  # all of them have one time to end in
            self._bury(worker, member)
            if not self._closing and self._start_deaths < _START_DEATHS:
                self._launch(worker, selector)
            return
        except OSError as error:
            raise refused(error, f"descriptors that worker {worker} sends") from error
        if member.retired:
            for fd in fds:
                os.close(fd)
            return
        with self._engine.lock:
            self._take_in(worker, member, message, fds)
            self._engine.look_after()

    def _take_in(self, worker: int, member: _Member, message: Any, fds: list[int]) -> None:
        engine, word = self._engine, message[0]
        if word == "ready":
            member.ready = member.started = True
            self._start_deaths = 0
            return
        if word == "broken":
            self._start_deaths = _START_DEATHS
            engine.fail(_arrived(message[1]))
            return
        task, number = engine.task_of(worker), message[1]
        if word == "failed":
            self._return_grant(member, None, None)
            member.slabs.intersection_update(message[4])
            member.leases.clear()
            engine.task_failed(worker, number, task, _arrived(message[3]))
        elif word == "mixed":
            assert isinstance(task, MixTask)
            engine.mix_finished(worker, number, task)
        elif word == "read":
            _, _, _, rows, block, placed_bytes, types, placed, layout, made = message
            slab, size = block if isinstance(block, tuple) else (None, len(block))
            if slab is not None:
                self._adopt(member, slab, made, fds, size)
                self._block_bytes = expected_bytes(size, self._block_bytes) if placed is not None else self._block_bytes
            self._return_grant(member, slab, 0)
            assert isinstance(task, ReadTask)
            engine.read_finished(worker, number, task, block, rows, size + placed_bytes, types, placed, layout)
        else:
            _, _, _, packed, names, size, slab, made, seconds, problem, kept, written, held, ended = message
            if kept is not None and kept == member.granted:  # user code holds arrays on it
                engine.pool.disown(kept)
                member.slabs.discard(kept)
                member.granted = None
            if slab is not None:
                self._adopt(member, slab, made, fds, size)
                self._run_bytes = expected_bytes(size, self._run_bytes)
            self._return_grant(member, slab, written)
            assert isinstance(task, RunTask)
            error = None if problem is None else _arrived(problem)
            try:
                packed = self._found(pickle.loads(packed), names, member)
            except BaseException as raised:  # a user's own __setstate__ may raise anything
                raised.add_note(f"pyloader_delta: unpickling what collate_batch returned, {task}")
                packed, error = EMPTY, raised
                if slab is not None:
                    engine.pool.give(slab)
                    slab = None
            member.kept |= {number: lease[1] for number, i in held if (lease := member.leases[i]) is not None}
            for dropped in ended:
                member.kept.pop(dropped, None)
            member.leases.clear()
            engine.run_finished(worker, number, task, packed, slab, seconds, error)

    def _found(self, packed: Packed, names: list[int | None], member: _Member) -> Packed:
        """Return batches with the memories that a worker has named."""
        if not names:
            return packed
        pool = self._engine.pool
        leases = {slab: lease for slabs, lease in filter(None, member.leases) for slab in slabs}
        lent_there = [name if name is None else lent(pool[name].array, leases[name]) for name in names]
        return replace(packed, lent=tuple(lent_there))

    def _adopt(self, member: _Member, slab: int, capacity: int | None, fds: list[int], size: int) -> None:
        """Take a filled slab from a worker."""
        pool = self._engine.pool
        if capacity is not None:
            pool.add(Slab(capacity, shared=True, fd=fds[0]), slab)
            member.slabs.add(slab)
        pool.touch(slab, size)

    def _return_grant(self, member: _Member, used: int | None, written: int | None) -> None:
        """Take back the slab that a worker was granted.

        Args:
            member: The worker.
            used: The slab that its result lies in, which may be that one.
            written: Bytes of it that were; None where nobody knows.
        """
        pool, granted = self._engine.pool, member.granted
        if granted is not None and granted in pool:
            pool.touch(granted, pool[granted].capacity if written is None else written)
            if granted != used:
                pool.give(granted)
        member.granted = None

    def _bury(self, worker: int, member: _Member) -> None:
        """Take note of a worker's end; its task is given to another."""
        member.channel.close()
        _end(member.process, time.monotonic() + (_GRACE_S if self._closing else _EXIT_S))
        how = ending(member.process)
        with self._engine.lock:
            if not member.started and not self._closing:
                self._start_deaths += 1
                if self._start_deaths >= _START_DEATHS:
                    self._engine.fail(WorkerDied(f"worker {worker} {how} while it started"))
            self._return_grant(member, None, None)
            del self._members[worker]
            self._engine.worker_lost(worker, how)
            self._engine.look_after()

    def _end_all(self) -> None:
        with self._engine.lock:
            members = list(self._members.values())
            self._members.clear()
        for member in members:
            member.channel.shut()
        deadline = time.monotonic() + _GRACE_S
        for member in members:
            _end(member.process, deadline)
            member.channel.close()


def expected_bytes(size: int, before: int) -> int:
    """Return what a result will take: as much as the largest lately. Too small a slab is replaced by a new one."""
    return max(size, before - before // 8)


def _region_ref(region: Region | None) -> tuple[int, int, bytes, frozenset[str] | None] | None:
    return None if region is None else (region.slab, region.n_rows, region.layout, region.placed)


def _arrived(text: bytes) -> BaseException:
    """Return the error that a worker sent."""
    try:
        error = pickle.loads(text)
    except BaseException as raised:  # a user's own __setstate__ may raise anything
        return StageError(f"an error of a worker cannot be unpickled here: {type(raised).__name__}: {raised}")
    return error if isinstance(error, BaseException) else StageError(f"a worker sent {error!r} as its error")


def _end(process: subprocess.Popen[bytes], deadline: float) -> None:
    try:
        process.wait(max(deadline - time.monotonic(), 0.0))
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


_live: weakref.WeakSet[ProcessExecutor] = weakref.WeakSet()


def _close_in_child() -> None:
    for executor in list(_live):
        executor.after_fork()


os.register_at_fork(after_in_child=_close_in_child)
