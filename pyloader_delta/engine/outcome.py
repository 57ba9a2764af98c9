"""What came of a run of batches."""

from __future__ import annotations

from dataclasses import dataclass

from pyloader_delta.engine.pack import Packed
from pyloader_delta.engine.tasks import RunTask


@dataclass(frozen=True, slots=True)
class Outcome:
    """A run ready for delivery."""

    task: RunTask
    packed: Packed
    slab: int | None
    """Number of the slab that holds it; None where it holds no array."""
    error: BaseException | None
    """What ended the run after the batches that are there."""
