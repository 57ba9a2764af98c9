"""Statistics of files, as the log states them, become bounds of the table's columns. What is no sound one is unknown.

Writers shorten texts to 32 characters and more and cut times to milliseconds; bounds are widened accordingly.
"""

from __future__ import annotations

import datetime
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
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


def file_bounds(
    statistics: Iterable[str | Mapping[str, Any] | None], fields: Sequence[TableField], columns: Iterable[Column]
) -> dict[tuple[str, ...], Bounds]:
    """Return path of a column → its bounds in each file.

    Args:
        statistics: What the log says of each file: JSON or what it stands for; None for nothing.
        fields: Columns of the table.
        columns: Which of them, none a partition column.
    """
    leaves = [_Leaf(column, fields) for column in columns]
    rows = []
    for stated in statistics:  # one at a time: parsed, they take much more memory than as texts
        of_file = parsed(stated)
        rows.append(_count(of_file.get("numRecords")))
        for leaf in leaves:
            leaf.add(of_file)
    return {leaf.column.path: of_statistics(leaf.low, leaf.high, leaf.nulls, rows) for leaf in leaves}


class _Leaf:
    """What the log says of one column in each file."""

    def __init__(self, column: Column, fields: Sequence[TableField]) -> None:
        self.column = column
        self.low: list[Key | None] = []
        self.high: list[Key | None] = []
        self.nulls: list[int | None] = []
        self._key = _reader(column.type)
        self._path = []
        for name in column.path:
            field = next(field for field in fields if field.name == name)
            self._path.append(field.stored_name)
            fields = field.children

    def add(self, of_file: Mapping[str, Any]) -> None:
        self.low.append(self._bound(self._at(of_file.get("minValues")), upper=False))
        self.high.append(self._bound(self._at(of_file.get("maxValues")), upper=True))
        self.nulls.append(_count(self._at(of_file.get("nullCount"))))

    def _at(self, values: Any) -> Any:
        for name in self._path:
            if not isinstance(values, dict):
                return None
            values = values.get(name)
        return values

    def _bound(self, value: Any, *, upper: bool) -> Key | None:
        if value is None or self._key is None:
            return None
        try:
            return self._key(value, upper)
        except (ValueError, ArithmeticError, TypeError):
            return None


class _Number(str):
    """A number of JSON that is no whole one, as it is written: decimals keep their digits."""

    __slots__ = ()


_JSON = json.JSONDecoder(parse_float=_Number)


def parsed(stated: str | Mapping[str, Any] | None) -> Mapping[str, Any]:
    """Return what the log says of a file, JSON or what it stands for; nothing where that is none."""
    if isinstance(stated, str):
        try:
            stated = _JSON.decode(stated)
        except (ValueError, RecursionError):
            return {}
    return stated if isinstance(stated, Mapping) else {}


def _count(value: Any) -> int | None:
    return value if type(value) is int and value >= 0 else None


def _reader(kind: pa.DataType) -> Callable[[Any, bool], Key | None] | None:
    """Return what makes a bound of a statistic, wide enough for whatever its writer may have cut off.

    It raises ValueError, ArithmeticError or TypeError, or gives None, for what is no statistic of such a column.
    """
    if is_text(kind):
        return lambda value, upper: _text(value, upper) if type(value) is str else None
    if kinds.is_boolean(kind):
        return lambda value, upper: value if type(value) is bool else None
    if kinds.is_integer(kind):
        return lambda value, upper: value if type(value) is int else None
    if kinds.is_floating(kind):
        return lambda value, upper: None if type(value) is bool else _float(float(value), kind, upper)
    if kinds.is_decimal(kind):
        return lambda value, upper: _decimal(value, kind, upper)
    if kinds.is_date32(kind):
        return lambda value, upper: _date(value)
    if kinds.is_timestamp(kind) and kind.unit == "us":
        return lambda value, upper: _timestamp(value, kind, upper)
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
    if type(value) is bool:
        return None
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
    if moment.date() < _GREGORIAN:
        return None
    key = (moment - _EPOCH) // datetime.timedelta(microseconds=1)
    return key + _MILLISECOND if upper else key - _MILLISECOND
