"""Python values of one type as Arrow arrays, built from their memory.

`pyarrow.array` would do the same, but imports pandas where it is installed: 0.4 s and 40 MiB in each worker process.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from pyloader_delta.arrays import packed, text_array

_EMPTY: dict[type, Any] = {int: 0, float: 0.0, bool: False, str: "", bytes: b""}


def exact_array(values: Sequence[Any]) -> pa.Array | None:
    """Return values as an Arrow array whose `to_pylist` gives them back, equal and of the same types.

    They must all be of one type of int (within int64), float, str (that UTF-8 can say), bytes or bool, or None.

    Returns:
        The array; None where there is none.
    """
    kinds = set(map(type, values))
    nullable = type(None) in kinds
    kinds.discard(type(None))
    if not kinds:
        return pa.nulls(len(values))
    kind = kinds.pop()
    if kinds or kind not in _EMPTY:
        return None
    valid = None
    if nullable:
        valid = packed(np.fromiter((value is not None for value in values), bool, len(values)))
        values = [_EMPTY[kind] if value is None else value for value in values]
    try:
        if kind is int:
            return _fixed(pa.int64(), np.array(values, dtype=np.int64), valid)
        if kind is float:
            return _fixed(pa.float64(), np.array(values, dtype=np.float64), valid)
        if kind is bool:
            return pa.Array.from_buffers(pa.bool_(), len(values), [valid, packed(np.array(values, dtype=bool))])
        if kind is str:
            return text_array([value.encode() for value in values], pa.string(), valid)
        return binary(values, valid)
    except (OverflowError, UnicodeEncodeError):  # beyond int64; lone surrogates
        return None


def binary(values: Sequence[bytes], valid: pa.Buffer | None = None) -> pa.Array:
    """Return byte strings as a binary array; large binary beyond 2 GiB."""
    return text_array(values, pa.binary(), valid)


def _fixed(kind: pa.DataType, values: np.ndarray[Any, Any], valid: pa.Buffer | None) -> pa.Array:
    return pa.Array.from_buffers(kind, len(values), [valid, pa.py_buffer(values)])
