"""Texts and bytes that files hold as Arrow's views, as DataFusion writes them: Arrow cannot pick rows of these."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from reading import gather, in_parts
from vectors import delete_rows

from pyloader_delta import DataLoader, DeltaDataReader, ParquetDataReader

TEXTS = ["a" * 20, None, "b", "c" * 30, "", "z"]
VIEW, BYTES = pa.string_view(), pa.binary_view()
VIEWS = pa.table(
    {
        "i": range(6),
        "text": pa.array(TEXTS, VIEW),
        "raw": pa.array([None if text is None else text.encode() for text in TEXTS], BYTES),
        "list": pa.array([["x"], [], None, ["y", None], ["q" * 20], []], pa.list_(VIEW)),
        "struct": pa.array([{"a": text} for text in TEXTS], pa.struct([("a", VIEW)])),
        "map": pa.array([[("k", text)] for text in TEXTS], pa.map_(VIEW, VIEW)),
    }
)


def stored_kinds(path: str) -> set[str]:
    return {str(kind) for kind in pq.ParquetFile(path).schema_arrow.types}


@pytest.mark.parametrize("rows_at_once", [2, 6])
@pytest.mark.parametrize("filter_", [None, "i > 2", "text = 'z' OR raw IS NULL", "i = 9"])
def test_a_folder_of_them_is_read_and_filtered(tmp_path, filter_, rows_at_once):
    pq.write_table(VIEWS, tmp_path / "f.parquet")
    assert {"string_view", "binary_view"} <= stored_kinds(str(tmp_path / "f.parquet"))
    reader = ParquetDataReader(filter=filter_)
    found = gather(reader, in_parts(reader.chunks(str(tmp_path)), rows_at_once))
    kept = {
        None: range(6), "i > 2": range(3, 6), "text = 'z' OR raw IS NULL": [1, 5], "i = 9": []
    }[filter_]  # fmt: skip
    rows = VIEWS.to_pylist()
    assert found.to_pylist() == [rows[i] for i in kept]
    assert found.schema.field("text").type == pa.string()
    assert found.schema.field("raw").type == pa.binary()


@pytest.fixture
def rewritten(tmp_path: Path) -> Path:
    """A table of which deltalake has rewritten the one file, without row 7."""
    rows = pa.table({"i": range(40), "text": [None if i % 5 == 0 else f"text {i}" for i in range(40)]})
    write_deltalake(str(tmp_path), rows)
    DeltaTable(str(tmp_path)).delete("i = 7")
    (path,) = DeltaTable(str(tmp_path)).file_uris()
    assert "string_view" in stored_kinds(path)
    return tmp_path


def rows_of(numbers: object) -> list[dict]:
    return [{"i": i, "text": None if i % 5 == 0 else f"text {i}"} for i in numbers if i != 7]


@pytest.mark.parametrize("deleted", [[], [0, 6, 38]])
@pytest.mark.parametrize("filter_", [None, "i >= 10", "text IS NOT NULL"])
@pytest.mark.parametrize("rows_at_once", [5, 40])
def test_a_file_that_deltalake_has_rewritten_is_filtered_and_loses_its_deleted_rows(
    rewritten, deleted, filter_, rows_at_once
):
    if deleted:
        delete_rows(rewritten, {Path(DeltaTable(str(rewritten)).file_uris()[0]).name: deleted})
    reader = DeltaDataReader(filter=filter_)
    found = gather(reader, in_parts(reader.chunks(str(rewritten)), rows_at_once)).to_pylist()
    left = [row for place, row in enumerate(rows_of(range(40))) if place not in deleted]
    wanted = {None: lambda row: True, "i >= 10": lambda row: row["i"] >= 10}.get(filter_, lambda row: row["text"])
    assert found == [row for row in left if wanted(row)]


@pytest.mark.parametrize("shuffle", [False, True])
def test_a_loader_delivers_them(rewritten, shuffle):
    with DataLoader.from_delta(
        rewritten, 8, framework="arrow", filter="i < 30", shuffle=shuffle, audit=True, num_workers=0
    ) as loader:
        rows = [row for batch in loader for row in batch.to_pylist()]
        assert loader.receipt().whole
    assert sorted(rows, key=lambda row: row["i"]) == rows_of(range(30))


def viewed(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_string(kind):
        return VIEW
    if pa.types.is_map(kind):
        return pa.map_(VIEW, kind.item_field.with_type(viewed(kind.item_type)))
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(viewed(kind.value_type)))
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(viewed(field.type)) for field in kind])
    return kind


@pytest.mark.parametrize("filter_", [None, "p = 'b'", "text < 'text 2'"])
def test_a_checkpoint_of_them_is_read(tmp_path, filter_):
    def rows(found: pa.Table) -> list[dict]:
        return sorted(found.to_pylist(), key=lambda row: row["i"])

    for start in (0, 10):
        table = {"i": range(start, start + 10), "text": [f"text {i % 4}" for i in range(10)], "p": ["a", "b"] * 5}
        write_deltalake(str(tmp_path), pa.table(table), mode="append", partition_by=["p"])
    reader = DeltaDataReader(filter=filter_)
    expected = rows(gather(reader, reader.chunks(str(tmp_path))))
    DeltaTable(str(tmp_path)).create_checkpoint()
    (path,) = (tmp_path / "_delta_log").glob("*.checkpoint.parquet")
    plain = pq.read_table(path)
    schema = pa.schema([field.with_type(viewed(field.type)) for field in plain.schema])
    pq.write_table(plain.cast(schema), path)
    assert "string_view" in str(pq.ParquetFile(path).schema_arrow)
    for commit in (tmp_path / "_delta_log").glob("*.json"):
        commit.unlink()
    reader = DeltaDataReader(filter=filter_)
    assert rows(gather(reader, reader.chunks(str(tmp_path)))) == expected
    assert 0 < len(expected) <= 20
