"""`on_error="skip"`: rows that cannot be encoded are found, and others of their batch, or of other chunks, repeated in
their places."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pyloader_delta.columns import numbers
from pyloader_delta.engine.trial import deadly
from pyloader_delta.errors import LoaderError, ValueTypeError, WorkerDied
from pyloader_delta.stages import Stages
from pyloader_delta.values import Columns, Others
from pyloader_delta.words import many

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
        self, columns: Columns, epoch: int, first_batch: int, batch_rows: Sequence[int], groups: Sequence[int],
        others: Others | None = None,
    ) -> Iterator[Any]:  # fmt: skip
        self.skipped = []
        start = first = 0
        for n_batches in groups:
            sizes = batch_rows[first : first + n_batches]
            n_rows = sum(sizes)
            part = columns if n_rows == columns.n_rows else _cut(columns, start, start + n_rows)
            yield from self._group(part, (epoch, first_batch + first), sizes, start, others)
            start, first = start + n_rows, first + n_batches

    def _group(
        self, columns: Columns, call: Call, sizes: Sequence[int], start: int, others: Others | None
    ) -> list[Any]:
        """Return the batches of one call, without the rows that cannot be encoded."""
        found = self._tried(columns, call, sizes)
        if isinstance(found, list):
            return found
        batches = np.split(np.arange(columns.n_rows), np.cumsum(sizes)[:-1])
        bad = [self._bad(columns, call, rows) for rows in batches]
        if not any(bad) and len(sizes) == 1:
            raise _of_no_row(found)
        refilled = [_refilled(rows, wrong) for rows, wrong in zip(batches, bad, strict=True)]
        if len(sizes) > 1 and any(bad) and all(map(len, refilled)):
            found = self._tried(_taken(columns, np.concatenate(refilled)), call, sizes)
        if not isinstance(found, list):
            epoch, first = call
            found = []
            for i, own in enumerate(refilled):
                alone, n_rows = (epoch, first + i), sizes[i]
                one = self._tried(_taken(columns, own), alone, (n_rows,)) if len(own) else None
                if isinstance(one, WorkerDied):
                    bad[i] = dict.fromkeys(batches[i].tolist(), one) | bad[i]
                elif isinstance(one, Exception):
                    raise _of_no_row(one)
                if not isinstance(one, list):
                    candidates = iter(()) if others is None else others(start + int(batches[i][-1]), n_rows)
                    one = self._stood_in(candidates, alone, n_rows, next(iter(bad[i].values())))
                found += one
        for wrong in bad:
            self.skipped += [(start + row, text_of(error)) for row, error in sorted(wrong.items())]
        return found

    def _stood_in(self, candidates: Iterator[Columns], call: Call, n_rows: int, error: BaseException) -> list[Any]:
        """Return a batch of rows of other chunks, in the place of one of whose rows none can be: an error says why."""
        for some in candidates:
            bad = self._bad(some, call, np.arange(some.n_rows))
            good = [row for row in range(some.n_rows) if row not in bad]
            found = self._tried(_taken(some, np.resize(good, n_rows)), call, (n_rows,)) if good else None
            if isinstance(found, list):
                return found
        error.add_note(
            "pyloader_delta: no row of the batch can be encoded, nor one of the chunks after it, to stand in for it "
            "(on_error='skip')"
        )
        raise error

    def _made(self, columns: Columns, call: Call, sizes: Sequence[int]) -> list[Any]:
        if not self.keeps_nothing:  # user code may have changed what it got when it raises, and gets it once more then
            columns = _taken(columns, np.arange(columns.n_rows))
        return list(super().batches(columns, *call, sizes, (len(sizes),)))

    def _bad(self, columns: Columns, call: Call, rows: NDArray[np.int64]) -> dict[int, BaseException]:
        """Return the rows among some that cannot be encoded, with their errors: by halving.

        They are those that cannot be encoded alone, or all of some that end a worker together and in no smaller part.
        """
        found = self._tried(_taken(columns, rows), call, (len(rows),))
        if isinstance(found, list):
            return {}
        if len(rows) == 1:
            return {int(rows[0]): found}
        half = len(rows) // 2
        bad = self._bad(columns, call, rows[:half]) | self._bad(columns, call, rows[half:])
        return dict.fromkeys(rows.tolist(), found) if not bad and isinstance(found, WorkerDied) else bad

    def _tried(self, columns: Columns, call: Call, sizes: Sequence[int]) -> list[Any] | Exception:
        """Return the batches of one call, or the error of rows that cannot be encoded."""
        if self.careful and (how := deadly(lambda: self._made(columns, call, sizes))):
            return WorkerDied(f"a worker {how} while it encoded {many(sum(sizes), 'row')}")
        try:
            return self._made(columns, call, sizes)
        except Exception as error:
            if not _skippable(error):
                raise
            return error


def _skippable(error: BaseException) -> bool:
    return not isinstance(error, LoaderError) or isinstance(error, (ValueTypeError, WorkerDied))


def _of_no_row(error: Exception) -> Exception:
    error.add_note("pyloader_delta: no single row is to blame, so none was skipped (on_error='skip')")
    return error


def _refilled(rows: NDArray[np.int64], bad: Collection[int]) -> NDArray[np.int64]:
    """Return which row stands in the place of each row of a batch: others for those that are bad; none if all are."""
    wrong = [place for place, row in enumerate(rows.tolist()) if row in bad]
    good = [row for row in rows.tolist() if row not in bad]
    if not good:
        return rows[:0]
    found = rows.copy()
    for number, place in enumerate(wrong):
        found[place] = good[number % len(good)]
    return found


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
