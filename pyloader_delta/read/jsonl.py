"""`JsonLineDataReader`: chunk files with one JSON object a line."""

from __future__ import annotations

import json
from typing import Any

from pyloader_delta.errors import ReadError
from pyloader_delta.read.base import DataReader, T_co


class JsonLineDataReader(DataReader[T_co]):
    """Reads files with one JSON object a line; a row that lacks a key has None there. Blank lines are no rows.

    Args:
        batch_size: Rows in a batch, >= 1.
        shuffle: Mix the rows of each shuffle window.
        random_seed: Seed of that mixing.
    """

    batch_size = 4
    missing_as_none = True

    def read_file(self, path: str) -> tuple[dict[str, list[Any]], int]:
        """Return the objects of one file as a dict of equally long lists, and their number.

        Raises:
            ReadError: A line is not a JSON object; names file and line.
        """
        columns: dict[str, list[Any]] = {}
        n_rows = 0
        with open(path, encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                if not line.strip():
                    continue
                try:
                    row = json.loads(line)
                except ValueError as error:
                    raise ReadError(f"{path}, line {number}: not JSON: {error}") from error
                if not isinstance(row, dict):
                    raise ReadError(f"{path}, line {number}: a JSON object is wanted, got {type(row).__name__}")
                for name in row:  # in order of first appearance: a set's order would differ from worker to worker
                    if name not in columns:
                        columns[name] = [None] * n_rows
                for name, values in columns.items():
                    values.append(row.get(name))
                n_rows += 1
        return columns, n_rows
