"""Many columns as one row-major matrix: cast once and transposed in blocks that stay in the cache."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyloader_delta.arrays import empty_aligned
from pyloader_delta.encode.casts import cast

_BLOCK_ROWS = 8192
_WAY_BYTES, _LINE_BYTES = 4096, 64  # of a processor's first cache


def matrix(columns: Sequence[NDArray[Any]], dtype: np.dtype[Any], names: Sequence[str]) -> NDArray[Any]:
    """Return equally long columns, each shape (rows,), as one row-major array.

    Args:
        columns: Numbers or bools, at least one column.
        dtype: Type of the matrix.
        names: The columns' names, for errors.

    Returns:
        Array of shape (rows, columns), of type `dtype`.

    Raises:
        ValueTypeError: A value does not fit, see `casts.cast`.
    """
    columns = [
        column if _fits(column.dtype, dtype) else cast(column, dtype, name)
        for column, name in zip(columns, names, strict=True)
    ]
    n_rows = len(columns[0])
    whole = empty_aligned((n_rows, len(columns)), dtype)
    block_rows = min(n_rows, _BLOCK_ROWS)
    # The values of a row in the block are to lie in as many sets of the cache as they are: it halves the time
    stride = -(-block_rows * dtype.itemsize // _WAY_BYTES) * _WAY_BYTES + _LINE_BYTES
    block = np.empty((len(columns), stride // dtype.itemsize), dtype)
    for start in range(0, n_rows, _BLOCK_ROWS):
        stop = min(start + _BLOCK_ROWS, n_rows)
        part = block[:, : stop - start]
        np.stack([column[start:stop] for column in columns], out=part, casting="unsafe")  # the columns fit
        whole[start:stop] = part.T
    return whole


def _fits(kind: np.dtype[Any], dtype: np.dtype[Any]) -> bool:
    """Return whether a cast needs no look at the values: it is exact, or rounds whole numbers to floats."""
    return (
        kind == dtype
        or np.can_cast(kind, dtype, "safe")
        or (dtype.kind == "f" and kind.kind in "biu" and dtype.itemsize > 2)
    )
