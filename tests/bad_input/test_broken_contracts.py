"""User code that returns the wrong thing: the error names the method, the file or the rows, and both sides."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from deltalake import write_deltalake
from fakes import AsIs, CountedNumbers, Numbers, Through, number_files, numbers, text_of, until_error, xs

from pyloader_delta import (
    ContractError,
    DataLoader,
    DataReader,
    Dataset,
    DeltaDataReader,
    IncompleteEpochError,
    JsonLineDataReader,
    NumpyDataCollator,
    ReadError,
)


@pytest.fixture
def root(tmp_path):
    """Batches of two rows, the second file's values are 2 and 3."""
    return number_files(tmp_path / "numbers", [2, 2])


class Gives(DataReader):
    """Gives a value for the second file."""

    batch_size = 2

    def __init__(self, value: Any) -> None:
        self.value = value

    def read_file(self, path: str) -> Any:
        return self.value if path.endswith("01.txt") else {"x": [0, 1]}


NOT_COLUMNS = {
    "nothing": (None, "must return .*; got NoneType"),
    "a list": ([1, 2], "must return .*; got list"),
    "a tuple of three": (({"x": [1]}, 1, 2), r"must return \(columns, n_rows\), got a tuple of 3"),
    "n_rows that is no number": (({"x": [1]}, "1"), r"must return \(columns, n_rows\), got '1' for n_rows"),
    "n_rows that is None": (({"x": [1]}, None), r"must return \(columns, n_rows\), got None for n_rows"),
    "unequal lengths": ({"x": [1, 2], "y": [1]}, "column 'y' has 1 row, but column 'x' has 2"),
    "another n_rows": (({"x": [1, 2]}, 3), "column 'x' has 2 rows, but n_rows is 3"),
    "a text for a column": ({"x": "ab"}, "column 'x' must be a list or an array, got str"),
    "a set for a column": ({"x": {1, 2}}, "column 'x' must be a list or an array, got set"),
    "a dict for a column": ({"x": {"y": [1]}}, "column 'x' must be a list or an array, got dict"),
    "a number for a column": ({"x": 1}, "column 'x' must be a list or an array, got int"),
    "a column without rows": ({"x": np.array(1)}, "column 'x'"),
    "a name that is no text": ({1: [1]}, "names of columns must be str, got 1"),
    "a structured array": ({"x": np.zeros(2, [("a", "i4")])}, "column 'x' has a structured dtype"),
    "an iterator of lists": (iter([[1]]), "an iterator must give Arrow record batches, got list"),
}  # fmt: skip


@pytest.mark.parametrize("name", NOT_COLUMNS)
def test_a_reader_that_returns_the_wrong_thing_is_named_with_file_and_value(root, name):
    value, text = NOT_COLUMNS[name]
    for workers in ({"num_workers": 0}, {"num_workers": 2, "workers": "thread"}):
        if name == "an iterator of lists":
            value = iter([[1]])
        with DataLoader(Gives(value), Through(), AsIs(), root, **workers) as loader:
            delivered, error = until_error(loader)
        assert xs(delivered) == [[0, 1]]
        assert isinstance(error, ContractError), error
        assert "Gives.read_file of" in str(error)
        assert "01.txt" in str(error)
        with pytest.raises(ContractError, match=text):
            raise error


def test_a_broken_contract_in_a_process_keeps_type_and_text(root):
    with DataLoader(Gives(None), Through(), AsIs(), root, num_workers=1, workers="process") as loader:
        delivered, error = until_error(loader)
    assert xs(delivered) == [[0, 1]]
    assert isinstance(error, ContractError)
    assert "Gives.read_file of" in str(error)
    assert "got NoneType" in str(error)


RIGHT = {
    "a dict of arrays": lambda: {"x": np.array([2, 3])},
    "a dict with a tuple": lambda: {"x": (2, 3)},
    "PyLoader's pair": lambda: ({"x": [2, 3]}, 2),
    "a table": lambda: pa.table({"x": [2, 3]}),
    "a record batch": lambda: pa.record_batch({"x": [2, 3]}),
    "record batches": lambda: iter([pa.record_batch({"x": [2]}), pa.record_batch({"x": [3]})]),
    "a reader of batches": lambda: pa.table({"x": [2, 3]}).to_reader(),
    "a data frame": lambda: pd.DataFrame({"x": [2, 3]}, index=[7, 8]),
    "an Arrow array": lambda: {"x": pa.array([2, 3])},
    "a chunked array": lambda: {"x": pa.chunked_array([[2], [3]])},
}


@pytest.mark.parametrize("name", RIGHT)
def test_a_reader_may_return(root, name):
    with DataLoader(Gives(RIGHT[name]()), Through(), AsIs(), root, num_workers=0) as loader:
        assert xs(loader) == [[0, 1], [2, 3]]


class Encodes(Dataset):
    """Gives a value for the rows 2, 3."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def batch_encode(self, batch_data: Any) -> Any:
        return self.value if 2 in batch_data["x"] else batch_data


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"x": [2]}, "got 2 rows but returned 1 value for 'x': it must return one a row"),
        ({"x": [1, 2, 3]}, "got 2 rows but returned 3 values for 'x'"),
        ({"x": np.zeros((1, 2))}, "got 2 rows but returned 1 value for 'x'"),
        ({"x": [2, 3], "y": []}, "got 2 rows but returned 0 values for 'y'"),
        (None, "must return a dict of lists or arrays, got NoneType; is a return missing?"),
        ([[2, 3]], "must return a dict of lists or arrays, got list"),
        ({"x": 5}, "'x' must be a list or an array with one value a row, got int"),
        ({"x": np.float32(5)}, "'x' must be a list or an array with one value a row, got float32"),
    ],
)
def test_a_dataset_that_returns_other_lengths_or_the_wrong_thing_is_named(root, executor, value, text):
    if executor.get("workers") == "process" and value is not None:
        executor = {"num_workers": 1, "workers": "thread"}
    with numbers(root, dataset=Encodes(value), **executor) as loader:
        delivered, error = until_error(loader)
    assert xs(delivered) == [[0, 1]]
    assert isinstance(error, ContractError)
    assert f"Encodes.batch_encode{':' if 'one value a row, got' in text else ''} " in str(error)
    assert text in str(error)
    assert "batch 1, rows 2..3" in text_of(error)
    assert "01.txt" in text_of(error)


class ReturnsNone(AsIs):
    def collate_batch(self, features: Any) -> Any:
        return None if 2 in features["x"] else features


def test_a_collator_that_returns_none_is_named(root, executor):
    with DataLoader(CountedNumbers(batch_size=2), Through(), ReturnsNone(), root, **executor) as loader:
        delivered, error = until_error(loader)
    assert xs(delivered) == [[0, 1]]
    assert isinstance(error, ContractError)
    assert str(error) == "ReturnsNone.collate_batch returned None; is a return missing?"
    assert "batch 1, rows 2..3" in text_of(error)


def test_an_override_of_read_chunk_must_keep_the_number_of_rows(tmp_path, executor):
    root = str(tmp_path / "table")
    write_deltalake(root, pa.table({"x": [0, 1]}))
    write_deltalake(root, pa.table({"x": [2, 3]}), mode="append")

    class Filters(DeltaDataReader):
        def read_chunk(self, chunk):
            table = super().read_chunk(chunk)
            return table.filter(pa.array([x != 3 for x in table["x"].to_pylist()]))

    with DataLoader(Filters(batch_size=2), Through(), NumpyDataCollator(), root, **executor) as loader:
        delivered, error = until_error(loader)
    assert xs(delivered) == [[0, 1]]
    assert isinstance(error, IncompleteEpochError)
    assert "the plan has 2 rows, reading gave 1" in str(error)


class WrongFromChunk(DeltaDataReader):
    batch_size = 2

    def read_chunk(self, chunk: Any) -> Any:
        super().read_chunk(chunk)
        return None


def test_an_override_of_read_chunk_is_named_as_such(tmp_path):
    root = str(tmp_path / "table")
    write_deltalake(root, pa.table({"x": [0, 1]}))
    loader = DataLoader(WrongFromChunk(), Through(), AsIs(), root, num_workers=0)
    with loader, pytest.raises(ContractError, match=r"WrongFromChunk.read_chunk of .* must return"):
        next(loader)


@pytest.mark.parametrize("line", ["not json", "[1]", "3", '{"x": 1'])
def test_a_line_that_is_no_json_object_is_named_by_file_and_line(tmp_path, line):
    (tmp_path / "a.jsonl").write_text(f'{{"x": 1}}\n\n{line}\n')
    loader = DataLoader(JsonLineDataReader(), Through(), AsIs(), tmp_path, num_workers=0)
    with loader, pytest.raises(ReadError, match=r"a.jsonl, line 3: "):
        next(loader)


def test_an_empty_table_yields_no_batch_and_one_warning(tmp_path, executor):
    root = str(tmp_path / "table")
    write_deltalake(root, pa.table({"x": pa.array([], pa.int64())}))
    with DataLoader(DeltaDataReader(), Through(), AsIs(), root, num_epoch=2, **executor) as loader:
        assert len(loader) == loader.batches_per_epoch == 0
        assert bool(loader)
        with pytest.warns(UserWarning, match="has no rows: the loader yields no batch") as warned:
            assert list(loader) == []
        assert len(warned) == 1
        assert loader.get_epoch() == 0


def test_a_settings_class_attribute_holds_without_a_constructor(root):
    class Settled(Numbers):
        batch_size = 3
        shuffle = True
        random_seed = 7

    reader, given = Settled(), Settled(batch_size=1)
    assert (reader.batch_size, reader.shuffle, reader.random_seed) == (3, True, 7)
    assert (given.batch_size, given.shuffle) == (1, True)

    class Own(Numbers):
        def __init__(self):  # forgets super().__init__()
            self.path = Path()

    assert Own().batch_size == 16
    with numbers(root, reader=reader, num_workers=0) as loader:
        assert sorted(map(len, xs(loader))) == [1, 3]
