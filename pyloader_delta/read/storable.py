"""Arrow types that rows can be picked from. Views of text and run-end encoded columns become plain ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from pyloader_delta.arrays import storable_type
from pyloader_delta.columns import numbers
from pyloader_delta.errors import ContractError


def storable(column: Any, name: str, place: str) -> Any:
    """Return a column (an Array or a ChunkedArray) of a type whose rows Arrow can pick; the values are the same.

    Raises:
        ContractError: There is no such type; names the column and its type.
    """
    kind = column.type
    if pa.types.is_primitive(kind):
        return column
    try:
        if pa.types.is_run_end_encoded(kind):
            import pyarrow.compute as pc

            column = pc.run_end_decode(column)
        wanted = storable_type(column.type)
        if wanted != column.type:
            column = column.cast(wanted)
        if pa.types.is_nested(wanted) or isinstance(wanted, pa.BaseExtensionType):
            column.slice(0, 1).take(numbers(np.arange(min(len(column), 1))))
    except pa.ArrowException as error:
        raise ContractError(
            f"{place}: rows cannot be picked from column {name!r} of type {kind}; cast it to another type there"
        ) from error
    return column
