"""Gathered columns in the form that a Dataset asks for, cut into batches."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from pyloader_delta.columns import as_arrow, as_numpy, as_python
from pyloader_delta.encode.base import InputFormat
from pyloader_delta.values import Columns


class Inputs:
    """The rows of some batches, turned once into a format, then cut.

    Args:
        columns: Their rows.
        input_format: See `Dataset.input_format`.

    Raises:
        ValueTypeError: A column holds values that the format cannot hold; names the column and the remedy.
    """

    def __init__(self, columns: Columns, input_format: InputFormat) -> None:
        self._whole: dict[str, Any] | pa.RecordBatch
        pairs = zip(columns.schema, columns.arrays, strict=True)
        if input_format == "python":
            self._whole = {field.name: as_python(values, field) for field, values in pairs}
        elif input_format == "numpy":
            self._whole = {field.name: as_numpy(values, field) for field, values in pairs}
        else:
            arrays = [as_arrow(values, field) for field, values in pairs]
            fields = [f.with_type(array.type) for f, array in zip(columns.schema, arrays, strict=True)]
            schema = pa.schema(fields)
            self._whole = pa.record_batch(arrays, schema=schema) if arrays else _rows_alone(columns.n_rows)

    def cut(self, start: int, stop: int) -> Any:
        """Return rows `start..stop`."""
        if isinstance(self._whole, dict):
            return {name: values[start:stop] for name, values in self._whole.items()}
        return self._whole.slice(start, stop - start)


def _rows_alone(n_rows: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_struct_array(pa.array([{}] * n_rows, type=pa.struct([])))
