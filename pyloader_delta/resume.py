"""`state_dict` and `load_state_dict`: where a training loop is, and how another process goes on from there."""

from __future__ import annotations

import weakref
from typing import Any

from pyloader_delta.engine.core import Engine
from pyloader_delta.errors import ConfigError
from pyloader_delta.options import Options, whole
from pyloader_delta.passes import BatchIterator, Pass
from pyloader_delta.plan.epoch import Order
from pyloader_delta.plan.ranks import Place, Uneven
from pyloader_delta.ranks import found_place
from pyloader_delta.state import Position, from_state, identity, to_state
from pyloader_delta.values import Chunk


class Resumable:
    """Base of `DataLoader`."""

    datareader: Any
    _asked_place: tuple[int | None, int | None, Uneven]
    _options: Options
    _order: Order
    _units: list[list[Chunk]]
    _n_rows: int | None
    _group: int
    _engine: Engine | None
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
        return to_state(position, self._known(), place)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where a state was taken: the next `iter()` gives the rest of its epoch, then of its pass.

        The rest is the same, bit for bit, whatever the number and kind of workers. Nothing of windows that were
        delivered is read again, except by readers of files whose columns differ (`JsonLineDataReader`) and where
        lengths are unknown: these are read once more, and not encoded. An older iterator ends.

        Raises:
            StateError: The state is of another table, version, order or, within an epoch, number of ranks; names what
                differs.
        """
        n_batches = None if self._n_rows is None else self.batches_per_epoch
        place, num_epoch = self._place(), self._options.num_epoch
        position = from_state(state, self._known(), place, n_batches, num_epoch)
        older = self._iterator() if self._iterator is not None else None
        if older is not None:
            older.replace()
        if self._pass is not None and self._engine is not None:
            self._pass.end()
            self._engine.cancel(self._pass.number)
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

    def _position(self) -> Position:
        if self._loaded is not None:
            return self._loaded
        live, held = self._pass, self._iterator() if self._iterator is not None else None
        over = live is None or live.at_epoch_end or (held is None and live.peeked() is None)
        if self._set_epoch is not None and over:
            return Position(self._set_epoch, 0, self._set_epoch)
        if live is None:
            return Position(self._next_epoch, 0, self._next_epoch)
        position = live.position(self._options.num_epoch)
        again = held.to_replay if held is not None else 0
        return Position(position.epoch, position.batches - again, position.began)

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
            epoch, batch = epoch - 1, batch + self.batches_per_epoch
        return Position(epoch, batch, live.began)
