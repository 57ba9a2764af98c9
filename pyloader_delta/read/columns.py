"""Whatever a reader returned becomes Arrow record batches. Types are kept exactly, or it is an error."""

from __future__ import annotations

import contextlib
import pickle
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from pyloader_delta.columns import KIND, as_python, column_kind, numbers, numpy_kind, opened, rows_alone, shaped
from pyloader_delta.errors import ContractError
from pyloader_delta.read.base import Samples, samples
from pyloader_delta.read.exact import binary, exact_array
from pyloader_delta.read.frames import frame_columns, is_pandas
from pyloader_delta.read.storable import storable
from pyloader_delta.schemas import BySchema


def to_batches(value: Any, *, exact: bool, place: str, apart: bool = False) -> list[pa.RecordBatch]:
    """Return the rows of `value`, in order.

    Args:
        value: What `read_file` or `read_chunk` returned; see `DataReader.read_file`.
        exact: Keep Python values as they are ("python" input): a column whose values are not all of one type of
            int (within int64), float, str, bytes, bool, or None, travels pickled value by value. Otherwise columns of
            lists take Arrow's types.
        place: Names the call in errors.
        apart: Whether a table's pieces may stay apart, as each is copied to where its rows belong.

    Raises:
        ContractError: `value` is none of the allowed kinds, columns differ in length, two have one name, or one has an
            Arrow type whose rows Arrow cannot pick.
    """
    if isinstance(value, pa.RecordBatch):
        return [_ours(value, place)]
    if isinstance(value, pa.Table):
        return _table_batches(value, place, apart)
    if is_pandas(value):
        return _dict_batches(frame_columns(value, exact=exact, place=place), len(value), exact=exact, place=place)
    if type(value).__module__.startswith("polars") and hasattr(value, "to_arrow"):
        return _table_batches(value.to_arrow(), place)
    if isinstance(value, (Iterator, pa.RecordBatchReader)) or _is_batches(value):
        return [batch for part in _arrow_parts(value, place) for batch in to_batches(part, exact=exact, place=place)]
    columns, n_rows = samples(value, place=place)
    return _dict_batches(columns, n_rows, exact=exact, place=place)


def python_samples(value: Any, *, place: str) -> Samples:
    """Return `(columns, n_rows)` of what a `read_file` gave, columns being lists of Python values or as they came.

    Raises:
        ContractError: As `to_batches`.
    """
    if isinstance(value, Mapping) or (isinstance(value, tuple) and not _is_batches(value)):
        columns, n_rows = samples(value, place=place)
        arrow = (pa.Array, pa.ChunkedArray)
        return {name: v.to_pylist() if isinstance(v, arrow) else v for name, v in columns.items()}, n_rows
    found: dict[str, list[Any]] = {}
    n_rows = 0
    for batch in to_batches(value, exact=True, place=place):
        n_rows += batch.num_rows
        for field, array in zip(batch.schema, batch.columns, strict=True):
            if (column_kind(field) or {}).get("kind") != "rows":
                found.setdefault(field.name, []).extend(as_python(shaped(opened(array, field), field), field))
    return samples((found, n_rows), place=place)


def _is_batches(value: Any) -> bool:
    """Return whether a value is a list or a tuple of Arrow record batches; (columns, n_rows) is none."""
    if isinstance(value, tuple) and not value:
        return False
    return isinstance(value, (list, tuple)) and all(isinstance(part, (pa.RecordBatch, pa.Table)) for part in value)


def _arrow_parts(parts: Iterable[Any], place: str) -> Iterator[Any]:
    for part in parts:
        if not isinstance(part, (pa.RecordBatch, pa.Table)):
            raise ContractError(f"{place}: an iterator must give Arrow record batches, got {type(part).__name__}")
        yield part


def _ours(table: Any, place: str) -> Any:
    """Return an Arrow table with columns that can be told apart and picked rows from.

    It has no metadata of ours: a file that carried it could have its values unpickled.
    """
    if _is_plain(table.schema):
        return table
    names = table.schema.names
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ContractError(f"{place}: two columns are named {twice!r}")
    if any(field.metadata and KIND in field.metadata for field in table.schema):
        fields = [field.remove_metadata() for field in table.schema]
        table = type(table).from_arrays(table.columns, schema=pa.schema(fields))
    columns = [storable(column, name, place) for name, column in zip(names, table.columns, strict=True)]
    fields = [field.with_type(column.type) for field, column in zip(table.schema, columns, strict=True)]
    return type(table).from_arrays(columns, schema=pa.schema(fields))


@BySchema
def _is_plain(schema: pa.Schema) -> bool:
    """Return whether columns can be told apart and picked rows from, and have no metadata of ours."""
    return len(set(schema.names)) == len(schema) and not any(
        _is_odd(field.type) or (field.metadata and KIND in field.metadata) for field in schema
    )


def _is_odd(kind: pa.DataType) -> bool:
    """Return whether a type is one that Arrow may be unable to pick rows from."""
    return not (pa.types.is_primitive(kind) or kind in _PLAIN)


_PLAIN = {pa.string(), pa.large_string(), pa.binary(), pa.large_binary(), pa.null()}


_APART_BYTES = 1 << 15
"""Of a column of a table's piece, from which on a call of NumPy's for it costs less than to copy it once more."""


def _table_batches(table: pa.Table, place: str, apart: bool = False) -> list[pa.RecordBatch]:
    table = _ours(table, place)
    if table.num_columns == 0:
        return [rows_alone(table.num_rows)] if table.num_rows else []
    batches: list[pa.RecordBatch] = table.to_batches()
    if len(batches) < 2:
        return batches
    if apart and table.get_total_buffer_size() >= len(batches) * table.num_columns * _APART_BYTES:
        return batches
    with contextlib.suppress(pa.ArrowInvalid):  # a string column beyond 2 GiB stays in several batches
        batches = table.combine_chunks().to_batches()
    return batches


def _dict_batches(columns: Mapping[str, Any], n_rows: int, *, exact: bool, place: str) -> list[pa.RecordBatch]:
    if not columns:
        return [rows_alone(n_rows)] if n_rows else []
    fields, arrays = [], []
    for name, values in columns.items():
        field, array = _column(name, values, exact=exact, place=place)
        fields.append(field)
        arrays.append(array)
    return [pa.record_batch(arrays, schema=pa.schema(fields))]


def _column(name: str, values: Any, *, exact: bool, place: str) -> tuple[pa.Field, pa.Array]:
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    if isinstance(values, pa.Array):
        values = storable(values, name, place)
        return pa.field(name, values.type), values
    if isinstance(values, np.ndarray) and values.dtype != object:
        text = None if exact or values.ndim != 1 or values.dtype.kind not in "US" else exact_array(values.tolist())
        return _numpy_column(name, values, place) if text is None else (pa.field(name, text.type), text)
    values = list(values)
    if exact:
        array = exact_array(values)
        return (_pickled(name, values, place)) if array is None else (pa.field(name, array.type), array)
    try:
        array = _single_type(values)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise ContractError(f"{place}: column {name!r} has no single Arrow type: {error}") from error
    if isinstance(array, pa.ChunkedArray):
        array = array.cast(pa.large_string() if pa.types.is_string(array.type) else pa.large_binary()).combine_chunks()
    return pa.field(name, array.type), array


def _single_type(values: list[Any]) -> pa.Array:
    try:
        return pa.array(values)
    except (pa.ArrowException, TypeError, ValueError):
        return pa.array(values, from_pandas=True)  # NaN among texts is pandas' way to say null


def _pickled(name: str, values: list[Any], place: str) -> tuple[pa.Field, pa.Array]:
    try:
        texts = [pickle.dumps(value, protocol=5) for value in values]
    except Exception:
        texts = _by_value(name, values, place)
    array = binary(texts)
    return pa.field(name, array.type, metadata={KIND: b'{"kind":"pickle"}'}), array


def _by_value(name: str, values: list[Any], place: str) -> list[bytes]:
    """Pickle values whose classes no module has by their name: those made in a function, for one."""
    import cloudpickle

    try:
        return [cloudpickle.dumps(value, protocol=5) for value in values]
    except Exception as error:
        error.add_note(f"{place}: column {name!r} holds values that cannot be pickled")
        raise


def _numpy_column(name: str, values: np.ndarray[Any, Any], place: str) -> tuple[pa.Field, pa.Array]:
    """Return an array, first axis rows: numbers as an Arrow column, all else as a fixed number of bytes a row."""
    if values.ndim == 0:
        raise ContractError(f"{place}: column {name!r} is an array without rows (shape ())")
    if values.dtype.names is not None or values.dtype.hasobject:
        raise ContractError(f"{place}: column {name!r} has a structured dtype; return one column a field")
    native = values.dtype.newbyteorder("=")
    if values.ndim == 1 and values.dtype.kind in "iuf" and values.dtype.itemsize in (1, 2, 4, 8):
        array = numbers(np.ascontiguousarray(values, dtype=native))
        return pa.field(name, array.type, metadata={KIND: numpy_kind(native, ())}), array
    width = values.dtype.itemsize * int(np.prod(values.shape[1:], dtype=np.int64))
    buffers = [None, pa.py_buffer(np.ascontiguousarray(values))]
    array = pa.FixedSizeBinaryArray.from_buffers(pa.binary(width), len(values), buffers)
    return pa.field(name, array.type, metadata={KIND: numpy_kind(values.dtype, values.shape[1:])}), array
