"""What `read_file` may return, and what becomes of its columns: in order, told apart, with their own values."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from fakes import AsIs, CountedNumbers, NumpyThrough, Through, number_files

from pyloader_delta import (
    ConfigError,
    ContractError,
    DataLoader,
    DataReader,
    DeltaDataReader,
    JsonLineDataReader,
    ReadError,
)
from pyloader_delta.read.columns import to_batches


class Gives(DataReader):
    """Gives one value for each file in turn, by the file's number."""

    batch_size = 100

    def __init__(self, *values: Any) -> None:
        self.values = values

    def read_file(self, path: str) -> Any:
        return self.values[int(Path(path).stem)]


class ArrowValues(Through):
    input_format = "arrow"

    def batch_encode(self, batch_data: Any) -> Any:
        return batch_data.to_pydict()


def delivered(tmp_path: Path, *values: Any, dataset: Any = None, shuffle: bool = False) -> dict[str, Any]:
    """Return the one batch of files with these values."""
    root = number_files(tmp_path / "f", [1] * len(values))
    reader = Gives(*values)
    reader.shuffle = shuffle
    with DataLoader(reader, dataset or Through(), AsIs(), root, num_workers=0) as loader:
        (batch,) = loader
        return batch


# Names and order ------------------------------------------------------------------------------------------------------


def test_json_columns_come_in_order_of_first_appearance(tmp_path):
    names = [f"column {i}" for i in range(50, 0, -1)]
    lines = ["{" + ", ".join(f'"{name}": 1' for name in names) + "}", '{"last": 1, "column 3": 2}']
    (tmp_path / "0.jsonl").write_text("\n".join(lines))
    columns, n_rows = JsonLineDataReader().read_file(str(tmp_path / "0.jsonl"))
    assert (list(columns), n_rows) == ([*names, "last"], 2)
    assert columns["last"] == [None, 1]


@pytest.mark.parametrize(
    "twice",
    [
        pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["x", "x"]),
        pa.RecordBatch.from_arrays([pa.array([1]), pa.array([2])], names=["x", "x"]),
        pd.DataFrame([[1, 2]], columns=["x", "x"]),
    ],
    ids=["table", "record batch", "frame"],
)
def test_two_columns_of_one_name_are_an_error_naming_it(tmp_path, twice):
    with pytest.raises(ContractError, match="two columns are named 'x'"):
        delivered(tmp_path, twice)


# Frames ---------------------------------------------------------------------------------------------------------------


def test_nan_in_a_frame_stays_nan(tmp_path):
    frame = pd.DataFrame({"x": [1.0, math.nan], "half": np.array([math.nan, 2], np.float32)})
    python = delivered(tmp_path, frame)
    assert python["x"][0] == 1.0
    assert [type(value) for value in python["x"]] == [float, float]
    assert math.isnan(python["x"][1])
    arrays = delivered(tmp_path, frame, dataset=NumpyThrough())
    assert np.isnan(arrays["x"]).tolist() == [False, True]
    assert arrays["half"].dtype == np.float32
    assert math.isnan(delivered(tmp_path, frame, dataset=ArrowValues())["x"][1])


def test_objects_of_a_frame_survive_python_input(tmp_path):
    values = [(1, 2), "text", None, [3], 4]
    found = delivered(tmp_path, pd.DataFrame({"x": pd.Series(values, dtype=object)}))["x"]
    assert found == values
    assert list(map(type, found)) == list(map(type, values))


def test_nullable_columns_of_a_frame_keep_their_nulls(tmp_path):
    frame = pd.DataFrame(
        {
            "int": pd.array([2**62 + 1, None], dtype="Int64"),
            "bool": pd.array([True, None], dtype="boolean"),
            "text": pd.array(["a", None], dtype="string"),
            "kind": pd.Categorical(["a", None]),
        }
    )
    wanted = {"int": [2**62 + 1, None], "bool": [True, None], "text": ["a", None], "kind": ["a", None]}
    assert delivered(tmp_path, frame) == wanted
    assert delivered(tmp_path, frame, dataset=ArrowValues()) == wanted


def test_times_of_a_frame_are_pandas_own_in_python_and_nat_or_null_elsewhere(tmp_path):
    frame = pd.DataFrame({"t": pd.to_datetime(["2020-01-01", None]), "b": [True, False]})
    assert delivered(tmp_path, frame)["t"] == [pd.Timestamp("2020-01-01"), pd.NaT]
    arrays = delivered(tmp_path, frame, dataset=NumpyThrough())
    assert np.isnat(arrays["t"]).tolist() == [False, True]
    assert arrays["b"].tolist() == [True, False]
    values = delivered(tmp_path, frame, dataset=ArrowValues())
    assert values == {"t": [pd.Timestamp("2020-01-01").to_pydatetime(), None], "b": [True, False]}


@pytest.mark.parametrize("columns", [[], ["x"]])
def test_a_frame_without_rows_or_columns_has_as_many_rows_as_it_says(columns):
    batches = to_batches(pd.DataFrame(columns=columns, index=range(3)), exact=True, place="read_file")
    assert sum(batch.num_rows for batch in batches) == 3


# Arrow ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [list, tuple])
def test_a_list_of_record_batches_is_as_good_as_an_iterator(tmp_path, kind):
    batches = kind(pa.record_batch({"x": [i]}) for i in range(2))
    assert delivered(tmp_path, batches) == {"x": [0, 1]}


ODD = {
    "string views": pa.array(["a", None, "c"]).cast(pa.string_view()),
    "binary views": pa.array([b"a", None, b"c"]).cast(pa.binary_view()),
    "list views": pa.array([[1], None, []], pa.list_view(pa.int64())),
    "large list views": pa.array([[1], None, [2, 3]], pa.large_list_view(pa.int64())),
    "lists of views": pa.array([["a"], None, []], pa.list_(pa.string_view())),
    "structs of views": pa.array([{"v": "a"}, None, {"v": None}], pa.struct([("v", pa.string_view())])),
    "runs": pa.RunEndEncodedArray.from_arrays(pa.array([2, 3], pa.int32()), pa.array(["a", "b"])),
}


@pytest.mark.parametrize("name", ODD)
@pytest.mark.parametrize("dataset", [Through(), ArrowValues()])
def test_arrow_columns_of_rarer_types_can_be_shuffled(tmp_path, name, dataset):
    table = pa.table({"x": ODD[name], "i": [0, 1, 2]})
    found = delivered(tmp_path, table, dataset=dataset, shuffle=True)
    values = ODD[name].to_pylist()
    assert found["x"] == [values[i] for i in found["i"]]
    assert delivered(tmp_path, {"x": ODD[name]}, dataset=dataset)["x"] == values


def test_a_type_whose_rows_cannot_be_picked_is_an_error_naming_column_and_type(tmp_path):
    runs = pa.StructArray.from_arrays([ODD["runs"]], names=["r"])
    with pytest.raises(ContractError, match="rows cannot be picked from column 'x' of type struct<r: run_end_encoded"):
        delivered(tmp_path, pa.table({"x": runs}), shuffle=True)


def test_numpy_texts_of_other_width_fit_together(tmp_path):
    files = [{"u": np.array(["a", "bc"]), "s": np.array([b"a"] * 2)}, {"u": np.array(["def"]), "s": np.array([b"bc"])}]
    arrays = delivered(tmp_path, *files, dataset=NumpyThrough())
    assert {name: array.tolist() for name, array in arrays.items()} == {
        "u": ["a", "bc", "def"],
        "s": [b"a", b"a", b"bc"],
    }
    assert delivered(tmp_path, *files, dataset=ArrowValues())["u"] == ["a", "bc", "def"]
    assert [type(value) for value in delivered(tmp_path, *files)["u"]] == [np.str_] * 3


def test_a_dtype_that_changes_is_named_as_numpy_names_it(tmp_path):
    files = {"x": np.zeros((1, 2), np.int32)}, {"x": np.zeros((1, 3), np.int32)}
    with pytest.raises(
        ContractError, match=r"numpy int32, rows of shape \[3\] here and numpy int32, rows of shape \[2\]"
    ):
        delivered(tmp_path, *files, dataset=NumpyThrough())


def test_bools_and_times_of_arrays_are_arrows_own(tmp_path):
    arrays = {"b": np.array([True, False]), "t": np.array(["2020-01-01", "NaT"], "M8[s]")}

    class Types(ArrowValues):
        def batch_encode(self, batch_data: Any) -> Any:
            assert batch_data.schema.types == [pa.bool_(), pa.timestamp("s")]
            return super().batch_encode(batch_data)

    found = delivered(tmp_path, arrays, dataset=Types())
    assert found["b"] == [True, False]
    assert found["t"][1] is None


# A reader used alone, and its numbers ---------------------------------------------------------------------------------

LOADED = {
    "table": pa.table({"x": [1, 2, 3]}),
    "record batches": [pa.record_batch({"x": [1, 2]}), pa.record_batch({"x": [3]})],
    "frame": pd.DataFrame({"x": [1, 2, 3]}),
    "arrays": {"x": np.array([1, 2, 3])},
    "Arrow array": {"x": pa.array([1, 2, 3])},
    "PyLoader's pair": ({"x": [1, 2, 3]}, 3),
}


@pytest.mark.parametrize("name", LOADED)
def test_load_takes_whatever_read_file_may_return(name):
    reader = Gives(LOADED[name])
    reader.batch_size = 2
    reader.load("0.txt")
    assert (reader.n_batch, reader.n_sample) == (2, 3)
    assert [reader.get_batch(i) for i in range(2)] == [({"x": [1, 2]}, 2), ({"x": [3]}, 1)]


@pytest.mark.parametrize("count", [np.int64(2), np.uint8(2), np.array(2)])
def test_count_samples_may_give_any_whole_number(tmp_path, count):
    class Counts(CountedNumbers):
        def count_samples(self, path: str) -> Any:
            return count

    (chunk,) = Counts().chunks(number_files(tmp_path / "f", [2]))
    assert chunk.rows == range(2)
    assert type(chunk.rows.stop) is int


@pytest.mark.parametrize("count", [True, np.True_, 2.0, "2", -1])
def test_count_samples_that_is_no_whole_number_is_an_error(tmp_path, count):
    class Counts(CountedNumbers):
        def count_samples(self, path: str) -> Any:
            return count

    with pytest.raises(ContractError, match="must return a number of rows"):
        Counts().chunks(number_files(tmp_path / "f", [2]))


def test_a_version_may_be_numpys(tmp_path):
    from deltalake import write_deltalake

    write_deltalake(str(tmp_path / "t"), pa.table({"x": [1]}))
    reader = DeltaDataReader(version=np.int64(0))
    assert [chunk.n_rows for chunk in reader.chunks(str(tmp_path / "t"))] == [1]
    with pytest.raises(ConfigError, match="version must be an int"):
        DeltaDataReader(version=np.True_).chunks(str(tmp_path / "t"))


class OwnNames(DeltaDataReader):
    def __init__(self) -> None:
        super().__init__()
        self.snapshot = "mine"


def test_a_subclass_may_have_a_snapshot_of_its_own(tmp_path):
    assert OwnNames().snapshot == "mine"
    assert DeltaDataReader().snapshot is None


# Folders --------------------------------------------------------------------------------------------------------------


def test_links_that_lead_back_do_no_harm(tmp_path):
    root = Path(number_files(tmp_path / "f", [1, 1]))
    (root / "sub").mkdir()
    (root / "sub" / "up").symlink_to(root)
    (root / "sub" / "2.txt").write_text("2")
    assert [Path(chunk.path).name for chunk in CountedNumbers().chunks(str(root))] == ["00.txt", "01.txt", "2.txt"]


@pytest.mark.parametrize("target", ["nowhere", "broken.txt"])
def test_a_broken_link_is_a_read_error_naming_it(tmp_path, target):
    root = Path(number_files(tmp_path / "f", [1]))
    (root / "broken.txt").symlink_to(root / target)
    with pytest.raises(ReadError, match=r"broken\.txt: a broken link"):
        CountedNumbers().chunks(str(root))


def test_a_folder_may_be_a_file_uri(tmp_path):
    root = number_files(tmp_path / "a folder", [2])
    uri = Path(root).as_uri()
    assert CountedNumbers().chunks(uri) == CountedNumbers().chunks(root)


# Tables in several pieces -----------------------------------------------------------------------------------------


def _addresses(blocks):
    return [column.buffers()[1].address for block in blocks for column in block.columns]


def test_large_pieces_of_a_table_may_stay_where_they_are_and_small_ones_are_joined():
    pieces = [pa.record_batch({"x": np.arange(8192) + n, "y": np.arange(8192.0) - n}) for n in range(3)]
    table = pa.Table.from_batches(pieces)
    apart = to_batches(table, exact=False, place="", apart=True)
    assert _addresses(apart) == _addresses(pieces)
    (joined,) = to_batches(table, exact=False, place="")
    assert pa.Table.from_batches([joined]).equals(table)
    small = pa.Table.from_batches([pa.record_batch(piece.slice(0, 100).to_pydict()) for piece in pieces])
    (joined,) = to_batches(small, exact=False, place="", apart=True)
    assert pa.Table.from_batches([joined]).equals(small)
