"""What each step of filtering left out, in numbers and as a small table."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Amount:
    """How much of a table. None where it is not known without reading what was left out."""

    n_files: int | None = None
    n_row_groups: int | None = None
    size_bytes: int | None = None
    """Size in storage; of row groups their share of the file."""
    n_rows: int | None = None
    """Rows that are not deleted."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """What a reader reads of a table, and what it leaves out by which knowledge; `str` shows it as a table."""

    table: Amount
    """The whole table."""
    pruned: dict[str, Amount]
    """Step → what it left out of what the steps before had left: `partition values` and `file statistics` leave out
    files, `row group statistics` row groups, `rows` single rows, and row groups of which none is left."""
    left: Amount
    """What is read; its rows are those that are delivered."""

    def __str__(self) -> str:
        lines = [("", "files", "row groups", "bytes", "rows"), _cells("table", self.table, "")]
        lines += [_cells(step, amount, "-") for step, amount in self.pruned.items()]
        lines.append(_cells("left", self.left, ""))
        widths = [max(len(line[i]) for line in lines) for i in range(5)]
        return "\n".join(
            "  ".join([line[0].ljust(widths[0]), *(line[i].rjust(widths[i]) for i in range(1, 5))]).rstrip()
            for line in lines
        )

    __repr__ = __str__


def _cells(name: str, amount: Amount, sign: str) -> tuple[str, str, str, str, str]:
    def cell(n: int | None) -> str:
        return "" if n is None else f"{sign if n else ''}{n:,}"

    return name, cell(amount.n_files), cell(amount.n_row_groups), cell(amount.size_bytes), cell(amount.n_rows)
