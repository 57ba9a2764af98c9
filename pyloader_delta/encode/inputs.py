"""Gathered columns in the form that a Dataset asks for, cut into batches."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from pyloader_delta.columns import as_arrow, as_numpy, as_python
from pyloader_delta.encode.base import InputFormat
from pyloader_delta.errors import LoaderError
from pyloader_delta.values import Columns


class Inputs:
    """The rows of some batches, turned once into a format, then cut.

    Args:
        columns: Their rows.
        input_format: See `Dataset.input_format`.
    """

    def __init__(self, columns: Columns, input_format: InputFormat) -> None:
        self._columns, self._format = columns, input_format
        self._whole: dict[str, Any] | pa.RecordBatch | Columns | None
        try:
            self._whole = _turned(columns, input_format)
        except LoaderError:  # some batch has what the format cannot hold: those before it must come all the same
            self._whole = None

    def cut(self, start: int, stop: int) -> Any:
        """Return rows `start..stop`.

        Raises:
            ValueTypeError: A column holds values that the format cannot hold; names the column and the remedy.
        """
        if self._whole is None:
            return _turned(_rows(self._columns, start, stop), self._format)
        if isinstance(self._whole, Columns):
            return self._whole if stop - start == self._whole.n_rows else _rows(self._whole, start, stop)
        if isinstance(self._whole, dict):
            if stop - start == self._columns.n_rows:
                return dict(self._whole)  # arrays as they are, which the engine knows again
            return {name: values[start:stop] for name, values in self._whole.items()}
        return self._whole.slice(start, stop - start)


def _turned(columns: Columns, input_format: InputFormat) -> dict[str, Any] | pa.RecordBatch | Columns:
    if input_format == "columns":
        return columns
    pairs = zip(columns.schema, columns.arrays, strict=True)
    if input_format == "python":
        return {field.name: as_python(values, field) for field, values in pairs}
    if input_format == "numpy":
        return {field.name: as_numpy(values, field) for field, values in pairs}
    arrays = [as_arrow(values, field) for field, values in pairs]
    fields = [f.with_type(array.type) for f, array in zip(columns.schema, arrays, strict=True)]
    return pa.record_batch(arrays, schema=pa.schema(fields)) if arrays else _rows_alone(columns.n_rows)


def _rows(columns: Columns, start: int, stop: int) -> Columns:
    arrays = [a.slice(start, stop - start) if isinstance(a, pa.Array) else a[start:stop] for a in columns.arrays]
    return Columns(columns.schema, arrays, stop - start)


def _rows_alone(n_rows: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_struct_array(pa.array([{}] * n_rows, type=pa.struct([])))
