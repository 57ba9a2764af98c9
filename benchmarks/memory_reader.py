"""What `benchmarks.memory` measures: a process that reads a whole table, shuffled, and does nothing else.

    python -m benchmarks.memory_reader TABLE OPTIONS

OPTIONS are those of `ours.loader`, as JSON. Prints how many rows came and the sum of their ids.
"""

import json
import sys
from pathlib import Path
from typing import Any

from benchmarks import ours
from pyloader_delta import NumpyDataCollator


def read(table: Path, options: dict[str, Any]) -> dict[str, int]:
    """Return the number of rows that came and the sum of their ids."""
    n_rows = sum_of_ids = 0
    with ours.loader(table, NumpyDataCollator(), **options) as loader:
        for batch in loader:
            n_rows += len(batch["id"])
            sum_of_ids += int(batch["id"].sum())
    return {"rows": n_rows, "sum_of_ids": sum_of_ids}


if __name__ == "__main__":
    print(json.dumps(read(Path(sys.argv[1]), json.loads(sys.argv[2]))))
