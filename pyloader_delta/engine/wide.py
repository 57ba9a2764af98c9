"""Columns of bytes whose rows are all of one width, images say: they lie in a window's region like rows of arrays.

Readers copy each row once, to where it is delivered. To mix such a column in place, as is done with numbers, would copy
all of it twice more.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pyloader_delta.arrays import row_array, text_parts

_WIDE = 64  # bytes of a row; shorter rows are mixed in place, or taken by Arrow
_BYTES = (pa.binary(), pa.large_binary())


def is_wide(dtype: np.dtype[Any]) -> bool:
    """Return whether a row is so long that it is copied to where it is delivered, not mixed there."""
    return dtype.kind == "V" and dtype.itemsize >= _WIDE


def width_of(array: Any) -> np.dtype[Any] | None:
    """Return a dtype that holds the rows of a column of bytes, all of one width; None for all else."""
    if not isinstance(array, pa.Array) or array.type not in _BYTES or array.null_count or not len(array):
        return None
    _, lengths = text_parts(array)
    width = int(lengths[0])
    return np.dtype(f"V{width}") if width >= _WIDE and (lengths == width).all() else None


def fixed(array: pa.Array, dtype: np.dtype[Any]) -> NDArray[Any] | None:
    """Return bytes as an array of a wide dtype on the same memory; None where a row is null or of another width."""
    if array.type not in _BYTES or array.null_count:
        return None
    raw, lengths = text_parts(array)
    return raw.view(dtype) if (lengths == dtype.itemsize).all() else None


def is_bytes(values: NDArray[Any], field: pa.Field) -> bool:
    """Return whether an array of a region holds the rows of a column of bytes."""
    return values.dtype.kind == "V" and field.type in _BYTES


def as_bytes(values: Any, field: pa.Field) -> Any:
    """Return rows of a wide dtype as the field has them, on the same memory; all else as it is."""
    if not isinstance(values, np.ndarray) or not is_bytes(values, field):
        return values
    bounds = np.arange(len(values) + 1, dtype=np.int64) * values.dtype.itemsize
    return row_array(bounds, pa.py_buffer(np.ascontiguousarray(values).view(np.uint8)), field.type)
