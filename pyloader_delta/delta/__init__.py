"""Delta protocol: the log of a table becomes a Snapshot. Knows nothing of training."""
