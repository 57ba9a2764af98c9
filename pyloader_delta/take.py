"""`take(n)`: the first batches of a loader's next pass, which then are not used up."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any


class Taken:
    """The next `n` batches of a loader, again and again.

    Args:
        loader: The loader.
        n: Number of batches, >= 1.
    """

    def __init__(self, loader: Any, n: int) -> None:
        self._loader, self._n = loader, n

    def __iter__(self) -> Iterator[Any]:
        live = self._loader._iterate(self._loader)
        begins = self._loader._pass.begins
        try:
            yield from islice(live, self._n)
        finally:
            _go_back(self._loader, begins, live)

    def __len__(self) -> int:
        """Return the number of batches.

        Raises:
            TypeError: Lengths are unknown before reading.
        """
        if self._loader.num_epoch is None:
            return self._n
        return min(self._n, len(self._loader))

    def __repr__(self) -> str:
        return f"<first {self._n} batches of {self._loader!r}>"


def _go_back(loader: Any, begins: Any, live: Any) -> None:
    """Let the next pass begin where the live one began. Takes no lock: a finalizer may run this."""
    if loader._closed or loader._iterator is None or loader._iterator() is not live:
        return  # a newer iterator has taken over
    live.replace()
    loader._pass.end()
    loader._engine.cancel_soon(loader._pass.number)
    loader._pass = loader._iterator = loader._set_epoch = None
    loader._loaded, loader._next_epoch = begins, begins.epoch
