"""Partition values: the log's texts become typed constants."""

from __future__ import annotations

import datetime
import decimal
import re
import zoneinfo

import numpy as np
import pyarrow as pa

from pyloader_delta.arrays import text_array
from pyloader_delta.columns import numbers
from pyloader_delta.errors import TableError

_EPOCH = datetime.datetime(1970, 1, 1)
_EPOCH_DAY = _EPOCH.toordinal()
_DATE = re.compile(r"(\d{4}-\d\d-\d\d)(?:[ T]00:00:00(?:\.0+)?)?")
_TIMESTAMP = re.compile(
    r"(\d{4}-\d\d-\d\d)(?:[ T](\d\d):(\d\d)(?::(\d\d)(?:\.(\d{1,9}))?)?)?\s*(Z|UTC|[+-]\d\d:?\d\d)?", re.IGNORECASE
)
_ESCAPED_BYTES = re.compile(r"(?:\\u00[0-9A-Fa-f]{2})+")
_BOOLEANS = {"true": True, "false": False}
_DECIMALS = decimal.Context(prec=80, traps=[decimal.InvalidOperation])


def partition_scalar(text: str | None, field: pa.Field, timezone: str = "UTC") -> pa.Scalar:
    """Return the value of a partition column for all rows of a file.

    The empty text is NULL, but in a string column that is not nullable. Binary values are the text's UTF-8 bytes, as
    Spark writes them, or a run of escapes such as `\\u0001\\u00ff`, one a byte, as delta-rs does.

    Args:
        text: The value as the log spells it; None is NULL. It is no part of a path: nothing is unquoted.
        field: The partition column.
        timezone: Zone of a timestamp that states none. All readers but Spark take UTC; Spark takes that of the session.

    Raises:
        TableError: The text is no value of the column's type.
    """
    kind = field.type
    if text is None or (text == "" and (field.nullable or not pa.types.is_string(kind))):
        return pa.nulls(1, kind)[0]
    try:
        return _scalar(text, kind, timezone)
    except (ValueError, ArithmeticError, pa.ArrowException) as error:
        raise TableError(
            f"partition column {field.name!r} has the value {text!r} in the log, which is no {kind}: the log is broken"
        ) from error


def _scalar(text: str, kind: pa.DataType, timezone: str) -> pa.Scalar:
    if pa.types.is_string(kind):
        return text_array([text.encode()], kind)[0]
    if pa.types.is_binary(kind):
        escaped = _ESCAPED_BYTES.fullmatch(text)
        return text_array([bytes.fromhex(text.replace("\\u00", "")) if escaped else text.encode()], kind)[0]
    if pa.types.is_boolean(kind):
        if text.lower() not in _BOOLEANS:
            raise ValueError("no boolean")
        return numbers(np.array([_BOOLEANS[text.lower()]], np.uint8)).cast(kind)[0]
    if pa.types.is_integer(kind):
        return numbers(np.array([int(text)], np.int64)).cast(kind)[0]
    if pa.types.is_floating(kind):
        return numbers(np.array([float(text)], np.float64)).cast(kind)[0]
    if pa.types.is_decimal(kind):
        value = _DECIMALS.create_decimal(text)
        exact = _DECIMALS.quantize(value, decimal.Decimal(1).scaleb(-kind.scale))
        if exact != value:
            raise ValueError(f"more than {kind.scale} decimals")
        return text_array([format(exact, "f").encode()], pa.string()).cast(kind)[0]
    if pa.types.is_date(kind):
        if not (found := _DATE.fullmatch(text)):
            raise ValueError("no date")
        days = datetime.date.fromisoformat(found[1]).toordinal() - _EPOCH_DAY
        return numbers(np.array([days], np.int32)).cast(kind)[0]
    if pa.types.is_timestamp(kind):
        return numbers(np.array([_microseconds(text, "UTC" if kind.tz is None else timezone)], np.int64)).cast(kind)[0]
    raise ValueError(f"no type of a partition column: {kind}")


def _microseconds(text: str, timezone: str) -> int:
    """Return microseconds since 1970 UTC."""
    if not (found := _TIMESTAMP.fullmatch(text)):
        raise ValueError("no timestamp")
    date, hour, minute, second, fraction, zone = found.groups()
    time = datetime.time(int(hour or 0), int(minute or 0), int(second or 0), int(f"{fraction or ''}000000"[:6]))
    local = datetime.datetime.combine(datetime.date.fromisoformat(date), time)
    offset = datetime.timedelta()
    if zone is None and timezone != "UTC":
        offset = local.replace(tzinfo=zoneinfo.ZoneInfo(timezone)).utcoffset() or offset
    elif zone and zone[0] in "+-":
        digits = zone[1:].replace(":", "")
        offset = datetime.timedelta(hours=int(digits[:2]), minutes=int(digits[2:])) * (1 if zone[0] == "+" else -1)
    return (local - _EPOCH - offset) // datetime.timedelta(microseconds=1)
