"""Batches as trainers take them: x, (x, y) or (x, y, weight)."""

from __future__ import annotations

from typing import Any

from pyloader_delta.errors import ConfigError
from pyloader_delta.outputs import map_leaves


class Arrange:
    """Turns a batch into what Keras takes: x, (x, y) or (x, y, weight).

    Args:
        call: The name of what the user called, for errors.
        label: Name of the output that is y, or names of several; None: batches stay as they are.
        weight: Name of the output that holds each row's weight.

    Raises:
        ConfigError: `weight` is no name, or stands alone.
    """

    def __init__(self, call: str, label: Any, weight: Any) -> None:
        if weight is not None and label is None:
            raise ConfigError(f"{call}: weight is of use only beside label: Keras takes (x, y, weight)")
        if weight is not None and not isinstance(weight, str):
            raise ConfigError(f"{call}: weight must be the name of an output, got {weight!r}")
        self._call = call
        self._labels = [label] if isinstance(label, str) else None if label is None else list(label)
        self._one, self._weight = isinstance(label, str), weight

    def __call__(self, batch: Any) -> Any:
        """Return the batch arranged.

        Raises:
            ConfigError: It has no such output, or none is left for x.
        """
        if self._labels is None:
            return batch
        if not isinstance(batch, dict):
            raise ConfigError(
                f"{self._call}: label names an entry of a batch, but batches are a {type(batch).__name__}"
            )
        names = [*self._labels, *([] if self._weight is None else [self._weight])]
        for name in names:
            if name not in batch:
                raise ConfigError(f"{self._call}: there is no output {name!r}; there are {', '.join(map(repr, batch))}")
        x = {name: value for name, value in batch.items() if name not in names}
        if not x:
            raise ConfigError(f"{self._call}: label and weight leave no output for x")
        y = batch[self._labels[0]] if self._one else {name: batch[name] for name in self._labels}
        found = (next(iter(x.values())) if len(x) == 1 else x, y)
        return found if self._weight is None else (*found, batch[self._weight])


def plain(batch: Any) -> Any:
    """Return a batch as Keras and tf.data take it: dicts and tuples, no lists."""
    return map_leaves(lambda value: value, batch)
