"""The number that follows a row on its way: which chunk of its epoch it is of, and which row of its file it is.

It travels as a column among the reader's own, through the same gathering, and is taken off before user code.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pyloader_delta.columns import numbers
from pyloader_delta.errors import ContractError
from pyloader_delta.values import Columns

FIELD = pa.field("pyloader_delta.row_number", pa.int64())
_ROW_BITS, _POSITION_BITS = 36, 26
FILLER = 1 << 62
"""Set in the number of a place in which another row stands: its own was skipped."""


def numbered(
    batches: Sequence[pa.RecordBatch], position: int, rows: NDArray[np.int64], *, filler: bool = False
) -> list[pa.RecordBatch]:
    """Return the batches of a chunk with the column of numbers behind the others.

    Args:
        batches: The rows of the chunk.
        position: Its place in the epoch's plan, < 2**26.
        rows: Their numbers in its file, < 2**36, in order.
        filler: Whether they are other rows in the place of the chunk's own.

    Raises:
        ContractError: There is a column of that name already, or a number is too large.
    """
    if any(FIELD.name in batch.schema.names for batch in batches):
        raise ContractError(f"{FIELD.name!r} is a name of our own, with audit=True: rename that column")
    if position >> _POSITION_BITS or (len(rows) and int(rows[-1]) >> _ROW_BITS):
        raise ContractError(f"rows cannot be numbered beyond 2**{_ROW_BITS} of a file or 2**{_POSITION_BITS} chunks")
    codes = rows | (position << _ROW_BITS) | (FILLER if filler else 0)
    found, start = [], 0
    for batch in batches:
        part = codes[start : start + batch.num_rows]
        start += batch.num_rows
        found.append(batch.append_column(FIELD, numbers(part)))
    return found


def taken_off(columns: Columns) -> tuple[Columns, NDArray[np.int64]]:
    """Return gathered columns without the numbers, and those: int64 of shape (n_rows,), of their own memory."""
    place = columns.schema.get_field_index(FIELD.name)
    arrays = list(columns.arrays)
    codes = np.array(arrays.pop(place), dtype=np.int64)
    return Columns(columns.schema.remove(place), arrays, columns.n_rows), codes


def positions(codes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the chunks of numbers, by their place in the epoch's plan."""
    found: NDArray[np.int64] = (codes & ~FILLER) >> _ROW_BITS
    return found


def rows(codes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the rows of numbers, as their files count them."""
    found: NDArray[np.int64] = codes & ((1 << _ROW_BITS) - 1)
    return found
