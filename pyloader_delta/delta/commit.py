"""One JSON file of the log becomes its actions. What they mean together is not decided here."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa

_KINDS = {"add", "remove", "protocol", "metaData", "commitInfo", "sidecar"}
_SPACE = " \n\r\t"
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
        if not isinstance(action, dict):
            raise _no_action(action)
        for kind, value in action.items():
            if value is not None and not isinstance(value, dict) and kind in _KINDS:
                raise _no_action(action)
        empty = False
        yield action
    if empty:
        raise ValueError("it is empty")


def _no_action(found: object) -> ValueError:
    return ValueError(f"it holds {str(found)[:100]!r}, which is no action")


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
    """Yield JSON values: one a line as a rule, but some writers print one over several lines."""
    position = _after_space(text, 0)
    while position < len(text):
        value, position = _DECODER.raw_decode(text, position)
        position = _after_space(text, position)
        yield value


def _after_space(text: str, position: int) -> int:
    while position < len(text) and text[position] in _SPACE:
        position += 1
    return position
