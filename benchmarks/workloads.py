"""What is measured: a table, how it is cut into batches, and how many times the limit our loader may cost."""

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
    slow_rows: int
    """For rivals that make single rows: it would take hours."""
    max_ratio: dict[str, float] = field(default_factory=dict)
    """Contender → CPU a row, divided by the limit's, that it should not exceed."""


DECODED = {"threads": 1.3, "threads shuffled": 1.8, "processes": 1.6, "processes shuffled": 2.4}
PADDED = {"threads": 2.5, "threads shuffled": 3.2}

WORKLOADS = {
    "tabular": Workload(
        "20 float32 + 2 int64 → 22 tensors of shape (N,)",
        tables.tabular, 1024, 500_000, 4_000_000, 1_000_000, 62_500, DECODED,
    ),
    "matrix": Workload(
        "20 float32 + 2 int64 → float32 (N, 20) and 2 tensors",
        tables.tabular, 1024, 500_000, 4_000_000, 1_000_000, 62_500,
    ),
    "wide": Workload(
        "500 float32 + 2 int64 → float32 (N, 500) and 2 tensors",
        tables.wide, 1024, 100_000, 200_000, 100_000, 6_250,
    ),
    "images": Workload(
        "784 bytes of binary + 2 int64 → uint8 (N, 28, 28) and 2 tensors",
        tables.images, 256, 50_000, 500_000, 250_000, 62_500, DECODED,
    ),
    "jpeg": Workload(
        "a JPEG of 320 x 256 pixels + 2 int64 → uint8 (N, 224, 224, 3) and 2 tensors",
        tables.jpegs, 64, 1_000, 4_000, 2_000, 500,
    ),
    "tokens": Workload(
        "a list of 1 to 399 int32 + 2 int64 → int32 (N, longest), padded with 0, lengths and 2 tensors",
        tables.tokens, 64, 50_000, 500_000, 125_000, 62_500, PADDED,
    ),
    "text": Workload(
        "a text of 5 to 80 words + 2 int64 → token ids, int32 (N, 64), and 2 tensors",
        tables.texts, 256, 50_000, 500_000, 500_000, 31_250,
    ),
}  # fmt: skip
