"""Delta protocol: the log of a table becomes a Snapshot. Knows nothing of training."""

from pyloader_delta.delta.history import moment_ms
from pyloader_delta.delta.snapshot import TableLog, is_table, load_snapshot

__all__ = ["TableLog", "is_table", "load_snapshot", "moment_ms"]
