"""Where the time of a loader goes: seconds of each stage, how often the loop had to wait, and, if asked, each task."""

from __future__ import annotations

import time
from collections import deque

from pyloader_delta.engine.tasks import MixTask, ReadTask, Task

Event = tuple[str, int, str, float, float]
"""(kind, worker or -1 for the training loop, what, began, ended), seconds of the monotonic clock."""
Sample = tuple[float, float, float, float]
"""(when, bytes of chunks, of finished batches, lent to the training loop)."""

_KEPT = 200_000


class Meter:
    """Sums over all passes of one engine. Told under its lock, but for what the training loop's own thread does.

    Args:
        trace: Whether each task is kept, the last 200,000 of them.
    """

    def __init__(self, *, trace: bool) -> None:
        self.reading = self.mixing = self.making = 0.0
        """Seconds of workers in tasks: reading chunks, mixing windows, making batches."""
        self.gathering = self.encoding = self.collating = 0.0
        """Seconds of the last of these in each part; what is left of it is packing and sending."""
        self.first_wait = 0.0
        """Seconds that the training loop waited for the first batches of passes."""
        self.finalizing = 0.0
        """Seconds of the collator's `finalize`, in the training loop's thread."""
        self.asked = self.ready = 0
        """Runs that the training loop asked for, and those that were ready then."""
        self.events: deque[Event] | None = deque(maxlen=_KEPT) if trace else None
        self.samples: deque[Sample] = deque(maxlen=_KEPT)

    def landed(self, worker: int, task: Task, since: float) -> None:
        """Note that a task has ended."""
        now = time.monotonic()
        if isinstance(task, ReadTask):
            kind = "reading"
            self.reading += now - since
        elif isinstance(task, MixTask):
            kind = "mixing"
            self.mixing += now - since
        else:
            kind = "making"
            self.making += now - since
        if self.events is not None:
            self.events.append((kind, worker, str(task), since, now))

    def made(self, seconds: tuple[float, float, float]) -> None:
        """Note how long gathering, encoding and collating of a run took."""
        self.gathering += seconds[0]
        self.encoding += seconds[1]
        self.collating += seconds[2]

    def took(self, kind: str, what: str, began: float, ended: float) -> None:
        """Note what the training loop's thread did, where tasks are kept."""
        if self.events is not None:
            self.events.append((kind, -1, what, began, ended))
