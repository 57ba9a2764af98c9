"""Stream Delta Lake tables that are larger than memory into PyTorch, TensorFlow 2 or NumPy, each row exactly once.

The route of the data: 1 plan (`plan`, from a `delta` snapshot or the files of a folder) → 2 read (`read`, your
DataReader) → 3 encode (`encode`, your Dataset) → 4 collate (`collate`, your DataCollator) → 5 your training loop.
`engine` carries it.
"""

from __future__ import annotations

import importlib
import logging
from typing import TYPE_CHECKING, Any

from pyloader_delta.errors import (
    BudgetError,
    ConfigError,
    ContractError,
    IncompleteEpochError,
    LoaderError,
    LoaderTimeout,
    ReadError,
    ScratchError,
    StageError,
    StateError,
    TableError,
    ValueTypeError,
    WorkerDied,
)

if TYPE_CHECKING:
    from pyloader_delta.collate.arrow import ArrowDataCollator
    from pyloader_delta.collate.base import DataCollator
    from pyloader_delta.collate.jax import JaxDataCollator
    from pyloader_delta.collate.numpy import NumpyDataCollator
    from pyloader_delta.collate.pandas import PandasDataCollator
    from pyloader_delta.collate.tensorflow import TFDataCollator
    from pyloader_delta.collate.torch import TorchDataCollator
    from pyloader_delta.compat.deltatorch import create_pytorch_dataloader
    from pyloader_delta.encode.base import Dataset
    from pyloader_delta.encode.fields import FieldSpec
    from pyloader_delta.encode.text import TextDataset
    from pyloader_delta.loader import DataLoader
    from pyloader_delta.read.base import DataReader
    from pyloader_delta.read.delta import DeltaDataReader
    from pyloader_delta.read.jsonl import JsonLineDataReader
    from pyloader_delta.read.parquet import ParquetDataReader
    from pyloader_delta.receipt import Receipt
    from pyloader_delta.values import Chunk, DataFile, Snapshot

__version__ = "0.1.0"
__all__ = [
    "ArrowDataCollator",
    "BudgetError",
    "Chunk",
    "ConfigError",
    "ContractError",
    "DataCollator",
    "DataFile",
    "DataLoader",
    "DataReader",
    "Dataset",
    "DeltaDataReader",
    "FieldSpec",
    "IncompleteEpochError",
    "JaxDataCollator",
    "JsonLineDataReader",
    "LoaderError",
    "LoaderTimeout",
    "NumpyDataCollator",
    "PandasDataCollator",
    "ParquetDataReader",
    "ReadError",
    "Receipt",
    "ScratchError",
    "Snapshot",
    "StageError",
    "StateError",
    "TFDataCollator",
    "TableError",
    "TextDataset",
    "TorchDataCollator",
    "ValueTypeError",
    "WorkerDied",
    "create_pytorch_dataloader",
]

_LAZY = {
    "ArrowDataCollator": "pyloader_delta.collate.arrow",
    "Chunk": "pyloader_delta.values",
    "DataCollator": "pyloader_delta.collate.base",
    "DataFile": "pyloader_delta.values",
    "DataLoader": "pyloader_delta.loader",
    "DataReader": "pyloader_delta.read.base",
    "Dataset": "pyloader_delta.encode.base",
    "DeltaDataReader": "pyloader_delta.read.delta",
    "FieldSpec": "pyloader_delta.encode.fields",
    "JaxDataCollator": "pyloader_delta.collate.jax",
    "JsonLineDataReader": "pyloader_delta.read.jsonl",
    "NumpyDataCollator": "pyloader_delta.collate.numpy",
    "PandasDataCollator": "pyloader_delta.collate.pandas",
    "ParquetDataReader": "pyloader_delta.read.parquet",
    "Receipt": "pyloader_delta.receipt",
    "Snapshot": "pyloader_delta.values",
    "TFDataCollator": "pyloader_delta.collate.tensorflow",
    "TextDataset": "pyloader_delta.encode.text",
    "TorchDataCollator": "pyloader_delta.collate.torch",
    "create_pytorch_dataloader": "pyloader_delta.compat.deltatorch",
}
"""Names and where they come from: imported when asked for, since a worker process needs few of them."""

logging.getLogger(__name__).addHandler(logging.NullHandler())


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(importlib.import_module(_LAZY[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY})
