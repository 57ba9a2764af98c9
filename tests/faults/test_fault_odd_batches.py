"""A batch that cannot be pickled; that is larger than a slab; a million tiny batches."""

import threading
from typing import Any

import numpy as np
from fakes import AsIs, CountedNumbers, NumpyThrough, OwnError, Through, number_files, numbers, text_of, until_error
from under_fire import Numbered, numbered_files

from pyloader_delta import ContractError, DataLoader, NumpyDataCollator


class ReturnsALock(AsIs):
    def collate_batch(self, features):
        return threading.Lock() if 4 in features["x"] else features["x"]


def test_a_batch_that_cannot_be_pickled_is_named_after_the_batches_before_it(tmp_path):
    root = number_files(tmp_path / "n", [3, 3])
    options = {"num_workers": 1, "workers": "process"}
    with DataLoader(CountedNumbers(batch_size=2), Through(), ReturnsALock(), root, **options) as loader:
        delivered, error = until_error(loader)
    assert delivered == [[0, 1], [2, 3]]
    assert type(error) is ContractError
    assert "collate_batch returned something that cannot be pickled" in str(error)
    assert "batch 2, rows 4..5" in text_of(error)


class DoesNotComeBack:
    def __reduce__(self):
        return (_fail_in, (__import__("os").getpid(),))


def _fail_in(pid: int) -> Any:
    if __import__("os").getpid() != pid:
        raise OwnError("does not come back")
    return DoesNotComeBack()


class ReturnsWhatDoesNotComeBack(AsIs):
    def collate_batch(self, features):
        return DoesNotComeBack() if 2 in features["x"] else features["x"]


def test_a_batch_that_cannot_be_unpickled_is_an_error_and_the_loader_goes_on(tmp_path):
    root = number_files(tmp_path / "n", [2, 2])
    parts = CountedNumbers(batch_size=2), Through(), ReturnsWhatDoesNotComeBack(), root
    with DataLoader(*parts, num_workers=1, workers="process") as loader:
        for _ in range(2):
            delivered, error = until_error(loader)
            assert delivered == [[0, 1]]
            assert "does not come back" in text_of(error)


class Swells(NumpyThrough):
    """Gives batches of 16 bytes, and now and then one of 12 MB, which no slab for the others would hold."""

    def batch_encode(self, batch_data: Any) -> Any:
        wide = 750_000 if batch_data["x"][0] % 8 == 4 else 1
        return {"x": batch_data["x"], "wide": np.repeat(batch_data["x"][:, None], wide, axis=1)}


def test_a_batch_larger_than_a_slab_takes_a_larger_one(tmp_path, executor):
    root = number_files(tmp_path / "n", [8, 8, 8])
    with numbers(root, dataset=Swells(), memory_budget="128MiB", num_epoch=2, **executor) as loader:
        found = []
        for batch in loader:
            assert batch["wide"].shape == (2, 750_000 if batch["x"][0] % 8 == 4 else 1)
            assert (batch["wide"] == batch["x"][:, None]).all()
            found += batch["x"].tolist()
    assert found == [*range(24)] * 2


def test_a_million_tiny_batches_come_one_by_one(tmp_path_factory, executor):
    root = numbered_files(tmp_path_factory.mktemp("million") / "n", 20)
    limit = 1_000_000 if executor.get("workers") == "thread" else 20_000  # a million once: it takes 15 s of a processor
    reader = Numbered(batch_size=1)
    with DataLoader(reader, Plain(), NumpyDataCollator(), root, limit=limit, **executor) as loader:
        expected = 0
        for batch in loader:
            if batch["x"][0] != expected:
                break
            expected += 1
        assert expected == limit
        assert loader.stats()["rows_delivered_total"] == expected
        held = loader.memory()
        assert held.batches == 0


class Plain(NumpyThrough):
    rowwise = True

    def batch_encode(self, batch_data: Any) -> Any:
        return {"x": batch_data["x"]}
