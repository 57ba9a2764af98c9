"""Numbers of one type become those of another: exactly where they are whole, or it is an error."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyloader_delta.errors import ConfigError, ContractError, ValueTypeError


def cast(values: NDArray[Any], dtype: np.dtype[Any], name: str) -> NDArray[Any]:
    """Return numbers as another type.

    Args:
        values: Numbers or bools, shape (rows, ...).
        dtype: The type; floats are rounded to its nearest.
        name: The column, for errors.

    Raises:
        ValueTypeError: A value is not equal as a whole number or bool, or beyond the range of floats.
    """
    if values.dtype == dtype:
        return values
    with np.errstate(invalid="ignore", over="ignore"):
        turned = values.astype(dtype)
    if dtype.kind == "f":
        if values.dtype.kind == "f" and dtype.itemsize >= values.dtype.itemsize:
            return turned
        wrong = ~np.isfinite(turned)
        if wrong.any():
            wrong &= np.isfinite(values)
    else:
        wrong = turned != values
    if wrong.any():
        place = tuple(int(i) for i in np.argwhere(wrong)[0])
        raise _unfit(name, values[place].item(), dtype)
    return turned


def constant(value: Any, dtype: np.dtype[Any], place: str) -> NDArray[Any]:
    """Return a value that the user gave for a column as that column's type, shape ().

    Args:
        value: A number, bool or time.
        dtype: The column's.
        place: Names argument and column in errors.

    Raises:
        ConfigError: It is no value of that type, or would not be the same there; floats are rounded.
    """
    if isinstance(value, datetime) and value.tzinfo is not None:
        value = value.astimezone(UTC).replace(tzinfo=None)
    try:
        given = np.asarray(value, "M8" if isinstance(value, date) else None)
        with np.errstate(invalid="ignore", over="ignore"):
            turned = given.astype(dtype)
        if given.ndim == 0 and _same(turned, given):
            return turned
    except (TypeError, ValueError, OverflowError):
        pass
    raise ConfigError(f"{place} must be a value of type {dtype}, got {value!r}")


def _same(turned: NDArray[Any], given: NDArray[Any]) -> bool:
    """Return whether a cast has kept a value; floats may be rounded, but not to infinity."""
    kind, former = turned.dtype.kind, given.dtype.kind
    if kind in "mM":
        return (
            bool(turned == given or np.isnat(given))
            if former in "mM"
            else former in "iuf" and turned.view("i8") == given
        )
    if former not in "biuf":
        return False
    return bool(np.isfinite(turned) or not np.isfinite(given)) if kind == "f" else bool(turned == given)


def whole_numbers(values: Sequence[Decimal | None], dtype: np.dtype[Any], name: str) -> NDArray[Any]:
    """Return decimals as whole numbers or bools, shape (rows,); 0 where they are None.

    Raises:
        ValueTypeError: One has a fraction, or is out of range.
    """
    low, high = (0, 1) if dtype.kind == "b" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    for value in values:
        if value is not None and not (low <= value <= high and value == int(value)):
            raise _unfit(name, value, dtype)
    return np.fromiter((0 if value is None else int(value) for value in values), dtype, len(values))


def _unfit(name: str, value: Any, dtype: np.dtype[Any]) -> ValueTypeError:
    return ValueTypeError(f"column {name!r} holds {value}, which {dtype} cannot hold: give a wider dtype in FieldSpec")


def stacked(rows: Sequence[Any], what: str) -> Any:
    """Return rows as one array, first axis rows; as they are where they are no arrays.

    Args:
        rows: Arrays, CPU tensors, or Python values.
        what: Says where they come from, for errors.

    Raises:
        ContractError: They differ in shape; names both.
    """
    if not rows or not hasattr(rows[0], "__array__"):
        return list(rows)
    arrays = [np.asarray(row) for row in rows]
    for number, array in enumerate(arrays):
        if array.shape != arrays[0].shape or array.dtype != arrays[0].dtype:
            raise ContractError(
                f"{what}: row 0 has shape {arrays[0].shape} and dtype {arrays[0].dtype}, row {number} {array.shape} "
                f"and {array.dtype}; a batch is one array, so all rows must be alike"
            )
    return np.stack(arrays)


def called(function: Callable[[Any], Any], value: Any, what: str) -> Any:
    """Return what a user's function gives; an error of its own gains a note of where."""
    try:
        return function(value)
    except Exception as error:
        error.add_note(f"in {what}")
        raise
