"""How long a loader is: batches and rows of an epoch and of a pass, from the plan alone; and its first batches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyloader_delta.options import Options, whole
from pyloader_delta.plan.ranks import Place
from pyloader_delta.take import Taken


class Lengths:
    """Base of `DataLoader`."""

    datareader: Any
    _options: Options
    _n_rows: int | None

    if TYPE_CHECKING:

        def _place(self) -> Place: ...
        def _more(self) -> int: ...

    def __len__(self) -> int:
        """Return the batches that one `iter()` yields.

        After `load_state_dict`, those before the state are counted. Where another number of ranks goes on within an
        epoch, or another version of the table follows it, that epoch counts as it is: what was delivered and what is
        left.

        Raises:
            TypeError: Lengths are unknown before reading, or `num_epoch` is None.
        """
        if self._options.num_epoch is None:
            raise TypeError("num_epoch=None has no end, so no len(); batches_per_epoch is one epoch's")
        return self._options.num_epoch * self.batches_per_epoch + self._more()

    def __bool__(self) -> bool:
        return True

    @property
    def batches_per_epoch(self) -> int:
        """Batches in one epoch, the same number on each rank.

        Raises:
            TypeError: The length of a file is unknown before reading it.
            ConfigError: RANK or WORLD_SIZE is not what it must be.
        """
        if self._n_rows is None:
            raise TypeError(
                f"the length of a file is known only by reading it: {self.datareader.length_advice} in "
                f"{type(self.datareader).__name__} to have len()"
            )
        full, rest = divmod(self.rows_per_epoch or 0, self.batch_size)
        return full + (1 if rest and not self._options.drop_last else 0)

    @property
    def rows_per_epoch(self) -> int | None:
        """Rows in one epoch of this rank, before `drop_last`; None where a file's length is unknown before reading."""
        if self._n_rows is None:
            return None
        n_rows, most = self._place().steps(self._n_rows), self._options.max_rows
        return n_rows if most is None else min(n_rows, most)

    def take(self, n: int) -> Taken:
        """Return the next `n` batches, for a look or a smoke run; they are not used up: the next `iter()` begins there.

        What is returned may be iterated again and again, and has a length. Like any iterator it ends an older one.

        Raises:
            ConfigError: `n` is no int >= 1.
        """
        return Taken(self, whole(n, "n", at_least=1))

    @property
    def batch_size(self) -> int:
        """Rows in a batch; the reader's."""
        return self._options.batch_size

    @property
    def drop_last(self) -> bool:
        """Whether an epoch's last batch is left out if it is short."""
        return self._options.drop_last

    @property
    def num_epoch(self) -> int | None:
        """Epochs that one `iter()` yields."""
        return self._options.num_epoch
