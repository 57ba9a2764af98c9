"""Counts of rows under a filter, kept on disk from one run to the next: numbers alone, no names and no values.

One small file for each (table, version, filter), below `$XDG_CACHE_HOME/pyloader_delta/counts`, by default
`~/.cache/...`. A file that is damaged or of another table counts as none, and a folder that cannot be written as empty.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

from pyloader_delta.values import DataFile

_FORMAT = 1
_MAX_FILES = 1000  # the oldest go

Counts = list[list[int]]
"""Of each file, of each row group: how many of its live rows the filter keeps."""


def cache_folder() -> Path:
    """Return where counts are kept."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    root = Path(base) if os.path.isabs(base) else Path("~/.cache").expanduser()
    return root / "pyloader_delta" / "counts"


def cache_key(table_id: str, version: int | None, filter_digest: str, setting: str, files: Iterable[DataFile]) -> str:
    """Return the name under which counts are kept.

    Args:
        table_id: Id of the table.
        version: Its version; None for a folder of plain files.
        filter_digest: Of the filter (`RowFilter.digest`).
        setting: What else decides how values are read.
        files: The files whose rows are counted, so that a copy or another table of that id is told apart.
    """
    digest = hashlib.sha256(json.dumps([_FORMAT, table_id, version, filter_digest, setting]).encode())
    for file in files:
        digest.update(json.dumps([file.path, file.size_bytes, file.modification_time_ms]).encode())
        digest.update(repr(file.deletion_vector).encode())
    return digest.hexdigest()


def load_counts(key: str, n_files: int) -> Counts | None:
    """Return the counts kept under a key; None where there are none, or none that make sense."""
    try:
        found = json.loads((cache_folder() / f"{key}.json").read_text(encoding="ascii"))
        counts: Counts = found["counts"]
        sound = found["key"] == key and found["digest"] == _digest(counts) and len(counts) == n_files
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    return counts if sound else None


def save_counts(key: str, counts: Counts) -> None:
    """Keep counts, as a whole or not at all."""
    folder = cache_folder()
    text = json.dumps({"key": key, "digest": _digest(counts), "counts": counts})
    with contextlib.suppress(OSError):  # a cache that cannot be written is no fault
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        _write(folder / f"{key}.json", text)
        _forget(sorted(folder.glob("*.json"), key=_age), _MAX_FILES)


def _digest(counts: Counts) -> str:
    return hashlib.sha256(json.dumps(counts).encode()).hexdigest()


def _write(path: Path, text: str) -> None:
    """Make a file in one step. Where the system can, it has no name before it is whole: a kill leaves nothing."""
    data = text.encode("ascii")
    try:
        number = os.open(path.parent, os.O_TMPFILE | os.O_WRONLY, 0o600)
    except (AttributeError, OSError):
        _write_and_rename(path, data)
        return
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.write(number, data)
        path.unlink(missing_ok=True)
        os.link(f"/proc/self/fd/{number}", path.name, src_dir_fd=folder, dst_dir_fd=folder)
    finally:
        os.close(folder)
        os.close(number)


def _write_and_rename(path: Path, data: bytes) -> None:
    number, name = tempfile.mkstemp(dir=path.parent, prefix=".", suffix=".tmp")
    try:
        with open(number, "wb") as file:
            file.write(data)
        os.replace(name, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(name)
        raise


def _age(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:  # another process forgot it
        return 0.0


def _forget(paths: Sequence[Path], keep: int) -> None:
    for path in paths[: max(len(paths) - keep, 0)]:
        path.unlink(missing_ok=True)
