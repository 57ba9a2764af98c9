"""What came of an epoch's rows: a receipt that people read, that programs add up, and that JSON holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pyloader_delta.errors import ConfigError

_SHOWN = 5


@dataclass(frozen=True, slots=True)
class FileRows:
    """Rows of one file in an epoch."""

    planned: int | None
    """Rows that the receipt's ranks were to deliver of it; None where its length was unknown before reading, or where
    ranks that took over from others have the rest of a window of it."""
    delivered: int | None = None
    """Rows of it that were delivered, those repeated or skipped left out; None without `audit=True`."""

    def __add__(self, other: FileRows) -> FileRows:
        return FileRows(_sum(self.planned, other.planned), _sum(self.delivered, other.delivered))


@dataclass(frozen=True, slots=True)
class Skip:
    """Rows that were skipped by `on_error="skip"`."""

    file: str
    """Its path below the folder or table."""
    first_row: int | None
    """Number in the file of the row, or of the first of them (deleted rows counted where single rows are skipped); None
    where the file has no length before it is read."""
    n_rows: int
    """How many were skipped, in the part of the epoch that the receipt is of."""
    error: str
    """Type and text."""

    def __str__(self) -> str:
        first, n = self.first_row, self.n_rows
        rows = "all rows" if first is None else f"row {first}" if n == 1 else f"{n} rows from row {first} on"
        return f"{rows} of {self.file}: {self.error}"


@dataclass(frozen=True, slots=True)
class Receipt:
    """What came of the rows of one epoch on one rank, or on several whose receipts were added up: `sum(receipts)`."""

    source: str
    """The folder or table, as the loader was given it."""
    version: int | None
    """Version of the table; None for a folder of files."""
    epoch: int
    """From 1, as `get_epoch()`."""
    complete: bool
    """Whether the epoch has ended; else the receipt is of what was delivered so far."""
    rows: int | None
    """Rows of the epoch, of all ranks together; None where this is not known before it has ended."""
    planned: int
    """Rows that were to be delivered, those left out by `drop_last` and those repeated by `uneven` counted; in an epoch
    that an earlier process has begun, or that is under way, those of this receipt alone."""
    delivered: int
    """Rows that were handed to the training loop."""
    padded: int
    """Of these: rows repeated so that each rank has as many (`uneven`)."""
    skipped: int
    """Of those delivered: places in which another row stands, as their own could not be read or encoded
    (`on_error="skip"`)."""
    dropped: int
    """Rows left out by `drop_last`."""
    left_out: int
    """Rows at the end of the epoch's order that no rank delivers (`uneven="drop"`), once it has ended; the same on each
    rank."""
    world_size: int
    ranks: tuple[int, ...]
    """The ranks that the receipt is of."""
    digest: str | None
    """Sum of a hash of (file, number of the row in it) over the rows delivered, in 16 hexadecimal digits: the same for
    any order, number of ranks, workers or restarts. None without `audit=True`."""
    skips: tuple[Skip, ...]
    """What was skipped, and why; the first 1000 of them."""
    files: Mapping[str, FileRows] = field(repr=False)
    """Rows by file: by its path below the folder or table."""

    @property
    def whole(self) -> bool:
        """Whether the receipt accounts for each row of the epoch: delivered once, skipped, or left out as asked for."""
        return self.rows is not None and self.delivered - self.padded + self.dropped + self.left_out == self.rows

    def to_dict(self) -> dict[str, Any]:
        """Return all of it as JSON has it."""
        found = {name: getattr(self, name) for name in self.__slots__}
        files = {path: {"planned": n.planned, "delivered": n.delivered} for path, n in self.files.items()}
        skips = [{name: getattr(skip, name) for name in Skip.__slots__} for skip in self.skips]
        return found | {"ranks": list(self.ranks), "whole": self.whole, "skips": skips, "files": files}

    @classmethod
    def from_dict(cls, found: Mapping[str, Any]) -> Receipt:
        """Return the receipt of which `to_dict` gave this, perhaps through JSON."""
        given = {name: found[name] for name in cls.__slots__}
        files = {path: FileRows(**rows) for path, rows in found["files"].items()}
        skips = tuple(Skip(**skip) for skip in found["skips"])
        return cls(**given | {"ranks": tuple(found["ranks"]), "skips": skips, "files": files})

    def __add__(self, other: Receipt) -> Receipt:
        """Return the receipt of two ranks, or of two parts of an epoch that was resumed.

        Raises:
            ConfigError: They are not of the same epoch of the same table.
        """
        for name in ("version", "epoch"):
            if getattr(self, name) != getattr(other, name):
                raise ConfigError(
                    f"receipts of different epochs do not add up: {name} is {getattr(self, name)} in one and "
                    f"{getattr(other, name)} in the other"
                )
        if None not in (self.rows, other.rows) and self.rows != other.rows:
            raise ConfigError(
                f"receipts of different tables do not add up: an epoch of {self.source} has {self.rows} rows, one of "
                f"{other.source} {other.rows}"
            )
        again = set(self.ranks) & set(other.ranks)  # parts of one epoch: what was planned of a file is in both
        return replace(
            self,
            complete=self.complete and other.complete if not again else self.complete or other.complete,
            rows=other.rows if self.rows is None else self.rows,
            planned=self.planned + other.planned,
            delivered=self.delivered + other.delivered,
            padded=self.padded + other.padded,
            skipped=self.skipped + other.skipped,
            left_out=max(self.left_out, other.left_out),
            dropped=self.dropped + other.dropped,
            world_size=max(self.world_size, other.world_size),
            ranks=tuple(sorted({*self.ranks, *other.ranks})),
            digest=_added(self.digest, other.digest),
            skips=(*self.skips, *other.skips),
            files=_merged(self.files, other.files, twice=bool(again)),
        )

    def __radd__(self, other: object) -> Receipt:
        """Return the receipt itself: `sum()` begins with 0."""
        return self if other == 0 else NotImplemented

    def __repr__(self) -> str:
        version = "" if self.version is None else f" of version {self.version}"
        ranks = "" if self.world_size == 1 else f", {_named(self.ranks)} of {self.world_size}"
        state = "" if self.complete else " so far"
        counts = [f"planned={self.planned}", f"delivered={self.delivered}"]
        counts += [f"{n}={getattr(self, n)}" for n in ("padded", "skipped", "dropped", "left_out") if getattr(self, n)]
        lines = [f"Receipt of epoch {self.epoch} of {self.source}{version}{ranks}{state}", f"  {' '.join(counts)}"]
        lines.append(f"  whole={self.whole} digest={self.digest or 'none (audit=False)'} files={len(self.files)}")
        differ = [
            (path, n)
            for path, n in self.files.items()
            if None not in (n.delivered, n.planned) and n.delivered != n.planned
        ]
        lines += [f"  {path}: {n.delivered} of {n.planned} rows" for path, n in differ[:_SHOWN]]
        if len(differ) > _SHOWN:
            lines.append(f"  and {len(differ) - _SHOWN} more files")
        lines += [f"  skipped {skip}" for skip in self.skips[:_SHOWN]]
        if len(self.skips) > _SHOWN:
            lines.append(f"  and {len(self.skips) - _SHOWN} more skips")
        return "\n".join(lines)


def _named(ranks: Sequence[int]) -> str:
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    contiguous = ranks[-1] - ranks[0] == len(ranks) - 1
    return f"ranks {ranks[0]}..{ranks[-1]}" if contiguous else f"ranks {', '.join(map(str, ranks))}"


def _sum(one: int | None, other: int | None) -> int | None:
    return None if one is None or other is None else one + other


def _added(one: str | None, other: str | None) -> str | None:
    return None if one is None or other is None else f"{(int(one, 16) + int(other, 16)) % 2**64:016x}"


def _merged(one: Mapping[str, FileRows], other: Mapping[str, FileRows], *, twice: bool) -> dict[str, FileRows]:
    found = dict(one)
    for path, rows in other.items():
        known = found.get(path)
        if known is None:
            found[path] = rows
            continue
        both = known + rows
        found[path] = FileRows(max(known.planned or 0, rows.planned or 0), both.delivered) if twice else both
    return found
