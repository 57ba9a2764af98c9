"""pandas frames taken apart into columns. pandas is never imported here: whoever gives a frame has done so."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from pyloader_delta.columns import numbers
from pyloader_delta.errors import ContractError


def is_pandas(value: Any) -> bool:
    """Return whether a value is a pandas frame."""
    return type(value).__module__.partition(".")[0] == "pandas" and hasattr(value, "columns")


def frame_columns(frame: Any, *, exact: bool, place: str) -> dict[str, Any]:
    """Return name → values of a pandas frame's columns, without its index: NaN stays NaN, a null of pandas a null.

    Args:
        frame: The frame; names that are no str are turned into some.
        exact: Keep objects and times as pandas has them ("python" input).
        place: Names the call in errors.

    Raises:
        ContractError: Two columns have one name.
    """
    found: dict[str, Any] = {}
    for name, series in frame.items():
        if str(name) in found:
            raise ContractError(f"{place}: two columns are named {str(name)!r}")
        found[str(name)] = _values(series, exact=exact)
    return found


def _values(series: Any, *, exact: bool) -> Any:
    """Return a column as an Arrow array where that says all of it, else as a NumPy array or a list."""
    dtype = series.dtype
    if isinstance(dtype, np.dtype):
        if dtype.kind in "iuf" and dtype.itemsize <= 8:
            return numbers(np.ascontiguousarray(series.to_numpy(), dtype=dtype.newbyteorder("=")))
        if dtype.kind == "b":
            return pa.array(series.to_numpy())
        return list(series) if exact and dtype.kind in "OmM" else series.to_numpy()
    if exact and type(dtype).__name__ not in ("CategoricalDtype", "StringDtype") and not _says_na(dtype):
        return list(series)  # times with a zone, periods, intervals, sparse values: as pandas gives them
    try:
        return pa.array(series)
    except (pa.ArrowException, TypeError, ValueError):  # categories that Arrow has no type for
        return list(series)


def _says_na(dtype: Any) -> bool:
    """Return whether a column's missing values are pandas.NA: then it is numbers, booleans or Arrow's own types."""
    return type(getattr(dtype, "na_value", None)).__name__ == "NAType"
