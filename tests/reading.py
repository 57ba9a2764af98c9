"""A table read whole through `DeltaDataReader`, chunk by chunk, as tests of it want it."""

from dataclasses import replace

import pyarrow as pa

from pyloader_delta.read.delta import DeltaDataReader
from pyloader_delta.values import Chunk


def read(root: object, **options: object) -> pa.Table:
    """Return the whole table through a new reader."""
    reader = DeltaDataReader(**options)
    return gather(reader, reader.chunks(str(root)))


def gather(reader: DeltaDataReader, chunks: list[Chunk]) -> pa.Table:
    """Return the rows of chunks, each as long as it says and in exactly the reader's schema."""
    tables = [reader.read_chunk(chunk) for chunk in chunks]
    assert [table.num_rows for table in tables] == [chunk.n_rows for chunk in chunks]
    for table in tables:
        assert table.schema.equals(reader.schema, check_metadata=True)
        table.validate(full=True)
    reader.close()
    return pa.concat_tables([reader.schema.empty_table(), *tables])


def in_parts(chunks: list[Chunk], n_rows: int) -> list[Chunk]:
    """Return chunks cut into parts of at most `n_rows` rows."""
    return [replace(c, rows=c.rows[i : i + n_rows]) for c in chunks for i in range(0, len(c.rows), n_rows)]
