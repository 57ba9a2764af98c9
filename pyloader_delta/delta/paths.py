"""Where a table and its files lie: URIs become absolute local paths, spelled one way. Nothing is opened here."""

from __future__ import annotations

import os
import re
from urllib.parse import unquote

from pyloader_delta.errors import TableError

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_FILE = re.compile(r"file:(?://(?:localhost)?)?(?=/)", re.IGNORECASE)


def table_path(uri: str) -> str:
    """Return the absolute local path of a table given as a path or as a `file:` URI.

    Raises:
        TableError: The URI has another scheme.
    """
    if found := _FILE.match(uri):
        return os.path.abspath(unquote(uri[found.end() :]))
    if found := _SCHEME.match(uri):
        raise TableError(
            f"tables at {found[1]}:// are not supported yet, got {uri!r}; local paths and file:// URIs are"
        )
    return os.path.abspath(uri)


def data_path(table: str, path: str) -> str:
    """Return the absolute local path of a data file as the log spells it, or the URI itself for another store.

    A path in the log is a URI, absolute or relative to the table: it is unquoted once. The same file always gives
    the same string, so that it serves as the key of the file.

    Args:
        table: Absolute path of the table.
        path: `path` of an action in the log.
    """
    if "%" not in path and ":" not in path and not path.startswith("/"):
        return f"{table}/{path}" if table != "/" else f"/{path}"
    if found := _FILE.match(path):
        return unquote(path[found.end() :])
    if _SCHEME.match(path):
        return path
    return os.path.join(table, unquote(path))


def scheme(path: str) -> str | None:
    """Return the scheme of what `data_path` gave; None for a local path."""
    found = None if path.startswith("/") else _SCHEME.match(path)
    return found[1] if found else None
