"""What may leak: threads, processes, shared memory, temporary files of ours. How to wait for their end, or for rest."""

import gc
import os
import re
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

_OURS = "pyloader_delta"
PATIENCE_S = 5.0  # the promise: everything is gone within five seconds
_SHARED_MEMORY = Path("/dev/shm")


def _threads() -> set[str]:
    """Python threads of ours; torch, TensorFlow and Arrow keep pools of their own, which are no leak."""
    return {f"thread {t.name} ({t.ident})" for t in threading.enumerate() if t.name.startswith(_OURS)}


def _children() -> set[str]:
    """Child processes, zombies too, but for Python's own resource tracker, which lives as long as the interpreter."""
    found: set[str] = set()
    if not _may_have_children():
        return found
    for child in psutil.Process().children(recursive=True):
        try:
            command = " ".join(child.cmdline())
            if "multiprocessing.resource_tracker" not in command:
                found.add(f"process {child.pid} ({command[:100] or child.name()})")  # no status: that changes
        except psutil.NoSuchProcess:
            pass
    return found


def _may_have_children() -> bool:
    """Ask the kernel, which is 20 times faster than looking at all processes, as is done twice a test."""
    try:
        return any(task.joinpath("children").read_bytes() for task in Path("/proc/self/task").iterdir())
    except OSError:  # no such file on this system, or a thread that has just ended
        return True


def _shared_memory() -> set[str]:
    """Named shared memory; torch puts its process's number into the name, so that others' can be told from ours."""
    if not _SHARED_MEMORY.is_dir():
        return set()
    mine = {os.getpid()}
    names = (entry.name for entry in _SHARED_MEMORY.iterdir())
    others = re.compile(r"torch_(\d+)_")
    return {
        f"shared memory /dev/shm/{name}"
        for name in names
        if not ((found := others.match(name)) and int(found[1]) not in mine)
    }


def _temp_files() -> set[str]:
    folder = tempfile.gettempdir()
    return {f"temporary file {folder}/{name}" for name in os.listdir(folder) if name.startswith(_OURS)}


LOOKS: tuple[Callable[[], set[str]], ...] = (_threads, _children, _shared_memory, _temp_files)


def until(true: Callable[[], Any], patience_s: float = PATIENCE_S) -> bool:
    """Wait until something is so, at most as long as is promised; return whether it came to that.

    Meanwhile garbage is collected: a loader that is garbage closes itself, but cycles have to be found first. Seconds
    in which the machine did not let us look do not count.
    """
    waited, collected, last = 0.0, -1.0, time.monotonic()
    while not (found := true()) and waited < patience_s:
        if waited > collected + 0.5 or collected < 0:  # each time would cost more than what is waited for
            collected = waited
            gc.collect()
        time.sleep(0.02)
        now = time.monotonic()
        waited, last = waited + min(now - last, 0.5), now
    return bool(found)


def idle(loader: Any) -> bool:
    """Wait until a loader has nothing to do any more; return whether it came to that."""
    return until(lambda: not loader.stats().get("tasks_in_flight", 0), 60)


def left_over(before: list[set[str]]) -> list[str]:
    """Return what is there now and was not before, after waiting for it to go."""
    left: list[str] = []

    def gone() -> bool:
        left[:] = sorted(thing for look, old in zip(LOOKS, before, strict=True) for thing in look() - old)
        return not left

    until(gone)
    return left
