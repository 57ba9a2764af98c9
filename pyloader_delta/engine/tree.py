"""Nested batches taken apart into arrays and the rest, and put together again. Array kinds arrive as they left."""

from __future__ import annotations

import copy
import dataclasses
import importlib
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyloader_delta.errors import ContractError

Spec = tuple[Any, ...]
"""What a batch is made of, without its arrays: nested tuples that begin with a word."""

_KINDS = {"torch": "pyloader_delta.collate.torch", "tensorflow": "pyloader_delta.collate.tensorflow"}


def take_apart(batch: Any, arrays: list[NDArray[Any]]) -> Spec:
    """Append the arrays of a batch to `arrays` and return what is left of it.

    Dicts, lists, tuples, named tuples and dataclasses are entered; NumPy arrays (not of objects) and CPU tensors of
    torch and TensorFlow are arrays; anything else stays in the spec as it is.

    Raises:
        ContractError: A tensor is on a device; the text names `finalize`.
    """
    kind = type(batch)
    if kind is np.ndarray or kind is np.memmap:
        if batch.dtype.hasobject:
            return ("rest", batch.copy())
        arrays.append(batch)
        return ("array",)
    if kind is dict:
        if all(type(value) is np.ndarray and not value.dtype.hasobject for value in batch.values()):
            arrays += batch.values()
            return ("arrays", tuple(batch))
        return ("dict", tuple(batch), tuple(take_apart(value, arrays) for value in batch.values()))
    if isinstance(batch, dict):
        shell = copy.copy(batch)  # an OrderedDict, a defaultdict with its default, ...
        shell.clear()
        return ("mapping", shell, tuple(batch), tuple(take_apart(value, arrays) for value in batch.values()))
    if kind is list or kind is tuple:
        return (kind.__name__, tuple(take_apart(value, arrays) for value in batch))
    if isinstance(batch, tuple) and hasattr(kind, "_fields"):
        return ("named", kind, tuple(take_apart(value, arrays) for value in batch))
    if dataclasses.is_dataclass(kind):
        names = _attributes(batch)
        return ("dataclass", kind, names, tuple(take_apart(getattr(batch, name), arrays) for name in names))
    module = _tensor_module(kind)
    if module is not None:
        found = module.to_array(batch)
        if found is not None:
            array, note = found
            if array.dtype.hasobject:
                return ("objects", kind.__module__.partition(".")[0], array, note)
            arrays.append(array)
            return ("tensor", kind.__module__.partition(".")[0], note)
    return ("rest", batch.copy() if isinstance(batch, np.ndarray) else batch)  # a masked array, a matrix


def _attributes(batch: Any) -> tuple[str, ...]:
    """Return the names of a dataclass object's fields and of what else was set on it, in `__post_init__` for one."""
    names = [field.name for field in dataclasses.fields(batch)] + list(getattr(batch, "__dict__", ()))
    for kind in type(batch).__mro__:
        slots = kind.__dict__.get("__slots__", ())
        names += [slots] if isinstance(slots, str) else list(slots)
    hidden = ("__dict__", "__weakref__")
    return tuple(name for name in dict.fromkeys(names) if name not in hidden and hasattr(batch, name))


def put_together(spec: Spec, next_array: Callable[[], NDArray[Any]]) -> Any:
    """Return the batch that `take_apart` took apart, its arrays given by `next_array` in their order."""
    word = spec[0]
    if word == "arrays":
        return {name: next_array() for name in spec[1]}
    if word == "array":
        return next_array()
    if word == "dict":
        return {
            name: next_array() if part[0] == "array" else put_together(part, next_array)
            for name, part in zip(spec[1], spec[2], strict=True)
        }
    if word == "mapping":
        filled = copy.copy(spec[1])
        filled.update(zip(spec[2], (put_together(part, next_array) for part in spec[3]), strict=True))
        return filled
    if word == "list":
        return [put_together(part, next_array) for part in spec[1]]
    if word == "tuple":
        return tuple(put_together(part, next_array) for part in spec[1])
    if word == "named":
        return spec[1]._make(put_together(part, next_array) for part in spec[2])
    if word == "dataclass":
        made = object.__new__(spec[1])
        for name, part in zip(spec[2], spec[3], strict=True):
            object.__setattr__(made, name, put_together(part, next_array))
        return made
    if word == "tensor":
        return _module(spec[1]).from_array(next_array(), spec[2])
    if word == "objects":
        return _module(spec[1]).from_array(spec[2], spec[3])
    return spec[1]


def private_copy(batch: Any) -> Any:
    """Return a batch whose arrays and tensors are copies, so that writing into one does not change the other."""
    arrays: list[NDArray[Any]] = []
    spec = take_apart(batch, arrays)
    copies = iter([array.copy() for array in arrays])
    return put_together(spec, lambda: next(copies))


def has_rest(spec: Spec) -> bool:
    """Return whether a spec holds values of its own, not only names and arrays."""
    if spec[0] in ("rest", "objects", "mapping"):
        return True
    parts = [part for parts in spec[1:] if isinstance(parts, tuple) for part in parts]
    return any(has_rest(part) for part in parts if isinstance(part, tuple) and part)


def _tensor_module(kind: type) -> Any:
    root = kind.__module__.partition(".")[0]
    return _module(root) if root in _KINDS else None


def _module(root: str) -> Any:
    if root not in _KINDS:
        raise ContractError(f"a batch holds arrays of an unknown kind: {root}")
    return importlib.import_module(_KINDS[root])
