"""Which files of a log make up a version of the table. Names in, names out: nothing is read here."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from pyloader_delta.errors import TableError

_COMMIT = re.compile(r"(\d{20})\.json")
_CLASSIC = re.compile(r"(\d{20})\.checkpoint\.parquet")
_MULTI_PART = re.compile(r"(\d{20})\.checkpoint\.(\d{10})\.(\d{10})\.parquet")
_V2 = re.compile(r"(\d{20})\.checkpoint\.[0-9a-fA-F-]{36}\.(?:json|parquet)")


@dataclass(frozen=True, slots=True)
class Segment:
    """The files whose replay gives one version of the table."""

    version: int
    """The version that they give."""
    checkpoint: tuple[str, ...]
    """Names of the checkpoint's parts, in order; empty where the commits reach back to version 0."""
    commits: tuple[str, ...]
    """Names of the commits after the checkpoint, oldest first, without a gap."""


class Listing:
    """What a log folder holds: commits and complete checkpoints by version.

    Compacted commits are left aside: the commits themselves must be there as well, and some published tables have
    compacted ones that were never reconciled.

    Args:
        entries: (name, size in bytes, modification time in milliseconds) of the folder's files. A checkpoint of
            size 0 is none.
    """

    def __init__(self, entries: Iterable[tuple[str, int, int]]) -> None:
        self.sizes: dict[str, int] = {}
        self.times_ms: dict[str, int] = {}
        self.commits: dict[int, str] = {}
        self.checkpoints: dict[int, list[tuple[str, ...]]] = {}
        """The parts of each; at one version those first that a reader should prefer."""
        parts: dict[tuple[int, int], dict[int, str]] = {}
        found_checkpoints: list[tuple[int, int, tuple[str, ...]]] = []
        for name, size_bytes, time_ms in entries:
            self.sizes[name], self.times_ms[name] = size_bytes, time_ms
            if found := _COMMIT.fullmatch(name):
                self.commits[int(found[1])] = name
            elif size_bytes == 0:
                continue
            elif found := _V2.fullmatch(name):
                found_checkpoints.append((int(found[1]), 0, (name,)))
            elif found := _CLASSIC.fullmatch(name):
                found_checkpoints.append((int(found[1]), 1, (name,)))
            elif found := _MULTI_PART.fullmatch(name):
                parts.setdefault((int(found[1]), int(found[3])), {})[int(found[2])] = name
        for (version, n_parts), named in parts.items():
            if named.keys() == set(range(1, n_parts + 1)):
                complete = tuple(named[part] for part in range(1, n_parts + 1))
                found_checkpoints.append((version, 2, complete))
        for version, _, names in sorted(found_checkpoints):
            self.checkpoints.setdefault(version, []).append(names)

    @property
    def latest(self) -> int | None:
        """The highest version that a commit or a checkpoint gives; None for none."""
        return max(self.commits.keys() | self.checkpoints, default=None)

    def segments(self, table: str, version: int | None) -> Iterator[Segment]:
        """Yield every way to replay a version, the shortest first; later ones serve if a file of it is unreadable.

        Args:
            table: The table's path, for errors.
            version: The version wanted; None for the latest.

        Raises:
            TableError: The log is empty, has no such version, or lacks commits that are needed.
        """
        latest = self.latest
        if latest is None:
            raise TableError(f"{table} is no Delta table: its folder _delta_log holds no commit")
        wanted = latest if version is None else version
        if not 0 <= wanted <= latest:
            raise TableError(self._no_version(table, wanted, latest))
        starts = sorted((v for v in self.checkpoints if v <= wanted), reverse=True)
        reachable = False
        for start, parts in [(v, parts) for v in starts for parts in self.checkpoints[v]] + [(-1, ())]:
            versions = range(start + 1, wanted + 1)
            if all(v in self.commits for v in versions):
                reachable = True
                yield Segment(wanted, parts, tuple(self.commits[v] for v in versions))
        if not reachable:
            raise TableError(self._unreachable(table, wanted, latest, starts[0] if starts else -1))

    def first_readable(self) -> int | None:
        """Return the lowest version that can be asked for; None for none."""
        return min(self.checkpoints.keys() | ({0} if 0 in self.commits else set()), default=None)

    def _no_version(self, table: str, wanted: int, latest: int) -> str:
        first = self.first_readable()
        if first is None:
            return f"{table} has no version {wanted}, and no version that can be read: its first commits are missing"
        return f"{table} has no version {wanted}; versions {first}..{latest} can be asked for"

    def _unreachable(self, table: str, wanted: int, latest: int, start: int) -> str:
        first = self.first_readable()
        if first is not None and wanted < first:
            return f"{self._no_version(table, wanted, latest)}: the log before them was cleaned up"
        missing = next(v for v in range(start + 1, wanted + 1) if v not in self.commits)
        return (
            f"{table} cannot be read at version {wanted}: commit {missing:020d}.json is missing "
            "from _delta_log; restore it, or name a version before it"
        )
