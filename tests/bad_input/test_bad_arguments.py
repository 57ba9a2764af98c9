"""Wrong arguments: found by the constructor, which names the argument, the bound and the value. Nothing is started."""

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from fakes import AsIs, CountedNumbers, Numbers, Through, number_files

from pyloader_delta import (
    BudgetError,
    ConfigError,
    DataCollator,
    DataLoader,
    DataReader,
    Dataset,
    DeltaDataReader,
    NumpyDataCollator,
    TableError,
)


@pytest.fixture
def root(tmp_path):
    return number_files(tmp_path / "numbers", [3, 2])


@pytest.fixture
def table(tmp_path):
    root = str(tmp_path / "table")
    write_deltalake(root, pa.table({"x": [1, 2, 3]}))
    return root


def test_a_missing_folder_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"root_dir '.*/nowhere' does not exist"):
        DataLoader(Numbers(), Through(), AsIs(), tmp_path / "nowhere")


def test_an_empty_folder_is_an_error(tmp_path):
    (tmp_path / "_hidden").touch()
    (tmp_path / "a.crc").touch()
    with pytest.raises(ConfigError, match=r"holds no chunk file \(names that begin with"):
        DataLoader(Numbers(), Through(), AsIs(), tmp_path)


def test_a_file_in_the_place_of_a_folder_is_an_error(tmp_path):
    (tmp_path / "a.txt").touch()
    with pytest.raises(ConfigError, match=r"must be a folder of chunk files, .* is a file"):
        DataLoader(Numbers(), Through(), AsIs(), tmp_path / "a.txt")


def test_a_missing_table_is_named(tmp_path):
    with pytest.raises(TableError, match="nowhere"):
        DataLoader(DeltaDataReader(), Through(), AsIs(), tmp_path / "nowhere")
    with pytest.raises(TableError, match="_delta_log"):
        DataLoader(DeltaDataReader(), Through(), AsIs(), tmp_path)


def test_a_missing_version_is_named(table):
    with pytest.raises(TableError, match="version 7"):
        DataLoader(DeltaDataReader(version=7), Through(), AsIs(), table)


def test_the_folder_of_a_table_is_not_read_as_files(table):
    with pytest.raises(TableError, match="read it with DeltaDataReader"):
        DataLoader(Numbers(), Through(), AsIs(), table)


def test_an_unknown_column_is_named_beside_those_there(table):
    with pytest.raises(ConfigError, match=r"'X', which version 0 of .* does not have; did you mean 'x'\?"):
        DataLoader(DeltaDataReader(columns=["X"]), Through(), AsIs(), table)


class NoReadFile(DataReader):
    pass


class NoBatchEncode(Dataset):
    pass


class BadFormat(Through):
    input_format = "pandas"


class EncodesWithoutItsRows(Dataset):
    def batch_encode(self):
        return {}


class CollatesWithoutItsFeatures(DataCollator):
    def collate_batch():
        return {}


class FinalizesWithoutItsBatch(AsIs):
    def finalize(self):
        return {}


class ReadsWithoutItsPath(DataReader):
    def read_file(self):
        return {}


class ReadsChunksWithoutThem(Numbers):
    def read_chunk(self):
        return {}


@pytest.mark.parametrize(
    ("parts", "text"),
    [
        ((Through(), Numbers(), AsIs()), "datareader must be a pyloader_delta.DataReader, got Through"),
        ((Numbers(), AsIs(), Through()), "dataset must be a pyloader_delta.Dataset, got AsIs"),
        ((Numbers(), Through(), None), "datacollator must be a pyloader_delta.DataCollator, got NoneType"),
        ((Numbers, Through(), AsIs()), r"an instance: datareader=Numbers\(\), not the class Numbers"),
        ((Numbers(), Through, AsIs()), r"an instance: dataset=Through\(\), not the class Through"),
        ((NoReadFile(), Through(), AsIs()), r"NoReadFile must define read_file\(self, path\)"),
        ((Numbers(), NoBatchEncode(), AsIs()), r"NoBatchEncode must define batch_encode\(self, batch_data\)"),
        ((Numbers(), BadFormat(), AsIs()), "BadFormat.input_format must be 'python', 'numpy' or 'arrow', got 'pandas'"),
        ((Numbers(), EncodesWithoutItsRows(), AsIs()), r"take one argument: def batch_encode\(self, batch_data\)"),
        ((Numbers(), Through(), CollatesWithoutItsFeatures()), r"one argument: def collate_batch\(self, features\)"),
        ((Numbers(), Through(), FinalizesWithoutItsBatch()), r"take one argument: def finalize\(self, batch\)"),
        ((ReadsChunksWithoutThem(), Through(), AsIs()), r"take one argument: def read_chunk\(self, chunk\)"),
        ((ReadsWithoutItsPath(), Through(), AsIs()), r"take one argument: def read_file\(self, path\)"),
        ((Numbers(batch_size=0), Through(), AsIs()), "Numbers.batch_size must be >= 1, got 0"),
        ((Numbers(batch_size=-3), Through(), AsIs()), "Numbers.batch_size must be >= 1, got -3"),
        ((Numbers(batch_size=2.0), Through(), AsIs()), "Numbers.batch_size must be an int, got 2.0"),
        ((Numbers(batch_size="2"), Through(), AsIs()), "Numbers.batch_size must be an int, got '2'"),
        ((Numbers(batch_size=True), Through(), AsIs()), "Numbers.batch_size must be an int, got True"),
        ((Numbers(random_seed=0.5), Through(), AsIs()), "Numbers.random_seed must be an int, got 0.5"),
        ((Numbers(shuffle="yes"), Through(), AsIs()), "Numbers.shuffle must be True or False, got 'yes'"),
    ],
)
def test_a_part_that_is_wrong_is_named(root, parts, text):
    with pytest.raises(ConfigError, match=text):
        DataLoader(*parts, root)


def test_a_collator_without_collate_batch_is_refused_by_python():
    with pytest.raises(TypeError, match="collate_batch"):
        type("Nothing", (DataCollator,), {})()


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"num_epoch": 0}, "num_epoch must be >= 1, got 0"),
        ({"num_epoch": 1.5}, "num_epoch must be an int, got 1.5"),
        ({"num_epoch": True}, "num_epoch must be an int, got True"),
        ({"max_queue_size": 0}, "max_queue_size must be >= 1, got 0"),
        ({"max_queue_size": None}, "max_queue_size must be an int, got None"),
        ({"shuffle": "no"}, "shuffle, if not 'full', must be True or False, got 'no'"),
        ({"shuffle": None}, "shuffle, if not 'full', must be True or False, got None"),
        ({"shuffle": [1, 2]}, r"shuffle, if not 'full', must be True or False, got \[1, 2\]"),
        ({"random_seed": 1.0}, "random_seed must be an int, got 1.0"),
        ({"random_seed": None}, "random_seed must be an int, got None"),
        ({"num_workers": -1}, "num_workers must be >= 0, got -1"),
        ({"num_workers": "2"}, "num_workers must be an int, got '2'"),
        ({"workers": "processes"}, "workers must be 'auto', 'thread' or 'process', got 'processes'"),
        (
            {"shuffle_window": 0},
            "shuffle_window must be a size such as '128MiB', a number of rows >= 1, 'chunk', or None",
        ),
        ({"shuffle_window": "many"}, "shuffle_window must be a size such as '128MiB', got 'many'"),
        ({"shuffle_window": 1.5}, "shuffle_window must be .*, got 1.5"),
        ({"memory_budget": 0}, "memory_budget must be at least one byte, got 0"),
        ({"memory_budget": "1 parsec"}, "memory_budget must be a size such as '128MiB', got '1 parsec'"),
        ({"memory_budget": 1e9}, "memory_budget must be a number of bytes or a size"),
        ({"limit": 0}, "limit must be >= 1, got 0"),
        ({"on_error": "ignore"}, "on_error must be 'raise' or 'skip', got 'ignore'"),
        ({"audit": "yes"}, "audit must be True or False, got 'yes'"),
        ({"trace": 3}, "trace must be True or False, got 3"),
        ({"drop_last": 2}, "drop_last must be True or False, got 2"),
        ({"prefetch_factor": 0}, "prefetch_factor must be >= 1, got 0"),
        ({"timeout": -1}, r"timeout must be a number of seconds >= 0 \(0: no limit\), got -1"),
        ({"timeout": float("nan")}, "timeout must be a number of seconds >= 0"),
        ({"timeout": "5"}, "timeout must be a number of seconds >= 0"),
    ],
)
def test_an_option_that_is_wrong_is_named_with_bound_and_value(root, options, text):
    with pytest.raises(ConfigError, match=text):
        DataLoader(Numbers(), Through(), AsIs(), root, **options)


@pytest.mark.parametrize("root_dir", [None, "", 5, b"/tmp", ["/tmp"]])
def test_a_root_that_is_no_path_is_named(root_dir):
    with pytest.raises(ConfigError, match="root_dir must be the path of a folder or the URI of a table, got"):
        DataLoader(Numbers(), Through(), AsIs(), root_dir)


def test_batch_size_belongs_to_the_reader(root):
    with pytest.raises(ConfigError, match=r"batch_size belongs to the reader: Numbers\(batch_size=32\)"):
        DataLoader(Numbers(), Through(), AsIs(), root, batch_size=32)


def test_an_option_that_does_not_exist_is_named(root):
    with pytest.raises(TypeError, match="unexpected keyword argument 'num_epochs'"):
        DataLoader(Numbers(), Through(), AsIs(), root, num_epochs=3)


def test_numbers_of_numpy_are_numbers(root):
    import numpy as np

    reader = Numbers(batch_size=np.int64(2), random_seed=np.uint8(3), shuffle=np.bool_(False))
    options = {"num_epoch": np.int32(1), "num_workers": np.int64(0), "memory_budget": np.int64(1 << 30)}
    with DataLoader(reader, Through(), NumpyDataCollator(), root, drop_last=np.bool_(True), **options) as loader:
        assert type(loader.batch_size) is int
        assert len(list(loader)) == 2


def test_a_count_that_is_no_number_of_rows_is_named(root):
    class Counts(Numbers):
        def count_samples(self, path):
            return -1

    with pytest.raises(ValueError, match=r"Counts.count_samples\('.*/00.txt'\) must return a number of rows >= 0"):
        DataLoader(Counts(), Through(), AsIs(), root)


def test_a_window_in_rows_needs_known_lengths(root):
    with pytest.raises(ConfigError, match=r"define count_samples\(self, path\) in Numbers, or give a size"):
        DataLoader(Numbers(shuffle=True), Through(), AsIs(), root, shuffle_window=10)
    DataLoader(CountedNumbers(shuffle=True), Through(), AsIs(), root, shuffle_window=10)


def test_a_budget_too_small_for_the_plan_says_which_would_do(root, executor):
    with DataLoader(CountedNumbers(), Through(), AsIs(), root, memory_budget=1, **executor) as loader:
        with pytest.raises(
            BudgetError, match=r"memory_budget of 1 bytes is too small: .* Raise memory_budget to 1[0-9] "
        ):
            next(iter(loader))
        with pytest.raises(BudgetError, match="too small"):
            next(loader)
