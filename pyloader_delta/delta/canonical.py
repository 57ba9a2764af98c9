"""The same file by any spelling: what the log writes as a data file's path, decoded, relative where it can be."""

from __future__ import annotations

import re

import pyarrow as pa
import pyarrow.compute as pc

from pyloader_delta.delta.arrays import texts
from pyloader_delta.delta.paths import data_path

_ABSOLUTE = re.compile(r"/|[A-Za-z][A-Za-z0-9+.-]*://")


def canonical(root: str, path: str) -> str:
    """Return a path that is the same for all spellings of one file.

    Args:
        root: The table's absolute path or URI, without a slash at its end.
        path: `path` of an action in the log: a URI, absolute or relative to the table.

    Returns:
        The decoded path: relative to the root where the file lies below it, else an absolute path or a URI.
    """
    if "%" not in path and ":" not in path and not path.startswith("/"):
        return path
    return data_path(root, path).removeprefix(f"{root}/")


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
