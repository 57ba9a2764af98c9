"""The same file by any spelling: what the log writes as a data file's path, decoded, relative where it can be."""

from __future__ import annotations

import re
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc

from pyloader_delta.delta.arrays import texts

_FILE = re.compile(r"file:(?://(?:localhost)?)?(?=/)", re.IGNORECASE)
_S3 = re.compile(r"s3[an]://", re.IGNORECASE)
_ABSOLUTE = re.compile(r"/|[A-Za-z][A-Za-z0-9+.-]*://")


def canonical(root: str, path: str) -> str:
    """Return a path that is the same for all spellings of one file.

    A path in the log is a URI, absolute or relative to the table; it is unquoted once.

    Args:
        root: The table's absolute path or URI, without a slash at its end.
        path: `path` of an action in the log.

    Returns:
        The decoded path: relative to the root where the file lies below it, else an absolute path or a URI.
    """
    if "%" not in path and ":" not in path and not path.startswith("/"):
        return path
    if found := _FILE.match(path):
        path = path[found.end() :]
    elif found := _S3.match(path):
        path = f"s3://{path[found.end() :]}"
    path = unquote(path)
    return path.removeprefix(f"{root}/")


def canonical_column(root: str, paths: pa.Array) -> pa.Array:
    """Return the same for a string array; only paths that need it are looked at one by one."""
    odd = pc.match_substring_regex(paths, pattern="[%:]|^/")
    if not pc.any(odd).as_py():
        return paths
    found = [canonical(root, path) if path is not None else None for path in paths.filter(odd).to_pylist()]
    return pc.replace_with_mask(paths, odd, texts(found).cast(paths.type))


def absolute(root: str, path: str) -> str:
    """Return the absolute path or URI of what `canonical` gave."""
    return path if _ABSOLUTE.match(path) else f"{root.removesuffix('/')}/{path}"
