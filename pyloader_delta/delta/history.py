"""When each version of a table was made, by what its commits state; which version a moment in time means."""

from __future__ import annotations

import datetime as dt
import warnings

from pyloader_delta.delta.commit import commit_info, commit_time_ms
from pyloader_delta.delta.log import Listing
from pyloader_delta.delta.replay import read_commits
from pyloader_delta.delta.store import Store
from pyloader_delta.errors import ConfigError, TableError

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def moment_ms(timestamp: object) -> int:
    """Return a point in time as milliseconds since 1970 UTC, cut off.

    Args:
        timestamp: A datetime with a time zone, or an ISO 8601 text with one.

    Raises:
        ConfigError: It is neither.
    """
    found = timestamp
    if isinstance(timestamp, str):
        try:
            found = dt.datetime.fromisoformat(timestamp.strip())
        except ValueError:
            found = None
    if not isinstance(found, dt.datetime):
        raise ConfigError(f"timestamp must be a datetime or a text such as '2026-01-31T12:00:00Z', got {timestamp!r}")
    if found.utcoffset() is None:
        raise ConfigError(
            f"timestamp must state its time zone, such as {found.isoformat(timespec='seconds')}Z, got {timestamp!r}"
        )
    return (found - _EPOCH) // dt.timedelta(milliseconds=1)


def moment(time_ms: int) -> dt.datetime:
    """Return milliseconds since 1970 as a time in UTC; the last there is where it is beyond."""
    try:
        return _EPOCH + dt.timedelta(milliseconds=time_ms)
    except OverflowError:
        return dt.datetime.max.replace(tzinfo=dt.UTC)


def version_at(store: Store, listing: Listing, time_ms: int) -> int:
    """Return the newest version that was there at a point in time.

    The time of a version is its in-commit timestamp, or else what its commitInfo states. Only where it states none,
    the commit file's own modification time counts, with a warning. Clocks of writers differ: a version counts as made
    a millisecond after the one before, at least.

    Args:
        store: The table's store.
        listing: Its whole log.
        time_ms: Milliseconds since 1970 UTC.

    Raises:
        ConfigError: The time lies in the future.
        TableError: No version is as old, or a commit is broken.
    """
    times = _times(store, listing)
    if not times:
        raise TableError(f"{store.root} has no commit whose time is known; ask for a version instead of a timestamp")
    versions = list(times)
    if time_ms < times[versions[0]]:
        raise TableError(
            f"{store.root} has no version as old as {moment(time_ms)}: the first that can be read, version "
            f"{versions[0]}, is of {moment(times[versions[0]])}"
        )
    now_ms = int(dt.datetime.now(dt.UTC).timestamp() * 1000)
    if time_ms > max(now_ms, times[versions[-1]]):
        raise ConfigError(
            f"timestamp {moment(time_ms)} lies in the future, and what the table will be then is not known; "
            "leave it out for the latest version"
        )
    return max(version for version in versions if times[version] <= time_ms)


def _times(store: Store, listing: Listing) -> dict[int, int]:
    """Return version → time, ascending in both, of the versions that can be asked for."""
    first = listing.first_readable()
    versions = sorted(version for version in listing.commits if first is not None and version >= first)
    times: dict[int, int] = {}
    unstated: list[int] = []
    last = None
    names = [listing.commits[version] for version in versions]
    for version, info in zip(versions, read_commits(store, names, commit_info), strict=True):
        time_ms = commit_time_ms(info)
        if time_ms is None:
            unstated.append(version)
            time_ms = listing.times_ms[listing.commits[version]]
        last = times[version] = time_ms if last is None else max(time_ms, last + 1)
    if unstated:
        warnings.warn(
            f"{len(unstated)} commits of {store.root}, version {unstated[0]} the first, do not state their time: the "
            "modification time of the file counts, which a copy of the table does not keep",
            UserWarning,
            stacklevel=2,
        )
    return times
