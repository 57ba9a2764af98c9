"""What of an epoch's order is encoded together: the engine finds it window by window, resuming at once."""

from __future__ import annotations

from bisect import bisect_right


class Borders:
    """Borders of units, told of the windows in order. A window without rows is of no unit.

    Args:
        row: Where the first unit begins.
    """

    def __init__(self, row: int = 0) -> None:
        self._rows = [row]
        self._unit: int | None = None

    def add(self, unit: int, end: int) -> None:
        """Note that a window of a unit ends before a row: it goes on with the last unit, or begins another one."""
        if unit == self._unit:
            self._rows[-1] = end
        elif end > self._rows[-1]:
            self._rows.append(end)
            self._unit = unit

    def goes_on(self, unit: int) -> bool:
        """Return whether a window of that unit would go on with the last one."""
        return unit == self._unit

    def around(self, row: int) -> tuple[int, int]:
        """Return where the unit of a row begins and ends; the row lies before the last border."""
        place = bisect_right(self._rows, row)
        return self._rows[place - 1], self._rows[place]


def most_together(batch: int, group: int) -> int:
    """Return how many batches may be encoded together with one and with those after it: 1, 2, 4, … up to `group`.

    So an epoch's first batch waits for no others, and training begins although encoding many rows may take long.

    Args:
        batch: Number in the epoch of the first of them.
        group: Batches that may be encoded together later on.
    """
    return min(batch + 1, group)


def together_with(batch: int, first: int, group: int) -> int:
    """Return the first of the batches that are encoded together with one.

    Args:
        batch: The batch.
        first: The first one that lies as it does, in its unit or over the same borders.
        group: As in `most_together`.
    """
    while first + 1 < group and 2 * first + 1 <= batch:
        first = 2 * first + 1
    return first if first + 1 < group else first + (batch - first) // group * group
