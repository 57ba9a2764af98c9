"""What `DataLoader.from_delta` is given, dealt out to reader, dataset, collator and loader."""

from __future__ import annotations

import difflib
import importlib.util
import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from pyloader_delta.collate.base import DataCollator
from pyloader_delta.collate.framework import collator_of
from pyloader_delta.encode.fields import Features, FieldsDataset, FieldSpec
from pyloader_delta.errors import ConfigError
from pyloader_delta.options import flag
from pyloader_delta.outputs import Output, Outputs
from pyloader_delta.read.delta import DeltaDataReader

_OWN = (
    "batch_size", "columns", "fields", "features", "features_dtype", "shuffle", "random_seed", "framework", "device",
    "pin_memory",
)  # fmt: skip
"""What `from_delta` itself takes: given to several, or made into the three parts of a loader."""
_PARTS = ("datareader", "dataset", "datacollator", "root_dir")


def dealt_out(
    options: dict[str, Any],
    loader: Callable[..., Any],
    call: str = "from_delta",
    own: Sequence[str] = _OWN,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the options of the reader, and those of the loader, by the signatures of both.

    Args:
        options: By name.
        loader: Whose signature has the loader's.
        call: The name of what the user called, for the error.
        own: Names of what it takes itself, for the error.

    Raises:
        ConfigError: Neither takes one of them; names the nearest that there is.
    """
    readers = _names(DeltaDataReader.__init__, _OWN)
    loaders = _names(loader, (*_OWN, *_PARTS))
    for name in options:
        if name not in readers and name not in loaders:
            near = difflib.get_close_matches(name, [*own, *readers, *loaders], 1)
            hint = f"did you mean {near[0]!r}?" if near else "those of DataLoader and DeltaDataReader are options"
            if name in _OWN:
                hint = "it is of DataLoader.from_delta alone"
            raise ConfigError(f"{call}() has no option {name!r}; {hint}")
    return (
        {name: value for name, value in options.items() if name in readers},
        {name: value for name, value in options.items() if name in loaders},
    )


def encoder(
    columns: Iterable[str] | None,
    fields: Iterable[str | FieldSpec] | None,
    features: Features | None,
    features_dtype: Any,
    framework: Any,
) -> tuple[FieldsDataset, list[str] | None]:
    """Return the dataset that makes the outputs, and the columns that it needs; None for all of the table.

    Raises:
        ConfigError: An argument is wrong.
    """
    for name, value in (("columns", columns), ("fields", fields)):
        if value is not None and (isinstance(value, str) or not isinstance(value, Iterable)):
            raise ConfigError(f"{name} must be a list of names{' or FieldSpecs' * (name == 'fields')}, got {value!r}")
    dataset = FieldsDataset(fields, features=features, features_dtype=features_dtype, framework=framework)
    specs, taken = dataset.fields, [spec.name for found in dataset.features.values() for spec in found]
    if columns is not None:
        said = {spec.name for spec in specs or ()}
        plain = [name for name in columns if name not in said and name not in taken]
        both: list[str | FieldSpec] = [*plain, *(specs or ())]
        dataset = FieldsDataset(both, features=features, features_dtype=features_dtype, framework=framework)
        specs = dataset.fields
    if specs is None:
        return dataset, None
    return dataset, list(dict.fromkeys([*(spec.name for spec in specs), *taken]))


def collator(framework: str, device: Any = None, pin_memory: Any = False) -> DataCollator[Any]:
    """Return the collator that makes a framework's tensors.

    Raises:
        ConfigError: The framework is not installed, or has no devices here.
    """
    if framework != "arrow" and importlib.util.find_spec(framework) is None:
        raise ConfigError(f"{framework} is not installed: pip install {framework}, or take framework='numpy'")
    found = collator_of(framework)
    pin_memory = flag(pin_memory, "pin_memory")
    if device is not None or pin_memory:
        if framework != "torch":
            raise ConfigError("device and pin_memory go with framework='torch'")
        kind: Any = type(found)
        found = kind(device, pin_memory)
    return found


def outputs(dataset: FieldsDataset, schema: Any) -> Outputs:
    """Return what the outputs will be of columns as an Arrow schema states them.

    Raises:
        ConfigError, ValueTypeError: As `FieldsDataset.outputs`.
    """
    found = {}
    for name, output in dataset.outputs(schema).items():
        kind = {"jagged": "ragged", "list": "list"}.get(output.kind, dataset.framework)
        text = _text(dataset, schema, name) if output.kind == "text" else None
        dtype = text or getattr(output.dtype, "name", None)
        if output.kind == "arrow" and output.dtype is not None:
            dtype = str(output.dtype)
        shape = (None,) if output.kind == "list" else output.shape
        found[name] = Output(dtype, shape, kind, output.unit)
    return Outputs(found)


def _text(dataset: FieldsDataset, schema: Any, key: str) -> str:
    """Return "str" or "bytes" for the column that an output of texts is made of."""
    named = {spec.key: spec.name for spec in dataset.fields or ()}
    return "str" if "string" in str(schema.field(named.get(key, key)).type) else "bytes"


def _names(method: Callable[..., Any], without: Sequence[str]) -> list[str]:
    return [
        name
        for name, parameter in inspect.signature(method).parameters.items()
        if name not in ("self", *without) and parameter.kind is not parameter.VAR_KEYWORD
    ]
