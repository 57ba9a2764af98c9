"""A look at the first rows, made in the caller's thread on copies: a pass that is under way notices nothing of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np

from pyloader_delta.engine.gather import gather
from pyloader_delta.engine.local import own_copy
from pyloader_delta.engine.tasks import Segment
from pyloader_delta.engine.tree import private_copy
from pyloader_delta.engine.window import WindowBlocks
from pyloader_delta.outputs import Outputs, aligned, html_table, leaves, outputs_of
from pyloader_delta.ragged import Ragged, RaggedBatch
from pyloader_delta.stages import Stages, finalized
from pyloader_delta.values import Chunk

_WIDTH = 32  # characters of a cell
_VALUES = 4  # of an array in a cell


class Preview:
    """The first rows of a table or folder, read, encoded and collated as one batch. Prints as a table.

    Args:
        batch: That batch as the training loop would get it.
        n_rows: Its rows.
    """

    def __init__(self, batch: Any, n_rows: int) -> None:
        self.batch = batch
        """The rows as one batch, as the training loop would get it; None where there is no row."""
        self.n_rows = n_rows
        """Number of rows: fewer than asked for where there are no more."""

    @property
    def schema(self) -> Outputs:
        """What the batch is made of, with the sizes that it has."""
        return outputs_of([self.batch])

    def __len__(self) -> int:
        return self.n_rows

    def __repr__(self) -> str:
        if self.batch is None:
            return "no rows"
        head, rows = self._cells()
        return "\n".join(aligned([head, *rows]))

    def _repr_html_(self) -> str:
        return "<p>no rows</p>" if self.batch is None else html_table(*self._cells())

    def _cells(self) -> tuple[list[str], list[list[str]]]:
        """Return names, and for each row what each output holds of it."""
        found = {name: rows for name, value in leaves(self.batch) if (rows := _rows(value, self.n_rows)) is not None}
        rows = [[_cell(values[row]) for values in found.values()] for row in range(self.n_rows)]
        return list(found), [[str(self.schema[name].dtype) for name in found], *rows]


def first_batches(stages: Stages, units: Sequence[Sequence[Chunk]], sizes: Sequence[int]) -> list[tuple[Any, int]]:
    """Return (batch, rows) of the first rows, once for each of some sizes; fewer rows where there are no more.

    The rows are those at the beginning of the table or folder, in its own order, whatever is shuffled.
    """
    stages = cast(Stages, own_copy(stages))
    try:
        stages.open()
        blocks = _blocks(stages, (chunk for unit in units for chunk in unit), max(sizes))
        window = WindowBlocks(blocks)
        there = sum(block.num_rows for block in blocks)
        return [(_batch(stages, window, there, n), n) for n in dict.fromkeys(min(size, there) for size in sizes) if n]
    finally:
        stages.close()


def _blocks(stages: Stages, chunks: Iterator[Chunk], n_rows: int) -> list[Any]:
    blocks: list[Any] = []
    left = n_rows
    for chunk in chunks:
        if chunk.row_group is not None and chunk.rows is not None and len(chunk.rows) > left:
            chunk = replace(chunk, rows=chunk.rows[:left])
        found = [block for block in stages.read(chunk) if block.num_rows]
        blocks += found
        left -= sum(block.num_rows for block in found)
        if left <= 0:
            break
    return blocks


def _batch(stages: Stages, window: WindowBlocks, there: int, n_rows: int) -> Any:
    columns = gather([window], [Segment(0, there, 0, n_rows, None, ())])
    (batch,) = stages.batches(columns, 0, 0, (n_rows,), (1,))
    return finalized(stages.collator, private_copy(batch))


def _rows(value: Any, n_rows: int) -> Any:
    """Return the rows of one output, by number; None of what has not one value a row."""
    if isinstance(value, RaggedBatch):
        return [Ragged(*value)[row : row + 1].batch().values for row in range(n_rows)]
    if getattr(value, "is_nested", False):
        return value.unbind()
    if hasattr(value, "nested_row_lengths"):  # TensorFlow's RaggedTensor
        return value.to_list()
    try:
        return value if len(value) == n_rows and not isinstance(value, str) else None
    except TypeError:
        return None


def _cell(value: Any) -> str:
    if hasattr(value, "numpy"):  # a tensor of torch or TensorFlow
        value = value.numpy()
    elif hasattr(value, "as_py"):  # Arrow's
        value = value.as_py()
    elif type(value).__module__.startswith("jax"):
        value = np.asarray(value)
    if isinstance(value, list):
        return f"[{', '.join(map(_cell, value[:_VALUES]))}{f', …] ({len(value)})' if len(value) > _VALUES else ']'}"
    if isinstance(value, np.ndarray) and value.ndim:
        flat = value.reshape(-1)
        more = f", …] ({'×'.join(map(str, value.shape))})" if flat.size > _VALUES else "]"
        return f"[{', '.join(map(_cell, flat[:_VALUES]))}{more}"
    if isinstance(value, np.ndarray | np.generic):
        value = value.item()
    if isinstance(value, bytes):
        value = value.decode("utf-8", "backslashreplace")
    text = f"{value:.6g}" if isinstance(value, float) else str(value)
    text = "".join(character if character.isprintable() else "·" for character in text)
    return text if len(text) <= _WIDTH else text[: _WIDTH - 1] + "…"
