"""Delta protocol: the log of a table becomes a Snapshot. Knows nothing of training."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyloader_delta.delta.history import moment_ms
    from pyloader_delta.delta.snapshot import TableLog, is_table, load_snapshot

__all__ = ["TableLog", "is_table", "load_snapshot", "moment_ms"]

_LAZY = {"moment_ms": "history", "TableLog": "snapshot", "is_table": "snapshot", "load_snapshot": "snapshot"}
"""Names and where they come from: imported when asked for, since worker processes read no log."""


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(importlib.import_module(f"{__name__}.{_LAZY[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
