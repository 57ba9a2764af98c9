"""A preview of a shuffle as a picture, and what other pictures need. matplotlib is imported here alone, to draw."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pyloader_delta.errors import ConfigError
from pyloader_delta.words import many

if TYPE_CHECKING:
    from pyloader_delta.shuffling.preview import ShufflePreview

UNIT = ("row group or file", "row groups or files")
_MOST_POINTS = 20_000


def kind_of(path: str | os.PathLike[str]) -> str:
    """Return the format of a picture that is to be written, by its file's ending; PNG where it has none.

    Raises:
        ConfigError: matplotlib is not installed or writes no such format, or there is no such folder.
    """
    known, place = figure_of(1, 1).canvas.get_supported_filetypes(), Path(path)
    kind = place.suffix[1:].lower() or "png"
    if kind not in known:
        raise ConfigError(f"{path}: no picture can be written as {kind!r}; name it .png or .svg")
    if not place.absolute().parent.is_dir():
        raise ConfigError(f"{path}: there is no folder {place.parent}")
    return kind


def figure_of(width: float, height: float) -> Any:
    """Return an empty figure, in inches, without a window and without a state of pyplot's.

    Raises:
        ConfigError: matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ConfigError("a picture needs matplotlib: pip install 'pyloader_delta[plot]'") from error
    return Figure(figsize=(width, height), layout="constrained")


def draw(preview: ShufflePreview, path: str | os.PathLike[str]) -> None:
    """Write a picture of two panels, or three where there is a label.

    Raises:
        ConfigError: See `kind_of`.
    """
    kind, n = kind_of(path), 2 if preview.label is None else 3
    figure = figure_of(5 * n, 4.2)
    panels = figure.subplots(1, n)
    _positions(panels[0], preview)
    _chunks(panels[1], preview)
    if preview.label is not None:
        _labels(panels[2], preview)
    figure.suptitle(
        f"{many(preview.n_rows, 'row')} in {many(preview.n_chunks, *UNIT)}, batches of {preview.batch_size:,}: "
        f"spread {preview.spread:.3f}, correlation {preview.correlation:.3f}"
    )
    figure.savefig(path, format=kind, dpi=110)


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
