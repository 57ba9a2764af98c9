"""The first difference between two values or batches, in words. NaN equals NaN, and types must be the same."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyloader_delta.outputs import leaves
from pyloader_delta.ragged import Ragged, RaggedBatch

_SHOWN = 80


def difference(found: Any, expected: Any) -> str | None:
    """Return the first difference between two batches, by the name of the output; None where they are the same."""
    ours, theirs = list(leaves(found)), list(leaves(expected))
    names = [name for name, _ in ours], [name for name, _ in theirs]
    if names[0] != names[1]:
        return f"it has the outputs {names[0]}, expected {names[1]}"
    for (name, value), (_, other) in zip(ours, theirs, strict=True):
        text = unlike(value, other)
        if text is not None:
            return f"output {name!r}: {text}"
    return None if type(found) is type(expected) else f"it is a {_kind(found)}, expected a {_kind(expected)}"


def unlike(found: Any, expected: Any) -> str | None:
    """Return how two values differ, and where; None where they are the same."""
    if type(found) is not type(expected):
        return f"{_short(found)} is a {_kind(found)}, expected {_short(expected)}, a {_kind(expected)}"
    if isinstance(found, np.ndarray):
        return _arrays(found, expected)
    if isinstance(found, Ragged):
        return unlike(found.batch(), expected.batch())
    if isinstance(found, RaggedBatch):
        return _in_turn([found.values, *found.lengths], [expected.values, *expected.lengths])
    if getattr(found, "is_nested", False):  # torch's jagged tensors
        return _in_turn(found.unbind(), expected.unbind())
    if hasattr(found, "nested_row_lengths"):  # TensorFlow's ragged ones
        return unlike(found.to_list(), expected.to_list())
    if hasattr(found, "numpy") and hasattr(found, "dtype"):
        return _tensors(found, expected)
    if isinstance(found, dict):
        if list(found) != list(expected):
            return f"it has the keys {list(found)}, expected {list(expected)}"
        return _in_turn(found.values(), expected.values(), list(found))
    if isinstance(found, (list, tuple)):
        return _in_turn(found, expected)
    same = found == expected or (found != found and expected != expected)  # NaN
    return None if same else f"{_short(found)}, expected {_short(expected)}"


def _in_turn(found: Any, expected: Any, names: list[Any] | None = None) -> str | None:
    ours, theirs = list(found), list(expected)
    if len(ours) != len(theirs):
        return f"{len(ours)} values, expected {len(theirs)}"
    for number, (value, other) in enumerate(zip(ours, theirs, strict=True)):
        text = unlike(value, other)
        if text is not None:
            return f"[{number if names is None else names[number]!r}] {text}"
    return None


def _tensors(found: Any, expected: Any) -> str | None:
    if found.dtype != expected.dtype or tuple(found.shape) != tuple(expected.shape):
        ours, theirs = (f"{one.dtype} of shape {tuple(one.shape)}" for one in (found, expected))
        return f"{ours}, expected {theirs}"
    try:
        return _arrays(np.asarray(found.numpy()), np.asarray(expected.numpy()))
    except TypeError:  # a type that NumPy does not have
        return unlike(found.tolist(), expected.tolist())


def _arrays(found: NDArray[Any], expected: NDArray[Any]) -> str | None:
    if found.dtype != expected.dtype or found.shape != expected.shape:
        return f"{found.dtype} of shape {found.shape}, expected {expected.dtype} of shape {expected.shape}"
    if found.dtype.hasobject:
        return unlike(found.tolist(), expected.tolist())
    if found.tobytes() == expected.tobytes():
        return None
    if found.dtype.names is not None:
        return f"{_short(found)}, expected {_short(expected)}"
    other = found != expected
    if found.dtype.kind in "fcmM":
        other &= ~((found != found) & (expected != expected))  # NaN and NaT
    places = np.argwhere(other)
    if not len(places):
        return None
    place = tuple(places[0].tolist())
    return f"{_short(found[place])} at {list(place)}, expected {_short(expected[place])} ({len(places)} values differ)"


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"


def _kind(value: Any) -> str:
    return type(value).__name__
