"""A pass that another one may follow: what that begins with is read before somebody asks for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyloader_delta.engine.progress import Progress
from pyloader_delta.engine.scheduler import Scheduler
from pyloader_delta.engine.tasks import ReadTask, RunTask

if TYPE_CHECKING:
    from pyloader_delta.engine.core import Engine


_WINDOWS = 2  # that are read of the next pass: what its first batches need, and enough to do until then


class Ahead(Scheduler):
    """The tasks of a pass of one epoch, and the first reads of the epoch after it.

    Up to two windows of it are read and mixed, as far as queue and budget have a place. No run of it is made before
    `go_on`: until then the user's dataset and collator know nothing of it. The epochs must be endless.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._fence = self._reading[0].plan.epoch + 1 if self._reading else 0

    def go_on(self, epoch: int) -> bool:
        """Let the runs of the next epoch be made; False where it is another one, or could not be read."""
        after = self._reading[0] if self._reading else None
        if after is None or self._undelivered or self.failure is not None or after.failure is not None:
            return False
        if not after.plan.epoch == self._fence == epoch:
            return False
        self._fence += 1
        return True

    @property
    def done(self) -> bool:
        """Whether every run of the pass was delivered."""
        return super().done or (not self._undelivered and bool(self._reading) and self._is_ahead(self._reading[0]))

    def _run_task(self) -> RunTask | None:
        waits = not self._redo_runs and bool(self._reading) and self._is_ahead(self._reading[0])
        return None if waits else super()._run_task()

    def _read_at(self, worker: int, progress: Progress, position: int) -> ReadTask | None:
        """Return a read as for any pass; of the next one only of few windows, and no error where there is no place."""
        ahead = self._is_ahead(progress)
        if ahead and (progress.window_of(position) >= _WINDOWS or progress.base + position >= self._cap()):
            return None
        task = super()._read_at(worker, progress, position)
        if ahead and task is None:
            self.failure = None  # nobody waits for it
        return task

    def _extend(self) -> None:
        if not (self._reading and self._is_ahead(self._reading[-1])):
            super()._extend()

    def _is_ahead(self, progress: Progress) -> bool:
        return progress.plan.epoch >= self._fence


def goes_on(engine: Engine, scheduler: Ahead, epoch: int) -> bool:
    """Return whether an engine goes on with an epoch of which a pass that is over has read the beginning."""
    with engine.lock:
        well = engine.error is None and not engine.closed
        return well and engine.scheduler is scheduler and scheduler.go_on(epoch)
