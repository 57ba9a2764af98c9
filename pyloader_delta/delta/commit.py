"""One JSON commit of the log becomes its actions. What they mean together is not decided here."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from pyloader_delta.errors import TableError

# Every writer puts numRecords first; only then the rest, often large, need not be parsed.
NUM_RECORDS = r'\s*\{\s*"numRecords"\s*:\s*(?P<n>\d{1,18})\s*[,}]'
_SPACE = re.compile(r"\s*")


def read_commit(path: str) -> list[dict[str, Any]]:
    """Return the actions of one commit in file order; each is a dict with one key, its kind.

    Raises:
        TableError: The file cannot be read, holds no action, or is no JSON.
    """
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
        actions = list(_objects(text))
    except (OSError, ValueError) as error:
        raise TableError(f"commit {path} cannot be read: {error}; restore it from a copy of the table") from error
    if not actions:
        raise TableError(f"commit {path} is empty; restore it from a copy of the table")
    wrong = next((action for action in actions if not isinstance(action, dict)), None)
    if wrong is not None:
        raise TableError(f"commit {path} holds {wrong!r}, which is no action; restore it from a copy of the table")
    return actions


def num_records(stats: object) -> int | None:
    """Return `numRecords` of an add's statistics; None where they have none or are no valid JSON."""
    if not isinstance(stats, str):
        return None
    if found := re.match(NUM_RECORDS, stats):
        return int(found[1])
    try:
        parsed = json.loads(stats)
    except ValueError:
        return None  # statistics are hints: a bad one must not make the table unreadable
    number = parsed.get("numRecords") if isinstance(parsed, dict) else None
    return number if isinstance(number, int) and not isinstance(number, bool) and number >= 0 else None


def commit_time_ms(commit_info: Mapping[str, Any]) -> int | None:
    """Return the time that a commitInfo states, milliseconds since 1970 UTC: inCommitTimestamp before timestamp."""
    for name in ("inCommitTimestamp", "timestamp"):
        time_ms = commit_info.get(name)
        if isinstance(time_ms, int) and not isinstance(time_ms, bool):
            return time_ms
    return None


def _objects(text: str) -> Iterator[Any]:
    try:
        yield from [json.loads(line) for line in text.split("\n") if line.strip()]
    except ValueError:
        # Some writers print an action over several lines.
        decoder = json.JSONDecoder()
        position = 0
        while (start := _after_space(text, position)) < len(text):
            value, position = decoder.raw_decode(text, start)
            yield value


def _after_space(text: str, position: int) -> int:
    found = _SPACE.match(text, position)
    return found.end() if found else position
