"""A bar for a loader's loop: `progress=True`. What is shown is counted by the pass; nothing is decided here."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from pyloader_delta.errors import ConfigError
from pyloader_delta.options import flag
from pyloader_delta.passes import BatchIterator

if TYPE_CHECKING:
    from pyloader_delta.loader import DataLoader


def wanted(progress: Any) -> bool:
    """Return whether a bar is wanted.

    Raises:
        ConfigError: It is neither True nor False, or tqdm is not installed.
    """
    if not flag(progress, "progress"):
        return False
    if importlib.util.find_spec("tqdm") is None:
        raise ConfigError("progress=True needs tqdm: pip install 'pyloader_delta[progress]'")
    return True


class Shown(Iterator[Any]):
    """The batches of a pass, with a bar on standard error, or in the notebook's cell, that goes on with each.

    Args:
        loader: Whose pass it is.
        batches: The pass.
    """

    def __init__(self, loader: DataLoader[Any], batches: BatchIterator) -> None:
        from tqdm.auto import tqdm  # only now: it takes 0.1 s

        self._loader, self._batches = loader, batches
        self._per_epoch: int | None = None
        with suppress(TypeError):  # it is known only at the end
            self._per_epoch = loader.batches_per_epoch
        endless = loader.num_epoch is None
        total = None if endless or self._per_epoch is None else len(loader)
        self._bar = tqdm(total=total, initial=self._number(), unit="batch", dynamic_ncols=True, desc=self._epoch())

    def __next__(self) -> Any:
        try:
            batch = next(self._batches)
        except BaseException:
            self._bar.close()
            raise
        self._bar.set_description_str(self._epoch(), refresh=False)
        counts = self._loader.stats()
        waited = counts["wait_seconds_total"] / (counts["pass_seconds_total"] or 1.0)
        self._bar.set_postfix_str(f"{counts['rows_per_second']:,.0f} rows/s, waited {waited:.0%}", refresh=False)
        self._bar.update(self._number() - self._bar.n)
        return batch

    def __del__(self) -> None:
        if (bar := getattr(self, "_bar", None)) is not None:
            bar.close()

    def _number(self) -> int:
        """Return how many batches of the pass were given, those before a resume too."""
        epochs, batches = self._batches.reached
        return batches if self._per_epoch is None else epochs * self._per_epoch + batches

    def _epoch(self) -> str:
        epoch = self._loader.get_epoch() or 1
        return f"epoch {epoch}" if self._loader.num_epoch in (None, 1) else f"epoch {epoch} of {self._loader.num_epoch}"
