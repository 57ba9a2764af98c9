"""Which files of a log make up a version of the table. Names in, names out: nothing is read here."""

from __future__ import annotations

import re
from collections.abc import Iterable
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

    Args:
        entries: (name, size in bytes) of the folder's files. A checkpoint of size 0 is none.
    """

    def __init__(self, entries: Iterable[tuple[str, int]]) -> None:
        self.commits: dict[int, str] = {}
        self.checkpoints: dict[int, list[tuple[str, ...]]] = {}
        self.v2_checkpoints: set[int] = set()
        parts: dict[tuple[int, int], dict[int, str]] = {}
        for name, size_bytes in entries:
            if found := _COMMIT.fullmatch(name):
                self.commits[int(found[1])] = name
            elif size_bytes == 0:
                continue
            elif found := _CLASSIC.fullmatch(name):
                self.checkpoints.setdefault(int(found[1]), []).insert(0, (name,))
            elif found := _MULTI_PART.fullmatch(name):
                parts.setdefault((int(found[1]), int(found[3])), {})[int(found[2])] = name
            elif found := _V2.fullmatch(name):
                self.v2_checkpoints.add(int(found[1]))
        for (version, n_parts), named in sorted(parts.items()):
            if set(named) == set(range(1, n_parts + 1)):
                complete = tuple(named[part] for part in range(1, n_parts + 1))
                self.checkpoints.setdefault(version, []).append(complete)

    def segments(self, table: str, version: int | None) -> list[Segment]:
        """Return every way to replay a version, the shortest first; later ones serve if a checkpoint is unreadable.

        Args:
            table: The table's path, for errors.
            version: The version wanted; None for the latest.

        Raises:
            TableError: The log is empty, has no such version, or lacks commits that are needed.
        """
        known = self.commits.keys() | self.checkpoints.keys() | self.v2_checkpoints
        if not known:
            raise TableError(f"{table} is no Delta table: its folder _delta_log holds no commit")
        latest = max(known)
        wanted = latest if version is None else version
        if not 0 <= wanted <= latest:
            raise TableError(self._no_version(table, wanted, latest))
        starts = sorted((v for v in self.checkpoints if v <= wanted), reverse=True)
        ways = [(v, parts) for v in starts for parts in self.checkpoints[v]] + [(-1, ())]
        found = [
            Segment(wanted, parts, tuple(self.commits[v] for v in range(start + 1, wanted + 1)))
            for start, parts in ways
            if self._gap(start, wanted) is None
        ]
        if not found:
            raise TableError(self._unreachable(table, wanted, latest, starts[0] if starts else -1))
        return found

    def _gap(self, start: int, wanted: int) -> int | None:
        """Return the first commit after `start` that is missing, up to `wanted`."""
        return next((v for v in range(start + 1, wanted + 1) if v not in self.commits), None)

    def _no_version(self, table: str, wanted: int, latest: int) -> str:
        starts = set(self.checkpoints) | ({0} if 0 in self.commits else set())
        if not starts:
            return f"{table} has no version {wanted}, and no version that can be read: its first commits are missing"
        return f"{table} has no version {wanted}; versions {min(starts)}..{latest} can be asked for"

    def _unreachable(self, table: str, wanted: int, latest: int, start: int) -> str:
        if any(self._gap(v, wanted) is None for v in self.v2_checkpoints if v <= wanted):
            return (
                f"{table} needs reader feature 'v2Checkpoint', which is not supported yet: "
                f"version {wanted} can only be read from such a checkpoint"
            )
        if wanted < latest and self.checkpoints and wanted < min(self.checkpoints) and 0 not in self.commits:
            return self._no_version(table, wanted, latest)
        return (
            f"{table} cannot be read at version {wanted}: commit {self._gap(start, wanted):020d}.json is missing "
            "from _delta_log; restore it, or name a version before it"
        )
