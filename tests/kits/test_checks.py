"""The checks for authors of subclasses: they pass what keeps its promises, and say what does not."""

import itertools
from collections import namedtuple
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from deltalake import WriterProperties, write_deltalake
from fakes import CountedNumbers, Numbers, NumpyThrough, Through, number_files

from pyloader_delta import (
    ConfigError,
    ContractError,
    DataCollator,
    DataLoader,
    DeltaDataReader,
    FieldSpec,
    JsonLineDataReader,
    NumpyDataCollator,
    TextDataset,
    TorchDataCollator,
)
from pyloader_delta.encode.fields import FieldsDataset
from pyloader_delta.testing import EXECUTORS, check_collator, check_dataset, check_reader, check_resume
from pyloader_delta.testing.compare import difference, unlike

THREADS = {name: options for name, options in EXECUTORS.items() if "process" not in name}
LENGTHS = [20, 1, 3, 17, 0, 9, 12]


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return number_files(tmp_path_factory.mktemp("kits") / "t", LENGTHS)


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    path = str(tmp_path_factory.mktemp("kits") / "table")
    words = [["a"] * (i % 4) for i in range(90)]
    rows = pa.table({"x": range(90), "y": [float("nan"), 1.5, -0.0] * 30, "words": words})
    write_deltalake(path, rows, writer_properties=WriterProperties(max_row_group_size=20, write_batch_size=10))
    return path


def maker(root, reader=CountedNumbers, dataset=NumpyThrough, collator=NumpyDataCollator, **fixed):
    def make(**options):
        options = {"shuffle": True, "shuffle_window": 25} | fixed | options
        return DataLoader(reader(batch_size=9, shuffle=True), dataset(), collator(), root, **options)

    return make


class Noisy(NumpyThrough):
    rowwise = True

    def batch_encode(self, batch_data):
        return {"x": batch_data["x"], "noise": self.rng.random(len(batch_data["x"]))}


def test_check_resume_passes_our_own_loaders_on_every_executor(root):
    check_resume(maker(root, dataset=Noisy, num_epoch=2))


@pytest.mark.parametrize("rank", [0, 2])
def test_check_resume_passes_ranks_and_tables(table, rank):
    def make(**options):
        options = {"shuffle": True, "shuffle_window": 25, "rank": rank, "world_size": 3, "uneven": "mask"} | options
        return DataLoader.from_delta(table, 8, columns=["x", "y"], **options)

    check_resume(make, executors=THREADS, every=2)


def test_check_resume_of_an_endless_loader_looks_at_some_batches(root):
    with pytest.raises(ConfigError, match="max_batches"):
        check_resume(maker(root, num_epoch=None), executors=THREADS)
    check_resume(maker(root, num_epoch=None), executors=THREADS, max_batches=15, every=4)


class Global(NumpyThrough):
    """Draws from the state of the process."""

    def batch_encode(self, batch_data):
        return {"x": batch_data["x"] + np.random.default_rng().normal(size=len(batch_data["x"]))}


class Counting(Through):
    """Remembers what it has done."""

    def batch_encode(self, batch_data):
        self.calls = vars(self).get("calls", 0) + 1
        return batch_data | {"call": [self.calls] * len(batch_data["x"])}


class Other(CountedNumbers):
    """Gives rows in an order that is another one each time."""

    flips = itertools.count()

    def read_file(self, path):
        rows = super().read_file(path)["x"]
        return {"x": rows[:: -1 if next(self.flips) % 2 else 1]}


@pytest.mark.parametrize(
    ("parts", "text"),
    [
        ({"dataset": Global}, r"batch 0 differs: output 'x': \S+ at \[0\], expected \S+ \(9 values differ\)"),
        ({"dataset": Counting}, r"output 'call'.*expected"),
        ({"reader": Other}, r"output 'x'.*expected"),
    ],
)
def test_check_resume_says_where_and_what_differs_first(root, parts, text):
    with pytest.raises(AssertionError, match=f"on (the caller's thread|3 threads): .*{text}"):
        check_resume(maker(root, **parts), executors={n: THREADS[n] for n in ("the caller's thread", "3 threads")})


def test_check_resume_refuses_what_it_cannot_check(tmp_path):
    empty = number_files(tmp_path / "empty", [0])
    with pytest.raises(ConfigError, match="no batch"), pytest.warns(UserWarning, match="no rows"):
        check_resume(maker(empty), executors=THREADS)
    with pytest.raises(ConfigError, match="at least one"):
        check_resume(maker(empty), executors={})
    with pytest.raises(ConfigError, match="every must be"):
        check_resume(maker(empty), every=0)


# Readers -------------------------------------------------------------------------------------------------------------


def test_check_reader_passes_readers_of_files_and_tables(root, table, tmp_path):
    check_reader(CountedNumbers(), root)
    check_reader(Numbers(), root, max_chunks=2)
    check_reader(DeltaDataReader(filter="x > 12"), table)
    (tmp_path / "a.jsonl").write_text('{"a": 1}\n{"b": [1, null]}\n')
    check_reader(JsonLineDataReader(), str(tmp_path))


class Miscounted(CountedNumbers):
    def count_samples(self, path):
        return super().count_samples(path) + Path(path).name.startswith("03")


class Cursed(CountedNumbers):
    """Gives what depends on what was read before."""

    def read_file(self, path):
        self.rows = vars(self).get("rows", 0) + 1
        return {"x": super().read_file(path)["x"], "n": [self.rows] * self.count_samples(path)}


class Uneven(CountedNumbers):
    def read_file(self, path):
        rows = super().read_file(path)
        return rows | ({"extra": rows["x"]} if path.endswith("03.txt") else {})


class Locked(CountedNumbers):
    def __init__(self):
        super().__init__()
        self.lock = __import__("threading").Lock()


@pytest.mark.parametrize(
    ("kind", "error", "text"),
    [
        (Miscounted, AssertionError, "03.txt rows 0..17 gave 17 rows"),
        (Cursed, AssertionError, r"06.txt.*last chunk first.*\['n'\] \[0\]"),
        (Uneven, ContractError, "'extra' is in .*03.txt but not in .*00.txt"),
        (Locked, ConfigError, r"Locked cannot be sent.*open\(\)"),
    ],
)
def test_check_reader_names_what_is_wrong(root, kind, error, text):
    with pytest.raises(error, match=text):
        check_reader(kind(), root)


# Datasets ------------------------------------------------------------------------------------------------------------

ROWS = {"x": [3, 1, 2], "input_text": ["a b", "b", "c a"]}


def test_check_dataset_passes_datasets_of_every_input(tmp_path):
    (tmp_path / "vocab").write_text("a 3\nb 2\n")
    check_dataset(TextDataset(str(tmp_path / "vocab"), 4, 10), ROWS)
    check_dataset(Through(), ROWS)
    check_dataset(Noisy(), {"x": np.arange(5)})
    ragged = pa.table({"x": [1, 2, 3], "l": [[1], [2, 3], []]})
    check_dataset(FieldsDataset(["x", FieldSpec("l", ragged="jagged")]), ragged)


class Centred(NumpyThrough):
    """Rowwise by its own word only."""

    rowwise = True

    def batch_encode(self, batch_data):
        return {"x": batch_data["x"] - batch_data["x"].mean()}


class Short(Through):
    def batch_encode(self, batch_data):
        return {"x": batch_data["x"][:-1]}


@pytest.mark.parametrize(
    ("dataset", "error", "text"),
    [
        (Global(), AssertionError, r"Global.batch_encode gave the same rows again otherwise: output 'x'.*self\.rng"),
        (Counting(), AssertionError, "again otherwise: output 'call'"),
        (Centred(), AssertionError, r"Centred is rowwise, but.*output 'x': \[0\]"),
        (Short(), ContractError, "got 4 rows but returned 3 values"),
    ],
)
def test_check_dataset_names_what_is_wrong(dataset, error, text):
    with pytest.raises(error, match=text):
        check_dataset(dataset, {"x": np.array([4.0, 1.0, 2.0, 2.5])})
    with pytest.raises(ConfigError, match="two or more"):
        check_dataset(Through(), {"x": [1]})


# Collators -----------------------------------------------------------------------------------------------------------

Pair = namedtuple("Pair", "x y")  # of this module, so that it can be pickled by name


class Pairs(DataCollator):
    def collate_batch(self, features):
        return Pair(np.asarray(features["x"]), ["any", None])


class Padded(DataCollator):
    rowwise = True

    def collate_batch(self, features):
        width = max(map(len, features["x"]))
        return {"x": np.array([row + [0] * (width - len(row)) for row in features["x"]])}


class Empty(Pairs):
    def finalize(self, batch):
        pass


class Random(Pairs):
    def collate_batch(self, features):
        return {"x": np.random.default_rng().random(3)}


class Unsendable(Pairs):
    def collate_batch(self, features):
        return {"x": (i for i in range(3))}


def test_check_collator_passes_collators():
    check_collator(Pairs(), {"x": [1, 2]})
    check_collator(NumpyDataCollator(), {"x": np.arange(3), "y": [1.5, 2.5, 3.5], "none": None})
    check_collator(TorchDataCollator(), {"x": np.arange(3)})
    table = pa.table({"l": [[1], [2, 3], []], "text": ["a", "", "c"]})
    dataset = FieldsDataset([FieldSpec("l", ragged="jagged"), "text"])
    from pyloader_delta.testing.contracts import _columns, _encoded

    check_collator(NumpyDataCollator(), _encoded(dataset, _columns(table, exact=False), 0, 3))


@pytest.mark.parametrize(
    ("collator", "features", "error", "text"),
    [
        (Padded(), {"x": [[1], [2, 3], [4]]}, AssertionError, r"Padded is rowwise, but.*output 'x'.*\(1, 1\)"),
        (Empty(), {"x": [1, 2]}, AssertionError, "Empty.finalize returned None"),
        (Random(), {"x": [1, 2]}, AssertionError, "Random.collate_batch gave the same rows again otherwise"),
        (
            Unsendable(),
            {"x": [1, 2]},
            ContractError,
            "Unsendable.collate_batch returned something that cannot be pickled",
        ),
        (Pairs(), {"x": [1]}, ConfigError, "two rows or more"),
    ],
)
def test_check_collator_names_what_is_wrong(collator, features, error, text):
    with pytest.raises(error, match=text):
        check_collator(collator, features)


# Comparing -----------------------------------------------------------------------------------------------------------

NAN = float("nan")


@pytest.mark.parametrize(
    ("found", "expected", "text"),
    [
        ({"x": np.array([NAN, 1])}, {"x": np.array([NAN, 1])}, None),
        ({"x": np.array([NAN, 1])}, {"x": np.array([NAN, 2])},
         "output 'x': np.float64(1.0) at [1], expected np.float64(2.0) (1 values differ)"),
        ({"x": np.arange(2)}, {"x": np.arange(2.0)}, "output 'x': int64 of shape (2,), expected float64 of shape (2,)"),
        ({"x": [1, True]}, {"x": [1, 1]}, "output 'x': [1] True is a bool, expected 1, a int"),
        ({"x": 1}, {"y": 1}, "it has the outputs ['x'], expected ['y']"),
        ([NAN, {"a": (1, "b")}], [NAN, {"a": (1, "c")}], "output 'batch': [1] ['a'] [1] 'b', expected 'c'"),
        (np.array(["NaT", "2020-01-01"], "M8[s]"), np.array(["NaT", "2020-01-01"], "M8[s]"), None),
        (np.array([1, "a"], object), np.array([1, "b"], object), "output 'batch': [1] 'a', expected 'b'"),
        ((np.zeros(1),), [np.zeros(1)], "it is a tuple, expected a list"),
    ],
)  # fmt: skip
def test_the_first_difference_in_words(found, expected, text):
    assert difference(found, expected) == text


def test_tensors_are_compared_as_they_are():
    torch = pytest.importorskip("torch")
    half = torch.tensor([1.0, 2.0], dtype=torch.bfloat16)
    assert unlike(half, half.clone()) is None
    assert unlike(half, half.float()).startswith("torch.bfloat16 of shape (2,), expected torch.float32")
    assert unlike(half, half * 2) == "[0] 1.0, expected 2.0"
    jagged = torch.nested.nested_tensor([torch.arange(2), torch.arange(3)], layout=torch.jagged)
    assert unlike(jagged, jagged.clone()) is None
