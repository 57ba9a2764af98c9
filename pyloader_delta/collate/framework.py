"""Which collator goes with which framework; the framework itself is imported when the first batch is finished."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from pyloader_delta.collate.base import DataCollator
from pyloader_delta.errors import ConfigError

_COLLATORS = {
    "numpy": ("pyloader_delta.collate.numpy", "NumpyDataCollator"),
    "torch": ("pyloader_delta.collate.torch", "TorchDataCollator"),
    "tensorflow": ("pyloader_delta.collate.tensorflow", "TFDataCollator"),
    "jax": ("pyloader_delta.collate.jax", "JaxDataCollator"),
    "arrow": ("pyloader_delta.collate.arrow", "ArrowDataCollator"),
    "pandas": ("pyloader_delta.collate.pandas", "PandasDataCollator"),
}


def collator_of(framework: str) -> DataCollator[Any]:
    """Return the collator that makes batches of "numpy", "torch" or "tensorflow".

    Raises:
        ConfigError: It is none of these.
    """
    if framework not in _COLLATORS:
        raise ConfigError(f"framework must be one of {', '.join(map(repr, _COLLATORS))}, got {framework!r}")
    module, name = _COLLATORS[framework]
    collator: DataCollator[Any] = getattr(import_module(module), name)()
    return collator
