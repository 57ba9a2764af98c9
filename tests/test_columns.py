""" "python" input keeps values exactly; "numpy" and "arrow" input never change a type in silence."""

import datetime as dt
import decimal
import enum
import itertools
import math
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from fakes import ArrowThrough, AsIs, NumpyThrough, Through, text_of, until_error
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from pyloader_delta import ContractError, DataLoader, DataReader, NumpyDataCollator, ValueTypeError
from pyloader_delta.encode.inputs import Inputs
from pyloader_delta.engine.gather import gather
from pyloader_delta.engine.tasks import Segment
from pyloader_delta.engine.window import WindowBlocks
from pyloader_delta.permute import permuted
from pyloader_delta.read.columns import to_batches


class Stored(DataReader):
    """Reads what `store` wrote; `counts` tells the lengths before reading."""

    counts: dict[str, int] | None = None

    def read_file(self, path: str) -> Any:
        return pickle.loads(Path(path).read_bytes())

    def count_samples(self, path: str) -> int | None:
        return None if self.counts is None else self.counts[Path(path).name]


class StoredMissing(Stored):
    missing_as_none = True


def store(folder: Path, *files: dict[str, Any]) -> str:
    folder.mkdir(exist_ok=True)
    for i, columns in enumerate(files):
        (folder / f"{i:02}.pickle").write_bytes(pickle.dumps(columns))
    return str(folder)


def delivered(
    root: str, *, reader: DataReader | None = None, dataset: Any = None, batch_size: int = 3, **options: Any
) -> Any:
    options = {"num_workers": 0} | options
    reader = reader or Stored()
    reader.batch_size = batch_size
    with DataLoader(reader, dataset or Through(), AsIs(), root, **options) as loader:
        return list(loader)


def column(batches: list[Any], name: str = "x") -> list[Any]:
    return [value for batch in batches for value in batch[name]]


class Colour(enum.IntEnum):
    RED = 1


class Name(str):
    __slots__ = ()


def same(one: Any, other: Any) -> bool:
    """Whether two values are equal and of the same Python types, all the way down."""
    if type(one) is not type(other):
        return False
    if isinstance(one, np.ndarray):
        return one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    if isinstance(one, np.generic):
        return one.dtype == other.dtype and one.tobytes() == other.tobytes()
    if isinstance(one, (float, complex)):
        return repr(one) == repr(other)
    return bool(one == other) and repr(one) == repr(other)


COLUMNS = {
    "ints": [0, -1, 2**63 - 1, -(2**63)],
    "ints of any size": [1, 2**63, -(2**100)],
    "floats": [0.0, -0.0, math.inf, -math.inf, math.nan, 5e-324, 0.1],
    "bools": [True, False],
    "texts": ["", "é", "\x00", "𝄞", "a\nb"],
    "lone surrogates": ["a", "\ud800", "\udcff b"],
    "bytes": [b"", b"\x00\xff"],
    "nothing": [None, None],
    "ints and None": [1, None, 3],
    "texts and None": [None, "a"],
    "bools and None": [None, True],
    "ints and bools": [1, True, 0, False],
    "ints and floats": [1, 1.0, 2],
    "ints and texts": [1, "1"],
    "texts and bytes": ["a", b"a"],
    "lists": [[1, 2], [], [None], [1.0]],
    "tuples": [(1, 2), (), ((),)],
    "lists and tuples": [[1], (1,)],
    "dicts with unequal keys": [{"a": 1}, {"b": None, "a": 2}, {}],
    "dicts in another order": [{"a": 1, "b": 2}, {"b": 2, "a": 1}],
    "sets": [{1, 2}, frozenset()],
    "numpy scalars": [np.float32(0.1), np.int8(1), np.bool_(True), np.float64(1), np.str_("a")],
    "arrays": [np.zeros(2, np.int16), np.zeros((0, 3)), np.array(["a"])],
    "times": [dt.datetime(2020, 1, 1), dt.date(2020, 1, 1), dt.timedelta(1), dt.datetime(2020, 1, 1, tzinfo=dt.UTC)],
    "decimals": [decimal.Decimal("1.50"), decimal.Decimal("1.5")],
    "subclasses": [Colour.RED, Name("a")],
    "complex": [1j, complex(math.nan, 0)],
    "int array": np.arange(4, dtype=np.int32),
    "float array": np.array([0.1, math.nan], dtype=np.float32),
    "bool array": np.array([True, False]),
    "text array": np.array(["a", "bc"]),
    "time array": np.array(["2020-01-01", "NaT"], dtype="M8[s]"),
    "half array": np.array([1, 2], dtype=np.float16),
    "complex array": np.array([1j, 2]),
    "matrix": np.arange(6, dtype=np.uint8).reshape(2, 3),
    "object array": np.array([1, "a", None], dtype=object),
    "big-endian array": np.arange(3, dtype=">i4"),
    "empty text array": np.array(["", ""]),
    "array of no width": np.zeros((2, 0)),
}


@pytest.mark.parametrize("name", COLUMNS)
@pytest.mark.parametrize("shuffle", [False, True])
def test_python_input_keeps_values_exactly(tmp_path, name, shuffle):
    values = COLUMNS[name]
    root = store(tmp_path / "f", {"x": values})
    found = column(delivered(root, reader=Stored(shuffle=shuffle)))
    if shuffle:
        order = column(delivered(store(tmp_path / "o", {"x": list(range(len(values)))}), reader=Stored(shuffle=True)))
        values = [values[i] for i in order]
    assert len(found) == len(values)
    for got, gave in zip(found, values, strict=True):
        native = gave.astype(gave.dtype.newbyteorder("=")) if name.startswith("big-endian") else gave
        assert same(got, native), (got, gave)


def test_python_input_keeps_values_exactly_in_processes(tmp_path):
    names = list(COLUMNS)
    root = store(tmp_path / "f", *({"x": COLUMNS[name], "of": [name] * len(COLUMNS[name])} for name in names))
    found = delivered(root, num_workers=1, workers="process")
    for name in names:
        got = [x for batch in found for x, of in zip(batch["x"], batch["of"], strict=True) if of == name]
        assert len(got) == len(COLUMNS[name])
        if not name.startswith("big-endian"):
            assert all(map(same, got, list(COLUMNS[name]))), name


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@example(names=["arrays", "bytes"], batch_size=1, window="700B", shuffle=True, counted=False)
@example(names=["bytes", "arrays"], batch_size=1, window="700B", shuffle=True, counted=False)
@given(
    names=st.lists(st.sampled_from(sorted(COLUMNS)), min_size=1, max_size=6),
    batch_size=st.integers(1, 9),
    window=st.sampled_from(["chunk", "1B", "700B", "1MiB"]),
    shuffle=st.booleans(),
    counted=st.booleans(),
)
def test_values_stay_exact_where_batches_cross_files_of_other_types(
    tmp_path_factory, names, batch_size, window, shuffle, counted
):
    files = [{"x": COLUMNS[name], "i": [(f, i) for i in range(len(COLUMNS[name]))]} for f, name in enumerate(names)]
    root = store(tmp_path_factory.mktemp("f"), *files)
    reader = Stored(shuffle=shuffle)
    reader.counts = {f"{f:02}.pickle": len(file["i"]) for f, file in enumerate(files)} if counted else None
    batches = delivered(root, reader=reader, batch_size=batch_size, shuffle_window=window, shuffle=shuffle)
    seen = set()
    for (f, i), value in zip(column(batches, "i"), column(batches), strict=True):
        seen.add((f, i))
        if not names[f].startswith("big-endian"):
            assert same(value, list(files[f]["x"])[i]), (names, value)
    assert seen == {where for file in files for where in file["i"]}


@pytest.mark.parametrize("key", [None, ("order",)])
@pytest.mark.parametrize("names", list(itertools.permutations(["bytes", "arrays", "texts", "ints"], 2)), ids="-".join)
def test_rows_of_one_file_alone_go_by_that_file(names, key):
    """Arrow's `==` of fields does not see what bytes stand for: those of one file as they are, of the next pickled."""
    blocks = [block for name in names for block in to_batches({"x": COLUMNS[name]}, exact=True, place="")]
    window = WindowBlocks(blocks)
    n_rows = int(window.starts[-1])
    order = permuted(n_rows, key) if key else range(n_rows)
    every = [value for name in names for value in COLUMNS[name]]
    for place, row in enumerate(order):
        columns = gather([window], [Segment(0, n_rows, place, place + 1, key, (0,))])
        (found,) = Inputs(columns, "python").cut(0, 1)["x"]
        assert same(found, every[row])


LONG = {"bytes": [bytes([i]) * 2000 for i in range(8)], "pickled": [("a" * 2000, i) for i in range(8)]}


@pytest.mark.parametrize("names", [["bytes", "pickled"], ["pickled", "bytes"]])
@pytest.mark.parametrize("window", ["1MiB", "chunk"])  # one window of both files, and batches over two windows
def test_long_rows_are_not_taken_for_those_of_another_file(tmp_path, names, window):
    root = store(tmp_path / "f", *({"x": LONG[name], "of": [name] * 8} for name in names))
    found = delivered(root, reader=Stored(shuffle=True), batch_size=5, shuffle_window=window)
    for name in names:
        got = [x for batch in found for x, of in zip(batch["x"], batch["of"], strict=True) if of == name]
        assert sorted(got) == LONG[name]


def test_arrow_tables_give_python_values(tmp_path):
    table = pa.table(
        {"x": [1, None], "t": pa.array([1, 2], pa.timestamp("ms")), "l": [[1], None], "s": [{"a": 1}, None]}
    )
    (batch,) = delivered(store(tmp_path / "f", table))
    assert batch == table.to_pydict()


# Columns that only some files have -----------------------------------------------------------------------------------


def test_a_column_that_a_file_lacks_is_an_error_naming_both_files(tmp_path, executor):
    root = store(tmp_path / "f", {"x": [0, 1], "y": [0, 1]}, {"x": [2, 3], "y": [2, 3]}, {"x": [4, 5]})
    with DataLoader(Stored(batch_size=2), Through(), AsIs(), root, **executor) as loader:
        found, error = until_error(loader)
    assert column(found) == [0, 1, 2, 3]
    assert isinstance(error, ContractError)
    assert "column 'y' is in" in str(error)
    assert "00.pickle but not in" in str(error)
    assert "02.pickle: every file must give the same columns" in str(error)


def test_a_column_that_only_a_later_file_has_is_an_error_too(tmp_path, executor):
    root = store(tmp_path / "f", {"x": [0, 1]}, {"x": [2, 3]}, {"x": [4, 5], "y": [4, 5]})
    with DataLoader(Stored(batch_size=2), Through(), AsIs(), root, **executor) as loader:
        found, error = until_error(loader)
    assert column(found) == [0, 1, 2, 3]
    assert isinstance(error, ContractError)
    assert "column 'y' is in" in str(error)


@pytest.mark.parametrize("counted", [True, False])
def test_missing_as_none_gives_each_column_that_was_seen_so_far(tmp_path, executor, counted):
    rows = [{"x": [0, 1]}, {"x": [2, 3], "y": ["c", "d"]}, {"x": [4, 5, 6]}, {"x": [7]}, {"z": [8, 9]}]
    reader = StoredMissing(batch_size=2)
    reader.counts = {f"{i:02}.pickle": len(next(iter(r.values()))) for i, r in enumerate(rows)} if counted else None
    with DataLoader(reader, Through(), AsIs(), store(tmp_path / "f", *rows), num_epoch=2, **executor) as loader:
        found = list(loader)
    assert found[:5] == [
        {"x": [0, 1]},
        {"x": [2, 3], "y": ["c", "d"]},
        {"x": [4, 5], "y": [None, None]},
        {"x": [6, 7], "y": [None, None]},
        {"x": [None, None], "y": [None, None], "z": [8, 9]},
    ]
    assert found[5:] == found[:5]  # whatever was seen in another epoch: an order is of its epoch alone


# NumPy and Arrow input -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dataset", [NumpyThrough(), ArrowThrough()])
@pytest.mark.parametrize(("one", "other"), [([1, 2], [0.5, 1.5]), ([1, 2], ["a", "b"]), ([1.0, 2.0], [True, False])])
def test_a_type_that_changes_between_files_is_an_error(tmp_path, executor, dataset, one, other):
    root = store(tmp_path / "f", {"x": one}, {"x": one}, {"x": other}, {"x": one})
    with DataLoader(Stored(batch_size=2), dataset, AsIs(), root, **executor) as loader:
        found, error = until_error(loader)
    assert column(found) == one + one
    assert isinstance(error, ContractError)
    assert "02.pickle: column 'x' is" in str(error)
    assert "set input_format = 'python'" in str(error)


def test_a_type_that_changes_after_a_file_of_nulls_is_an_error(tmp_path):
    root = store(tmp_path / "f", {"x": [None, None]}, {"x": [1, 2]}, {"x": ["a", "b"]})
    with DataLoader(Stored(batch_size=2), ArrowThrough(), AsIs(), root, num_workers=0) as loader:
        found, error = until_error(loader)
    assert len(found) == 2
    assert isinstance(error, ContractError)
    assert "02.pickle: column 'x' is string here and int64 in other files" in str(error)


@pytest.mark.parametrize("dtypes", [("i4", "i8"), ("f4", "f8"), ("i8", "u8"), ("M8[s]", "M8[ms]")])
def test_a_dtype_that_changes_between_files_is_an_error(tmp_path, dtypes):
    root = store(tmp_path / "f", *({"x": np.zeros(2, dtype)} for dtype in dtypes))
    with DataLoader(Stored(batch_size=4), NumpyThrough(), AsIs(), root, num_workers=0) as loader:
        found, error = until_error(loader)
    assert found == []
    assert isinstance(error, ContractError)
    assert "01.pickle: column 'x' is" in str(error)


def test_nulls_in_numpy_input_are_an_error_naming_column_count_and_remedy(tmp_path, executor):
    root = store(tmp_path / "f", {"x": [0, 1, 2, 3, 4, None, None, 7]})
    with DataLoader(Stored(batch_size=2), NumpyThrough(), AsIs(), root, **executor) as loader:
        found, error = until_error(loader)
    assert column(found) == [0, 1, 2, 3]
    assert isinstance(error, ValueTypeError)
    assert "column 'x' has 1 nulls in 2 rows, which a NumPy array cannot hold: set input_format = 'arrow'" in str(error)
    assert "batch 2, rows 4..5" in text_of(error)


def test_ints_beside_nulls_stay_ints(tmp_path):
    root = store(tmp_path / "f", {"x": [2**62 + 1, None]}, {"x": [2**62 + 3, 5]})
    batches = delivered(root, batch_size=4)
    assert column(batches) == [2**62 + 1, None, 2**62 + 3, 5]
    assert column(delivered(root, dataset=Arrow(), batch_size=4)) == [2**62 + 1, None, 2**62 + 3, 5]


class Arrow(Through):
    input_format = "arrow"

    def batch_encode(self, batch_data: pa.RecordBatch) -> dict[str, list[Any]]:
        assert isinstance(batch_data, pa.RecordBatch)
        return batch_data.to_pydict()


def test_numpy_input_has_the_arrays_own_types(tmp_path):
    arrays = {
        "i": np.arange(3, dtype=np.int16),
        "f": np.array([0.5, 1, 2], np.float32),
        "b": np.array([True, False, True]),
        "t": np.array(["2020-01-01", "NaT", "2021-01-01"], "M8[ms]"),
        "u": np.array(["a", "bc", ""]),
        "m": np.arange(12, dtype=np.uint8).reshape(3, 2, 2),
        "c": np.array([1j, 2, 3], np.complex64),
    }
    root = store(tmp_path / "f", arrays)
    for reader in (Stored(), Stored(shuffle=True)):
        (batch,) = delivered(root, reader=reader, dataset=NumpyThrough())
        order = batch["i"].tolist()
        for name, array in arrays.items():
            assert batch[name].dtype == (object if name == "u" else array.dtype)  # a width would be of one file alone
            assert np.array_equal(batch[name], array[order], equal_nan=name in "ft")


def test_numpy_input_of_arrow_types(tmp_path):
    table = pa.table(
        {
            "bool": [True, False],
            "text": ["a", "bc"],
            "ts": pa.array([1, 2], pa.timestamp("us")),
            "date": pa.array([1, 2], pa.date32()),
            "list": [[1, 2], []],
            "fixed": pa.array([[1, 2], [3, 4]], pa.list_(pa.int32(), 2)),
            "dict": pa.array(["a", "b"]).dictionary_encode(),
        }
    )
    (batch,) = delivered(store(tmp_path / "f", table), dataset=NumpyThrough())
    assert batch["bool"].dtype == bool
    assert batch["text"].dtype == object
    assert batch["text"].tolist() == ["a", "bc"]
    assert batch["ts"].dtype == np.dtype("M8[us]")
    assert batch["date"].dtype == np.dtype("M8[D]")
    assert [row.tolist() for row in batch["list"]] == [[1, 2], []]
    assert batch["fixed"].tolist() == [[1, 2], [3, 4]]
    assert batch["fixed"].dtype == np.int32
    assert batch["dict"].tolist() == ["a", "b"]


# Collators -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "dtype"),
    [
        ([1, 2], "int64"),
        ([1.0, 2.0], "float64"),
        ([True, False], "bool"),
        (["a", "bc"], "<U2"),
        ([[1, 2], [3, 4]], "int64"),
    ],
)
def test_the_numpy_collator_gives_lists_the_type_they_have(values, dtype):
    array = NumpyDataCollator().collate_batch({"x": values, "none": None})
    assert list(array) == ["x"]
    assert array["x"].dtype == dtype
    assert array["x"].tolist() == values


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ([1, None], "'x' is no array of numbers: row 1 is None. Fill it in batch_encode"),
        ([[1, 2], [3]], "'x' is no array: .* Pad its rows to one length in batch_encode"),
        ([1, 2**64], "row 1 is 18446744073709551616, beyond 64 bits"),
        ([2**63, -1], "row 0 is 9223372036854775808, beyond 64 bits"),
        ([[1], [None]], "row 1 holds None"),
        ([{}, {}], "its values are of type dict"),
    ],
)
def test_the_numpy_collator_casts_nothing_in_silence(values, text):
    with pytest.raises(ValueTypeError, match=text):
        NumpyDataCollator().collate_batch({"x": values})


@pytest.mark.parametrize("values", [[True, 2], [0.5, True], [1, "a"], [b"a", "b"], [2**60 + 1, 0.5]])
def test_the_numpy_collator_refuses_lists_of_several_types_that_it_would_have_to_cast(values):
    with pytest.raises(ValueTypeError, match="'x' is no array of numbers: its values are of type"):
        NumpyDataCollator().collate_batch({"x": values})
