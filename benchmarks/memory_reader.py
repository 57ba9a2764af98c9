"""What `benchmarks.memory` measures: a process that reads a whole table, shuffled, and does nothing else.

    python -m benchmarks.memory_reader TABLE arrays|torch|to_tf OPTIONS

OPTIONS are those of `ours.loader`, as JSON. Prints how many rows came and the sum of their ids.
"""

import json
import sys
from collections.abc import Iterable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from benchmarks import ours
from pyloader_delta import DataLoader, NumpyDataCollator


def read(table: Path, through: str, options: dict[str, Any]) -> dict[str, int]:
    """Return the number of rows that came and the sum of their ids."""
    n_rows = sum_of_ids = 0
    with opened(table, through, options) as loader:
        batches: Iterable[Any] = loader.to_tf() if through == "to_tf" else loader
        for batch in batches:
            ids = batch["id"] if through == "arrays" else batch["id"].numpy()
            n_rows += len(ids)
            sum_of_ids += int(ids.sum())
    return {"rows": n_rows, "sum_of_ids": sum_of_ids}


def opened(table: Path, through: str, options: dict[str, Any]) -> AbstractContextManager[DataLoader]:
    if through == "arrays":
        return ours.loader(table, NumpyDataCollator(), **options)
    framework = {"torch": "torch", "to_tf": "tensorflow"}[through]
    return DataLoader.from_delta(str(table), framework=framework, **options)


if __name__ == "__main__":
    print(json.dumps(read(Path(sys.argv[1]), sys.argv[2], json.loads(sys.argv[3]))))
