"""Where the units of an epoch's order begin and end: the engine finds it window by window, resuming at once."""

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
