"""What an executor is: the place where an engine's tasks are carried out."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from pyloader_delta.engine.mapped import refused
from pyloader_delta.engine.tasks import Task

if TYPE_CHECKING:
    from pyloader_delta.engine.core import Engine


class Executor(ABC):
    """Where tasks are carried out. Called under the engine's lock unless said otherwise."""

    n_workers: int
    shared: bool
    """Whether slabs must be mapped by other processes."""
    works_in_wait = False
    """Whether `wait` carries out tasks, in the caller's thread."""

    @abstractmethod
    def start(self, engine: Engine) -> None:
        """Start the workers; called once, from the thread that iterates first."""

    def available(self, worker: int) -> bool:
        """Return whether a worker can take tasks."""
        return True

    @abstractmethod
    def submit(self, worker: int, number: int, task: Task) -> None:
        """Give an idle worker a task of pass `number`."""

    @abstractmethod
    def discard(self, block: Any) -> None:
        """Let go of a block that nobody needs any more."""

    def slabs(self, blocks: list[Any]) -> list[int]:
        """Return the slabs in which blocks lie."""
        return []

    @abstractmethod
    def wait(self, changed: threading.Condition, timeout_s: float | None) -> None:
        """Wait until something may have changed."""

    @abstractmethod
    def nudge(self) -> None:
        """Make a worker look after the engine soon. Called without the lock, also by finalizers: must not wait."""

    @abstractmethod
    def retire(self, worker: int) -> bool:
        """End a worker whose task takes too long, and replace it; return whether that is possible."""

    @abstractmethod
    def close(self, *, wait: bool) -> None:
        """End the workers. Called without the lock; with `wait` False also by finalizers."""


def started(thread: threading.Thread) -> threading.Thread:
    """Return a thread, started.

    Raises:
        BudgetError: The system has no memory for it, or allows no more.
    """
    try:
        thread.start()
    except RuntimeError as error:
        raise refused(error, f"a thread ({thread.name})") from error
    return thread
