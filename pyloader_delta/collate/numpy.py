"""`NumpyDataCollator`: lists become arrays of the type they have; nothing is cast in silence."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyloader_delta.collate.base import DataCollator, T_co
from pyloader_delta.collate.rows import Kinds, finished
from pyloader_delta.columns import from_arrow
from pyloader_delta.errors import ValueTypeError
from pyloader_delta.ours import is_ours
from pyloader_delta.ragged import Listed, Ragged, RaggedBatch, texts


class _Rowwise:
    """The default of `rowwise`, found when asked for; a class or an object may set its own in its place."""

    def __get__(self, owner: Any, kind: type) -> bool:
        return is_ours(getattr(kind if owner is None else owner, "collate_batch", None))


class NumpyDataCollator(DataCollator[T_co]):
    """Makes an array of each entry; entries that are None are left out.

    ints become int64, floats float64, bools bool, str and bytes arrays of text; arrays stay as they are; rows that are
    equally long lists of numbers become a second axis.

    What a `FieldsDataset` gives of unequal length crosses to the training process unpadded and is padded there.
    """

    rowwise = _Rowwise()
    """Whether batches may be collated as one: unless a subclass has a `collate_batch` of its own, or says otherwise."""

    def collate_batch(self, features: Any) -> Any:
        """Return name → array, first axis rows.

        Raises:
            ValueTypeError: An entry has None among its values, unequally long rows, or ints beyond 64 bits.
        """
        return {name: _entry(values, name) for name, values in features.items() if values is not None}

    def finalize(self, batch: Any) -> Any:
        """Return the batch with its ragged rows padded, and texts as arrays of objects."""
        return finished(batch, _KINDS)


def _entry(values: Any, name: str) -> Any:
    return values.batch() if isinstance(values, (Ragged, Listed)) else as_array(values, name)


def _text_objects(batch: RaggedBatch) -> NDArray[Any]:
    array = np.empty(len(batch.lengths[0]), dtype=object)
    array[:] = texts(batch)
    return array


_KINDS = Kinds(array=None, jagged=lambda batch: batch, text=_text_objects)


_EXACT = 2**53  # every int up to here is a float64 exactly


def as_array(values: Any, name: str) -> NDArray[Any]:
    """Return the values of one entry as an array.

    Raises:
        ValueTypeError: They have no NumPy type of their own; names the entry and the remedy.
    """
    if isinstance(values, np.ndarray):
        return values
    if type(values).__module__.startswith("pyarrow"):
        return from_arrow(values, name)
    try:
        array = np.asarray(values)
    except (ValueError, OverflowError) as error:
        raise ValueTypeError(f"{name!r} is no array: {error}. Pad its rows to one length in batch_encode") from error
    if array.dtype.hasobject or (array.ndim == 1 and _cast(values, array.dtype)):
        raise ValueTypeError(f"{name!r} is no array of numbers: {_reason(values)}")
    return array


def _cast(values: Any, dtype: np.dtype[Any]) -> bool:
    """Return whether values of several types became one of them, other than ints that are floats exactly."""
    kinds = set(map(type, values))
    if kinds == {int}:
        return dtype.kind == "f"
    if len(kinds) < 2:
        return False
    if not all(np.dtype(kind).kind in "iufc" for kind in kinds):
        return True
    return any(abs(value) > _EXACT for value in values if type(value) is int)


def _reason(values: Any) -> str:
    for row, value in enumerate(values):
        if value is None:
            return f"row {row} is None. Fill it in batch_encode"
        if type(value) is int and not -(2**63) <= value < 2**63:
            return f"row {row} is {value}, beyond 64 bits"
        if isinstance(value, (list, tuple)) and any(item is None for item in value):
            return f"row {row} holds None. Fill it in batch_encode"
    kinds = sorted({type(value).__name__ for value in values})
    return f"its values are of type {', '.join(kinds)}. Turn them into numbers in batch_encode"
