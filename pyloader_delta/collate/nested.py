"""What the tensor collators share: nested batches walked over, and the error of a tensor that is not the CPU's."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from pyloader_delta.errors import ContractError


def map_arrays(turn: Callable[[Any], Any], batch: Any, kind: type = np.ndarray) -> Any:
    """Return a batch with `turn` applied to each array in its dicts, lists, tuples, named tuples and dataclasses.

    Args:
        turn: Gets an array, or a value of `kind`.
        batch: Nested as one likes.
        kind: What it is applied to.
    """
    if type(batch) is dict and set(map(type, batch.values())) == {kind}:
        return dict(zip(batch, map(turn, batch.values()), strict=True))  # most batches: without Python for each array
    if isinstance(batch, kind):
        return turn(batch)
    if type(batch) is dict:
        return {name: map_arrays(turn, value, kind) for name, value in batch.items()}
    if type(batch) in (list, tuple):
        return type(batch)(map_arrays(turn, value, kind) for value in batch)
    if isinstance(batch, tuple) and hasattr(batch, "_make"):
        return batch._make(map_arrays(turn, value, kind) for value in batch)
    made: Any
    if isinstance(batch, dict):
        made = copy.copy(batch)  # an OrderedDict, a defaultdict with its default, ...
        made.update((name, map_arrays(turn, value, kind)) for name, value in batch.items())
        return made
    if dataclasses.is_dataclass(batch) and not isinstance(batch, type):
        made = copy.copy(batch)
        for field in dataclasses.fields(batch):
            object.__setattr__(made, field.name, map_arrays(turn, getattr(batch, field.name), kind))
        return made
    return batch


def on_device(device: Any) -> ContractError:
    """Return the error of a tensor that a worker made on a device."""
    return ContractError(
        f"collate_batch returned a tensor on {device}: a worker gives CPU tensors; move them to a device in "
        "DataCollator.finalize, which runs in the training process"
    )
