"""Casts from a stored type to a logical one that keep every value or fail, among them Delta's type widening."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as kinds

_DIGITS = {8: 3, 16: 5, 32: 10, 64: 20}
"""Bits of an integer → digits that it may have."""


def caster(stored: pa.DataType, wanted: pa.DataType, place: str) -> Callable[[pa.Array], pa.Array]:
    """Return the cast between two types that are not nested.

    Args:
        stored: Type in the file.
        wanted: Type in the table.
        place: Column, for errors.

    Raises:
        TypeError: There is no way that keeps every value.

    The cast itself raises ValueError where a value does not fit.
    """
    if not _lossless(stored, wanted):
        raise TypeError(f"column {place!r} is stored as {stored}, but the table's type is {wanted}")

    def cast(array: pa.Array) -> pa.Array:
        try:
            return _cast(array, wanted)
        except pa.ArrowException as error:
            raise ValueError(
                f"column {place!r} is stored as {stored}, but the table's type is {wanted}: {error}"
            ) from error

    return cast


def _lossless(stored: pa.DataType, wanted: pa.DataType) -> bool:
    """Return whether a cast keeps every value or fails; Arrow would also parse texts and round floats."""
    if kinds.is_dictionary(stored):
        return stored.value_type == wanted or _lossless(stored.value_type, wanted)
    if kinds.is_string(wanted) or kinds.is_binary(wanted):
        return _is_bytes(stored)
    if kinds.is_integer(wanted):
        return bool(kinds.is_integer(stored))
    if kinds.is_floating(wanted):
        if kinds.is_integer(stored):  # a double holds what 32 bits hold
            return bool(kinds.is_float64(wanted) and stored.bit_width <= 32)
        return bool(kinds.is_floating(stored) and stored.bit_width <= wanted.bit_width)
    if kinds.is_timestamp(wanted):  # days have no zone
        return bool(kinds.is_timestamp(stored) or (kinds.is_date32(stored) and wanted.tz is None))
    if kinds.is_decimal(wanted):
        return bool(kinds.is_decimal(stored) or kinds.is_integer(stored))
    return bool(kinds.is_date(wanted) and kinds.is_date(stored))


def _is_bytes(kind: pa.DataType) -> bool:
    return any(
        is_kind(kind)
        for is_kind in (
            kinds.is_string,
            kinds.is_large_string,
            kinds.is_string_view,
            kinds.is_binary,
            kinds.is_large_binary,
            kinds.is_binary_view,
            kinds.is_fixed_size_binary,
        )
    ) and not kinds.is_decimal(kind)


def _cast(array: pa.Array, wanted: pa.DataType) -> pa.Array:
    if kinds.is_dictionary(array.type):
        array = array.dictionary_decode()
    stored = array.type
    if kinds.is_timestamp(wanted) and kinds.is_timestamp(stored):
        # A time without a zone is UTC. Delta knows microseconds; what is finer is cut off, downwards as Spark does.
        plain = array.view(pa.timestamp(stored.unit))
        if stored.unit == "ns":
            plain = pc.floor_temporal(plain, unit="microsecond")
        return plain.cast(pa.timestamp("us")).view(wanted)
    if kinds.is_decimal(wanted) and kinds.is_integer(stored):
        # Arrow asks for room for any value of the integer, the table only for those that it holds.
        roomy = pa.decimal256(_DIGITS[stored.bit_width] + max(wanted.scale, 0), max(wanted.scale, 0))
        return array.cast(roomy).cast(wanted)
    return array.cast(wanted)
