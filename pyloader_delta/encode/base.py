"""`Dataset`: raw rows become numbers. What arrives and what must come back is checked here."""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import Any, ClassVar, Generic, Literal, TypeVar

import numpy as np

from pyloader_delta.errors import ContractError
from pyloader_delta.rng import KeyedRng
from pyloader_delta.words import many

T_co = TypeVar("T_co", covariant=True)

InputFormat = Literal["python", "numpy", "arrow", "columns"]
"""Forms that `batch_encode` may get its rows in; "columns", as they were gathered (`Columns`), is `FieldsDataset`'s."""


class Dataset(Generic[T_co]):
    """Encodes the raw rows of a batch. Subclass it and write `batch_encode`.

    Settings are class attributes, so a subclass need not call `super().__init__()`. Each worker has its own copy.
    """

    input_format: InputFormat = "python"
    """What `batch_encode` gets: "python", a dict of lists, with the values that the reader returned; "numpy", a dict of
    arrays (a column with nulls is an error); "arrow", a pyarrow.RecordBatch."""
    rowwise: bool = False
    """A promise that a row's encoding depends on that row alone: several batches may then be encoded in one call."""

    _rows_at_once: int | None = None
    """Rows that one call gets at most, if it is rowwise; None where as many as fit."""

    rng: ClassVar[Any] = KeyedRng()
    """numpy.random.Generator keyed by (seed, epoch, first batch of the call): the same for any number of workers."""

    def batch_encode(self, batch_data: Any) -> Any:
        """Return the numbers of a batch.

        Args:
            batch_data: The rows, as `input_format` says.

        Returns:
            A dict of lists or arrays, each with one value a row, in the rows' order; an entry may be None.
        """
        raise NotImplementedError(f"{type(self).__name__} must define batch_encode(self, batch_data)")

    def open(self) -> None:
        """Prepare what this worker's copy needs; called once in each worker before its first batch."""

    def close(self) -> None:
        """Release what `open` acquired; called once in each worker when it ends."""


def checked_features(features: Any, n_rows: int, name: str) -> Mapping[str, Any]:
    """Return what `batch_encode` gave after checking it.

    Raises:
        ContractError: It is no dict, or an entry has not one value a row, in order.
    """
    if not isinstance(features, Mapping):
        hint = "; is a return missing?" if features is None else ""
        raise ContractError(
            f"{name}.batch_encode must return a dict of lists or arrays, got {type(features).__name__}{hint}"
        )
    for column, values in features.items():
        if values is None:
            continue
        n = _length(values)
        if n is None:
            raise ContractError(
                f"{name}.batch_encode: {column!r} must be a list or an array with one value a row, "
                f"got {type(values).__name__}"
            )
        if n != n_rows:
            raise ContractError(
                f"{name}.batch_encode got {many(n_rows, 'row')} but returned {many(n, 'value')} for {column!r}: it "
                "must return one a row"
            )
    return features


def _length(values: Any) -> int | None:
    """Return how many rows an entry has; None where it is nothing that can be cut into rows."""
    plain = isinstance(values, (list, tuple, np.ndarray))
    if not plain and isinstance(values, (str, bytes, Mapping, Set)):
        return None
    try:
        n = len(values)
        if not plain:
            values[0:0]  # batches of a rowwise dataset are cut out of one call's rows
    except Exception:
        return None
    return n
