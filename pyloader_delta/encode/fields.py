"""`FieldsDataset`: columns become what a framework trains on, by a list of `FieldSpec`; no subclass is needed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from pyloader_delta.columns import as_arrow, column_kind
from pyloader_delta.encode.arrow import ArrowColumn, arrow_output
from pyloader_delta.encode.base import Dataset, InputFormat
from pyloader_delta.encode.column import Column
from pyloader_delta.encode.matrix import matrix
from pyloader_delta.encode.spec import FRAMEWORKS, FieldSpec, Framework, Output
from pyloader_delta.errors import ConfigError
from pyloader_delta.schemas import BySchema
from pyloader_delta.values import Columns

__all__ = ["FieldSpec", "FieldsDataset", "Output"]

_IMAGES, _TRANSFORMED = 128, 1024  # rows in one call: they take long, and the first batch waits for all of them

Features = Sequence[str | FieldSpec] | Mapping[str, Sequence[str | FieldSpec]]


class FieldsDataset(Dataset[Any]):
    """Encodes columns by `FieldSpec`, vectorised over as many rows as it gets.

    Args:
        fields: What becomes of which columns: specs, or names of columns that are taken as they are. None: all columns
            that are not among `features`.
        features: Columns of numbers that become one row-major matrix of shape (B, n), under the key "features"; or
            key → columns for several. Only `fill_null`, `null_mask` and `decode` of a spec count here.
        features_dtype: Type of the matrices; None: the columns' own, which must be one.
        framework: What the batches are for: "numpy", "torch", "tensorflow", "jax", "arrow" or "pandas".

    Raises:
        ConfigError: An argument is wrong, or two entries have one key.
    """

    input_format: InputFormat = "columns"
    rowwise = True
    """Unless there is a `batch_transform`, which gets batch by batch."""

    def __init__(
        self,
        fields: Iterable[str | FieldSpec] | None = None,
        *,
        features: Features | None = None,
        features_dtype: Any = None,
        framework: Framework = "numpy",
    ) -> None:
        if framework not in FRAMEWORKS:
            raise ConfigError(f"framework must be one of {', '.join(map(repr, FRAMEWORKS))}, got {framework!r}")
        if isinstance(fields, (str, FieldSpec, Mapping)):
            raise ConfigError(f"fields must be a list of FieldSpec or of columns' names, got {fields!r}")
        self.framework: Framework = framework
        self.fields = None if fields is None else _specs(fields, "fields")
        self.features = _matrices(features)
        if self.fields == [] and not self.features:
            raise ConfigError("fields is empty: name one column or more, or leave it out for all of them")
        if features_dtype is not None and not self.features:
            raise ConfigError("features_dtype is for features; for a column of its own give FieldSpec(…, dtype=…)")
        self.features_dtype = None if features_dtype is None else FieldSpec("features", dtype=features_dtype).dtype
        specs = self.fields or []
        self.rowwise = all(spec.batch_transform is None for spec in specs)
        self.runs_python = any(spec.transform or spec.batch_transform for spec in specs)
        """Whether functions of the user are called, so that processes are faster than threads."""
        if any(spec.image for spec in specs):
            self._rows_at_once = _IMAGES
        elif any(spec.transform for spec in specs):
            self._rows_at_once = _TRANSFORMED
        alone = {spec.name for spec in specs}
        self.copied = frozenset(s.name for found in self.features.values() for s in found if s.name not in alone)
        """Columns that are only part of a matrix."""
        self._settled: tuple[pa.Schema, _Settled] | None = None

    def columns(self, schema: pa.Schema) -> list[str]:
        """Return the columns that are needed of a table, each once.

        Raises:
            ConfigError: The table has no such column.
        """
        names = [spec.name for spec in self._specs(schema)]
        names += [spec.name for specs in self.features.values() for spec in specs]
        there = dict.fromkeys(schema.names)
        for name in names:
            if name not in there:
                raise ConfigError(
                    f"fields, features: there is no column {name!r}; there are {', '.join(map(repr, there))}"
                )
        return list(dict.fromkeys(names))

    def outputs(self, schema: pa.Schema) -> dict[str, Output]:
        """Return what the entries of a batch will be, in their order, of columns of these types.

        Raises:
            ConfigError: A spec does not go with its column, or a column is missing.
            ValueTypeError: The framework cannot hold a column's type; names the remedy.
        """
        return _Settled(self, schema).outputs

    def batch_encode(self, batch_data: Columns | pa.RecordBatch) -> dict[str, Any]:
        """Return the entries of some rows; see `Column.encode`."""
        schema = batch_data.schema
        arrays = batch_data.arrays if isinstance(batch_data, Columns) else batch_data.columns
        if _stands_for_others(schema) or any(isinstance(array, list) for array in arrays):
            arrays = [as_arrow(array, field) for field, array in zip(schema, arrays, strict=True)]
            schema = pa.schema([f.with_type(array.type) for f, array in zip(schema, arrays, strict=True)])
        if self._settled is None or not self._settled[0].equals(schema, check_metadata=True):
            self._settled = schema, _Settled(self, schema)
        return self._settled[1].encode(arrays)

    def _specs(self, schema: pa.Schema) -> list[FieldSpec]:
        if self.fields is not None:
            return self.fields
        taken = {spec.name for specs in self.features.values() for spec in specs}
        return [FieldSpec(name) for name in schema.names if name not in taken]


@BySchema
def _stands_for_others(schema: pa.Schema) -> bool:
    """Return whether a column's Arrow values stand for Python or NumPy ones."""
    return any(column_kind(field) is not None for field in schema)


class _Settled:
    """How columns of one schema are encoded."""

    def __init__(self, dataset: FieldsDataset, schema: pa.Schema) -> None:
        dataset.columns(schema)  # names those that are missing

        self._in_arrow = dataset.framework in ("arrow", "pandas")

        def column(spec: FieldSpec, *, in_matrix: bool = False) -> tuple[int, Column]:
            place = schema.get_field_index(spec.name)
            field = schema.field(place)
            if self._in_arrow:
                return place, Column(spec, field, "numpy") if in_matrix else ArrowColumn(spec, field)
            return place, Column(spec, field, dataset.framework)

        self.outputs: dict[str, Output] = {}
        self._columns = [column(spec) for spec in dataset._specs(schema)]
        for _, found in self._columns:
            self._add(found.outputs())
        self._matrices: list[tuple[str, np.dtype[Any], list[tuple[int, Column]], list[str]]] = []
        for key, specs in dataset.features.items():
            columns = [column(spec, in_matrix=True) for spec in specs]
            dtype = _common(key, [found for _, found in columns], dataset.features_dtype)
            self._matrices.append((key, dtype, columns, [spec.key for spec in specs]))
            self._add({key: Output("array", dtype, (None, len(columns)))})
            for spec in specs:
                if spec.null_mask:
                    self._add({f"{spec.key}_null": Output("array", np.dtype(bool), (None,))})

    def _add(self, outputs: dict[str, Output]) -> None:
        for key, output in outputs.items():
            if key in self.outputs:
                raise ConfigError(f"fields: two entries of a batch would be named {key!r}; set target_name of one")
            self.outputs[key] = arrow_output(output) if self._in_arrow and output.kind != "arrow" else output

    def encode(self, arrays: Sequence[Any]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for place, column in self._columns:
            array = arrays[place]
            if column.passes(array):  # nearly all of a thousand columns
                found[column.spec.key] = array
            else:
                found |= column.encode(array)
        for key, dtype, columns, keys in self._matrices:
            values = []
            for place, column in columns:
                if column.passes(arrays[place]):
                    values.append(arrays[place])
                else:
                    part = column.encode(arrays[place])
                    values.append(part.pop(column.spec.key))
                    found |= part
            found[key] = matrix(values, dtype, keys)
        return found


def _common(key: str, columns: list[Column], dtype: np.dtype[Any] | None) -> np.dtype[Any]:
    kinds = {}
    for column in columns:
        output = column.outputs()[column.spec.key]
        if output.kind != "array" or output.dtype is None or output.dtype.kind not in "biuf" or output.shape != (None,):
            raise ConfigError(
                f"features: column {column.spec.name!r} is no column of numbers: it has no place in the matrix {key!r}"
            )
        kinds[output.dtype] = column.spec.name
    if dtype is not None:
        return dtype
    if len(kinds) > 1:
        (one, name), (other, second) = list(kinds.items())[:2]
        raise ConfigError(
            f"features: columns of the matrix {key!r} have types {one} ({name!r}) and {other} ({second!r}): say which "
            "one it has by features_dtype='float32'"
        )
    return next(iter(kinds))


def _specs(fields: Iterable[Any], argument: str) -> list[FieldSpec]:
    found = [FieldSpec(field) if isinstance(field, str) else field for field in fields]
    for spec in found:
        if not isinstance(spec, FieldSpec):
            raise ConfigError(f"{argument} must be FieldSpecs or columns' names, got {spec!r}")
    return found


def _matrices(features: Any) -> dict[str, list[FieldSpec]]:
    if features is None:
        return {}
    named = features if isinstance(features, Mapping) else {"features": features}
    if not named:
        raise ConfigError("features is empty: name one column or more, or leave it out")
    for key, columns in named.items():
        if isinstance(columns, (str, FieldSpec)) or not isinstance(columns, Iterable):
            place = f"features[{key!r}]" if named is features else "features"
            raise ConfigError(f"{place} must be a list of columns, got {columns!r}")
    found = {str(key): _specs(columns, "features") for key, columns in named.items()}
    for key, specs in found.items():
        if not specs:
            raise ConfigError(f"features: the matrix {key!r} has no columns")
    return found
