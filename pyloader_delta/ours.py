"""Which of an object's methods are the library's own: of a user's, nothing is known."""

from __future__ import annotations


def is_ours(method: object) -> bool:
    """Return whether a function or class is defined in this package."""
    return str(getattr(method, "__module__", "")).partition(".")[0] == "pyloader_delta"
