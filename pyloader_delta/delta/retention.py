"""Whether files of a pinned version may be deleted while it is being read."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Mapping

from pyloader_delta.delta.history import moment

PROPERTY = "delta.deletedFileRetentionDuration"
_DEFAULT = "interval 1 week"
_SOON = dt.timedelta(days=7)
_FOREVER = dt.timedelta(days=365_000)
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
        return _FOREVER


def risk(
    *, uri: str, version: int, latest: int, n_files: int, n_dropped: int, time_ms: int | None, kept: dt.timedelta
) -> str | None:
    """Return why files of a version may be deleted while it is read, and when; None where that is a week off or more.

    Args:
        uri: The table.
        version: The pinned version.
        latest: The table's latest version.
        n_files: Files of the pinned version.
        n_dropped: How many of these the latest version no longer has, alike in their deletion vectors.
        time_ms: When the pinned version was made; None: unknown.
        kept: How long VACUUM keeps them.
    """
    now = dt.datetime.now(dt.UTC)
    kept = min(kept, _FOREVER)
    if n_dropped:
        since = now if time_ms is None else max(now, moment(time_ms) + kept)
        if since - now >= _SOON:
            return None
        when = "at any time" if since == now else f"from {since:%Y-%m-%d %H:%M} UTC on"
        return (
            f"VACUUM may delete files of version {version} of {uri} {when}: {n_dropped} of its {n_files} files are no "
            f"longer part of the table, whose latest version is {latest}, and are kept for {kept} ({PROPERTY}); read a "
            f"newer version, or set the property higher before you train"
        )
    if version == latest and n_files and kept < _SOON:
        return (
            f"VACUUM may delete files of version {version} of {uri} {kept} after a commit has dropped them "
            f"({PROPERTY}); set the property higher, or be done by then"
        )
    return None
