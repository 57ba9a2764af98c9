"""One JSON file of the log becomes its actions. What they mean together is not decided here."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa

_KINDS = {"add", "remove", "protocol", "metaData", "commitInfo", "sidecar"}
_SPACE = re.compile(r"\s*")
_COMMIT_INFO_LINE = re.compile(rb'^\s*\{\s*"commitInfo"[^\n]*', re.MULTILINE)
_DECODER = json.JSONDecoder()

Action = dict[str, Any]


def read_actions(data: pa.Buffer) -> Iterator[Action]:
    """Yield the actions of a commit in the file's order; each is a dict with one key, its kind.

    Raises:
        ValueError: The file is no JSON, or something in it is no action, or it has none; the text says which.
    """
    empty = True
    for action in _objects(str(data, "utf-8")):
        if not isinstance(action, dict) or any(
            not isinstance(value, dict | None) for kind, value in action.items() if kind in _KINDS
        ):
            raise ValueError(f"it holds {str(action)[:100]!r}, which is no action")
        empty = False
        yield action
    if empty:
        raise ValueError("it is empty")


def commit_info(data: pa.Buffer) -> Action:
    """Return the commitInfo of a commit, not parsing the rest where it has a line of its own; empty if there is none.

    Raises:
        ValueError: As `read_actions`.
    """
    if line := _COMMIT_INFO_LINE.search(data):
        try:
            action = json.loads(line[0])
            return dict(action["commitInfo"])
        except (ValueError, TypeError, KeyError):
            pass  # the line is none
    elif not re.search(rb'"commitInfo"', data):
        return {}
    return next((dict(found) for action in read_actions(data) if (found := action.get("commitInfo"))), {})


def commit_time_ms(commit_info: Mapping[str, Any]) -> int | None:
    """Return the time that a commitInfo states, milliseconds since 1970 UTC: inCommitTimestamp before timestamp."""
    for name in ("inCommitTimestamp", "timestamp"):
        time_ms = commit_info.get(name)
        if isinstance(time_ms, int) and not isinstance(time_ms, bool):
            return time_ms
    return None


def _objects(text: str) -> Iterator[Any]:
    position = 0
    while position < len(text):
        end = text.find("\n", position)
        end = len(text) if end < 0 else end
        line = text[position:end]
        if not line or line.isspace():
            position = end + 1
            continue
        try:
            value = json.loads(line)
            position = end + 1
        except ValueError:  # some writers print an action over several lines
            start = _SPACE.match(text, position)
            value, position = _DECODER.raw_decode(text, start.end() if start else position)
        yield value
