"""`state_dict` and `load_state_dict`: where a training loop is, and how another process goes on from there."""

from __future__ import annotations

import os
import weakref
from dataclasses import replace
from typing import Any, Literal

from pyloader_delta.engine.core import Engine
from pyloader_delta.errors import ConfigError, StateError
from pyloader_delta.options import Options, whole
from pyloader_delta.passes import BatchIterator, Pass
from pyloader_delta.plan.epoch import Order
from pyloader_delta.plan.ranks import Place, Uneven
from pyloader_delta.ranks import found_place
from pyloader_delta.sources import earlier_source
from pyloader_delta.state import (
    OF_VERSION,
    Extent,
    Position,
    Source,
    check_order,
    from_state,
    identity,
    is_earlier,
    order_of,
    to_state,
)
from pyloader_delta.values import Chunk


class Resumable:
    """Base of `DataLoader`."""

    datareader: Any
    root_dir: str
    _asked_place: tuple[int | None, int | None, Uneven]
    _options: Options
    _order: Order
    _units: list[list[Chunk]]
    _n_rows: int | None
    _group: int
    _engine: Engine | None
    _pid: int
    _pass: Pass | None
    _iterator: weakref.ref[BatchIterator] | None
    _hidden: BatchIterator | None
    _next_epoch: int
    _set_epoch: int | None
    _loaded: Position | None = None
    _identity: dict[str, Any] | None = None

    @property
    def batches_per_epoch(self) -> int:
        """Batches in one epoch."""
        raise NotImplementedError

    def _place(self) -> Place:
        """Return which rank this is now."""
        place = found_place(*self._asked_place)
        if place.world_size > 1 and self._n_rows is None:
            raise ConfigError(
                f"{place.world_size} ranks need the length of each file before reading: {self.datareader.length_advice}"
                f" in {type(self.datareader).__name__}"
            )
        return place

    def state_dict(self, batches: int | None = None) -> dict[str, Any]:
        """Return where the training loop is, as plain JSON of a few hundred bytes, the same on every rank.

        It counts batches that were delivered, not what was read ahead, and may be asked for between any two batches.

        Args:
            batches: Batches of the live iterator that were really used, where something between it and the training
                loop fetches ahead. None: all that it gave.

        Raises:
            ConfigError: `batches` is more than the live iterator gave, or it goes back to an earlier epoch whose
                batches are not known in number.
        """
        position = self._position()
        if batches is not None:
            position = self._back(position, whole(batches, "batches", at_least=0))
        live = self._pass
        place = live.place if live is not None and position.batches and self._loaded is None else self._place()
        return to_state(position, self._known() if position.source is None else position.source.known, place)

    def load_state_dict(self, state: dict[str, Any], on_new_version: Literal["refuse", "continue"] = "refuse") -> None:
        """Go on where a state was taken: the next `iter()` gives the rest of its epoch, then of its pass.

        The rest is the same, bit for bit, whatever the number and kind of workers. Where the number of ranks (or
        `uneven`) is another, what is left of the epoch is shared out anew: each row is still delivered once, and each
        rank has as many batches. Nothing of windows that were delivered is read again, except by readers of files whose
        columns differ (`JsonLineDataReader`). An older iterator ends.

        Args:
            state: What `state_dict` returned, on any rank.
            on_new_version: Whether a state of an earlier version of the table is refused, or its epoch is finished on
                that version, whose files must still be there; from the next epoch on the loader's version is read.

        Raises:
            StateError: The state is of another table, version or order, or its version cannot be read any more; names
                what differs. Nothing is changed then.
            ConfigError: `on_new_version` is neither.
        """
        if on_new_version not in ("refuse", "continue"):
            raise ConfigError(f"on_new_version must be 'refuse' or 'continue', got {on_new_version!r}")
        order, known, source = order_of(state), self._known(), None
        if on_new_version == "continue" and is_earlier(order, known):
            check_order(order, known, but=OF_VERSION)
            if state["history"]:
                source = self._earlier(order["version"])
                check_order(order, source.known)
        else:
            check_order(order, known)
        place, n_rows = self._place(), self._n_rows if source is None else source.n_rows
        if place.world_size > 1 and n_rows is None:
            raise StateError("the state's version has files of unknown length, which ranks cannot share")
        position = replace(from_state(state, self._extent(source), self._options.num_epoch), source=source)
        older = self._iterator() if self._iterator is not None else None
        if older is not None:
            older.replace()
        if self._pass is not None and self._engine is not None:
            self._pass.end()
            self._engine.cancel(self._pass.number)
        if source is not None and self._engine is not None:  # its workers do not know the earlier version
            if self._pid == os.getpid():
                self._engine.close()
            self._engine = None
        self._pass = self._hidden = self._set_epoch = None
        self._loaded, self._next_epoch = position, position.epoch

    def _known(self) -> dict[str, Any]:
        if self._identity is None:
            options = self._options
            self._identity = identity(
                self.datareader, self._units, self._order, batch_size=options.batch_size, drop_last=options.drop_last,
                group=self._group, n_rows=self._n_rows,
            )  # fmt: skip
        return self._identity

    def _earlier(self, version: int) -> Source:
        return earlier_source(self.datareader, self.root_dir, version, self._options, self._order)

    def _extent(self, source: Source | None) -> Extent | None:
        """Return how long an epoch of the source is, or of the loader's own; None where lengths are unknown."""
        n_rows, options = self._n_rows if source is None else source.n_rows, self._options
        return None if n_rows is None else Extent(n_rows, options.batch_size, options.drop_last, options.limit)

    def _batches_in(self, position: Position, place: Place) -> int | None:
        """Return the batches that a position's epoch has, those before its history left out; None where unknown."""
        extent = self._extent(position.source)
        return None if extent is None else extent.batches(place, position.history)

    def _beginning(self, position: Position, place: Place) -> Position:
        """Return where a pass begins: the next epoch where others have left this one no batch."""
        begins = position.at(place)
        left_none = begins.history and self._batches_in(begins, place) == 0
        return begins.following(self._options.num_epoch) if left_none else begins

    def _more(self) -> int:
        """Return how many batches more, or fewer, than others an epoch has that is finished after a restart."""
        live, num_epoch = self._pass, self._options.num_epoch
        begins = self._loaded
        if begins is None and live is not None and not live.finished and num_epoch is not None:
            begins = live.begins if not live.at_epoch_end or live.epoch + 1 < live.began + num_epoch else None
        if begins is None or self._n_rows is None:
            return 0
        place = self._place()
        begins = begins.at(place)
        n = self._batches_in(begins, place)
        before = sum(entry.batches for entry in begins.history)
        return 0 if n is None else before + n - (self._batches_in(Position(begins.epoch, 0, begins.epoch), place) or 0)

    def _position(self) -> Position:
        if self._loaded is not None:
            return self._loaded
        live, held = self._pass, self._iterator() if self._iterator is not None else None
        over = live is None or live.at_epoch_end or (held is None and not live.is_peek)
        if self._set_epoch is not None and over:
            return Position(self._set_epoch, 0, self._set_epoch)
        if live is None:
            return Position(self._next_epoch, 0, self._next_epoch)
        again = held.to_replay if held is not None else 0
        return live.position(self._options.num_epoch, again)

    def _back(self, position: Position, used: int) -> Position:
        """Return the place after the first `used` batches of the live iterator."""
        held = self._iterator() if self._iterator is not None and self._loaded is None else None
        taken = held.taken if held is not None else 0
        if used > taken:
            raise ConfigError(f"batches must be at most the {taken} that the live iterator gave, got {used}")
        live = self._pass
        if used == taken or live is None:
            return position
        epoch, batch = live.epoch, live.batches - (taken - used) - (held.to_replay if held is not None else 0)
        while batch < 0:
            if self._n_rows is None:
                raise ConfigError(f"batches={used} is in an earlier epoch, whose number of batches is not known")
            epoch -= 1
            batch += self._batches_in(live.place_in(epoch, 0), live.place) or 0
        return live.place_in(epoch, batch)
