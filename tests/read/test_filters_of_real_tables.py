"""Filters over tables that other projects published: whatever their statistics say, no row is lost or wrong."""

import json
import os
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from pyloader_delta import DeltaDataReader
from pyloader_delta.delta.filters.literals import has_keys

ROOT = Path(os.environ.get("PYLOADER_DELTA_TABLES") or Path(__file__).parents[3] / "shared" / "tables")
INDEX = json.loads((ROOT / "index.json").read_text()) if (ROOT / "index.json").is_file() else []
MOST_ROWS = 2_000
TABLES = [table["name"] for table in INDEX if table["expect"] == "rows" and 0 < table["n_rows"] <= MOST_ROWS]
COLUMNS = 2  # of a table


def rows(root: str, filter_: pc.Expression | list | None, exact_length: bool) -> pa.Table:
    reader = DeltaDataReader(filter=filter_, exact_length=exact_length)
    tables = [reader.read_chunk(chunk) for chunk in reader.chunks(root)]
    reader.close()
    return pa.concat_tables([reader.schema.empty_table(), *tables])


def comparable(table: pa.Table) -> list[tuple[str, pa.Scalar]]:
    """Return columns, the last first for partitions are there, each with the value in the middle."""
    found = []
    for field in reversed(table.schema):
        if has_keys(field.type) and "." not in field.name:
            values = [value for value in table.column(field.name).drop_null() if value.as_py() == value.as_py()]
            if values:
                found.append((field.name, sorted(values, key=lambda value: value.as_py())[len(values) // 2]))
    return found[:COLUMNS]


@pytest.mark.skipif(
    not TABLES, reason=f"no collection of real tables at {ROOT}; PYLOADER_DELTA_TABLES may name its folder"
)
@pytest.mark.parametrize("name", TABLES or [None])
def test_a_filtered_table_has_exactly_the_rows_kept(name):
    root = str(ROOT / name / "table")
    whole = rows(root, None, exact_length=True)
    for column, value in comparable(whole):
        field = pc.field(column)
        at_most = pc.less_equal(whole.column(column), value)
        for filter_, mask in [
            ([(column, "<=", value)], at_most),
            (~(field <= value), pc.invert(at_most)),
            ([[(column, "=", value)], [(column, "is", None)]], pc.equal(whole.column(column), value)),
        ]:
            expected = whole.filter(mask)
            if isinstance(filter_, list) and isinstance(filter_[0], list):
                expected = whole.filter(pc.fill_null(mask, True))
            found = rows(root, filter_, exact_length=isinstance(filter_, list))
            assert [str(row) for row in found.to_pylist()] == [str(row) for row in expected.to_pylist()], filter_
