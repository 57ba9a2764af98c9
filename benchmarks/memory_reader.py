"""What `benchmarks.memory` measures: a process that reads a whole table, shuffled, and does nothing else.

    python -m benchmarks.memory_reader REQUEST

REQUEST is JSON: `table`, `through` (see `memory_cases.Case`), `file_rows`, and the loader's `options`. Prints lines of
JSON: now and then how many rows came so far; at the end also the sum of their numbers, their bytes, the loader's
budget, and the most that `loader.memory()` told.
"""

import json
import sys
import time
from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.memory_tables import BLOB_BYTES
from benchmarks.ours import Columns
from pyloader_delta import DataLoader, Dataset, DeltaDataReader, FieldSpec, NumpyDataCollator

_EVERY_S = 0.2
_BLOB_SHAPE = (BLOB_BYTES // 10_000, 10_000)


class Lengths(Dataset):
    """Texts by their lengths, as a tokenizer would make little of much."""

    input_format = "arrow"
    rowwise = True

    def batch_encode(self, batch):
        plain = {name: opened_column(batch[name]) for name in ("id", "file")}
        return plain | {"bytes": opened_column(pc.binary_length(batch["text"]))}


def opened_column(column):
    """Return numbers as an array; not by `to_numpy`, which imports pandas."""
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    return np.frombuffer(array.buffers()[1], array.type.to_pandas_dtype(), len(array) + array.offset)[array.offset :]


def main() -> None:
    request = json.loads(sys.argv[1])
    n_rows = numbers = n_bytes = told = 0
    due = 0.0
    with opened(request) as loader:
        batches: Iterable[Any] = loader.to_tf() if request["through"] == "to_tf" else loader
        for batch in batches:
            ids = np.asarray(batch["id"])
            n_rows += len(ids)
            numbers += int(ids.sum())
            if request["file_rows"]:
                numbers += request["file_rows"] * int(np.asarray(batch["file"]).sum(dtype=np.int64))
            n_bytes += sum(int(np.asarray(values).nbytes) for values in batch.values())
            if "bytes" in batch:
                n_bytes += int(batch["bytes"].sum()) - batch["bytes"].nbytes
            told = max(told, loader.memory().total)
            if time.monotonic() > due:
                due = time.monotonic() + _EVERY_S
                print(json.dumps({"rows": n_rows}), flush=True)
        budget = loader.memory().budget
    print(
        json.dumps({"rows": n_rows, "numbers": numbers, "bytes": n_bytes, "budget": budget, "told": told}), flush=True
    )


def opened(request: dict[str, Any]) -> DataLoader[Any]:
    """Return the loader, two workers and all shuffled."""
    table, through = request["table"], request["through"]
    options = {"num_workers": 2, "shuffle": True, **request["options"]}
    batch_size = options.pop("batch_size")
    if through in ("arrays", "texts"):
        dataset = Columns() if through == "arrays" else Lengths()
        return DataLoader(DeltaDataReader(batch_size, shuffle=True), dataset, NumpyDataCollator(), table, **options)
    if through == "blobs":
        fields = ["id", "file", FieldSpec("blob", _BLOB_SHAPE)]
        return DataLoader.from_delta(table, batch_size, fields=fields, framework="numpy", **options)
    framework = {"torch": "torch", "to_tf": "tensorflow"}[through]
    return DataLoader.from_delta(table, batch_size, framework=framework, **options)


if __name__ == "__main__":
    main()
