"""Batches stay where their window lies: what that must not change for anybody else."""

import os
import signal
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pytest
from deltalake import write_deltalake

from pyloader_delta import DataLoader, Dataset, DeltaDataReader, FieldSpec, NumpyDataCollator
from pyloader_delta.arrays import empty_aligned

N = 150_000
BATCH = 500  # neither a multiple of 64 bytes nor a divisor of a row group


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    root = str(tmp_path_factory.mktemp("lent") / "table")
    for start in range(0, N, 50_000):
        ids = np.arange(start, start + 50_000)
        rows = {"id": ids, "x": ids.astype(np.float32), "s": pa.array([str(i) for i in ids])}
        write_deltalake(root, pa.table(rows), mode="append")
    return root


class Through(Dataset):
    input_format = "numpy"
    rowwise = True

    def batch_encode(self, batch):
        return {"id": batch["id"], "x": batch["x"]}


def loader(root, reader=None, dataset=None, **options):
    reader = reader or DeltaDataReader(BATCH)
    return DataLoader(
        reader, dataset or Through(), NumpyDataCollator(), root, num_workers=2, workers="thread", **options
    )


def neighbours(batches, name="x"):
    """Return how many batches begin where the one before them ends."""
    ends = [b[name].ctypes.data + b[name].nbytes for b in batches]
    return sum(end == b[name].ctypes.data for end, b in zip(ends, batches[1:], strict=False))


@pytest.mark.parametrize("shuffle", [False, True])
def test_batches_of_a_window_are_views_of_it_and_come_exactly_once(table, shuffle):
    with loader(table, DeltaDataReader(BATCH, shuffle=shuffle, columns=["id", "x"])) as batches:
        kept = list(batches)
        assert batches.stats()["leased_bytes"] > 0
        ids = np.concatenate([b["id"] for b in kept])
        assert sorted(ids) == list(range(N))
        assert (list(ids) == list(range(N))) != shuffle
        assert all((b["x"] == b["id"]).all() for b in kept)
        assert neighbours(kept) > len(kept) * 0.8
        before = [b["x"].copy() for b in kept]
        for b in kept[::2]:
            b["x"][:] = -1
        assert all((b["x"] == old).all() for b, old in list(zip(kept, before, strict=True))[1::2])
        del kept, b
        batches.close()


def test_what_is_kept_stays_within_its_share_of_the_budget(table):
    with loader(table, memory_budget="4MiB") as batches:
        kept, before, run_bytes = [], 0.0, 0.0
        for batch in batches:
            kept.append(batch)
            leased = batches.stats()["leased_bytes"]
            before, run_bytes = leased, max(run_bytes, leased - before)
            assert leased <= 0.1 * (4 << 20) + 2 * run_bytes  # one may be lent beside the one in the loop's hands
        assert leased < N * 12  # what all of them take
        assert np.concatenate([b["id"] for b in kept]).tolist() == list(range(N))


class Keeps(Through):
    kept: ClassVar[list] = []

    def batch_encode(self, batch):
        self.kept.append(batch["x"])
        return super().batch_encode(batch)


def test_what_user_code_keeps_of_its_input_is_its_own(table):
    Keeps.kept.clear()
    with loader(table, dataset=Keeps()) as batches:
        for batch in batches:
            batch["x"][:] = -1
    assert sorted(np.concatenate(Keeps.kept)) == list(range(N))


class Cached(DeltaDataReader):
    tables: ClassVar[dict] = {}

    def read_chunk(self, chunk):
        if chunk not in self.tables:
            self.tables[chunk] = super().read_chunk(chunk)
        return self.tables[chunk]


def test_a_table_that_user_code_holds_is_never_lent(table):
    Cached.tables.clear()
    with loader(table, Cached(BATCH), num_epoch=2) as batches:
        for batch in batches:
            assert (batch["x"] == batch["id"]).all()
            batch["x"][:] = -1


def test_views_outlive_the_loader(table):
    with loader(table) as batches:
        kept = [batch["x"][7:9] for batch in batches]
    assert np.concatenate(kept).tolist() == [b * BATCH + i for b in range(N // BATCH) for i in (7, 8)]


class Twice(Through):
    def batch_encode(self, batch):
        return {"id": batch["id"], "x": batch["x"], "again": batch["x"], "part": batch["id"].reshape(-1, 1)}


def test_entries_on_the_same_memory_become_the_receivers_own_each(table):
    with loader(table, dataset=Twice()) as batches:
        for batch in batches:
            batch["x"][:] = -1
            batch["part"][:] = -1
            assert (batch["again"] == batch["id"]).all()


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    root = str(tmp_path_factory.mktemp("images") / "table")
    for start in range(0, 6000, 2000):
        ids = np.arange(start, start + 2000)
        pictures = [bytes([i % 251]) * 784 for i in ids]
        write_deltalake(root, pa.table({"id": ids, "picture": pictures, "x": ids * 0.5}), mode="append")
    return root


def of_images(root, **options):
    fields = ["id", FieldSpec("picture", decode_numpy_and_apply_shape=(28, 28))]
    options = {"framework": "numpy", "num_workers": 2, "workers": "thread"} | options
    return DataLoader.from_delta(root, batch_size=100, fields=fields, features=["x"], **options)


def test_images_are_views_of_what_was_decoded_and_matrices_of_what_was_made(images):
    with of_images(images) as batches:
        kept = list(batches)
        assert neighbours(kept, "picture") > len(kept) * 0.8
        assert [int(i) for b in kept for i in b["id"]] == list(range(6000))
        for b in kept[::2]:
            b["picture"][:] = 255
            b["features"][:] = -1
        for b in kept[1::2]:
            assert (b["picture"] == (b["id"] % 251).astype(np.uint8)[:, None, None]).all()
            assert (b["features"][:, 0] == b["id"] * 0.5).all()
        del kept, b


def test_images_are_the_same_in_every_executor(images):
    found = []
    for options in ({"num_workers": 0}, {"workers": "thread"}, {"workers": "process"}):
        with of_images(images, shuffle=True, random_seed=3, **options) as batches:
            found.append([(b["id"].tolist(), b["picture"].tobytes(), b["features"].tobytes()) for b in batches])
    assert found[0] == found[1] == found[2]


@pytest.mark.parametrize("workers", ["thread", "process"])
def test_shuffled_images_are_views_of_where_readers_put_them(images, workers):
    options = {"num_workers": 1, "workers": workers, "shuffle": True, "shuffle_window": 2000, "num_epoch": 3}
    with of_images(images, **options) as batches:
        kept = list(batches)[-60:]  # of the first windows it is not known yet that all rows are of one width
        assert neighbours(kept, "picture") > len(kept) * 0.8
        assert sorted(int(i) for b in kept for i in b["id"]) == list(range(6000))
        for b in kept[::2]:
            b["picture"][:] = 255
        for b in kept[1::2]:
            assert (b["picture"] == (b["id"] % 251).astype(np.uint8)[:, None, None]).all()
        del kept, b


SEEN: list = []


def seen(picture):
    SEEN.append(picture)
    return picture.copy()


def test_images_that_a_function_keeps_stay_as_they_were(images):
    SEEN.clear()
    fields = ["id", FieldSpec("picture", decode_numpy_and_apply_shape=(28, 28), transform=seen)]
    options = {"shuffle": True, "shuffle_window": 2000, "num_epoch": 3, "num_workers": 1, "workers": "thread"}
    with DataLoader.from_delta(images, batch_size=100, fields=fields, framework="numpy", **options) as batches:
        numbers = [int(i) % 251 for b in batches for i in b["id"]]
    assert len(SEEN) == 18_000
    assert all((picture == number).all() for picture, number in zip(SEEN, numbers, strict=True))


class Fixed(Through):
    """Returns memory of its own, the same for each call."""

    def open(self):
        self.room = empty_aligned((1 << 20,), np.dtype(np.float32))

    def batch_encode(self, batch):
        values = self.room[: len(batch["x"])]
        values[:] = batch["x"]
        return {"id": batch["id"], "x": values}


def test_memory_that_user_code_uses_again_is_copied(table):
    with loader(table, dataset=Fixed()) as batches:
        kept = list(batches)
    assert all((b["x"] == b["id"]).all() for b in kept)


class FixedCollator(NumpyDataCollator):
    """Returns memory of its own, the same for each batch."""

    def open(self):
        self.room = np.empty(BATCH, np.float32)

    def collate_batch(self, features):
        values = self.room[: len(features["x"])]
        values[:] = features["x"]
        return {"id": features["id"], "x": values}


@pytest.mark.parametrize("workers", ["thread", "process"])
def test_memory_that_a_collator_uses_again_is_copied(table, workers):
    parts = DeltaDataReader(BATCH), Through(), FixedCollator(), table
    with DataLoader(*parts, num_workers=2, workers=workers) as batches:
        kept = list(batches)
    assert [n for b in kept for n in b["id"]] == list(range(N))
    assert all((b["x"] == b["id"]).all() for b in kept)


@pytest.mark.parametrize("shuffle", [False, True])
def test_in_processes_batches_stay_in_the_shared_memory_of_their_window(table, shuffle):
    reader = DeltaDataReader(BATCH, shuffle=shuffle, columns=["id", "x"])
    with DataLoader(reader, Through(), NumpyDataCollator(), table, num_workers=2, workers="process") as batches:
        kept = list(batches)
        assert neighbours(kept) > len(kept) * 0.8
        assert sorted(n for b in kept for n in b["id"]) == list(range(N))
        for b in kept[::2]:
            b["x"][:] = -1
        assert all((b["x"] == b["id"]).all() for b in kept[1::2])
        del kept, b
        assert sum(len(b["id"]) for b in batches) == N  # in the memory that was given back


class DiesOnce(Through):
    """Changes its input, and ends its worker when that is done, once."""

    def __init__(self, mark):
        self.mark = mark

    def batch_encode(self, batch):
        batch["x"] += 1
        if batch["id"].max() > N // 2 and not self.mark.exists():
            self.mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().batch_encode(batch)


@pytest.mark.parametrize("shuffle", [False, True])
def test_a_run_that_is_done_again_gets_its_rows_as_they_were(table, tmp_path, shuffle):
    parts = DeltaDataReader(BATCH, shuffle=shuffle), DiesOnce(tmp_path / "mark"), NumpyDataCollator(), table
    with DataLoader(*parts, num_workers=2, workers="process", shuffle=shuffle) as batches:
        found = [(b["id"], b["x"]) for b in batches]
    assert (tmp_path / "mark").exists()
    ids, xs = (np.concatenate(part) for part in zip(*found, strict=True))
    assert sorted(ids) == list(range(N))
    assert (xs == ids + 1).all()
