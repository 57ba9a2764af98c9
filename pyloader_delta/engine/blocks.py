"""What was read, as blocks: record batches that say of which files their rows are, as few as their types allow."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from pyloader_delta.columns import FILES, KIND
from pyloader_delta.values import Chunk


def named_blocks(batches: Sequence[pa.RecordBatch], chunks: Sequence[Chunk]) -> list[pa.RecordBatch]:
    """Return the batches of some chunks that have rows; their metadata says of which files these are."""
    there = [batch for batch in batches if batch.num_rows]
    if len(chunks) == 1:
        return [_with_files(batch, [[chunks[0].path, batch.num_rows]]) for batch in there]
    left = [[chunk.path, chunk.n_rows or 0] for chunk in reversed(chunks)]
    found = []
    for batch in there:
        files: list[list[Any]] = []
        n_rows = batch.num_rows
        while n_rows and left:
            path, n = left[-1]
            taken = min(n, n_rows)
            left[-1][1], n_rows = n - taken, n_rows - taken
            if files and files[-1][0] == path:
                files[-1][1] += taken
            else:
                files.append([path, taken])
            if taken == n:
                left.pop()
        found.append(_with_files(batch, files))
    return found


def _with_files(batch: pa.RecordBatch, files: list[list[Any]]) -> pa.RecordBatch:
    return batch.replace_schema_metadata({FILES: json.dumps(files)})


def compacted(batches: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """Join neighbouring batches of one schema."""
    if len(batches) < 2:
        return batches
    groups: list[list[pa.RecordBatch]] = []
    for batch in batches:
        first = groups[-1][0] if groups else None
        if first is not None and first.schema.equals(batch.schema) and _kinds(first) == _kinds(batch):
            groups[-1].append(batch)
        else:
            groups.append([batch])
    blocks = []
    for group in groups:
        named = [pair for batch in group for pair in json.loads(batch.schema.metadata[FILES])]
        schema = group[0].schema.with_metadata({FILES: json.dumps(named)})
        table = pa.Table.from_batches([b.replace_schema_metadata(None) for b in group])
        try:
            joined = table.combine_chunks().to_batches()
        except pa.ArrowInvalid:  # a string column beyond 2 GiB
            joined = []
        if len(joined) == 1:
            blocks.append(joined[0].replace_schema_metadata(schema.metadata))
        else:
            blocks += group
    return blocks


def _kinds(batch: pa.RecordBatch) -> list[bytes | None]:
    return [(field.metadata or {}).get(KIND) for field in batch.schema]
