"""One column by its `FieldSpec`: settled once from its type, then done for any number of rows at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pyloader_delta import arrays
from pyloader_delta.columns import numbers, tensor_shape
from pyloader_delta.encode.casts import called, cast, constant, stacked, whole_numbers
from pyloader_delta.encode.images import decode_images
from pyloader_delta.encode.refusals import null_error, refuse_jagged, refuse_options, refuse_unused, unfit
from pyloader_delta.encode.spec import WITH_TEXT, FieldSpec, Framework, Output
from pyloader_delta.errors import ConfigError, ContractError, ValueTypeError
from pyloader_delta.ragged import Listed, Ragged, length_names
from pyloader_delta.words import many

Encode = Callable[[pa.Array], Any]


class Column:
    """How one column of a type is encoded.

    Args:
        spec: What is asked for.
        field: The column.
        framework: What the batches are for.

    Raises:
        ConfigError: The spec asks for what the column's type has not.
        ValueTypeError: The framework cannot hold the type; names the remedy.
    """

    def __init__(self, spec: FieldSpec, field: pa.Field, framework: Framework) -> None:
        self.spec, self.framework = spec, framework
        self._field = field
        kind = self._innermost_type = plain(field.type)
        while arrays.is_list(self._innermost_type):
            self._innermost_type = self._innermost_type.value_type
        refuse_options(spec, kind)
        self._encode, self._output = self._settle(kind)

    def outputs(self) -> dict[str, Output]:
        """Return the entries that `encode` gives, and lengths that stand beside them."""
        spec = self.spec
        found = {spec.key: self._output}
        if self._output.kind == "array" and isinstance(self._output.dtype, np.dtype) and self._n_levels:
            for level, name in enumerate(length_names(spec.key, self._n_levels), start=1):
                found[name] = Output("array", np.dtype("i4" if self.framework == "jax" else "i8"), (None,) * level)
        if spec.null_mask:
            found[f"{spec.key}_null"] = Output("array", np.dtype(bool), (None,))
        return found

    _n_levels = 0
    _wanted_as_is: np.dtype[Any] | None = None

    def passes(self, array: Any) -> bool:
        """Return whether some rows are what `encode` gives of them, under the column's name alone."""
        wanted = None if self.spec.null_mask else self._wanted_as_is  # NumPy takes None for float64 where it compares
        return wanted is not None and type(array) is np.ndarray and array.dtype == wanted

    def encode(self, array: Any) -> dict[str, Any]:
        """Return the entries of some rows: arrays, `Ragged` or `Listed`, first axis rows.

        Args:
            array: The column, an Arrow array; or a NumPy one of numbers, which stays where it is.

        Raises:
            ValueTypeError: There are nulls and nothing is said of them, or a value does not fit.
            ContractError: Rows have not the length or shape that was said, or a user's function gave what it must not.
        """
        spec = self.spec
        if isinstance(array, np.ndarray):
            if self._wanted_as_is is not None and not spec.null_mask:
                return {spec.key: cast(array, self._wanted_as_is, spec.name)}
            array = numbers(array)
        array = unwrapped(array)
        if array.null_count and not spec.as_list and spec.fill_null is None and not spec.null_mask:
            raise null_error(spec, array.null_count, len(array), "nulls")
        found = {spec.key: self._encode(array)}
        if spec.null_mask:
            found[f"{spec.key}_null"] = arrays.nulls(array)
        return found

    # Settling -------------------------------------------------------------------------------------------------------

    def _settle(self, kind: pa.DataType) -> tuple[Encode, Output]:
        spec = self.spec
        if spec.image or spec.decode_numpy_and_apply_shape is not None:
            encode, output = self._decoded(kind)
        elif spec.as_list or spec.transform or (spec.batch_transform and self._dense_dtype(kind) is None):
            refuse_unused(spec, kind)
            encode, output = self._python_rows, Output("list")
        else:
            encode, output = self._natural(kind)
        if spec.transform is None and spec.batch_transform is None:
            return encode, output
        return lambda array: self._transformed(encode(array)), Output("array")

    def _natural(self, kind: pa.DataType) -> tuple[Encode, Output]:
        spec = self.spec
        if (dtype := self._leaf_dtype(kind)) is not None:
            if spec.batch_transform is None:
                self._wanted_as_is = self._wanted(dtype)
            return self._leaf_encode(kind, spec.name), Output("array", spec.dtype or dtype, (None,), self._unit(kind))
        if pa.types.is_null(kind):
            return self._void()
        if pa.types.is_decimal(kind):
            return self._decimal(kind)
        if (arrays.is_text(kind) or arrays.is_binary(kind)) and self.framework in WITH_TEXT:
            return self._text, Output("text", shape=(None,))
        if arrays.is_list(kind) and self._innermost(kind) is not None:
            return self._list(kind)
        if self.framework == "numpy":
            return lambda array: arrays.objects(self._pylist(array)), Output("array", np.dtype(object), (None,))
        raise unfit(spec, kind, self.framework, "as_list=True")

    def _decoded(self, kind: pa.DataType) -> tuple[Encode, Output]:
        spec = self.spec
        if arrays.is_list(kind) and not spec.image and self._innermost(kind) is not None:
            return self._list(kind, spec.decode_numpy_and_apply_shape)
        if not arrays.is_binary(kind):
            option = "decode" if spec.image else "decode_numpy_and_apply_shape"
            raise ConfigError(f"FieldSpec({spec.name!r}): {option} is for a binary column; this one is {kind}")
        if spec.image:
            return self._images, Output("array", np.dtype(np.uint8))
        shape = spec.decode_numpy_and_apply_shape
        assert shape is not None
        dtype = np.dtype(np.uint8) if spec.dtype is None else spec.dtype.newbyteorder("<")
        return lambda array: self._reshaped(array, dtype, shape), Output("array", dtype, (None, *shape))

    def _decimal(self, kind: pa.DataType) -> tuple[Encode, Output]:
        spec = self.spec
        if spec.decode == "unscaled":
            if kind.precision > 18:
                raise ConfigError(f"FieldSpec({spec.name!r}): decode='unscaled' is for at most 18 digits, not {kind}")
            unit = f"10^-{kind.scale}"
            return self._filled(arrays.unscaled, np.dtype(np.int64)), Output("array", self._wanted("i8"), (None,), unit)
        if (dtype := spec.dtype) is not None:
            output = Output("array", dtype, (None,))
            if dtype.kind == "f":
                return self._filled(arrays.floats_of_decimals, np.dtype(np.float64)), output
            return self._filled(lambda array: whole_numbers(array.to_pylist(), dtype, spec.name), dtype), output
        if self.framework == "numpy":
            return lambda array: arrays.objects(self._pylist(array)), Output("array", np.dtype(object), (None,))
        raise unfit(spec, kind, self.framework, "dtype='float64', decode='unscaled' (exact), or as_list=True")

    def _list(self, kind: pa.DataType, shape: tuple[int, ...] | None = None) -> tuple[Encode, Output]:
        spec = self.spec
        depth, inner = 0, kind
        while arrays.is_list(inner):
            depth, inner = depth + 1, inner.value_type
        dtype = spec.dtype or self._leaf_dtype(inner)
        assert dtype is not None
        element, unit = self._leaf_encode(inner, spec.name, elements=True), self._unit(inner)
        order: tuple[int, ...] | None = None
        if shape is None and isinstance(spec.ragged, tuple):
            shape = spec.ragged
        elif shape is None and spec.ragged == "pad":
            shape, order = self._stated_shape(kind)
        if shape is not None:
            fixed = shape
            out = fixed if order is None else tuple(fixed[i] for i in order)
            return lambda array: self._tensor(array, element, fixed, order), Output("array", dtype, (None, *out), unit)
        refuse_jagged(spec, kind, depth, self.framework)
        form, pad = ("jagged", 0) if spec.ragged == "jagged" else ("pad", spec.pad_value)
        pad = self._constant(pad, dtype, "pad_value")[()]
        self._n_levels = depth if form == "pad" else 0

        def encode(array: pa.Array) -> Ragged:
            lengths: list[NDArray[np.int64]] = []
            for _ in range(depth):
                if lengths and array.null_count and spec.fill_null is None:
                    raise null_error(spec, array.null_count, len(array), "null lists inside its lists")
                array, level = arrays.list_parts(array)
                lengths.append(level)
            return Ragged(element(array), tuple(lengths), form, pad)  # type: ignore[arg-type]

        return encode, Output("array" if form == "pad" else "jagged", dtype, (None,) * (depth + 1), unit)

    def _void(self) -> tuple[Encode, Output]:
        spec = self.spec
        if spec.fill_null is None:
            message = (
                f"column {spec.name!r} has no type, only nulls: say what they become by fill_null, or leave it out"
            )
            raise ValueTypeError(f"{message} (FieldSpec({spec.name!r}, as_list=True) gives a list of None)")
        place = f"FieldSpec({spec.name!r}): fill_null"
        value = np.asarray(spec.fill_null) if spec.dtype is None else constant(spec.fill_null, spec.dtype, place)
        if value.ndim or value.dtype.kind not in ("biufmMUS" if self.framework == "numpy" else "biuf"):
            raise ConfigError(f"{place} must be one number or bool, as the column has no type, got {spec.fill_null!r}")
        return lambda array: np.full(len(array), value), Output("array", value.dtype, (None,))

    # Encoding -------------------------------------------------------------------------------------------------------

    def _leaf_encode(self, kind: pa.DataType, name: str, *, elements: bool = False) -> Encode:
        dtype = self._leaf_dtype(kind)
        assert dtype is not None
        return self._filled(lambda array: arrays.leaf(array, dtype), dtype, elements=elements)

    def _filled(
        self, read: Callable[[pa.Array], NDArray[Any]], dtype: np.dtype[Any], *, elements: bool = False
    ) -> Encode:
        """Return what reads an array, casts it and fills its nulls."""
        spec = self.spec
        wanted = self._wanted(dtype)
        fill = self._fill(wanted)

        def encode(array: pa.Array) -> NDArray[Any]:
            values = read(array)
            if not array.null_count:
                return cast(values, wanted, spec.name)
            if elements and spec.fill_null is None:
                raise null_error(spec, array.null_count, len(array), "null elements in its lists")
            there = arrays.nulls(array)
            values = values.copy()
            values[there] = np.zeros((), values.dtype)
            values = cast(values, wanted, spec.name)
            values[there] = fill
            return values

        return encode

    def _fill(self, dtype: np.dtype[Any]) -> NDArray[Any]:
        """Return what stands where a number, bool or time is null."""
        fill = self.spec.fill_null
        return np.zeros((), dtype) if fill is None else self._constant(fill, dtype, "fill_null")

    def _constant(self, value: Any, dtype: np.dtype[Any], option: str) -> NDArray[Any]:
        """Return the value of an option as a type; a time as the number that it is in the column's unit."""
        times = arrays.leaf_dtype(self._innermost_type, times=True)
        place = f"FieldSpec({self.spec.name!r}): {option}"
        if times is not None and times.kind in "mM" and dtype.kind not in "mM" and not isinstance(value, (int, float)):
            value = constant(value, times, place).astype(np.int64)
        return constant(value, dtype, place)

    def _text(self, array: pa.Array) -> Ragged:
        if array.null_count:
            fill = arrays.zero(array.type) if self.spec.fill_null is None else self.spec.fill_null
            array = _filled_text(array, fill.encode() if isinstance(fill, str) else fill)
        values, lengths = arrays.text_parts(array)
        return Ragged(values, (lengths,), "str" if arrays.is_text(array.type) else "bytes")

    def _reshaped(self, array: pa.Array, dtype: np.dtype[Any], shape: tuple[int, ...]) -> NDArray[Any]:
        width = dtype.itemsize * int(np.prod(shape, dtype=np.int64))
        there = arrays.nulls(array) if array.null_count else None
        if there is not None:
            array = _filled_text(array, b"\0" * width)
        raw, lengths = arrays.text_parts(array)
        if (lengths != width).any():
            row = int(np.flatnonzero(lengths != width)[0])
            raise ContractError(
                f"column {self.spec.name!r}: a value has {int(lengths[row])} bytes, shape {shape} of {dtype} needs "
                f"{width}; give the shape and dtype that it was written with"
            )
        values = (
            np.frombuffer(raw, dtype).reshape((len(array), *shape))
            if raw.size
            else np.zeros((len(array), *shape), dtype)
        )
        if there is not None and self.spec.fill_null is not None:
            values = values.copy()
            values[there] = self._fill(dtype)
        return values

    def _tensor(
        self, array: pa.Array, element: Encode, shape: tuple[int, ...], order: tuple[int, ...] | None
    ) -> NDArray[Any]:
        n_rows, size = len(array), int(np.prod(shape, dtype=np.int64))
        there = arrays.nulls(array) if array.null_count else None
        counts: NDArray[np.int64] | None = None
        while arrays.is_list(array.type):
            array, lengths = arrays.list_parts(array)
            counts = lengths if counts is None else _summed(lengths, counts)
        assert counts is not None
        wrong = counts != size if there is None else (counts != size) & ~there
        if wrong.any():
            found = int(counts[int(np.flatnonzero(wrong)[0])])
            raise ContractError(
                f"column {self.spec.name!r}: a list has {found} numbers, shape {shape} needs {size}; give another "
                "shape, or ragged='pad' for lists of unequal length"
            )
        values = element(array)
        if there is not None:
            whole = np.full((n_rows, size), self._fill(values.dtype))
            whole[~there] = values.reshape(-1, size)
            values = whole
        values = np.asarray(values).reshape((n_rows, *shape))
        return values if order is None else values.transpose(0, *(1 + i for i in order))

    def _images(self, array: pa.Array) -> Any:
        spec = self.spec
        rows = self._pylist(array) if spec.fill_null is not None else array.to_pylist()
        assert spec.decode in ("image", "jpeg")
        return decode_images(rows, spec.decode, spec.resize, spec.name, as_pil=spec.transform is not None)

    def _python_rows(self, array: pa.Array) -> Any:
        spec = self.spec
        listed = spec.transform is None and spec.batch_transform is None
        texts = arrays.is_text(array.type) or arrays.is_binary(array.type)
        if listed and texts and self.framework not in WITH_TEXT and not array.null_count:
            return self._text(array)  # the same list, without Python for each row in the worker
        rows = self._pylist(array) if spec.fill_null is not None or not spec.as_list else array.to_pylist()
        return Listed(rows) if listed else rows

    def _transformed(self, rows: Any) -> Any:
        spec = self.spec
        if spec.transform is not None:
            what = f"transform of FieldSpec({spec.name!r})"
            found = [called(spec.transform, row, what) for row in rows]
            return Listed(found) if spec.as_list else stacked(found, what)
        what, n_rows = f"batch_transform of FieldSpec({spec.name!r})", len(rows)
        assert spec.batch_transform is not None
        made = called(spec.batch_transform, rows, what)
        made = np.asarray(made) if hasattr(made, "__array__") else made
        if not hasattr(made, "__len__") or len(made) != n_rows:
            length = len(made) if hasattr(made, "__len__") else type(made).__name__
            raise ContractError(f"{what} got {many(n_rows, 'row')} and returned {length}: it must return one a row")
        return made

    def _pylist(self, array: pa.Array) -> list[Any]:
        rows: list[Any] = array.to_pylist()
        if not array.null_count:
            return rows
        fill = arrays.zero(array.type) if self.spec.fill_null is None else self.spec.fill_null
        return [fill if row is None else row for row in rows]

    # Small things ---------------------------------------------------------------------------------------------------

    def _leaf_dtype(self, kind: pa.DataType) -> np.dtype[Any] | None:
        return arrays.leaf_dtype(kind, times=self.framework == "numpy" and self.spec.dtype is None)

    def _dense_dtype(self, kind: pa.DataType) -> np.dtype[Any] | None:
        if self._leaf_dtype(kind) is None and arrays.is_list(kind):
            fixed = isinstance(self.spec.ragged, tuple) or self._stated_shape(kind)[0] is not None
            return self._innermost(kind) if fixed else None
        return self._leaf_dtype(kind)

    def _stated_shape(self, kind: pa.DataType) -> tuple[tuple[int, ...] | None, tuple[int, ...] | None]:
        """Return the shape and the order of axes of the column's tensors; None where it is lists of any length."""
        stated = tensor_shape(self._field)
        if stated is None:
            return _fixed_shape(kind), None
        shape, order = stated
        return shape, None if order == tuple(range(len(shape))) else order

    def _innermost(self, kind: pa.DataType) -> np.dtype[Any] | None:
        while arrays.is_list(kind):
            kind = kind.value_type
        return self._leaf_dtype(kind)

    def _wanted(self, dtype: Any) -> np.dtype[Any]:
        wanted: np.dtype[Any] = self.spec.dtype or np.dtype(dtype)
        return wanted

    def _unit(self, kind: pa.DataType) -> str | None:
        if pa.types.is_date32(kind):
            return "day"
        if pa.types.is_timestamp(kind) or pa.types.is_duration(kind):
            return arrays.UNITS[kind.unit]
        return None


def _filled_text(array: pa.Array, fill: bytes) -> pa.Array:
    """Return texts or bytes with their nulls filled; from a value of Python's, pyarrow would import pandas first."""
    return array.fill_null(arrays.text_array([fill], pa.binary()).cast(array.type)[0])


def plain(kind: pa.DataType) -> pa.DataType:
    """Return what a dictionary or an extension type holds; any other type as it is."""
    if isinstance(kind, pa.BaseExtensionType):
        return plain(kind.storage_type)
    return plain(kind.value_type) if pa.types.is_dictionary(kind) else kind


def unwrapped(array: pa.Array) -> pa.Array:
    """Return an array of its `plain` type."""
    if isinstance(array, pa.ExtensionArray):
        return unwrapped(array.storage)
    return array.dictionary_decode() if pa.types.is_dictionary(array.type) else array


def _fixed_shape(kind: pa.DataType) -> tuple[int, ...] | None:
    """Return the shape of rows of a type of lists that are all equally long by their type; None for others."""
    shape: list[int] = []
    while pa.types.is_fixed_size_list(kind):
        shape.append(kind.list_size)
        kind = kind.value_type
    return None if arrays.is_list(kind) or not shape else tuple(shape)


def _summed(lengths: NDArray[np.int64], counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return for each row the sum of the next `counts` lengths."""
    bounds = np.concatenate(([0], np.cumsum(lengths)))
    ends = np.cumsum(counts)
    return np.asarray(bounds[ends] - bounds[ends - counts])
