"""Batches as record batches and data frames: true types with nulls, on the loader's memory, in every executor."""

from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from deltalake import write_deltalake
from programs import python

from pyloader_delta import (
    ArrowDataCollator,
    ConfigError,
    ContractError,
    DataLoader,
    Dataset,
    DeltaDataReader,
    FieldSpec,
    PandasDataCollator,
    ValueTypeError,
)
from tests.fakes import Through

N_ROWS = 300
EVERYWHERE = [{"num_workers": 0}, {"num_workers": 2, "workers": "thread"}, {"num_workers": 2, "workers": "process"}]
ROWS = pa.table(
    {
        "id": np.arange(N_ROWS),
        "x": np.arange(N_ROWS, dtype=np.float32),
        "some": pa.array([None if i % 100 < 3 else i for i in range(N_ROWS)], pa.int16()),
        "name": [f"é{i}" for i in range(N_ROWS)],
        "maybe": [None if i % 3 == 0 else b"\xff" * (i % 5) for i in range(N_ROWS)],
        "flag": pa.array([i % 2 == 0 for i in range(N_ROWS)]),
        "at": pa.array([datetime(2020, 1, 1 + i % 9, tzinfo=UTC) for i in range(N_ROWS)], pa.timestamp("us", "UTC")),
        "tags": pa.array([[{"k": f"t{i}"}] * (i % 3) or None for i in range(N_ROWS)]),
        "words": pa.array([list(range(i % 4)) for i in range(N_ROWS)], pa.list_(pa.int32())),
    }
)  # fmt: skip


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    path = str(tmp_path_factory.mktemp("table"))
    write_deltalake(path, ROWS.slice(0, 170).combine_chunks())
    write_deltalake(path, ROWS.slice(170).combine_chunks(), mode="append")
    return path


def loader(table: str, framework: str = "arrow", **options: Any) -> DataLoader:
    return DataLoader.from_delta(table, framework=framework, **({"batch_size": 32, "num_workers": 0} | options))


def rows(batches: list[pa.RecordBatch]) -> list[dict[str, Any]]:
    return pa.Table.from_batches(batches).sort_by("id").to_pylist()


# Arrow --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", EVERYWHERE, ids=str)
def test_record_batches_hold_every_row_with_its_type_and_nulls(where, table):
    with loader(table, shuffle=True, **where) as batches:
        said = {name: output.dtype for name, output in batches.schema.items()}
        found = list(batches)
    assert [batch.num_rows for batch in found] == [32] * 9 + [12]
    assert all({field.name: str(field.type) for field in batch.schema} == said for batch in found)
    assert rows(found) == ROWS.to_pylist()


def test_a_batch_kept_is_not_overwritten_by_later_ones(table):
    with loader(table, num_epoch=6, batch_size=8, **EVERYWHERE[2]) as batches:
        kept = [(batch, batch.to_pylist()) for number, batch in enumerate(batches) if number % 7 == 0]
    assert all(batch.to_pylist() == listed for batch, listed in kept)


@pytest.mark.parametrize("where", EVERYWHERE[:2], ids=str)
def test_numbers_and_texts_stay_where_the_loader_delivers_them(where, table):
    with loader(table, columns=["id", "x", "name", "words"], fields=None, **where) as batches:
        given = next(iter(batches.iterate_with(lambda batch: batch)))
    made = ArrowDataCollator().finalize(given)
    assert made.column("x").buffers()[1].address == given["x"].ctypes.data
    assert made.column("name").buffers()[2].address == given["name"].values.ctypes.data


@pytest.mark.parametrize("framework", ["arrow", "pandas"])
def test_the_mask_of_repeated_rows_is_a_column(framework, table):
    with loader(table, framework, rank=1, world_size=7, uneven="mask", batch_size=100) as batches:
        (batch,) = list(batches)
    valid = batch["_valid"].to_pylist() if framework == "arrow" else batch["_valid"].tolist()
    assert valid == [True] * (300 // 7 + 1 if 1 < 300 % 7 else 300 // 7) + [False] * (len(valid) - valid.count(True))


@pytest.mark.parametrize(
    ("spec", "kind", "values"),
    [
        (FieldSpec("some", dtype="float64"), pa.float64(), [None, None, None, 3.0, 4.0]),
        (FieldSpec("some", fill_null=-1), pa.int16(), [-1, -1, -1, 3, 4]),
        (FieldSpec("maybe", fill_null=b"-"), pa.binary(), [b"-", b"\xff", b"\xff\xff", b"-", b"\xff" * 4]),
        (FieldSpec("at", fill_null=0), pa.timestamp("us", "UTC"), ROWS["at"].to_pylist()[:5]),
        (FieldSpec("words", dtype="float32"), pa.list_(pa.float32()), [[], [0], [0, 1], [0, 1, 2], []]),
        (FieldSpec("x", batch_transform=lambda x: np.stack([x, -x], 1)), None, [[i, -i] for i in range(5)]),
        (FieldSpec("name", transform=len), pa.int64(), [2] * 5),
        (FieldSpec("flag", target_name="id2"), pa.bool_(), [True, False, True, False, True]),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_field_that_asks_for_more_is_what_numpy_gets_as_a_column(spec, kind, values, table):
    with loader(table, fields=[spec], batch_size=5) as batches:
        said = batches.schema[spec.key]
        column = next(iter(batches)).column(0)
    assert column.to_pylist() == values
    assert kind is None or (column.type == kind and (said.dtype in (None, str(kind)))), said


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        (FieldSpec("name", as_list=True), "as_list does nothing for Arrow"),
        (FieldSpec("words", pad_value=3), "pad_value does nothing for Arrow"),
        (FieldSpec("words", ragged="jagged"), "ragged does nothing for Arrow"),
        (FieldSpec("tags", fill_null=[]), "fill_null and null_mask are not for a column of list"),
        (FieldSpec("x", decode="jpeg"), "decode is for a binary column"),
    ],
    ids=str,
)
@pytest.mark.parametrize("framework", ["arrow", "pandas"])
def test_options_that_do_nothing_are_refused(spec, text, framework, table):
    with pytest.raises(ConfigError, match=text):
        loader(table, framework, fields=[spec])


def test_a_matrix_is_a_column_of_tensors(table):
    with loader(table, columns=["id"], features=["x", "id"], features_dtype="float32", batch_size=4) as batches:
        batch = next(iter(batches))
        assert batches.schema["features"].dtype == str(batch.schema.field("features").type)
    assert batch["features"].to_numpy_ndarray().tolist() == [[i, i] for i in range(4)]


# Classes of one's own -----------------------------------------------------------------------------------------------


class Gives(Dataset):
    input_format = "arrow"

    def __init__(self, make: Any) -> None:
        self.make = make

    def batch_encode(self, batch_data: pa.RecordBatch) -> dict[str, Any]:
        return {"out": self.make(batch_data)}


@pytest.mark.parametrize(
    ("make", "wanted"),
    [
        (lambda rows: rows["name"], [f"é{i}" for i in range(4)]),
        (lambda rows: pa.chunked_array([rows["name"].slice(0, 1), rows["name"].slice(1)]), [f"é{i}" for i in range(4)]),
        (lambda rows: pa.nulls(len(rows)), [None] * 4),
        (lambda rows: rows["name"].dictionary_encode(), [f"é{i}" for i in range(4)]),
        (lambda rows: np.array(["é", "bc", "", "d"]), ["é", "bc", "", "d"]),
        (lambda rows: np.array([b"a", b"bc", b"", b"d"]), [b"a", b"bc", b"", b"d"]),
        (lambda rows: np.array(["2020-01-01", "NaT"] * 2, "M8[D]"), [datetime(2020, 1, 1).date(), None] * 2),
        (lambda rows: np.array(["2020-01-01", "NaT"] * 2, "M8[ms]"), [datetime(2020, 1, 1), None] * 2),
        (lambda rows: [1, 2, 3, 4], [1, 2, 3, 4]),
        (lambda rows: np.arange(8)[::2], [0, 2, 4, 6]),
        (lambda rows: np.asfortranarray(np.arange(8).reshape(4, 2)), [[0, 1], [2, 3], [4, 5], [6, 7]]),
    ],
    ids=["text", "chunks", "void", "dictionary", "U", "S", "days", "ms", "list", "step", "fortran"],
)
@pytest.mark.parametrize("collator", [ArrowDataCollator, PandasDataCollator])
def test_arrays_and_arrow_columns_of_ones_own(make, wanted, collator, table):
    with DataLoader(DeltaDataReader(4, version=1), Gives(make), collator(), table, num_workers=0, limit=1) as batches:
        (batch,) = list(batches)
    found = batch["out"].to_pylist() if isinstance(batch, pa.RecordBatch) else list(batch["out"])
    assert [plain(value) for value in found] == wanted


def plain(value: Any) -> Any:
    if str(value) in ("NaT", "<NA>"):
        return None
    return value.tolist() if hasattr(value, "tolist") else value


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda rows: np.array([1j] * len(rows)), "dtype complex128, which Arrow has no column for"),
        (lambda rows: np.arange(len(rows), dtype=">i4"), "dtype >i4, which Arrow has no column for"),
        (lambda rows: np.array([{}] * len(rows), object), "dtype object, which Arrow has no column for"),
        (lambda rows: np.zeros(len(rows), "M8[h]"), "Arrow counts times in s, ms, us or ns"),
        (lambda rows: np.zeros(len(rows), np.longdouble), "Arrow has no column for"),
        (lambda rows: np.zeros((len(rows), 2, 0)), r"shape \(2, 0\), and Arrow has no tensors of no values"),
    ],
    ids=["complex", "swapped", "objects", "hours", "long double", "empty"],
)
def test_what_arrow_has_no_column_for_is_named(make, text, table):
    batches = DataLoader(DeltaDataReader(4), Gives(make), ArrowDataCollator(), table, num_workers=0)
    with batches, pytest.raises(ValueTypeError, match=text) as raised:
        next(iter(batches))
    assert "'out'" in str(raised.value)


class Listless(ArrowDataCollator):
    def collate_batch(self, features: Any) -> Any:
        return [np.zeros(3)]


def test_a_batch_that_is_no_dict_is_no_table(table):
    batches = DataLoader(DeltaDataReader(4, columns=["id"]), Through(), Listless(), table, num_workers=0)
    with batches, pytest.raises(ContractError, match="Listless: a batch must be a dict of columns"):
        next(iter(batches))


# pandas -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", EVERYWHERE, ids=str)
def test_data_frames_keep_types_beside_nulls(where, table):
    pandas = pytest.importorskip("pandas")
    with loader(table, "pandas", **where) as batches:
        found = list(batches)
    assert all(list(frame.index) == list(range(len(frame))) for frame in found)
    assert {str(frame["some"].dtype) for frame in found} == {"int16[pyarrow]"}
    whole = pa.Table.from_pandas(pandas.concat(found), preserve_index=False)
    assert whole.cast(ROWS.schema).to_pylist() == ROWS.to_pylist()


def test_a_frame_that_was_changed_comes_back_whole_after_a_peek(table):
    pytest.importorskip("pandas")
    with loader(table, "pandas", columns=["id", "name"]) as batches:
        frame = next(iter(batches))
        frame.loc[:, "id"] = 7
        frame["name"] = "changed"
        again = next(iter(batches))
    assert again["id"].tolist() == list(range(32))
    assert again["name"].tolist() == [f"é{i}" for i in range(32)]


# What is imported ---------------------------------------------------------------------------------------------------

PROGRAM = """
import sys
from pyloader_delta import DataLoader, Dataset, FieldSpec, ArrowDataCollator, DeltaDataReader
from pyloader_delta.encode.fields import FieldsDataset

class Seen(FieldsDataset):
    def batch_encode(self, batch_data):
        assert not {{"pandas", "jax", "torch"}} & set(sys.modules), "a worker imports a framework"
        return super().batch_encode(batch_data)

for where in ({{"num_workers": 0}}, {{"num_workers": 1, "workers": "process"}}):
    reader = DeltaDataReader(50)
    with DataLoader(reader, Seen(framework="arrow"), ArrowDataCollator(), {table!r}, **where) as loader:
        assert sum(batch.num_rows for batch in loader) == 300
assert not {{"pandas", "jax", "torch"}} & set(sys.modules), "the training process imports a framework"
"""


def test_record_batches_need_no_pandas(table):
    python("-c", PROGRAM.format(table=table))


@pytest.mark.parametrize("framework", ["arrow", "pandas"])
def test_preview_prints_the_columns_and_their_types(framework, table):
    with loader(table, framework, columns=["id", "maybe"]) as batches:
        text = str(batches.preview(2)).splitlines()
        assert batches.preview(2).schema["maybe"].kind == framework
    assert text[:2] == ["id     maybe", "int64  binary"]
    assert text[2].split()[:2] in (["0", "None"], ["0", "<NA>"])
