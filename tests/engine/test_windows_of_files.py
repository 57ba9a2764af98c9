"""Files that differ in their columns, loaders that share a reader, datasets that keep their input: rows stay right."""

import numpy as np
import pytest

from pyloader_delta import DataCollator, DataLoader, DataReader, Dataset, DeltaDataReader, NumpyDataCollator
from pyloader_delta.engine.pack import Tray

ROWS = 70_000  # a file; two columns of them make a window of more than 1 MiB
PLACES = [(0, "auto"), (2, "thread"), (2, "process")]


class Numbered(DataReader):
    """Files of ROWS rows whose contents follow from their names."""

    missing_as_none = True

    def count_samples(self, path):
        return ROWS

    def read_file(self, path):
        number = int(path[-5])
        columns = {"id": np.arange(number * ROWS, (number + 1) * ROWS)}
        if number != 1:
            columns["x"] = columns["id"] * 0.5
        return columns, ROWS


class Through(Dataset):
    input_format = "arrow"

    def batch_encode(self, batch):
        assert batch.schema.names == ["id", "x"], batch.schema.names
        return {"id": batch["id"], "x": batch["x"].fill_null(-1.0)}


@pytest.mark.parametrize(("num_workers", "workers"), PLACES)
def test_a_column_that_a_file_of_a_mixed_window_lacks_is_null_there(tmp_path, num_workers, workers):
    for number in (0, 1, 2):
        (tmp_path / f"{number}.txt").touch()
    reader = Numbered(batch_size=1000, shuffle=True)
    options = {"num_epoch": 2, "shuffle_window": 3 * ROWS, "num_workers": num_workers, "workers": workers}
    with DataLoader(reader, Through(), NumpyDataCollator(), tmp_path, **options) as loader:
        batches = list(loader)
    ids = np.concatenate([batch["id"] for batch in batches])
    x = np.concatenate([batch["x"] for batch in batches])
    assert np.array_equal(np.sort(ids), np.sort(np.tile(np.arange(3 * ROWS), 2)))
    assert np.array_equal(x, np.where(ids // ROWS == 1, -1.0, ids * 0.5))


class OneColumn(Dataset):
    input_format = "arrow"

    def batch_encode(self, batch):
        assert batch.schema.names == ["x"], batch.schema.names
        return {"x": batch["x"].fill_null(-1.0)}


@pytest.mark.parametrize(("num_workers", "workers"), PLACES)
def test_no_column_appears_where_a_file_of_a_mixed_window_has_nulls(tmp_path, num_workers, workers):
    import pyarrow as pa
    from deltalake import write_deltalake

    for number in range(4):
        values = np.arange(number * ROWS, (number + 1) * ROWS, dtype=np.float64)
        mask = np.zeros(ROWS, dtype=bool)
        mask[0] = number == 2
        write_deltalake(tmp_path / "t", pa.table({"x": pa.array(values, mask=mask)}), mode="append")
    reader = DeltaDataReader(batch_size=1000, shuffle=True)
    options = {"shuffle_window": 4 * ROWS, "num_workers": num_workers, "workers": workers}
    with DataLoader(reader, OneColumn(), NumpyDataCollator(), tmp_path / "t", **options) as loader:
        x = np.concatenate([batch["x"] for batch in loader])
    expected = np.arange(4.0 * ROWS)
    expected[2 * ROWS] = -1.0
    assert np.array_equal(np.sort(x), np.sort(expected))


class Keeps(Dataset):
    """Keeps what it got, and hands it through."""

    input_format = "numpy"

    def __init__(self):
        self.kept = []

    def batch_encode(self, batch):
        ok = all(np.array_equal(array, copy) for array, copy in self.kept)
        self.kept.append((batch["x"], batch["x"].copy()))
        return {"x": batch["x"], "ok": np.full(len(batch["x"]), ok)}


class Thousand(DataReader):
    def read_file(self, path):
        return {"x": np.arange(1000) + 1000 * int(path[-6:-4])}


@pytest.mark.parametrize(("num_workers", "workers"), [(0, "auto"), (1, "thread"), (1, "process")])
def test_what_batch_encode_gets_is_its_own_to_keep(tmp_path, num_workers, workers):
    for number in range(20):
        (tmp_path / f"{number:02}.txt").touch()
    options = {"num_workers": num_workers, "workers": workers}
    with DataLoader(Thousand(batch_size=100), Keeps(), NumpyDataCollator(), tmp_path, **options) as loader:
        batches = [{name: array.copy() for name, array in batch.items()} for batch in loader]
    assert np.array_equal(np.concatenate([batch["x"] for batch in batches]), np.arange(20_000))
    assert all(batch["ok"].all() for batch in batches)


def test_a_dataset_that_keeps_nothing_costs_no_copy():
    taken = []

    def take(size_bytes):
        taken.append(np.zeros(size_bytes + 64, dtype=np.uint8))
        return taken[-1]

    tray = Tray(take)
    tray.open(800)
    column = tray.column(np.dtype("i8"), 100)
    column[:] = 7
    packed = tray.pack([])
    del column
    tray.leave(packed)
    assert not tray.kept
    assert len(taken) == 1


class Raw(DataCollator):
    def collate_batch(self, features):
        return features


class AsLists(Dataset):
    def batch_encode(self, batch):
        return batch


def test_loaders_that_share_a_reader_read_their_own_tables(tmp_path):
    import pyarrow as pa
    from deltalake import write_deltalake

    write_deltalake(tmp_path / "one", pa.table({"x": [1, 2, 3], "y": [1.0, 2.0, 3.0]}))
    write_deltalake(tmp_path / "two", pa.table({"z": [7, 8, 9], "y": [4.0, 5.0, 6.0]}))
    reader = DeltaDataReader(batch_size=4)
    one = DataLoader(reader, AsLists(), Raw(), tmp_path / "one", num_workers=0)
    two = DataLoader(reader, AsLists(), Raw(), tmp_path / "two", num_workers=0)
    assert list(one) == [{"x": [1, 2, 3], "y": [1.0, 2.0, 3.0]}]
    assert list(two) == [{"z": [7, 8, 9], "y": [4.0, 5.0, 6.0]}]
    assert one.snapshot.uri != two.snapshot.uri
    one.close()
    two.close()
