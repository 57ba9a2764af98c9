"""`on_error="skip"`: rows that cannot be encoded are found, and others of their batch repeated in their places."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pyloader_delta.columns import numbers
from pyloader_delta.engine.trial import deadly
from pyloader_delta.errors import LoaderError, ValueTypeError, WorkerDied
from pyloader_delta.stages import Stages
from pyloader_delta.values import Columns

_TEXT = 300  # characters of an error that are kept

Call = tuple[int, int]
"""(epoch, first batch) of a call: what its random numbers are keyed by."""


class SkippingStages(Stages):
    """Stages that leave out rows for which user code raises.

    An error of the library itself is raised as ever, but for a value that the output cannot hold: it tells of the
    program or the table, not of a row.
    """

    careful = False
    """Whether user code has ended workers in what is made now, so that it is tried in a child first."""

    def batches(
        self, columns: Columns, epoch: int, first_batch: int, batch_rows: Sequence[int], groups: Sequence[int]
    ) -> Iterator[Any]:
        self.skipped = []
        start = first = 0
        for n_batches in groups:
            sizes = batch_rows[first : first + n_batches]
            n_rows = sum(sizes)
            part = columns if n_rows == columns.n_rows else _cut(columns, start, start + n_rows)
            yield from self._group(part, (epoch, first_batch + first), sizes, start)
            start, first = start + n_rows, first + n_batches

    def _group(self, columns: Columns, call: Call, sizes: Sequence[int], start: int) -> list[Any]:
        """Return the batches of one call, without the rows that cannot be encoded."""
        try:
            if self.careful and (how := deadly(lambda: self._made(columns, call, sizes))):
                raise WorkerDied(f"a worker {how} while it encoded")
            return self._made(columns, call, sizes)
        except Exception as error:
            if not _skippable(error):
                raise
            bad: dict[int, BaseException] = {}
            for rows in np.split(np.arange(columns.n_rows), np.cumsum(sizes)[:-1]):
                bad |= self._bad(columns, call, rows)
            if not bad:
                error.add_note("pyloader_delta: no single row is to blame, so none was skipped (on_error='skip')")
                raise
        made = self._made(_taken(columns, _refilled(sizes, bad)), call, sizes)
        self.skipped += [(start + row, text_of(error)) for row, error in sorted(bad.items())]
        return made

    def _made(self, columns: Columns, call: Call, sizes: Sequence[int]) -> list[Any]:
        if not self.keeps_nothing:  # user code may have changed what it got when it raises, and gets it once more then
            columns = _taken(columns, np.arange(columns.n_rows))
        return list(super().batches(columns, *call, sizes, (len(sizes),)))

    def _bad(self, columns: Columns, call: Call, rows: NDArray[np.int64]) -> dict[int, BaseException]:
        """Return the rows among some that cannot be encoded, even alone, with their errors: by halving."""
        error = self._error(_taken(columns, rows), call)
        if error is None:
            return {}
        if len(rows) == 1:
            return {int(rows[0]): error}
        half = len(rows) // 2
        return self._bad(columns, call, rows[:half]) | self._bad(columns, call, rows[half:])

    def _error(self, columns: Columns, call: Call) -> BaseException | None:
        sizes = (columns.n_rows,)
        if self.careful and (how := deadly(lambda: self._made(columns, call, sizes))):
            return WorkerDied(f"a worker {how} while it encoded this row")
        try:
            self._made(columns, call, sizes)
        except Exception as error:
            if not _skippable(error):
                raise
            return error
        return None


def _skippable(error: BaseException) -> bool:
    return not isinstance(error, LoaderError) or isinstance(error, (ValueTypeError, WorkerDied))


def _refilled(sizes: Sequence[int], bad: dict[int, BaseException]) -> NDArray[np.int64]:
    """Return which row stands in each place: the rows themselves, and for those that are bad others of their batch."""
    rows = np.arange(sum(sizes))
    start = 0
    for n_rows in sizes:
        wrong = [row for row in range(start, start + n_rows) if row in bad]
        good = [row for row in range(start, start + n_rows) if row not in bad]
        if wrong and not good:
            error = bad[wrong[0]]
            error.add_note("pyloader_delta: no row of the batch can be encoded, so none can stand in for the others")
            raise error
        for number, row in enumerate(wrong):
            rows[row] = good[number % len(good)]
        start += n_rows
    return rows


def _cut(columns: Columns, start: int, stop: int) -> Columns:
    arrays = [a.slice(start, stop - start) if isinstance(a, pa.Array) else a[start:stop] for a in columns.arrays]
    return Columns(columns.schema, arrays, stop - start)


def _taken(columns: Columns, rows: NDArray[np.int64]) -> Columns:
    arrays = [
        [values[row] for row in rows.tolist()]
        if isinstance(values, list)
        else values.take(numbers(rows))
        if isinstance(values, pa.Array)
        else values[rows]
        for values in columns.arrays
    ]
    return Columns(columns.schema, arrays, len(rows))


def text_of(error: BaseException) -> str:
    """Return an error's type and text, and where it was raised, not too long."""
    try:
        text = f"{type(error).__name__}: {error}"
    except Exception:  # a user's own __str__ may raise anything
        text = type(error).__name__
    notes = [note for note in getattr(error, "__notes__", []) if isinstance(note, str) and note.startswith("in ")]
    text = f"{text} ({notes[0]})" if notes else text
    return text if len(text) <= _TEXT else text[: _TEXT - 1] + "…"
