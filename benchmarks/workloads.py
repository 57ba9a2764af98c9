"""What is measured: a table, how it is cut into batches, and how many times the limit our loader may cost.

Imports nothing that a contender would have to pay for.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks import tables


@dataclass(frozen=True)
class Workload:
    text: str
    """What a row is and what becomes of it."""
    table: Callable[[int], Path]
    """Makes the table of so many rows."""
    batch_size: int
    shuffle_rows: int
    """Rows that are mixed together by the contenders that shuffle."""
    rows: int
    rival_rows: int
    """Fewer: it would take minutes."""
    max_ratio: dict[str, float] = field(default_factory=dict)
    """Contender → CPU a row, divided by the limit's, that it should not exceed."""


WORKLOADS = {
    "tabular": Workload(
        "20 float32 + 2 int64 → 22 tensors of shape (N,)",
        tables.tabular, 1024, 500_000, 4_000_000, 1_000_000,
        {"threads": 1.7, "threads shuffled": 2.5, "processes": 2.2, "processes shuffled": 3.2},
    ),
    "images": Workload(
        "784 bytes of binary + 2 int64 → uint8 (N, 28, 28) and 2 tensors",
        tables.images, 256, 50_000, 500_000, 250_000, {"threads": 1.8},
    ),
    "tokens": Workload(
        "a list of 1 to 399 int32 + 2 int64 → int32 (N, longest), padded with 0, lengths and 2 tensors",
        tables.tokens, 64, 50_000, 500_000, 125_000, {"threads": 3.0},
    ),
    "matrix": Workload(
        "20 float32 + 2 int64 → float32 (N, 20) and 2 tensors",
        tables.tabular, 1024, 500_000, 4_000_000, 1_000_000, {"threads": 1.8},
    ),
}  # fmt: skip
