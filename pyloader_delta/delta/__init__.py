"""Delta protocol: the log of a table becomes a Snapshot. Knows nothing of training."""

from pyloader_delta.delta.snapshot import is_table, load_snapshot

__all__ = ["is_table", "load_snapshot"]
