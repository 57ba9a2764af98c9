"""What `state_dict` gives: where in which epoch the training loop is, and what its order depends on. Plain JSON."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyloader_delta.errors import StateError
from pyloader_delta.permute import NAME
from pyloader_delta.plan.epoch import Order
from pyloader_delta.plan.mixture import NAME as SPREAD
from pyloader_delta.plan.ranks import Place
from pyloader_delta.read.tables import TableReader
from pyloader_delta.values import Chunk

FORMAT = 1

_LABELS = {
    "table": "the table",
    "version": "the table's version (give the reader version=)",
    "batch_size": "batch_size",
    "drop_last": "drop_last",
    "shuffle": "shuffle of the loader and of the reader",
    "seeds": "random_seed of the loader and of the reader",
    "window": "shuffle_window",
    "group": "how many batches are encoded in one call (rowwise, or the size of rows)",
    "rows": "the number of rows",
    "permutation": "how rows are mixed, by the release of pyloader_delta",
    "plan": "the files, their row groups, or the columns read of them",
    "reader": "columns or filter of the reader",
}


@dataclass(frozen=True, slots=True)
class Position:
    """A place between two batches of a pass."""

    epoch: int
    """0-based epoch of the next batch."""
    batches: int
    """Batches of that epoch that were delivered."""
    began: int
    """Epoch at which the pass began."""


def identity(
    reader: Any, units: Sequence[Sequence[Chunk]], order: Order, *, batch_size: int, drop_last: bool, group: int,
    n_rows: int | None,
) -> dict[str, Any]:  # fmt: skip
    """Return what the order of batches depends on, by name: what of it differs can be told."""
    snapshot = getattr(reader, "snapshot", None)
    window = f"{order.window.unit}:{order.window.amount}" if order.shuffle_rows else None
    asked = repr((reader.columns and [*reader.columns], str(reader.filter))) if isinstance(reader, TableReader) else ""
    return {
        "table": None if snapshot is None else snapshot.table_id,
        "version": None if snapshot is None else snapshot.version,
        "batch_size": batch_size,
        "drop_last": drop_last,
        "shuffle": ["full"] if order.full else [order.shuffle_chunks, order.shuffle_rows],
        "seeds": [order.chunk_seed, order.row_seed],
        "window": window,
        "group": group,
        "rows": n_rows,
        "permutation": f"{NAME} {SPREAD}",
        "plan": _digest(_lines(units, sized=order.shuffle_rows or n_rows is None)),
        "reader": _digest([asked]),
    }


def to_state(position: Position, known: Mapping[str, Any], place: Place) -> dict[str, Any]:
    """Return a state: the same on every rank at the same step."""
    history = [[place.world_size, position.batches, place.uneven]] if position.batches else []
    return {
        "format": FORMAT,
        "order": dict(known),
        "epoch": position.epoch,
        "pass_epoch": position.began,
        "history": history,
    }


def from_state(state: Any, known: Mapping[str, Any], place: Place, most: int | None, num_epoch: int | None) -> Position:
    """Return the position that a state tells.

    Args:
        state: What `to_state` gave, perhaps through JSON.
        known: What this loader's order depends on.
        place: Its rank.
        most: Batches in an epoch; None where unknown.
        num_epoch: Epochs of a pass; None for no end.

    Raises:
        StateError: It is no state, or of another table, order or number of ranks; names what differs.
    """
    if not isinstance(state, Mapping) or not {"format", "order", "epoch", "pass_epoch", "history"} <= set(state):
        raise StateError("this is no state of a pyloader_delta.DataLoader: give what its state_dict() returned")
    if state["format"] != FORMAT:
        raise StateError(f"the state has format {state['format']!r}; this release of pyloader_delta reads {FORMAT}")
    order = state["order"] if isinstance(state["order"], Mapping) else {}
    for name, label in _LABELS.items():
        if order.get(name) != known[name]:
            raise StateError(
                f"the state does not fit this loader: {label} differs; the state has {order.get(name)!r}, the loader "
                f"{known[name]!r}"
            )
    epoch, began = _count(state, "epoch"), _count(state, "pass_epoch")
    if not began <= epoch or (num_epoch is not None and epoch >= began + num_epoch):
        raise StateError(
            f"the state is in epoch {epoch} of a pass that began with epoch {began}, but num_epoch is {num_epoch}"
        )
    return Position(epoch, _delivered(state["history"], place, most), began)


def _delivered(history: Any, place: Place, most: int | None) -> int:
    if not isinstance(history, Sequence) or len(history) > 1:
        raise StateError(f"the state's history must have at most one entry, got {history!r}")
    if not history:
        return 0
    try:
        world_size, batches, uneven = history[0]
    except (TypeError, ValueError) as error:
        raise StateError(f"the state's history has {history[0]!r} in it, not [world_size, batches, uneven]") from error
    if (world_size, uneven) != (place.world_size, place.uneven if world_size != 1 else uneven):
        raise StateError(
            f"the state was taken within an epoch by {world_size} ranks with uneven={uneven!r}, now there are "
            f"{place.world_size} with uneven={place.uneven!r}: only a state of an epoch's end loads for another number "
            "of ranks"
        )
    if type(batches) is not int or batches < 0 or (most is not None and batches >= max(most, 1)):
        raise StateError(f"the state has {batches!r} batches of an epoch delivered, of {most}")
    return batches


def _count(state: Mapping[str, Any], name: str) -> int:
    value = state[name]
    if type(value) is not int or value < 0:
        raise StateError(f"{name} of the state must be an int >= 0, got {value!r}")
    return value


def _lines(units: Sequence[Sequence[Chunk]], *, sized: bool) -> list[str]:
    """Return a line for each row group or file, with paths as they are below the folder that all have in common."""
    paths = [unit[0].path for unit in units]
    common = os.path.commonprefix([min(paths), max(paths)]) if paths else ""  # noqa: RUF071  # URIs too
    cut = common.rfind("/") + 1
    lines = []
    for unit in units:
        first, last = unit[0], unit[-1]
        rows = "" if first.rows is None or last.rows is None else f"{first.rows.start}:{last.rows.stop}"
        size = sum(chunk.size_bytes for chunk in unit) if sized else ""
        lines.append(f"{first.path[cut:]}\0{first.row_group}\0{rows}\0{size}")
    return lines


def _digest(lines: Sequence[str]) -> str:
    digest = hashlib.blake2b(digest_size=8)
    for line in lines:
        digest.update(line.encode("utf-8", "surrogateescape") + b"\n")
    return digest.hexdigest()
