"""Rows of a bucket as bytes of a scratch file and back. What the bytes say is our own: no file of the user's."""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import groupby

import pyarrow as pa

from pyloader_delta.errors import ReadError
from pyloader_delta.spill.buckets import Bucket


def to_bytes(rows: pa.RecordBatch) -> pa.Buffer:
    """Return rows as an Arrow stream."""
    rows = _compact(rows)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as stream:
        stream.write_batch(rows)
    return sink.getvalue()


def read_bucket(bucket: Bucket) -> list[pa.RecordBatch]:
    """Return the rows of a bucket, in the order of the table.

    Raises:
        ReadError: The scratch file is gone or cut short.
    """
    batches: list[pa.RecordBatch] = []
    try:
        fd = os.open(bucket.scratch, os.O_RDONLY | os.O_CLOEXEC)
        try:
            for offset, size in bucket.extents:
                batches += pa.ipc.open_stream(pa.py_buffer(_bytes_at(fd, offset, size)))
        finally:
            os.close(fd)
    except (OSError, pa.ArrowException) as error:
        raise ReadError(f"cannot read the scratch file of {bucket}: {error}") from error
    return batches


def joined(batches: Sequence[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """Return neighbours of one schema as one batch, where Arrow can hold it."""
    found: list[pa.RecordBatch] = []
    for _, group in groupby(batches, key=_SchemaKey):
        alike = list(group)
        if len(alike) == 1 or not alike[0].num_columns:
            found += alike
            continue
        try:
            found += pa.Table.from_batches(alike).combine_chunks().to_batches()
        except pa.ArrowInvalid:  # more than 2 GiB of text
            found += alike
    return found


class _SchemaKey:
    def __init__(self, batch: pa.RecordBatch) -> None:
        self._schema = batch.schema

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _SchemaKey) and self._schema.equals(other._schema, check_metadata=True)

    __hash__ = None  # type: ignore[assignment]  # only neighbours are compared


def _bytes_at(fd: int, offset: int, size: int) -> bytearray:
    found = bytearray(size)
    left = memoryview(found)
    while left:
        n = os.preadv(fd, [left], offset)
        if not n:
            raise OSError("it is shorter than it was")
        left, offset = left[n:], offset + n
    return found


def _compact(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return rows whose dictionaries hold no more than these need."""
    columns = list(rows.columns)
    for place, column in enumerate(columns):
        if pa.types.is_dictionary(column.type) and len(column.dictionary) > len(column):
            small = column.dictionary_decode().dictionary_encode()
            columns[place] = pa.DictionaryArray.from_arrays(
                small.indices.cast(column.type.index_type), small.dictionary, ordered=column.type.ordered
            )
    return pa.RecordBatch.from_arrays(columns, schema=rows.schema) if columns else rows
