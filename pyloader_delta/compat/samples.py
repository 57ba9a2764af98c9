"""Columns as torch's `default_collate` would make them of a list of samples, or as samples for a `collate_fn`."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pyloader_delta import arrays
from pyloader_delta.collate.base import DataCollator
from pyloader_delta.collate.torch import TorchDataCollator
from pyloader_delta.encode.casts import called, stacked
from pyloader_delta.encode.fields import FieldsDataset, FieldSpec
from pyloader_delta.encode.images import decode_images
from pyloader_delta.errors import ValueTypeError
from pyloader_delta.ragged import Listed


class BatchedFields(FieldsDataset):
    """Encodes rows for `Collated`: numbers as int64, float64 and bool, all else as `FieldsDataset` does for torch."""

    def __init__(self, fields: Sequence[FieldSpec | str] | None) -> None:
        super().__init__(fields, framework="torch")

    def _specs(self, schema: Any) -> list[FieldSpec]:
        return [_batched(spec, schema) for spec in super()._specs(schema)]


class SampledFields(FieldsDataset):
    """Encodes rows for `OfSamples`: each value as Python has it, an array, or what a transform gave."""

    def __init__(self, fields: Sequence[FieldSpec | str] | None) -> None:
        super().__init__(fields, framework="numpy")
        self.runs_python = True

    def _specs(self, schema: Any) -> list[FieldSpec]:
        return [_row_by_row(spec) for spec in super()._specs(schema)]


class Collated(TorchDataCollator[Any]):
    """Makes of each entry what torch's `default_collate` makes of its rows.

    Args:
        pair: Give the entries as a list, without their names.
    """

    rowwise = True

    def __init__(self, pair: bool = False) -> None:
        self._pair = pair

    def collate_batch(self, features: Any) -> Any:
        """Return name → what the rows of an entry become.

        Raises:
            TypeError: `default_collate` takes no such values; a note names the entry.
            ValueTypeError: Some are None.
            ContractError: Arrays differ in shape.
        """
        listed = {name: rows.values for name, rows in features.items() if type(rows) is Listed}
        plain = super().collate_batch({name: rows for name, rows in features.items() if name not in listed})
        return {name: _collated(name, listed[name]) if name in listed else plain[name] for name in features}

    def finalize(self, batch: Any) -> Any:
        """Return the batch with tensors in the place of arrays."""
        found = super().finalize(batch)
        return list(found.values()) if self._pair else found


class OfSamples(DataCollator[Any]):
    """Calls a user's `collate_fn` with a list of samples.

    Args:
        collate_fn: Gets a list of dicts, name → value; of tuples of values if `pair`.
        pair: See there.
    """

    def __init__(self, collate_fn: Callable[[list[Any]], Any], pair: bool = False) -> None:
        self._collate_fn, self._pair = collate_fn, pair

    def collate_batch(self, features: Any) -> Any:
        """Return what `collate_fn` gives of the rows."""
        columns = [rows.values if type(rows) is Listed else rows for rows in features.values()]
        rows = zip(*columns, strict=True)
        samples = list(rows) if self._pair else [dict(zip(features, row, strict=True)) for row in rows]
        return called(self._collate_fn, samples, "collate_fn")


def _batched(spec: FieldSpec, schema: Any) -> FieldSpec:
    if spec.transform is not None:
        return _row_by_row(spec)
    if spec.as_list or spec.batch_transform or spec.decode or spec.decode_numpy_and_apply_shape is not None:
        return spec
    place = schema.get_field_index(spec.name)
    if place < 0:
        return spec  # the dataset names it
    kind = schema.field(place).type
    numbers = arrays.leaf_dtype(kind, times=True)
    if numbers is not None and numbers.kind in "iuf":
        wide = np.float64 if numbers.kind == "f" else np.int64
        return spec if spec.dtype is not None else dataclasses.replace(spec, dtype=wide)
    if arrays.is_text(kind) or arrays.is_binary(kind) or kind.num_fields:
        return dataclasses.replace(spec, as_list=True)
    return spec


def _row_by_row(spec: FieldSpec) -> FieldSpec:
    """Return the spec of the same values as Python values, decoded one by one."""
    if spec.batch_transform is not None:
        return spec
    decode: Callable[[Any], Any] | None = None
    if spec.image:
        decode = _Image(spec)
    elif spec.decode_numpy_and_apply_shape is not None:
        decode = _Array(spec)
    transform = spec.transform if decode is None else _Chained(decode, spec.transform)
    return FieldSpec(
        spec.name, target_name=spec.target_name, transform=transform, fill_null=spec.fill_null,
        null_mask=spec.null_mask, as_list=True,
    )  # fmt: skip


class _Chained:
    """Decodes a value, then calls the user's transform, where there is one."""

    def __init__(self, decode: Callable[[Any], Any], transform: Callable[[Any], Any] | None) -> None:
        self._decode, self._transform = decode, transform

    def __call__(self, value: Any) -> Any:
        decoded = self._decode(value)
        return decoded if self._transform is None else self._transform(decoded)


class _Image:
    """Opens an encoded image: as Pillow's for a transform, else as an array."""

    def __init__(self, spec: FieldSpec) -> None:
        self._name, self._decode, self._resize = spec.name, spec.decode, spec.resize
        self._as_pil = spec.transform is not None

    def __call__(self, value: Any) -> Any:
        assert self._decode in ("image", "jpeg")
        return decode_images([value], self._decode, self._resize, self._name, as_pil=self._as_pil)[0]


class _Array:
    """Reads bytes as an array of the spec's shape."""

    def __init__(self, spec: FieldSpec) -> None:
        self._name, self._shape = spec.name, spec.decode_numpy_and_apply_shape
        self._dtype = np.dtype(spec.dtype or np.uint8).newbyteorder("<")

    def __call__(self, value: Any) -> Any:
        if value is None:
            raise ValueTypeError(f"column {self._name!r} is null in a row: give FieldSpec({self._name!r}, fill_null=…)")
        assert self._shape is not None
        read = np.frombuffer(value, self._dtype) if isinstance(value, bytes) else np.asarray(value, self._dtype)
        if read.size != np.prod(self._shape, dtype=np.int64):
            raise ValueTypeError(
                f"column {self._name!r} has a value of {read.size} numbers of {self._dtype}, which do not make "
                f"the shape {self._shape} of decode_numpy_and_apply_shape"
            )
        return read.reshape(self._shape).copy()


def _collated(name: str, rows: list[Any]) -> Any:
    if nulls := sum(row is None for row in rows):
        raise ValueTypeError(
            f"{name!r} is None in {nulls} of {len(rows)} rows, which default_collate cannot take: give FieldSpec(..., "
            "fill_null=...), return something else from the transform, or give a collate_fn"
        )
    if isinstance(rows[0], (str, bytes)):
        return rows
    if isinstance(rows[0], np.ndarray) and rows[0].dtype.kind in "biufc":
        return stacked(rows, f"{name!r}")
    from torch.utils.data import default_collate

    return called(default_collate, rows, f"torch's default_collate of {len(rows)} rows of {name!r}")
