"""Executors inside this process: in the caller's own thread, or in threads."""

from __future__ import annotations

import copy
import threading
import time
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyloader_delta.engine.blocks import Blocks
from pyloader_delta.engine.core import Engine
from pyloader_delta.engine.executor import Executor, started
from pyloader_delta.engine.leases import Lease
from pyloader_delta.engine.mapped import advise
from pyloader_delta.engine.pack import EMPTY, Tray
from pyloader_delta.engine.region import Layout, Region, load_layout, mix
from pyloader_delta.engine.tasks import MixTask, ReadTask, RunTask, Task
from pyloader_delta.engine.window import WindowBlocks
from pyloader_delta.engine.work import StagesLike, Workshop

_JOIN_TIMEOUT_S = 4.0  # for all of them together

Job = tuple[int, Task]


class InlineExecutor(Executor):
    """One worker: the caller, whenever it waits."""

    n_workers = 1
    shared = False
    works_in_wait = True

    def __init__(self, stages: StagesLike) -> None:
        self._workshop = Workshop(stages)
        self._jobs: deque[Job] = deque()

    def start(self, engine: Engine) -> None:
        self._engine = engine

    def submit(self, worker: int, number: int, task: Task) -> None:
        self._jobs.append((number, task))

    def discard(self, block: Blocks) -> None:
        pass

    def wait(self, changed: threading.Condition, timeout_s: float | None) -> None:
        number, task = self._jobs.popleft()
        error = _carry_out(self._engine, self._workshop, 0, number, task)
        if isinstance(error, KeyboardInterrupt):
            raise error  # Ctrl-C meant the training loop, and it means now

    def nudge(self) -> None:
        pass  # the caller looks after everything itself

    def retire(self, worker: int) -> bool:
        return False

    def close(self, *, wait: bool) -> None:
        self._jobs.clear()
        if wait:
            self._workshop.close()


class ThreadExecutor(Executor):
    """Workers that are threads; each has its own copy of the user's objects."""

    shared = False

    def __init__(self, stages: StagesLike, n_workers: int) -> None:
        self.n_workers = n_workers
        self._workshops = [Workshop(own_copy(stages)) for _ in range(n_workers)]
        self._inboxes: list[SimpleQueue[Job | None]] = [SimpleQueue() for _ in range(n_workers)]
        self._threads: list[threading.Thread] = []

    def start(self, engine: Engine) -> None:
        for worker in range(self.n_workers):
            args = (engine, self._workshops[worker], worker, self._inboxes[worker])
            thread = threading.Thread(target=_work, args=args, name=f"pyloader_delta-worker-{worker}", daemon=True)
            self._threads.append(started(thread))

    def submit(self, worker: int, number: int, task: Task) -> None:
        self._inboxes[worker].put((number, task))

    def discard(self, block: Blocks) -> None:
        pass

    def wait(self, changed: threading.Condition, timeout_s: float | None) -> None:
        changed.wait(timeout_s)

    def nudge(self) -> None:
        self._inboxes[0].put(_NUDGE)

    def retire(self, worker: int) -> bool:
        return False  # a thread cannot be ended; it has its task until its user code comes back, and gets no other

    def close(self, *, wait: bool) -> None:
        for inbox in self._inboxes:
            inbox.put(None)
        deadline = time.monotonic() + _JOIN_TIMEOUT_S
        for thread in self._threads if wait else ():
            if thread is not threading.current_thread():
                thread.join(max(deadline - time.monotonic(), 0))  # user code may never return; the thread is a daemon


_NUDGE: Job = (-1, ReadTask(-1, 0, 0, range(0), (), 0))


def own_copy(stages: StagesLike) -> StagesLike:
    """Return a worker's copy of the user's objects; what cannot be copied (a lock, a connection) is shared."""
    try:
        return copy.deepcopy(stages)
    except Exception:
        return copy.deepcopy(stages, memo=_shared(stages))


def _shared(stages: Any) -> dict[int, Any]:
    """Return a deepcopy memo in which what cannot be copied stands for itself: attributes, else the whole object."""
    memo: dict[int, Any] = {}
    for owner in vars(stages).values():
        for value in getattr(owner, "__dict__", {}).values():
            try:
                copy.deepcopy(value)
            except Exception:
                memo[id(value)] = value
        try:
            copy.deepcopy(owner, memo=dict(memo))
        except Exception:
            memo[id(owner)] = owner
    return memo


def _work(engine: Engine, workshop: Workshop, worker: int, inbox: SimpleQueue[Job | None]) -> None:
    try:
        while (job := inbox.get()) is not None:
            if job is _NUDGE:
                with engine.lock:
                    engine.look_after()
            else:
                _carry_out(engine, workshop, worker, *job)
                del job
    except BaseException as error:
        with engine.lock:
            engine.fail(error)
    finally:
        workshop.close()


Done = Callable[[], None]
"""What tells the engine of a task's end; called under its lock."""


def _carry_out(engine: Engine, workshop: Workshop, worker: int, number: int, task: Task) -> BaseException | None:
    try:
        if isinstance(task, ReadTask):
            done, error = _read(engine, workshop, number, worker, task), None
        elif isinstance(task, MixTask):
            done, error = _mix(engine, workshop, number, worker, task), None
        else:
            done, error = _run(engine, workshop, number, worker, task)
    except BaseException as raised:
        advise(raised)
        failed = raised
        done, error = (lambda: engine.task_failed(worker, number, task, failed)), failed
    with engine.lock:
        done()
        engine.look_after()
    return error


def _read(engine: Engine, workshop: Workshop, number: int, worker: int, task: ReadTask) -> Done:
    with engine.lock:
        region = engine.region(number, task.epoch, task.window)
        memory = None if region is None else _arrays(engine, region)
    blocks = workshop.read(task, memory)
    result = blocks.rows, blocks.size_bytes, blocks.types, blocks.placed, blocks.layout
    return lambda: engine.read_finished(worker, number, task, blocks, *result)


def _mix(engine: Engine, workshop: Workshop, number: int, worker: int, task: MixTask) -> Done:
    with engine.lock:
        region = engine.region(number, task.epoch, task.window)
        arrays = {} if region is None else _arrays(engine, region)[1]
    if region is not None:
        mix(arrays, region.placed or (), task.n_rows, task.key, workshop.scratch)
    return lambda: engine.mix_finished(worker, number, task)


def _arrays(engine: Engine, region: Region) -> tuple[Layout, dict[str, NDArray[Any]]]:
    layout = load_layout(region.layout)
    return layout, layout.arrays(engine.pool[region.slab].array, region.n_rows)


def _run(
    engine: Engine, workshop: Workshop, number: int, worker: int, task: RunTask
) -> tuple[Done, BaseException | None]:
    windows: list[WindowBlocks] = []
    leases: list[Lease | None] = []
    for segment in task.segments:
        with engine.lock:
            held = engine.held(number, segment.reads)
            if held is None:  # the pass ended meanwhile
                return lambda: engine.run_finished(worker, number, task, EMPTY, None, 0.0, None), None
            region = engine.region(number, task.epoch, segment.window)
            windows.append(_opened(engine, held, workshop, region, segment.key))
            size = sum(blocks.size_bytes for blocks in held)
            leases.append(engine.lease(number, task.epoch, segment.window, size) if windows[-1].lendable else None)
    slabs: list[int] = []

    def take(size_bytes: int) -> NDArray[np.uint8]:
        with engine.lock:
            slabs.append(engine.pool.take(size_bytes))
            engine.pool.touch(slabs[-1], size_bytes)
            return engine.pool[slabs[-1]].array

    tray = Tray(take, adopts=True)

    def let_go() -> None:
        for i, slab in enumerate(slabs):
            if tray.kept and i == 0:
                engine.pool.disown(slab)
            else:
                engine.pool.give(slab)

    try:
        made = workshop.run(task, windows, tray, leases)
    except BaseException:
        with engine.lock:
            let_go()
        raise
    leases.clear()
    if made.error is not None:
        advise(made.error)

    def done() -> None:
        used = slabs.pop() if made.packed.size_bytes else None
        let_go()
        engine.run_finished(worker, number, task, made.packed, used, made.seconds, made.error)

    return done, made.error


def _opened(
    engine: Engine, held: list[Blocks], workshop: Workshop, region: Region | None, key: tuple[int | str, ...] | None
) -> WindowBlocks:
    """Return a window's blocks opened; kept with the first of them, so that they go together."""
    window = held[0].window
    if window is None:
        batches = [batch for blocks in held for batch in blocks.batches]
        layout, arrays = (None, None) if region is None else _arrays(engine, region)
        mixed = frozenset() if region is None or region.placed is None else region.placed
        window = held[0].window = WindowBlocks(
            batches,
            layout=layout,
            region=arrays,
            mixed=mixed,
            key=key,
            own=workshop.owns_blocks,
        )
    return window
