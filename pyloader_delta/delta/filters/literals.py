"""Values beside columns: a literal becomes a key, which is ordered and exact, in the domain of the column's type.

Keys of integers, booleans, decimals (unscaled), dates (days) and timestamps (the column's unit, both since 1970) are
int; of floats float; of texts and bytes bytes, whose order is that of Arrow and Parquet.
"""

from __future__ import annotations

import datetime
import math
from decimal import Context, Decimal
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from pyarrow import types as kinds

from pyloader_delta.arrays import text_array
from pyloader_delta.columns import numbers

Key = int | float | bytes

_EPOCH = datetime.datetime(1970, 1, 1)
_MICROSECOND = datetime.timedelta(microseconds=1)
_DAY_NS = 86_400 * 10**9
_NS_OF_UNIT = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
_EXACT = Context(prec=2000)
_MAX_DIGITS = 1000  # no number of a table has more; 1e999999999 must not fill the memory


def has_keys(kind: pa.DataType) -> bool:
    """Return whether a column of that type can be compared with values."""
    return kinds.is_floating(kind) or is_bytes(kind) or key_range(kind) is not None


def is_float(kind: pa.DataType) -> bool:
    """Return whether a type has NaN."""
    return bool(kinds.is_floating(kind))


def is_text(kind: pa.DataType) -> bool:
    """Return whether a type's values are texts."""
    return bool(kinds.is_string(kind) or kinds.is_large_string(kind) or kinds.is_string_view(kind))


def is_bytes(kind: pa.DataType) -> bool:
    """Return whether a type's keys are bytes."""
    return is_text(kind) or bool(
        kinds.is_binary(kind)
        or kinds.is_large_binary(kind)
        or kinds.is_binary_view(kind)
        or (kinds.is_fixed_size_binary(kind) and not kinds.is_decimal(kind))
    )


def key_range(kind: pa.DataType) -> tuple[int, int] | None:
    """Return the least and the greatest key of a type whose keys are int; None for others."""
    if kinds.is_boolean(kind):
        return 0, 1
    if kinds.is_decimal(kind):
        return 1 - 10**kind.precision, 10**kind.precision - 1
    if kinds.is_unsigned_integer(kind):
        return 0, 2**kind.bit_width - 1
    if kinds.is_integer(kind) or kinds.is_date32(kind) or kinds.is_timestamp(kind):
        return -(2 ** (kind.bit_width - 1)), 2 ** (kind.bit_width - 1) - 1
    return None


def key(value: Any, kind: pa.DataType) -> tuple[Key, bool]:
    """Return the key of a literal and whether it is exact; else it is the greatest key below the literal.

    A text beside a column of another type is read as that type, as it stands in logs: `'2024-05-01'`, `'7'`.

    Args:
        value: bool, int, float, Decimal, str, bytes, date, datetime, or such a scalar of NumPy, pandas or Arrow.
        kind: Type of the column, one with keys. Keys of ints are not cut to its range.

    Raises:
        ValueError: The literal cannot be compared with such a column; the text says why.
    """
    plain = _plain(value)
    try:
        if is_bytes(kind) and isinstance(plain, str if is_text(kind) else str | bytes):
            return (plain.encode() if isinstance(plain, str) else plain), True
        if kinds.is_boolean(kind) and isinstance(plain, str | int):
            return {"true": True, "false": False, "1": True, "0": False}[str(plain).lower()], True
        if kinds.is_date32(kind) or kinds.is_timestamp(kind):
            return _time_key(plain, kind)
        if isinstance(plain, int | float | Decimal | str) and not isinstance(plain, bool) and not is_bytes(kind):
            return _number(plain, kind)
    except (ArithmeticError, ValueError, KeyError) as error:
        raise ValueError(f"{_shown(value)} is no value of type {kind}") from error
    raise ValueError(f"{_shown(value)} cannot be compared with type {kind}")


def arrow_array(value: Key, kind: pa.DataType) -> pa.Array:
    """Return a key as an array of one value of the column's type; of floats always as double."""
    if isinstance(value, bytes):
        return text_array([value], pa.string() if is_text(kind) else pa.binary()).cast(kind)
    if is_float(kind):
        return numbers(np.array([value], np.float64))
    if kinds.is_decimal(kind):
        exact = Decimal(value).scaleb(-kind.scale, _EXACT)
        return text_array([format(exact, "f").encode()], pa.string()).cast(kind)
    if kinds.is_date32(kind):
        return numbers(np.array([value], np.int32)).cast(kind)
    return numbers(np.array([value], np.int64)).cast(kind)


def _shown(value: Any) -> str:
    return str(value) if isinstance(value, Decimal) else repr(value)


class _Time(NamedTuple):
    nanoseconds: int
    """Since 1970."""
    zone: bool
    """Whether it is a moment, in UTC; else what clocks and calendars show somewhere."""


def _plain(value: Any) -> Any:
    """Return Python's own value of a NumPy, pandas or Arrow scalar, times as _Time."""
    if isinstance(value, pa.Scalar):
        if kinds.is_timestamp(value.type) and value.is_valid:
            return _Time(value.value * _NS_OF_UNIT[value.type.unit], value.type.tz is not None)
        value = value.as_py()
    if type(value).__module__ == "numpy":
        if value.dtype == "M8[ns]" and value == value:
            return _Time(int(value.astype("i8")), False)
        value = value.item()  # of times: a date or a datetime
    if isinstance(value, datetime.datetime) and value == value:  # not pandas' NaT
        zone = value.tzinfo is not None
        utc = value.astimezone(datetime.UTC).replace(tzinfo=None) if zone else value
        nanoseconds = getattr(value, "nanosecond", 0)  # pandas knows them
        return _Time((utc - _EPOCH) // _MICROSECOND * 1000 + nanoseconds, zone)
    if isinstance(value, datetime.date) and value == value:
        return _Time((value - _EPOCH.date()).days * _DAY_NS, False)
    return value


def _number(value: int | float | Decimal | str, kind: pa.DataType) -> tuple[Key, bool]:
    if isinstance(value, str) and (not value.isascii() or "_" in value):  # numbers of Python alone
        raise ValueError
    if is_float(kind):
        return float(value), True
    # A float is the number that it is written as.
    number = Decimal(value.strip() if isinstance(value, str) else repr(value) if isinstance(value, float) else value)
    if not number.is_finite() or number.adjusted() > _MAX_DIGITS:
        raise ValueError
    scaled = number.scaleb(kind.scale if kinds.is_decimal(kind) else 0, _EXACT)
    floor = math.floor(scaled)
    return floor, floor == scaled


def _time_key(value: Any, kind: pa.DataType) -> tuple[int, bool]:
    """Return the key of a time. Without a zone, for a column that has one, it is UTC."""
    if isinstance(value, str):
        text = value.strip()
        value = _plain(datetime.datetime.fromisoformat(f"{text[:-3].rstrip()}Z" if text[-3:] == "UTC" else text))
    if not isinstance(value, _Time):
        raise ValueError
    date = kinds.is_date32(kind)
    if value.zone and (date or kind.tz is None):
        raise ValueError
    unit = _DAY_NS if date else _NS_OF_UNIT[kind.unit]
    return value.nanoseconds // unit, value.nanoseconds % unit == 0
