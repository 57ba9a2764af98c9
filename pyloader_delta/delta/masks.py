"""Booleans between Arrow and NumPy, without `pyarrow.array` and `to_numpy`, which import pandas."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray


def booleans(values: NDArray[np.bool_]) -> pa.Array:
    """Return booleans as an Arrow array."""
    bits = np.packbits(values, bitorder="little")
    return pa.Array.from_buffers(pa.bool_(), len(values), [None, pa.py_buffer(bits)])


def unpacked(column: pa.ChunkedArray) -> NDArray[np.bool_]:
    """Return booleans without nulls as NumPy's."""
    parts = [_unpacked(chunk) for chunk in column.chunks]
    return np.concatenate(parts) if parts else np.empty(0, bool)


def _unpacked(array: pa.BooleanArray) -> NDArray[np.bool_]:
    bits = np.frombuffer(array.buffers()[1] or b"", np.uint8)
    end = array.offset + len(array)
    return np.unpackbits(bits, bitorder="little", count=end)[array.offset :].astype(bool)
