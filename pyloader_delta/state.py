"""What `state_dict` gives: where in which epoch the training loop is, and what its order depends on. Plain JSON."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast, get_args

from pyloader_delta.errors import StateError
from pyloader_delta.permute import NAME
from pyloader_delta.plan.epoch import Order
from pyloader_delta.plan.mixture import NAME as SPREAD
from pyloader_delta.plan.ranks import Place, Uneven
from pyloader_delta.plan.recut import Past
from pyloader_delta.read.tables import TableReader
from pyloader_delta.values import Chunk

FORMAT = 1

_LABELS = {
    "table": "the table",
    "version": "the table's version",
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


OF_VERSION = frozenset({"version", "rows", "plan", "group"})
"""What of it a later version of a table may change."""


@dataclass(frozen=True, slots=True)
class Entry:
    """What some ranks have delivered of an epoch."""

    world_size: int
    batches: int
    """By each of them."""
    uneven: Uneven

    def goes_on(self, place: Place) -> bool:
        """Return whether a rank has the same share as those ranks had."""
        alike = self.uneven == place.uneven or place.world_size == 1 or "drop" not in (self.uneven, place.uneven)
        return self.world_size == place.world_size and alike


@dataclass(frozen=True, slots=True, eq=False)
class Source:
    """What a version of a table, or a folder, is to the plan."""

    units: list[list[Chunk]]
    n_rows: int | None
    """Rows; None where unknown before reading."""
    group: int
    """Batches that may be encoded together."""
    known: Mapping[str, Any]
    """What `identity` says of it."""


@dataclass(frozen=True, slots=True)
class Position:
    """A place between two batches of a pass."""

    epoch: int
    """0-based epoch of the next batch."""
    batches: int
    """Batches of that epoch that this rank, and those it goes on with, have delivered."""
    began: int
    """Epoch at which the pass began."""
    history: tuple[Entry, ...] = ()
    """What others have delivered of that epoch before them."""
    window: tuple[int, int] | None = None
    """Number and first row of the window in progress, where lengths are unknown before reading."""
    source: Source | None = None
    """What that epoch is read from, where it is not what the loader reads."""

    def at(self, place: Place) -> Position:
        """Return the same place as a rank sees it: ranks of the same shares go on, others share out what is left."""
        if self.history and not self.batches and self.history[-1].goes_on(place):
            return replace(self, batches=self.history[-1].batches, history=self.history[:-1])
        return self

    def following(self, num_epoch: int | None) -> Position:
        """Return the beginning of the next epoch, or of the next pass after one of so many epochs."""
        after = self.epoch + 1
        return Position(after, 0, after if num_epoch is not None and after >= self.began + num_epoch else self.began)


@dataclass(frozen=True, slots=True)
class Extent:
    """How long an epoch is."""

    n_rows: int
    """Rows over all ranks."""
    batch_size: int
    drop_last: bool
    limit: int | None = None
    """Batches after which it ends; None for no limit."""

    def past(self, history: Sequence[Entry]) -> list[Past]:
        """Return a history as the plan takes it."""
        return [Past(entry.world_size, entry.batches * self.batch_size, entry.uneven) for entry in history]

    def left(self, history: Sequence[Entry]) -> int | None:
        """Return the batches that are left of the limit."""
        return None if self.limit is None else max(self.limit - sum(entry.batches for entry in history), 0)

    def batches(self, place: Place, history: Sequence[Entry] = ()) -> int:
        """Return the batches that each rank has of what a history leaves."""
        n_rows = self.n_rows - sum(past.world_size * past.rows for past in self.past(history))
        full, rest = divmod(place.steps(n_rows), self.batch_size)
        most, n = self.left(history), full + (1 if rest and not self.drop_last else 0)
        return n if most is None else min(n, most)


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
    entries = list(position.history)
    if position.batches:
        entries.append(Entry(place.world_size, position.batches, place.uneven))
    state = {
        "format": FORMAT,
        "order": dict(known),
        "epoch": position.epoch,
        "pass_epoch": position.began,
        "history": [[entry.world_size, entry.batches, entry.uneven] for entry in entries],
    }
    return state if position.window is None else state | {"window": list(position.window)}


def order_of(state: Any) -> Mapping[str, Any]:
    """Return what a state says that its order depends on.

    Raises:
        StateError: It is no state, or one of another release.
    """
    if not isinstance(state, Mapping) or not {"format", "order", "epoch", "pass_epoch", "history"} <= set(state):
        raise StateError("this is no state of a pyloader_delta.DataLoader: give what its state_dict() returned")
    if state["format"] != FORMAT:
        raise StateError(f"the state has format {state['format']!r}; this release of pyloader_delta reads {FORMAT}")
    return state["order"] if isinstance(state["order"], Mapping) else {}


def is_earlier(order: Mapping[str, Any], known: Mapping[str, Any]) -> bool:
    """Return whether a state's order is of an earlier version than a loader's."""
    version, own = order.get("version"), known["version"]
    return type(version) is int and type(own) is int and version < own


def check_order(order: Mapping[str, Any], known: Mapping[str, Any], but: Collection[str] = ()) -> None:
    """Raise StateError where a state's order is not the loader's; names what differs.

    Args:
        order: The state's.
        known: What the loader's order depends on.
        but: What may differ.
    """
    for name, label in _LABELS.items():
        if name in but or order.get(name) == known[name]:
            continue
        text = f"{label} differs; the state has {order.get(name)!r}, the loader {known[name]!r}"
        if name == "version":
            text += f". Give the reader version={order.get(name)!r}"
        if name == "version" and is_earlier(order, known):
            text += (
                ", or finish the epoch on the state's version and go on with the newer one: "
                'load_state_dict(state, on_new_version="continue")'
            )
        raise StateError(f"the state does not fit this loader: {text}")


def from_state(state: Mapping[str, Any], extent: Extent | None, num_epoch: int | None) -> Position:
    """Return the position that a state tells, whose order fits.

    Args:
        state: What `to_state` gave, perhaps through JSON.
        extent: How long the epoch is; None where lengths are unknown before reading.
        num_epoch: Epochs of a pass; None for no end.

    Raises:
        StateError: It tells of more than there is.
    """
    epoch, began = _count(state, "epoch"), _count(state, "pass_epoch")
    if not began <= epoch or (num_epoch is not None and epoch >= began + num_epoch):
        raise StateError(
            f"the state is in epoch {epoch} of a pass that began with epoch {began}, but num_epoch is {num_epoch}"
        )
    history = _history(state["history"])
    for number, entry in enumerate(history):
        most = None if extent is None else extent.batches(Place(0, entry.world_size, entry.uneven), history[:number])
        if most is not None and entry.batches >= max(most, 1):
            raise StateError(f"the state has {entry.batches} batches of an epoch delivered, of {most}")
    if extent is None and (len(history) > 1 or any(entry.world_size > 1 for entry in history)):
        raise StateError("the state was taken by several ranks, which need lengths that are known before reading")
    return Position(epoch, 0, began, history, _window(state.get("window")) if history else None)


def _history(entries: Any) -> tuple[Entry, ...]:
    if not isinstance(entries, Sequence) or isinstance(entries, str):
        raise StateError(f"the state's history must be a list, got {entries!r}")
    found = []
    for entry in entries:
        world_size, batches, uneven = entry if isinstance(entry, Sequence) and len(entry) == 3 else (None,) * 3
        if type(world_size) is not int or type(batches) is not int or world_size < 1 or batches < 1:
            raise StateError(f"the state's history has {entry!r} in it, not [world_size, batches, uneven]")
        if uneven not in get_args(Uneven):
            raise StateError(f"the state's history has uneven={uneven!r} in it, not 'pad', 'mask' or 'drop'")
        found.append(Entry(world_size, batches, cast(Uneven, uneven)))
    return tuple(found)


def _window(window: Any) -> tuple[int, int] | None:
    if window is None:
        return None
    if isinstance(window, Sequence) and len(window) == 2 and all(type(n) is int and n >= 0 for n in window):
        return window[0], window[1]
    raise StateError(f"window of the state must be [number, first row], got {window!r}")


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
