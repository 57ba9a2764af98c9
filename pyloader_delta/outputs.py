"""What batches are made of: name → dtype and shape of each output, and how that prints. No framework here."""

from __future__ import annotations

import html
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

from pyloader_delta.ragged import RaggedBatch

Shape = tuple[int | None, ...]


@dataclass(frozen=True, slots=True)
class Output:
    """One array, tensor or list of a batch."""

    dtype: str | None
    """Its type as NumPy calls it ("float32", "int64", "str", "bytes"), or Arrow where Arrow or pandas holds it; None
    where only user code knows it."""
    shape: Shape | None
    """Its shape, None for a size that differs between batches, the first of which is the rows; None where only user
    code knows it."""
    kind: str
    """What holds it: "numpy", "torch", "tensorflow", "jax", "arrow", "pandas", "ragged" (torch's jagged and
    TensorFlow's ragged tensors, `RaggedBatch` in NumPy), "list", or "object" for anything else."""
    unit: str | None = None
    """What its numbers count where they are times or decimals: "day", "ms", "µs", ..., "10^-2"; else None."""

    def __str__(self) -> str:
        shape = (
            "unknown" if self.shape is None else f"({', '.join('None' if n is None else str(n) for n in self.shape)}"
        )
        if self.shape is not None:
            shape += ",)" if len(self.shape) == 1 else ")"
        return f"{self.dtype or 'unknown'} {shape} {self.kind}{f' in {self.unit}' if self.unit else ''}"


class Outputs(Mapping[str, Output]):
    """The outputs of a loader by name; of nested batches by path, such as "0.carrier". Prints as a table.

    Args:
        tree: A batch with an `Output` in the place of each array.
    """

    def __init__(self, tree: Any) -> None:
        self.tree = tree
        """A batch with an `Output` in the place of each array."""
        self._flat = dict(leaves(tree))

    def __getitem__(self, name: str) -> Output:
        found: Output = self._flat[name]
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(self._flat)

    def __len__(self) -> int:
        return len(self._flat)

    def __repr__(self) -> str:
        return "\n".join(aligned([("output", "what it is"), *((name, str(out)) for name, out in self.items())]))

    def _repr_html_(self) -> str:
        return html_table(("output", "what it is"), [(name, str(out)) for name, out in self.items()])


def leaves(batch: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield (path, value) of everything in a batch's dicts, lists, tuples and dataclasses; "batch" if it has none."""
    entries = _entries(batch)
    if entries is None:
        yield path or "batch", batch
        return
    for name, value in entries:
        yield from leaves(value, f"{path}.{name}" if path else str(name))


def map_leaves(turn: Callable[..., Any], batch: Any, *others: Any) -> Any:
    """Return nested plain dicts and tuples like a batch, with `turn(value, *values)` in the place of each value.

    Raises:
        ValueError: The others are built in another way.
    """
    entries = _entries(batch)
    if entries is None:
        return turn(batch, *others)
    theirs = [_entries(other) for other in others]
    names = [name for name, _ in entries]
    if any(other is None or [name for name, _ in other] != names for other in theirs):
        raise ValueError(f"one batch has {names}, another one has not")
    values = [map_leaves(turn, v, *(o[i][1] for o in theirs if o)) for i, (_, v) in enumerate(entries)]
    return dict(zip(names, values, strict=True)) if _has_names(batch) else tuple(values)


def outputs_of(batches: Sequence[Any]) -> Outputs:
    """Return what batches of different numbers of rows have in common.

    Raises:
        ValueError: They are built in different ways.
    """
    return Outputs(map_leaves(lambda *values: _common([_output(value) for value in values]), *batches))


def _entries(batch: Any) -> list[tuple[Any, Any]] | None:
    """Return the (name, value) pairs of what holds others; None of what is a value."""
    if _is_table(batch):
        return [(name, batch[name]) for name in getattr(batch, "column_names", batch)]
    if isinstance(batch, Mapping):
        return list(batch.items())
    if isinstance(batch, RaggedBatch):
        return None
    if is_dataclass(batch) and not isinstance(batch, (type, Output)):
        return [(field.name, getattr(batch, field.name)) for field in fields(batch)]
    if isinstance(batch, tuple) or (isinstance(batch, list) and any(hasattr(v, "dtype") for v in batch)):
        return list(enumerate(batch))
    return None


def _is_table(batch: Any) -> bool:
    """Return whether a batch is a record batch or table of Arrow's, or a data frame of pandas'."""
    root = type(batch).__module__.partition(".")[0]
    return root in ("pyarrow", "pandas") and type(batch).__name__ in ("RecordBatch", "Table", "DataFrame")


def _has_names(batch: Any) -> bool:
    return not isinstance(batch, (tuple, list))


def _output(value: Any) -> Output:
    root = type(value).__module__.partition(".")[0]
    if root == "torch" and getattr(value, "is_nested", False):
        return Output(_dtype(value), (None, None, *value.shape[2:]), "ragged")
    if root == "tensorflow" and type(value).__name__ == "RaggedTensor":
        return Output(_dtype(value), tuple(value.shape), "ragged")
    if root in ("numpy", "torch", "tensorflow", "jax", "jaxlib") and hasattr(value, "dtype"):
        return Output(_dtype(value), tuple(int(n) for n in value.shape), "jax" if root == "jaxlib" else root)
    if root in ("pyarrow", "pandas"):
        arrow = value.type if root == "pyarrow" else getattr(value.dtype, "pyarrow_dtype", value.dtype)
        return Output(str(arrow), (len(value),), "arrow" if root == "pyarrow" else root)
    if isinstance(value, RaggedBatch):
        return Output(_dtype(value.values), (None,) * (len(value.lengths) + 1) + value.values.shape[1:], "ragged")
    if isinstance(value, list):
        kinds = {type(item).__name__ for item in value}
        return Output(kinds.pop() if len(kinds) == 1 else None, (len(value),), "list")
    return Output(type(value).__name__, None, "object")


def _dtype(value: Any) -> str:
    text = getattr(value.dtype, "name", None) or str(value.dtype).removeprefix("torch.")
    if text.startswith("str"):  # NumPy's, with its length, and TensorFlow's
        return "str"
    return "bytes" if text.startswith("bytes") else text


def _common(found: Sequence[Output]) -> Output:
    first = found[0]
    if any(other.kind != first.kind or other.dtype != first.dtype for other in found):
        return replace(first, dtype=first.dtype if all(o.dtype == first.dtype for o in found) else None)
    shapes = [other.shape for other in found]
    if None in shapes or len({len(shape) for shape in shapes if shape is not None}) > 1:
        return replace(first, shape=None)
    sizes = zip(*(shape for shape in shapes if shape is not None), strict=True)
    return replace(first, shape=tuple(n[0] if len(set(n)) == 1 else None for n in sizes))


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return lines in which the cells of each column begin below each other."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def html_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table for a notebook; all text is escaped."""
    cells = ["".join(f"<th>{html.escape(cell)}</th>" for cell in head)]
    cells += ["".join(f"<td>{html.escape(cell)}</td>" for cell in row) for row in rows]
    return "<table>" + "".join(f"<tr>{row}</tr>" for row in cells) + "</table>"
