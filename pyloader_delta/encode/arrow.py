"""Columns for Arrow and pandas: as the table has them, with their nulls, unless a `FieldSpec` asks for more."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from pyloader_delta import arrays
from pyloader_delta.encode.column import Column, plain, unwrapped
from pyloader_delta.encode.spec import FieldSpec, Output
from pyloader_delta.errors import ConfigError
from pyloader_delta.ragged import Ragged


class ArrowColumn(Column):
    """A column of a record batch.

    A spec that asks for nothing but a name keeps type and nulls. Any other makes what NumPy would get, as an Arrow
    column; lists of numbers stay lists, and nulls stay where `dtype` or `decode` alone is given for numbers.

    Args:
        spec: What is asked for.
        field: The column.

    Raises:
        ConfigError: The spec asks for what the column's type has not, or for what Arrow has no use for.
        ValueTypeError: The column's type cannot be had so; names the remedy.
    """

    def __init__(self, spec: FieldSpec, field: pa.Field) -> None:
        for option, given in (
            ("as_list", spec.as_list), ("pad_value", bool(spec.pad_value)), ("ragged", spec.ragged == "jagged"),
        ):  # fmt: skip
            if given:
                raise ConfigError(
                    f"FieldSpec({spec.name!r}): {option} does nothing for Arrow and pandas, which keep lists and every "
                    "other type as they are; leave it out"
                )
        kind = plain(field.type)
        self._kept = kind if spec.only_names else None
        if self._kept is not None:
            self.spec, self.framework = spec, "arrow"
            return
        calls = spec.transform is not None or spec.batch_transform is not None
        if spec.ragged == "pad" and spec.decode_numpy_and_apply_shape is None and not calls and _of_numbers(kind):
            spec = replace(spec, ragged="jagged")
        super().__init__(spec, field, "numpy")
        if self._output.dtype == np.dtype(object):
            raise ConfigError(
                f"FieldSpec({spec.name!r}): fill_null and null_mask are not for a column of {kind}, which keeps its "
                "nulls for Arrow and pandas; leave them out"
            )
        plainly = spec.fill_null is None and not spec.null_mask and not calls and not spec.image
        self._zoned = kind if pa.types.is_timestamp(kind) and kind.tz is not None and not calls else None
        self._keeps_nulls = plainly and self._output.kind == "array" and self._output.shape == (None,)

    def outputs(self) -> dict[str, Output]:
        """Return the entries that `encode` gives, with Arrow's types."""
        if self._kept is not None:
            return {self.spec.key: Output("arrow", self._kept, (None,))}
        return {name: arrow_output(output, self._innermost_type) for name, output in super().outputs().items()}

    def encode(self, array: Any) -> dict[str, Any]:
        """Return the entries of some rows: arrays of NumPy's or Arrow's, or `Ragged`, first axis rows.

        Args:
            array: As `Column.encode`.

        Raises:
            ValueTypeError, ContractError: As `Column.encode`.
        """
        if isinstance(array, np.ndarray) and self._kept is not None:
            return {self.spec.key: array}
        if self._kept is not None:
            return {self.spec.key: _kept(unwrapped(array))}
        if not isinstance(array, np.ndarray) and self._keeps_nulls and array.null_count:
            array = unwrapped(array)
            values = self._encode(array)
            there = arrays.packed(~arrays.nulls(array))
            data = arrays.packed(values) if values.dtype.kind == "b" else pa.py_buffer(np.ascontiguousarray(values))
            kind = pa.from_numpy_dtype(values.dtype)
            return {self.spec.key: pa.Array.from_buffers(kind, len(values), [there, data])}
        found = super().encode(array)
        values = found[self.spec.key]
        if self._zoned is not None and isinstance(values, np.ndarray) and values.dtype.kind == "M":
            data = pa.py_buffer(np.ascontiguousarray(values))
            found[self.spec.key] = pa.Array.from_buffers(self._zoned, len(values), [None, data])
        return found


def arrow_output(output: Output, kind: pa.DataType | None = None) -> Output:
    """Return what an array, a ragged one or text, of a column of type `kind`, is as an Arrow column."""
    if output.kind == "text":
        found = pa.string() if kind is not None and arrays.is_text(kind) else pa.binary()
        return Output("arrow", found, (None,))
    if output.dtype is None or output.shape is None:
        return Output("arrow", None, output.shape)
    if output.dtype.kind == "M" and kind is not None and pa.types.is_temporal(kind):
        found = kind
    else:
        found = pa.date32() if output.dtype == np.dtype("M8[D]") else pa.from_numpy_dtype(output.dtype)
    if output.kind == "jagged":
        for _ in output.shape[1:]:
            found = pa.list_(found)
    elif len(output.shape) > 1:
        found = pa.fixed_shape_tensor(found, output.shape[1:])
    return Output("arrow", found, (None,), output.unit if output.dtype.kind in "iu" else None)


def _kept(array: pa.Array) -> Any:
    """Return a column as it is: in the form that travels best, an Arrow array where nothing else holds it."""
    kind = array.type
    if array.null_count:
        return array
    if pa.types.is_boolean(kind) or kind.id in arrays.NUMBERS:
        dtype = arrays.leaf_dtype(kind, times=False)
        assert dtype is not None
        return arrays.leaf(array, dtype)
    if kind in (pa.string(), pa.binary()):
        values, lengths = arrays.text_parts(array)
        return Ragged(values, (lengths,), "str" if kind == pa.string() else "bytes")
    return array


def _of_numbers(kind: pa.DataType) -> bool:
    if not arrays.is_list(kind):
        return False
    while arrays.is_list(kind):
        kind = kind.value_type
    return arrays.leaf_dtype(kind, times=True) is not None
