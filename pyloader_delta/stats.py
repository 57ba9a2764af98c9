"""Counters of one loader. Each says what it means to the person who reads it; `flat` names them as Prometheus does."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Stats:
    """Sums over everything that a loader has delivered."""

    rows_planned: int = 0
    """Rows of the epochs begun; of epochs ended where lengths are unknown before reading."""
    rows_delivered: int = 0
    """Rows handed to the training loop, counted where they were gathered."""
    rows_dropped: int = 0
    """Rows left out by `drop_last`."""
    rows_padded: int = 0
    """Rows repeated so that every rank has as many (`uneven`); they count among those planned and delivered."""
    rows_skipped: int = 0
    """Rows skipped by `on_error="skip"`; those that stand in their places count among those planned and delivered."""
    batches_delivered: int = 0
    delivered_bytes: int = 0
    """Bytes of the arrays of the batches."""
    epoch: int = 0
    """Epoch of the batch delivered last, from 1; 0 before any."""
    epochs_completed: int = 0
    wait_seconds: float = 0.0
    """Time that the training loop waited for batches: near 0 where the loader keeps up."""
    pass_seconds: float = 0.0
    """Time from each pass's beginning to its latest batch."""

    def flat(self) -> dict[str, float]:
        """Return the counters, whose names end in `_total`, and `epoch` and `rows_per_second`, which may fall."""
        found = {f"{name}_total": getattr(self, name) for name in self.__slots__ if name != "epoch"}
        found["epoch"] = self.epoch
        found["rows_per_second"] = self.rows_delivered / self.pass_seconds if self.pass_seconds else 0.0
        return found
