"""Blocks opened as columns. What blocks of one schema have in common is found once: with thousands of columns that is
most of what Python does for a block, and each object that outlives a block makes the cyclic collector's work longer.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pyloader_delta.columns import column_kind, opened, opened_dtype
from pyloader_delta.engine.shared import over
from pyloader_delta.schemas import BySchema


@dataclass(frozen=True, slots=True)
class Gathered:
    """Columns of one window, or of several alike, as they are gathered."""

    names: tuple[str, ...]
    fields: list[pa.Field]
    dtypes: list[np.dtype[Any] | None]
    """As those of `Described`."""
    schema: pa.Schema


class Described:
    """What the columns of a window are; windows with the same ones share it.

    Args:
        fields: The columns, in order.
        dtypes: Of each that is one array of NumPy's, or several alike; None for others.
    """

    def __init__(self, fields: Sequence[pa.Field], dtypes: Sequence[np.dtype[Any] | None]) -> None:
        self.fields = list(fields)
        self.by_name = {field.name: field for field in fields}
        self.dtypes = {field.name: dtype for field, dtype in zip(fields, dtypes, strict=True)}
        self._gathered: tuple[tuple[str, ...], Gathered] | None = None

    def field(self, name: str) -> pa.Field:
        """Return the field of that name; a null field where there is none."""
        return self.by_name.get(name) or pa.field(name, pa.null())

    def gathered(self, names: tuple[str, ...]) -> Gathered:
        """Return what columns are when they are gathered from these alone: `names` first, then what else there is.

        Names that are not there are columns of nulls.
        """
        if (known := self._gathered) is not None and known[0] == names:
            return known[1]
        everything = tuple(dict.fromkeys((*names, *self.by_name)))
        fields = [self.field(name) for name in everything]
        dtypes = [self.dtypes.get(name) for name in everything]
        found = Gathered(everything, fields, dtypes, pa.schema(fields))
        self._gathered = names, found
        return found


class Opening:
    """How blocks of one schema are opened."""

    def __init__(self, schema: pa.Schema) -> None:
        fields = list(enumerate(schema))
        self._places = [place for place, field in fields if not only_rows(field)]
        self.fields = [field for _, field in fields if not only_rows(field)]
        """The columns."""
        self.names = [field.name for field in self.fields]
        self.kinds = {field.name: column_kind(field) for field in self.fields}
        """What the values of each stand for (see `column_kind`)."""
        self._dtypes = [opened_dtype(field) for field in self.fields]
        self._described = Described(self.fields, self._dtypes)

    def columns(
        self, block: pa.RecordBatch, own: bool = False, memories: Sequence[NDArray[np.uint8]] = ()
    ) -> list[Any]:
        """Return the columns of a block opened.

        Args:
            block: A block of the schema.
            own: Whether nobody else holds its memory, so that numbers may be written to.
            memories: Slabs that it lies in, if it does.
        """
        found = []
        arrays = block.columns
        for place, field, dtype in zip(self._places, self.fields, self._dtypes, strict=True):
            piece = arrays[place] if dtype is None else opened(arrays[place], field, dtype)
            if own and type(piece) is np.ndarray:
                if getattr(piece.base, "is_mutable", False):  # no mapped file
                    piece.flags.writeable = True
                elif (there := over(piece, memories)) is not None:
                    piece = there
            found.append(piece)
        return found

    def described(self, columns: Sequence[Any]) -> Described:
        """Return what a block's columns are, as `columns` gave them: one with nulls is no array."""
        dtypes = [column.dtype if type(column) is np.ndarray else None for column in columns]
        alike = all(a is b for a, b in zip(dtypes, self._dtypes, strict=True))
        return self._described if alike else Described(self.fields, dtypes)


opening = BySchema(Opening)


def merged_fields(schemas: Iterable[Iterable[pa.Field]]) -> list[pa.Field]:
    """Return one field a column of any schema, of the first one where it is not all null.

    That a file lacks a column is no error here: `kinds` decides in the order of delivery.
    """
    fields: dict[str, pa.Field] = {}
    for schema in schemas:
        for field in schema:
            known = fields.get(field.name)
            if known is None or (pa.types.is_null(known.type) and not pa.types.is_null(field.type)):
                fields[field.name] = field
    return list(fields.values())


def only_rows(field: pa.Field) -> bool:
    """Return whether a field is no column, but stands for a number of rows without any."""
    return not field.name and column_kind(field) == {"kind": "rows"}
