"""Which files a table's log has: all of them or, where each page of a long list is a request, from a hint on."""

from __future__ import annotations

import json
import os

from pyloader_delta.delta.log import Listing
from pyloader_delta.delta.store import Store
from pyloader_delta.errors import TableError

LOG = "_delta_log"
_HINT = f"{LOG}/_last_checkpoint"


def whole_log(store: Store) -> Listing:
    """Return all of a log's files.

    Raises:
        TableError: There is no table, or its log cannot be listed.
    """
    try:
        return Listing(store.list(LOG))
    except (FileNotFoundError, NotADirectoryError) as error:
        if not store.local:
            text = f"there is no table at {store.root}: {error}; is the path right?"
        elif os.path.isdir(store.root):
            text = f"{store.root} is no Delta table: it has no folder {LOG}; give the table's own folder"
        else:
            text = f"there is no table at {store.root}: the folder does not exist; is the path right?"
        raise TableError(text) from error
    except OSError as error:
        raise TableError(f"the log of {store.root} cannot be listed: {error}") from error


def recent_log(store: Store, version: int | None) -> Listing | None:
    """Return the files of a log from the checkpoint on that `_last_checkpoint` names.

    Args:
        store: The table's store.
        version: The version wanted; None for the latest.

    Returns:
        Them; None on a disk, where listing all costs nothing, and where the hint is missing, wrong or too new. What
        they give need not be all that there is: the hint may be old, but then it only makes the way longer.
    """
    if store.local:
        return None
    try:
        hint = json.loads(str(store.read(_HINT), "utf-8"))
        first = hint["version"]
        if not isinstance(first, int) or first < 0 or (version is not None and version < first):
            return None
        found = Listing(store.list(LOG, start_after=f"{first:020d}"))
    except TimeoutError as error:  # nor would listing be answered
        raise TableError(f"the log of {store.root} cannot be listed: {error}") from error
    except (OSError, ValueError, TypeError, KeyError):
        return None  # listing all of it tells what is wrong, if anything is
    return found if found.checkpoints else None
