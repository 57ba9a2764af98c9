"""How many workers have died of which task, what follows from it, and how a task is named in an error."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from pyloader_delta.engine.scheduler import Scheduler
from pyloader_delta.engine.tasks import MixTask, ReadTask, RunTask, Task

_MOST = 2  # workers that may die of a task until it is an error


class Deaths:
    """The deaths of one pass.

    Args:
        skips: Whether rows that end a worker are to be skipped: a run that has ended two is tried once more, with care.
    """

    def __init__(self, *, skips: bool) -> None:
        self._skips = skips
        self._counts: Counter[tuple[str, int, int]] = Counter()

    def enough(self, task: Task) -> bool:
        """Note that a worker has died of a task; return whether no other shall.

        Chunks that were read together are read again one by one, so that the one that it dies of is found.
        """
        places = _places(task)
        self._counts.update(places)
        if self._counts[places[0]] < _MOST + (self._skips and isinstance(task, RunTask)):
            return False
        for place in places:
            del self._counts[place]
        return True

    def with_care(self, task: Task) -> Task:
        """Return a task as a worker is to do it."""
        if self._skips and isinstance(task, RunTask) and self._counts[_places(task)[0]] >= _MOST:
            return replace(task, careful=True)
        return task

    def forget(self) -> None:
        """Begin anew."""
        self._counts.clear()


def _places(task: Task) -> list[tuple[str, int, int]]:
    """Return what a task does, whatever its number: a lost read is given out again under others."""
    if isinstance(task, ReadTask):
        return [("read", task.epoch, position) for position in task.positions]
    return [("mix", task.epoch, task.window) if isinstance(task, MixTask) else ("run", task.epoch, task.first_batch)]


def told(task: Task, scheduler: Scheduler | None) -> str:
    """Return what a worker does, with the files that its rows are from."""
    files = scheduler.files_of(task) if isinstance(task, RunTask) and scheduler is not None else []
    more = f" and {len(files) - 3} more files" if len(files) > 3 else ""
    return f"{task}, from {', '.join(files[:3])}{more}" if files else str(task)
