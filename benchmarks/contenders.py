"""Who is measured: the limit, ours, and rivals, each with the environment that it runs in."""

from dataclasses import dataclass
from typing import Any, Literal

DENSE = ("tabular", "matrix", "wide", "images", "jpeg", "text")
ALL = (*DENSE, "tokens")


@dataclass(frozen=True)
class Contender:
    text: str
    """What it is, for the page."""
    environment: str | None = None
    """See `environments.python`; None: the one that this runs in."""
    rows: Literal["rows", "rival_rows", "slow_rows"] = "rival_rows"
    """Which of a workload's sizes it gets."""
    workloads: tuple[str, ...] = ALL
    passes: int = 2
    """Over its table in a run, the first one included, which is not steady."""
    shuffles: bool = True
    """Whether it is measured shuffled as well."""


_SHORT: dict[str, Any] = {"rows": "rows", "passes": 5}  # a pass takes half a second: a single one may be a fifth off
_FLOOR: dict[str, Any] = {"workloads": ("tabular", "images"), "shuffles": False}

CONTENDERS = {
    "limit": Contender("pyarrow alone, one thread, on each core in turn, batches dropped; mixed in NumPy", **_SHORT),
    "limit-batches": Contender("the limit, and batches of tensors", **_SHORT, **_FLOOR),
    "limit-sent": Contender("the same, copied once into memory that is shared", **_SHORT, **_FLOOR),
    "threads": Contender("pyloader_delta, a worker thread", **_SHORT),
    "threads2": Contender("pyloader_delta, 2 worker threads", **_SHORT),
    "processes": Contender("pyloader_delta, 2 processes", **_SHORT),
    "torch": Contender("torch's DataLoader over pyarrow, 2 worker processes"),
    "inline": Contender("the same without workers (`num_workers=0`)"),
    "tf": Contender("tf.data over pyarrow, 2 generators"),
    "hf": Contender("Hugging Face datasets, streamed, `with_format(\"arrow\").iter()`", "hf"),
    "petastorm": Contender("petastorm, `make_batch_reader`, `BatchedDataLoader`, 2 threads", "petastorm"),
    "nodes": Contender("torchdata.nodes over pyarrow, 2 threads", "nodes"),
    "grain": Contender("grain over pyarrow, 2 threads", "grain"),
    "deltatorch": Contender(
        "deltatorch, 2 worker processes", "petastorm", "slow_rows", ("tabular", "images", "jpeg"),
    ),
}  # fmt: skip
LIMITS = tuple(name for name in CONTENDERS if name.startswith("limit"))
OURS = ("threads", "threads2", "processes")
"""A training loop takes a core of two: one worker thread fills the other one. Two give more rows a second where it
does little, and take more CPU for each row, as they share caches."""
RIVALS = tuple(name for name in CONTENDERS if name not in (*LIMITS, *OURS))
NAMES = tuple(
    f"{name}{shuffled}" for name, one in CONTENDERS.items() for shuffled in ("", " shuffled")[: 1 + one.shuffles]
)
