"""Looks into a loader that runs: `memory()`, `report()`, `to_chrome_trace()`."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from pyloader_delta import budget
from pyloader_delta.engine.core import Engine
from pyloader_delta.engine.meter import Meter
from pyloader_delta.errors import ConfigError
from pyloader_delta.memory import usable_cpus
from pyloader_delta.options import Options
from pyloader_delta.report import Memory, Report, Times, reported
from pyloader_delta.stats import Stats


class Insight:
    """Base of `DataLoader`."""

    dataset: Any
    _options: Options
    _needed: budget.Needs
    _stats: Stats

    if TYPE_CHECKING:
        _engine: Engine | None

    def memory(self) -> Memory:
        """Return where the loader's bytes are now."""
        held = {} if self._engine is None else self._engine.waiting
        return Memory(
            budget=budget.budget_bytes(self._options, self._needed)
            if self._engine is None
            else self._engine.memory_bytes,
            chunks=int(held.get("store_bytes", 0)),
            batches=int(held.get("ready_bytes", 0)),
            lent=int(held.get("leased_bytes", 0)),
            slabs=int(held.get("slab_bytes", 0)),
            cursors=int(held.get("open_cursors", 0)),
            cursor_bytes=int(held.get("cursor_bytes", 0)),
            total=int(held.get("held_bytes", 0)),
        )

    def report(self) -> Report:
        """Return what bounds the run so far, in plain words, and what to change; print it.

        It goes by all that the loader has delivered: by how long the training loop waited, and where workers spent
        their time. After a few seconds, or an epoch, it means something.
        """
        meter = Meter(trace=False) if self._engine is None else self._engine.meter
        inline = self._options.workers == "inline"
        times = Times(
            total=self._stats.pass_seconds if self._stats.batches_delivered else 0.0,
            waited=self._stats.wait_seconds,
            first_wait=meter.first_wait,
            finalizing=meter.finalizing,
            stages={
                "reading": meter.reading,
                "shuffling": meter.mixing + meter.gathering,
                "encoding": meter.encoding,
                "collating": meter.collating,
                "delivery": max(meter.making - meter.gathering - meter.encoding - meter.collating, 0.0),
            },
            n_workers=self._options.n_workers,
            inline=inline,
        )
        return reported(
            times,
            meter.ready / meter.asked if meter.asked else 0.0,
            n_cpus=usable_cpus(),
            in_threads=self._options.workers == "thread",
            python=self.dataset.input_format == "python",
        )

    def to_chrome_trace(self, path: str | os.PathLike[str]) -> None:
        """Write what each worker and the training loop did when, for https://ui.perfetto.dev or chrome://tracing.

        Args:
            path: The file, JSON; it is overwritten. It has the last 200,000 tasks.

        Raises:
            ConfigError: The loader was not made with `trace=True`.
        """
        if not self._options.trace:
            raise ConfigError("to_chrome_trace() needs a loader made with trace=True")
        events = [] if self._engine is None else list(_events(self._engine.meter))
        with open(path, "w", encoding="utf-8") as file:
            json.dump({"displayTimeUnit": "ms", "traceEvents": events}, file)


def _events(meter: Meter) -> Iterator[dict[str, Any]]:
    process = os.getpid()
    events = list(meter.events or ())
    yield {"ph": "M", "name": "process_name", "pid": process, "args": {"name": "pyloader_delta"}}
    for worker in sorted({worker for _, worker, *_ in events}):
        name = "training loop" if worker < 0 else f"worker {worker}"
        yield {"ph": "M", "name": "thread_name", "pid": process, "tid": worker + 1, "args": {"name": name}}
    for kind, worker, what, began, ended in events:
        yield {
            "ph": "X", "cat": kind, "name": kind, "pid": process, "tid": worker + 1, "ts": _micros(began),
            "dur": round((ended - began) * 1e6, 1), "args": {"what": what},
        }  # fmt: skip
    yield from _counters(meter.samples, process)


def _counters(samples: Iterable[tuple[float, float, float, float]], process: int) -> Iterator[dict[str, Any]]:
    for when, chunks, batches, lent in list(samples):
        held = {"chunks": chunks, "batches": batches, "lent": lent}
        yield {"ph": "C", "name": "bytes", "pid": process, "ts": _micros(when), "args": held}


def _micros(seconds: float) -> float:
    return round(seconds * 1e6, 1)
