"""A loader's counters for Prometheus, read when they are scraped: the training loop pays nothing."""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from prometheus_client.core import Metric

    from pyloader_delta.loader import DataLoader

_TEXTS = {
    "rows_planned_total": "Rows of the epochs begun",
    "rows_delivered_total": "Rows handed to the training loop",
    "rows_dropped_total": "Rows left out by drop_last",
    "rows_padded_total": "Rows repeated so that every rank has as many",
    "rows_skipped_total": "Rows skipped by on_error",
    "batches_delivered_total": "Batches handed to the training loop",
    "delivered_bytes_total": "Bytes of their arrays",
    "epochs_completed_total": "Epochs delivered whole",
    "wait_seconds_total": "Seconds that the training loop waited for batches",
    "pass_seconds_total": "Seconds from each pass's beginning to its latest batch",
    "epoch": "Epoch of the batch delivered last, from 1",
    "rows_per_second": "Rows delivered a second",
}


class LoaderCollector:
    """Gives `loader.stats()` to a registry of prometheus_client: `pyloader_delta_<name>`.

    The loader is not kept alive; of one that is gone nothing is given.

    Args:
        loader: The loader.
        labels: Label → value, such as {"split": "train", "rank": "0"}.
    """

    def __init__(self, loader: DataLoader[Any], labels: Mapping[str, str] | None = None) -> None:
        self._loader = weakref.ref(loader)
        self._labels = dict(labels or {})

    def describe(self) -> list[Metric]:
        """Return nothing: several loaders may be registered, told apart by their labels."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Yield the counters and gauges as they are now."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        loader = self._loader()
        if loader is None:
            return
        names, values = list(self._labels), list(self._labels.values())
        for name, value in loader.stats().items():
            kind = CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily
            family = kind(f"pyloader_delta_{name}", _TEXTS.get(name, f"{name.replace('_', ' ')} now"), labels=names)
            family.add_metric(values, float(value))
            yield family
