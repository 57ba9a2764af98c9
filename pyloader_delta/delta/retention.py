"""Whether files of a pinned version may be deleted while it is being read."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Mapping

from pyloader_delta.delta.history import spelled

PROPERTY = "delta.deletedFileRetentionDuration"
_DEFAULT = "interval 1 week"
_SHORT = dt.timedelta(days=1)
_PART = re.compile(r"(\d+)\s*(week|day|hour|minute|second|millisecond|microsecond)s?", re.IGNORECASE)


def retention(configuration: Mapping[str, str]) -> dt.timedelta:
    """Return how long VACUUM keeps files after the table has dropped them; a week where the table does not say."""
    text = str(configuration.get(PROPERTY) or _DEFAULT)
    parts = {f"{unit.lower()}s": 0 for _, unit in _PART.findall(text)}
    for number, unit in _PART.findall(text):
        parts[f"{unit.lower()}s"] += int(number)
    try:
        return dt.timedelta(**parts) if parts else dt.timedelta(weeks=1)
    except OverflowError:
        return dt.timedelta.max


def risk(
    *, uri: str, version: int, latest: int, n_files: int, n_dropped: int, time_ms: int | None, kept: dt.timedelta
) -> str | None:
    """Return why files of a version may be deleted while it is read, and when; None where that is far off.

    Args:
        uri: The table.
        version: The pinned version.
        latest: The table's latest version.
        n_files: Files of the pinned version.
        n_dropped: How many of these the latest version no longer has, alike in their deletion vectors.
        time_ms: When the pinned version was made; None: unknown.
        kept: How long VACUUM keeps them.
    """
    if n_dropped:
        since = None if time_ms is None else time_ms + kept // dt.timedelta(milliseconds=1)
        now_ms = int(dt.datetime.now(dt.UTC).timestamp() * 1000)
        when = "at any time" if since is None or since <= now_ms else f"from {spelled(since)} on"
        return (
            f"VACUUM may delete files of version {version} of {uri} {when}: {n_dropped} of its {n_files} files are no "
            f"longer part of the table, whose latest version is {latest}, and are kept for {kept} ({PROPERTY}); read a "
            f"newer version, or set the property higher before you train"
        )
    if version == latest and n_files and kept < _SHORT:
        return (
            f"files of version {version} of {uri} may be deleted {kept} after another commit has dropped them "
            f"({PROPERTY}); set the property higher, or train for a shorter time"
        )
    return None
