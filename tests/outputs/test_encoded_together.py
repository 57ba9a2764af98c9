"""How many rows a `rowwise` dataset gets in one call: what the docs say, whatever the budget."""

import io

import numpy as np
import pyarrow as pa
import pytest
from deltalake import write_deltalake
from PIL import Image

from pyloader_delta import DataLoader, Dataset, DeltaDataReader, FieldSpec, NumpyDataCollator
from pyloader_delta.encode.fields import FieldsDataset
from pyloader_delta.values import Columns

N_ROWS, BATCH_SIZE = 400_000, 1000


class Counting(Dataset):
    """Tells with each row how many there were in its call."""

    rowwise = True

    def __init__(self, input_format):
        self.input_format = input_format

    def batch_encode(self, batch):
        n_rows = batch.num_rows if self.input_format == "arrow" else len(batch["x"])
        return {"n": [n_rows] * n_rows}


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """One row group of 3.2 MB."""
    path = tmp_path_factory.mktemp("t") / "t"
    write_deltalake(path, pa.table({"x": np.arange(N_ROWS)}))
    return str(path)


def calls(table, input_format, **options):
    """Return how many rows came with each number of rows in a call."""
    reader = DeltaDataReader(BATCH_SIZE, shuffle="shuffle_window" in options)
    with DataLoader(reader, Counting(input_format), NumpyDataCollator(), table, num_workers=0, **options) as loader:
        found = np.concatenate([batch["n"] for batch in loader])
    return dict(zip(*(part.tolist() for part in np.unique(found, return_counts=True)), strict=True))


@pytest.mark.parametrize(
    ("input_format", "options", "most"),
    [
        ("python", {}, 4096),
        ("numpy", {}, 131_072),
        ("arrow", {}, 131_072),
        ("numpy", {"memory_budget": "24MiB"}, 131_072),
        ("numpy", {"shuffle_window": "1MiB"}, (1 << 20) // 4 // 8),
        ("numpy", {"shuffle_window": 80_000}, 20_000),
    ],
)
def test_what_is_encoded_together(table, input_format, options, most):
    found = calls(table, input_format, **options)
    assert sum(found.values()) == N_ROWS
    assert max(found) == most // BATCH_SIZE * BATCH_SIZE


def test_an_epochs_first_batch_is_encoded_alone_and_then_twice_as_many_each_time(table):
    """Training begins when one batch is there, however long encoding thousands of rows takes."""
    asked = []

    class Slow(Counting):
        def batch_encode(self, batch):
            asked.append(len(batch["x"]))
            return super().batch_encode(batch)

    with DataLoader(DeltaDataReader(BATCH_SIZE), Slow("numpy"), NumpyDataCollator(), table, num_workers=0) as loader:
        epoch = iter(loader)
        next(epoch)
        assert asked == [1000]
        assert sum(len(batch["n"]) for batch in epoch) == N_ROWS - 1000
    assert asked == [1000, 2000, 4000, 8000, 16_000, 32_000, 64_000, 128_000, 131_000, 14_000]


@pytest.fixture
def asked(monkeypatch):
    """How many rows each call of a FieldsDataset got."""
    found = []
    encode = FieldsDataset.batch_encode

    def spied(self, batch_data):
        columns = batch_data.arrays if isinstance(batch_data, Columns) else batch_data.columns
        found.append(len(columns[0]))
        return encode(self, batch_data)

    monkeypatch.setattr(FieldsDataset, "batch_encode", spied)
    return found


@pytest.mark.parametrize(
    ("options", "most"),
    [({"transform": lambda x: x}, 1000), ({"batch_transform": lambda x: x}, 1000), ({}, 131_000)],
)
def test_rows_for_which_a_function_is_called_are_few_in_a_call(table, asked, options, most):
    fields = [FieldSpec("x", **options)]
    with DataLoader.from_delta(table, BATCH_SIZE, fields=fields, framework="numpy", num_workers=0) as loader:
        assert sum(len(batch["x"]) for batch in loader) == N_ROWS
    assert sum(asked) == N_ROWS
    assert max(asked) == most


def test_the_first_batch_of_images_waits_for_few_of_them(tmp_path, asked):
    png = io.BytesIO()
    Image.new("RGB", (2, 3)).save(png, "PNG")
    write_deltalake(tmp_path / "t", pa.table({"image": [png.getvalue()] * 600}))
    fields = [FieldSpec("image", decode="image")]
    with DataLoader.from_delta(tmp_path / "t", 32, fields=fields, framework="numpy", num_workers=0) as loader:
        assert [batch["image"].shape for batch in loader][:2] == [(32, 3, 2, 3)] * 2
    assert sum(asked) == 600
    assert asked[:4] == [32, 64, 128, 128]
    assert max(asked) == 128
