"""What a user says of a store: options under delta-rs's names, or a filesystem. Never shown: it is secret."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from pyloader_delta.errors import ConfigError

_STALL_TIMEOUT_S = 60.0
_SECRET = re.compile(r"key|secret|token|sas|password|credential|account|certificate", re.IGNORECASE)
_QUERY = re.compile(r"\?[^\s\"'<>)]*")  # of a signed URL
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")  # delta-rs's
_MIN_SECRET = 4  # characters; less would blot out ordinary words
_MAX_TEXT = 400


class StoreSettings:
    """How a table's store is reached. Equal settings reach the same store.

    Args:
        storage_options: Options under delta-rs's names; values are text, numbers or True and False.
        filesystem: A pyarrow or fsspec filesystem, used in place of our own clients.
        stall_timeout: Seconds without any progress after which reading fails, > 0.

    Raises:
        ConfigError: An argument is of the wrong kind, or both are given.
    """

    __slots__ = ("filesystem", "options", "stall_timeout_s")

    def __init__(
        self,
        storage_options: Mapping[str, object] | None = None,
        filesystem: Any = None,
        stall_timeout: float | None = None,
    ) -> None:
        if storage_options is not None and not isinstance(storage_options, Mapping):
            raise ConfigError(f"storage_options must be a dict, got a {type(storage_options).__name__}")
        if storage_options and filesystem is not None:
            raise ConfigError("storage_options and filesystem exclude each other: the filesystem has its own settings")
        self.options = tuple(sorted(_text(name, value) for name, value in (storage_options or {}).items()))
        """Pairs of name and value, both text."""
        self.filesystem = filesystem
        self.stall_timeout_s = _STALL_TIMEOUT_S if stall_timeout is None else stall_timeout
        """Seconds."""
        kind = type(self.stall_timeout_s)
        if not issubclass(kind, int | float) or kind is bool or not 0 < self.stall_timeout_s < math.inf:
            raise ConfigError(f"stall_timeout must be a number of seconds > 0, got {stall_timeout!r}")

    def __repr__(self) -> str:
        return f"<settings of a store: {len(self.options)} options>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, StoreSettings) and self._all() == other._all()

    def __hash__(self) -> int:
        return hash((self.options, self.stall_timeout_s))

    def clean(self, text: str) -> str:
        """Return the beginning of an error's text without secrets: options' values and queries of URLs are cut."""
        text = _QUERY.sub("", _COLOURS.sub("", text).split("Debug source")[0])
        for name, value in self.options:
            if len(value) >= _MIN_SECRET and _SECRET.search(name):
                text = text.replace(value, "***")
        return " ".join(text.split())[:_MAX_TEXT]

    def _all(self) -> tuple[Any, ...]:
        return self.options, self.stall_timeout_s, self.filesystem


def _text(name: object, value: object) -> tuple[str, str]:
    if not isinstance(name, str):
        raise ConfigError(f"names in storage_options must be text, got {name!r}")
    if isinstance(value, bool):
        return name, str(value).lower()
    if not isinstance(value, str | int | float):
        raise ConfigError(
            f"storage_options[{name!r}] must be text, a number, True or False, got a {type(value).__name__}"
        )
    return name, str(value)
