"""What a user of PyLoader is used to, part by part: readers alone, batches one by one, the classes that come ready."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from deltalake import write_deltalake

from pyloader_delta import (
    ContractError,
    DataCollator,
    DataLoader,
    DataReader,
    Dataset,
    DeltaDataReader,
    JsonLineDataReader,
    NumpyDataCollator,
    ReadError,
    TableError,
    TextDataset,
)

INLINE = {"num_workers": 0}


class Numbers(DataReader):
    """Reads a file of numbers, one a line."""

    def __init__(self, batch_size=16, shuffle=False, random_seed=42):
        super(Numbers, self).__init__(batch_size, shuffle=shuffle, random_seed=random_seed)  # noqa: UP008

    def read_file(self, path):
        numbers = [int(line) for line in Path(path).read_text().split()]
        return {"n": numbers, "square": [n * n for n in numbers]}, len(numbers)


class AsTheyAre(Dataset):
    def batch_encode(self, batch_data):
        return batch_data


def write_numbers(folder: Path, *files: list[int]) -> str:
    for number, numbers in enumerate(files):
        (folder / f"{number}.txt").write_text("\n".join(map(str, numbers)))
    return str(folder)


# A reader alone -----------------------------------------------------------------------------------------------------


def test_a_reader_loads_one_file_and_gives_its_batches(tmp_path):
    reader = Numbers(batch_size=3)
    assert (len(reader), reader.n_sample, reader.n_batch) == (0, 0, 0)
    reader.load(write_numbers(tmp_path, [1, 2, 3, 4, 5]) + "/0.txt")
    assert (len(reader), reader.n_sample, reader.n_batch) == (5, 5, 2)
    assert reader.get_batch(0) == ({"n": [1, 2, 3], "square": [1, 4, 9]}, 3)
    assert reader.get_batch(1) == ({"n": [4, 5], "square": [16, 25]}, 2)


def test_a_reader_may_be_given_another_function_that_reads(tmp_path):
    reader = Numbers(batch_size=2)
    reader.load("anywhere", read_fn=lambda path: ({"path": [path, path]}, 2))
    assert reader.get_batch(0) == ({"path": ["anywhere", "anywhere"]}, 2)


def test_a_loaded_file_is_mixed_by_the_seed_with_rows_kept_whole(tmp_path):
    path = write_numbers(tmp_path, list(range(20))) + "/0.txt"
    orders = []
    for seed in (7, 7, 0):
        reader = Numbers(batch_size=20, shuffle=True, random_seed=seed)
        reader.load(path)
        batch, _ = reader.get_batch(0)
        assert batch["square"] == [n * n for n in batch["n"]]
        assert sorted(batch["n"]) == list(range(20))
        orders.append(batch["n"])
    assert orders[0] == orders[1] != orders[2]


def test_a_loaded_file_of_unequal_columns_is_an_error():
    with pytest.raises(ContractError, match="column 'a' has 1 row, but column 'b' has 2"):
        Numbers().load("file", read_fn=lambda path: ({"a": [1], "b": [1, 2]}, 2))


def test_an_empty_reader_is_true():
    assert Numbers()  # `if reader:` means "is there one", as for every object without a length


# Batches one by one -------------------------------------------------------------------------------------------------


def test_get_batch_and_next_give_the_same_pass(tmp_path):
    folder = write_numbers(tmp_path, [1, 2, 3], [4, 5])
    with DataLoader(Numbers(2), AsTheyAre(), NumpyDataCollator(), folder, **INLINE) as loader:
        found = [loader.get_batch()["n"].tolist(), next(loader)["n"].tolist(), loader.get_batch()["n"].tolist()]
        assert found == [[1, 2], [3, 4], [5]]
        with pytest.raises(StopIteration):
            loader.get_batch()


def test_get_batch_may_be_called_in_a_loop_until_the_end(tmp_path):
    folder = write_numbers(tmp_path, [1, 2, 3], [4, 5])
    found = []
    with DataLoader(Numbers(2), AsTheyAre(), NumpyDataCollator(), folder, num_epoch=2, **INLINE) as loader:
        while True:
            try:
                found += loader.get_batch()["n"].tolist()
            except StopIteration:
                break
    assert found == [1, 2, 3, 4, 5] * 2


def test_a_user_may_put_a_batch_back_changed(tmp_path):
    folder = write_numbers(tmp_path, [1, 2])
    with DataLoader(Numbers(2), AsTheyAre(), NumpyDataCollator(), folder, **INLINE) as loader:
        for inputs in loader:
            for k in inputs:
                inputs[k] = inputs[k] + 1
            inputs["n"] += 1  # what arrives may be written to
            assert inputs["n"].tolist() == [3, 4]


# The ready-made classes ---------------------------------------------------------------------------------------------


def test_json_lines_without_a_key_give_none(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"x": 1, "y": 2}\n{"y": 3}\n\n{"x": 4, "z": [5]}\n')
    columns, n_rows = JsonLineDataReader().read_file(str(tmp_path / "a.jsonl"))
    assert n_rows == 3
    assert columns == {"x": [1, None, 4], "y": [2, 3, None], "z": [None, None, [5]]}


def test_a_key_that_a_whole_file_lacks_gives_none_there(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"x": 1}\n')
    (tmp_path / "b.jsonl").write_text('{"x": 2, "y": "two"}\n')
    (tmp_path / "c.jsonl").write_text('{"y": "three"}\n')
    with DataLoader(JsonLineDataReader(4), AsTheyAre(), Raw(), str(tmp_path), **INLINE) as loader:
        assert list(loader) == [{"x": [1, 2, None], "y": [None, "two", "three"]}]


@pytest.mark.parametrize(
    ("text", "message"),
    [('{"x": 1}\n{"x":\n', r"a\.jsonl, line 2: not JSON"), ("[1]\n", "line 1: a JSON object is wanted, got list")],
)
def test_a_broken_line_is_named(tmp_path, text, message):
    (tmp_path / "a.jsonl").write_text(text)
    with pytest.raises(ReadError, match=message):
        JsonLineDataReader().read_file(str(tmp_path / "a.jsonl"))


class Raw(DataCollator):
    def collate_batch(self, features):
        return dict(features)


def test_text_becomes_padded_ids_by_a_vocabulary(tmp_path):
    vocab = tmp_path / "vocab.txt"
    vocab.write_text("<pad>\t9\ngood\t5\nbad\t4\nrare\t1\n")
    dataset = TextDataset(str(vocab), max_seq_len=4, max_vocab_size=3)
    assert dataset.stoi == {"<pad>": 0, "good": 1, "bad": 2}
    assert dataset.batch_encode({"input_text": ["bad good", "good rare bad good bad"], "label": [0, 1]}) == {
        "input_ids": [[2, 1, 0, 0], [1, 0, 2, 1]],
        "attention_mask": [[1, 1, 0, 0], [1, 1, 1, 1]],
        "label": [0, 1],
    }


def test_text_without_a_vocabulary_is_ids():
    encoded = TextDataset(max_seq_len=3).batch_encode({"input_text": ["7 8"]})
    assert encoded == {"input_ids": [[7, 8, 0]], "attention_mask": [[1, 1, 0]]}


def test_the_numpy_collator_makes_an_array_of_each_entry():
    batch = NumpyDataCollator().collate_batch({"ids": [[1, 2], [3, 4]], "label": [0, 1], "score": [0.5, 1], "no": None})
    assert {name: (values.dtype, values.shape) for name, values in batch.items()} == {
        "ids": (np.int64, (2, 2)),
        "label": (np.int64, (2,)),
        "score": (np.float64, (2,)),
    }


# From chunk files to a table ----------------------------------------------------------------------------------------


class TableReader(DeltaDataReader):
    """`Numbers` with another base and without `read_file`; its `__init__` is word for word the same."""

    def __init__(self, batch_size=16, shuffle=False, random_seed=42):
        super(TableReader, self).__init__(batch_size, shuffle=shuffle, random_seed=random_seed)  # noqa: UP008


def test_a_reader_with_another_base_and_without_read_file_reads_a_table(tmp_path):
    files = [[1, 2, 3], [4, 5, 6, 7], [8]]
    (tmp_path / "files").mkdir()
    folder = write_numbers(tmp_path / "files", *files)
    table = str(tmp_path / "table")
    for numbers in files:
        rows = pa.table({"n": numbers, "square": [n * n for n in numbers]})
        write_deltalake(table, rows, mode="append")
    found = {}
    for reader, root in ((Numbers(3, shuffle=True), folder), (TableReader(3, shuffle=True), table)):
        with DataLoader(reader, AsTheyAre(), Raw(), root, num_epoch=2, shuffle=True, **INLINE) as loader:
            batches = list(loader)
        assert all(batch["square"] == [n * n for n in batch["n"]] for batch in batches)
        assert [len(batch["n"]) for batch in batches] == [3, 3, 2, 3, 3, 2]
        found[root] = sorted(n for batch in batches for n in batch["n"])
    assert found[folder] == found[table] == sorted([1, 2, 3, 4, 5, 6, 7, 8] * 2)


def test_an_empty_table_warns_once_and_yields_no_batch(tmp_path):
    write_deltalake(str(tmp_path), pa.table({"n": pa.array([], pa.int64())}))
    with DataLoader(TableReader(), AsTheyAre(), Raw(), str(tmp_path), **INLINE) as loader:
        assert len(loader) == 0
        with pytest.warns(UserWarning, match="has no rows"):
            assert list(loader) == []


def test_a_reader_of_files_is_not_let_loose_on_a_table(tmp_path):
    write_deltalake(str(tmp_path), pa.table({"n": [1]}))
    with pytest.raises(TableError, match="read it with DeltaDataReader"):
        DataLoader(Numbers(), AsTheyAre(), Raw(), str(tmp_path))


def test_the_bases_are_subscriptable_as_annotations():
    def train(reader: DataReader[dict], dataset: Dataset[dict], loader: DataLoader[dict]) -> None: ...

    assert train.__annotations__["reader"].__origin__ is DataReader


def test_json_lines_of_the_classes_that_come_ready(chunk_files, vocab_file, n_rows):
    """All three ready-made classes in PyLoader's own combination."""
    with DataLoader(
        JsonLineDataReader(batch_size=8, shuffle=True), TextDataset(vocab_file, max_seq_len=5), NumpyDataCollator(),
        chunk_files, num_epoch=2, shuffle=True, **INLINE,
    ) as loader:  # fmt: skip
        batches = list(loader)
    rows = np.concatenate([batch["input_ids"][:, 0] for batch in batches])
    assert sorted(rows.tolist()) == sorted([*range(n_rows)] * 2)
    assert np.array_equal(np.concatenate([batch["label"] for batch in batches]), rows % 2)


def test_a_file_of_json_lines_may_be_read_alone(chunk_files):
    reader = JsonLineDataReader(batch_size=4)
    reader.load(chunk_files + "/part-0.jsonl")
    batch, size = reader.get_batch(1)
    assert (reader.n_sample, reader.n_batch, size) == (7, 2, 3)
    assert batch["id"] == [4, 5, 6]
