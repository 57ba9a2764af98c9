"""Statistics of files, as the log states them, become bounds of the table's columns. What is no sound one is unknown.

Writers shorten texts to 32 characters and more and cut times to milliseconds; bounds are widened accordingly.
"""

from __future__ import annotations

import datetime
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import types as kinds

from pyloader_delta.delta.filters.bounds import Bounds, of_statistics
from pyloader_delta.delta.filters.literals import Key, is_text
from pyloader_delta.delta.filters.tree import Column
from pyloader_delta.values import TableField

_SHORTENED = 32
_TIE_BREAKERS = "\ufffd\x7f\U0010ffff"  # what writers put behind a shortened text so that it is an upper bound
_ABOVE_ALL = b"\xff"  # no UTF-8
_MILLISECOND = 1000
_GREGORIAN = datetime.date(1582, 10, 15)  # before it, old writers count days in another calendar
_EPOCH = datetime.datetime(1970, 1, 1)
_MAX_FLOAT32 = float(np.finfo(np.float32).max)
_DOUBLE_DIGITS = 15  # decimal digits that a double keeps; some writers pass decimals through doubles

Statistics = Mapping[str, Any]


def parsed(texts: Iterable[str | Statistics | None]) -> list[Statistics]:
    """Return the statistics of files, empty where they are missing or no valid JSON."""
    found: list[Statistics] = []
    for text in texts:
        if isinstance(text, str):
            try:
                text = json.loads(text, parse_float=str)  # decimals keep their digits
            except (ValueError, RecursionError):
                text = None
        found.append(text if isinstance(text, Mapping) else {})
    return found


def file_bounds(
    statistics: Sequence[Statistics], fields: Sequence[TableField], columns: Iterable[Column]
) -> dict[tuple[str, ...], Bounds]:
    """Return path of a column → its bounds in each file.

    Args:
        statistics: What `parsed` gave.
        fields: Columns of the table.
        columns: Which of them, none a partition column.
    """
    rows = [_count(of_file.get("numRecords")) for of_file in statistics]
    found = {}
    for column in columns:
        path = _stored_path(column, fields)
        found[column.path] = of_statistics(
            [_key(_at(of_file.get("minValues"), path), column.type, upper=False) for of_file in statistics],
            [_key(_at(of_file.get("maxValues"), path), column.type, upper=True) for of_file in statistics],
            [_count(_at(of_file.get("nullCount"), path)) for of_file in statistics],
            rows,
        )
    return found


def _stored_path(column: Column, fields: Sequence[TableField]) -> list[str]:
    path = []
    for name in column.path:
        field = next(field for field in fields if field.name == name)
        path.append(field.stored_name)
        fields = field.children
    return path


def _at(values: Any, path: Sequence[str]) -> Any:
    for name in path:
        if not isinstance(values, Mapping):
            return None
        values = values.get(name)
    return values


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _key(value: Any, kind: pa.DataType, *, upper: bool) -> Key | None:
    """Return a bound, wide enough for whatever its writer may have cut off; None for what is none."""
    try:
        if value is None or isinstance(value, Mapping | list):
            return None
        if is_text(kind):
            return _text(value, upper) if isinstance(value, str) else None
        if kinds.is_boolean(kind):
            return value if isinstance(value, bool) else None
        if kinds.is_integer(kind):
            return value if isinstance(value, int) and not isinstance(value, bool) else None
        if kinds.is_floating(kind):
            return None if isinstance(value, bool) else _float(float(value), kind, upper)
        if kinds.is_decimal(kind):
            return _decimal(value, kind, upper)
        if kinds.is_date32(kind):
            return _date(value)
        if kinds.is_timestamp(kind):
            return _timestamp(value, kind, upper)
    except (ValueError, ArithmeticError, TypeError):
        pass
    return None


def _text(value: str, upper: bool) -> bytes:
    if not upper or len(value) < _SHORTENED:
        return value.encode()
    return value.rstrip(_TIE_BREAKERS).encode() + _ABOVE_ALL


def _float(value: float, kind: pa.DataType, upper: bool) -> float:
    """Return a bound of floats; texts of 32-bit ones are exact in 32 bits only, also those from before a widening."""
    if not abs(value) < _MAX_FLOAT32:
        return value
    single = float(np.float32(value))
    return single if kinds.is_float32(kind) else max(value, single) if upper else min(value, single)


def _decimal(value: Any, kind: pa.DataType, upper: bool) -> int | None:
    number = Decimal(value)
    if not number.is_finite() or abs(number.adjusted()) > 100:
        return None
    scaled = Fraction(number) * Fraction(10) ** kind.scale
    if len(number.as_tuple().digits) >= _DOUBLE_DIGITS:
        scaled += abs(scaled) * Fraction(1, 2**51) * (1 if upper else -1)
    bound: int = math.ceil(scaled) if upper else math.floor(scaled)
    return bound


def _date(value: Any) -> int | None:
    date = value if isinstance(value, datetime.date) else datetime.date.fromisoformat(value[:10])
    return None if date < _GREGORIAN else (date - _EPOCH.date()).days


def _timestamp(value: Any, kind: pa.DataType, upper: bool) -> int | None:
    moment = value if isinstance(value, datetime.datetime) else datetime.datetime.fromisoformat(value)
    if (moment.tzinfo is None) != (kind.tz is None):
        return None
    if moment.tzinfo is not None:
        moment = moment.astimezone(datetime.UTC).replace(tzinfo=None)
    if moment.date() < _GREGORIAN or kind.unit != "us":
        return None
    key = (moment - _EPOCH) // datetime.timedelta(microseconds=1)
    return key + _MILLISECOND if upper else key - _MILLISECOND
