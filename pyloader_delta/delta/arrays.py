"""Arrow arrays from lists of Python values, and NumPy's view of them, without `pyarrow.array`, which imports pandas."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pyloader_delta.arrays import NUMBERS, leaf, packed, text_array


def texts(values: Sequence[str | None]) -> pa.Array:
    """Return texts as a string array; large_string beyond 2 GiB. None is null.

    Raises:
        UnicodeEncodeError: A text has half a surrogate pair.
    """
    return text_array([b"" if value is None else value.encode() for value in values], pa.string(), _valid(values))


def integers(values: Sequence[int | None], kind: pa.DataType | None = None) -> pa.Array:
    """Return ints as an array of a type, int64 by default; None is null.

    Raises:
        OverflowError: A value is beyond the type.
    """
    kind = kind or pa.int64()
    data = np.array([0 if value is None else value for value in values], dtype=kind.to_pandas_dtype())
    return pa.Array.from_buffers(kind, len(values), [_valid(values), pa.py_buffer(data)])


def view(array: pa.Array) -> NDArray[Any]:
    """Return the values of a numeric array, on its memory; what stands at nulls is arbitrary."""
    return leaf(array, NUMBERS[array.type.id])


def _valid(values: Sequence[object | None]) -> pa.Buffer | None:
    if None not in values:
        return None
    return packed(np.fromiter((value is not None for value in values), bool, len(values)))
