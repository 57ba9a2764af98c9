"""Delta tables as most tests want them: one column that counts, in several files."""

from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa
from deltalake import write_deltalake


def number_table(root: object, lengths: Iterable[int], *, column: str = "x", start: int = 0, **options: Any) -> str:
    """Append a file of each length, which together hold the int64s from `start` on; return the table's root."""
    for n_rows in lengths:
        rows = pa.table({column: np.arange(start, start + n_rows)})
        write_deltalake(str(root), rows, mode="append", **options)
        start += n_rows
    return str(root)
