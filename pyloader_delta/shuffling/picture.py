"""A preview of a shuffle as a picture. matplotlib is imported here alone, when something is drawn."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np

from pyloader_delta.errors import ConfigError

if TYPE_CHECKING:
    from pyloader_delta.shuffling.preview import ShufflePreview

_MOST_POINTS = 20_000


def draw(preview: ShufflePreview, path: str | os.PathLike[str]) -> None:
    """Write a PNG file of two panels, or three where there is a label.

    Raises:
        ConfigError: matplotlib is not installed.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ConfigError("a picture needs matplotlib: pip install pyloader_delta[plot]") from error
    n = 2 if preview.label is None else 3
    figure = Figure(figsize=(5 * n, 4.2), layout="constrained")
    FigureCanvasAgg(figure)  # no window, and no state of pyplot's
    panels = figure.subplots(1, n)
    _positions(panels[0], preview)
    _chunks(panels[1], preview)
    if preview.label is not None:
        _labels(panels[2], preview)
    figure.suptitle(
        f"{preview.n_rows:,} rows in {preview.n_chunks:,} row groups or files, batches of {preview.batch_size:,}: "
        f"spread {preview.spread:.3f}, correlation {preview.correlation:.3f}"
    )
    figure.savefig(path, format="png", dpi=110)


def _positions(panel: Any, preview: ShufflePreview) -> None:
    rows = preview.sources
    step = max(rows.size // _MOST_POINTS, 1)
    batch = np.repeat(preview.batches, rows.shape[1])
    panel.plot(batch[::step], rows.ravel()[::step], ",", color="C0")
    panel.set(xlabel="batch", ylabel="row of the table", title="Where the rows of a batch come from")


def _chunks(panel: Any, preview: ShufflePreview) -> None:
    counts = preview.chunks_per_batch
    panel.plot(preview.batches, counts, ".-", color="C1")
    panel.set(xlabel="batch", ylabel="distinct row groups or files", title=f"{counts.mean():.1f} in a batch")
    panel.set_ylim(0, max(int(counts.max()) * 1.1, 1))


def _labels(panel: Any, preview: ShufflePreview) -> None:
    panel.stackplot(preview.batches, preview.shares.T, labels=preview.labels)
    panel.set(xlabel="batch", ylabel="share", title=f"Mix of {preview.label}", ylim=(0, 1))
    panel.legend(loc="upper right", fontsize="x-small")
