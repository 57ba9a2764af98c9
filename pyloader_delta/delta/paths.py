"""Where a table and its files lie: one spelling for each path or URI. Nothing is opened here."""

from __future__ import annotations

import os
import re
from typing import NamedTuple
from urllib.parse import unquote

from pyloader_delta.errors import TableError

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_FILE = re.compile(r"file:(?://(?:localhost)?)?(?=/)", re.IGNORECASE)
_DBFS = re.compile(r"dbfs:/*", re.IGNORECASE)
_KINDS = {
    **dict.fromkeys(("s3", "s3a", "s3n"), "s3"),
    **dict.fromkeys(("gs", "gcs"), "gs"),
    **dict.fromkeys(("az", "azure", "abfs", "abfss", "adl"), "az"),
    **dict.fromkeys(("uc", "unity"), "uc"),
}


class Place(NamedTuple):
    """The parts of a URI."""

    kind: str
    """`s3`, `gs`, `az` or `uc`; else the scheme; empty for a local path."""
    authority: str
    """Bucket or container, an account's host included; of a catalog all of its name."""
    path: str
    """What follows, without a slash before it; of a local path all of it."""


def table_path(uri: str) -> str:
    """Return the absolute local path, or the URI without a slash at its end, of a table.

    Raises:
        TableError: The URI has a scheme that needs `filesystem=`, or names no bucket.
    """
    if found := _FILE.match(uri):
        return os.path.abspath(unquote(uri[found.end() :]))
    if found := _DBFS.match(uri):
        rest = uri[found.end() :]
        local = rest if rest.startswith("Volumes/") else f"dbfs/{rest}"
        raise TableError(f"{uri} is Spark's name for a folder that is mounted here: give /{local} instead")
    if not _SCHEME.match(uri):
        return os.path.abspath(uri)
    place = split(uri)
    if place.kind not in _KINDS.values():
        raise TableError(
            f"tables at {place.kind}:// are read through filesystem=, with any filesystem of pyarrow or fsspec, got "
            f"{uri!r}; without it, local paths and file://, s3://, gs://, az://, abfss:// and uc:// URIs are read"
        )
    if not place.authority:
        raise TableError(f"{uri!r} names no bucket or container: write {place.kind}://bucket/path/of/the/table")
    return spelled(uri)


def spelled(uri: str) -> str:
    """Return a URI in one spelling: no slash at its end, and the usual name of its scheme where there are several."""
    scheme, rest = uri.split("://", 1)
    scheme = scheme.lower()
    scheme = _KINDS[scheme] if scheme in ("s3a", "s3n", "gcs") else scheme
    return f"{scheme}://{rest.rstrip('/')}"


def split(path: str) -> Place:
    """Return the parts of an absolute local path or of a URI."""
    found = None if path.startswith("/") else _SCHEME.match(path)
    if found is None:
        return Place("", "", path)
    scheme = found[1].lower()
    authority, _, rest = path[found.end() :].partition("/")
    return Place(_KINDS.get(scheme, scheme), authority, rest.strip("/"))


def data_path(table: str, path: str) -> str:
    """Return the absolute path or URI of a data file as the log spells it.

    A path in the log is a URI, absolute or relative to the table: it is unquoted once. The same file always gives
    the same string, so that it serves as the key of the file.

    Args:
        table: Absolute path or URI of the table.
        path: `path` of an action in the log.
    """
    if "%" not in path and ":" not in path and not path.startswith("/"):
        return f"{table}/{path}" if table != "/" else f"/{path}"
    if found := _FILE.match(path):
        return unquote(path[found.end() :])
    if _SCHEME.match(path):
        return spelled(unquote(path))
    return os.path.join(table, unquote(path))
