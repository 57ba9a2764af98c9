"""What `collate_batch` may return, and how it arrives: the same kinds, writable, aligned, the receiver's alone."""

import collections
import dataclasses
import os
import random
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest
from deltalake import write_deltalake
from fakes import ArrowThrough, AsIs, CountedNumbers, NumpyThrough, Through, number_files, numbers, xs

from pyloader_delta import (
    ContractError,
    DataCollator,
    DataLoader,
    Dataset,
    DeltaDataReader,
    NumpyDataCollator,
    TFDataCollator,
    TorchDataCollator,
    ValueTypeError,
)


@pytest.fixture
def root(tmp_path):
    """Ten rows in two files."""
    return number_files(tmp_path / "numbers", [6, 4])


def load(root: str, collator: Any, dataset: Any = None, batch_size: int = 4, **options: Any) -> DataLoader:
    return DataLoader(CountedNumbers(batch_size=batch_size), dataset or Through(), collator, root, **options)


# Nested batches ------------------------------------------------------------------------------------------------------


class Pair(NamedTuple):
    a: Any
    b: Any


@dataclasses.dataclass
class Plain:
    x: Any
    note: str = "plain"


@dataclasses.dataclass(frozen=True, slots=True)
class Frozen:
    x: Any
    inner: Any


class Nests(DataCollator):
    def collate_batch(self, features: Any) -> Any:
        x = np.array(features["x"])
        ordered = collections.OrderedDict(b=x, a=x * 2)
        default = collections.defaultdict(list, x=[x])
        return {
            "dict": {"x": x, 1: {"deep": [x, (x, "text", None)]}},
            "pair": Pair(x, Pair(b"bytes", 1.5)),
            "plain": Plain(x),
            "frozen": Frozen(x, Plain(x, "in")),
            "ordered": ordered,
            "default": default,
            "scalars": [1, 2.5, True, np.float32(1), 1j, {1, 2}],
            "objects": np.array([{"a": 1}, None], dtype=object),
            "empty": [np.zeros((0, 3), np.float32), np.array(7), np.zeros((2, 0)), {}, [], ()],
            "strings": np.array(["a", "bc"]),
            "times": np.array(["2020-01-01"], "M8[D]"),
            "record": np.array([(1, 2.0)], dtype=[("i", "i4"), ("f", "f8")]),
            "strided": np.arange(12).reshape(3, 4)[:, ::2],
            "fortran": np.asfortranarray(np.arange(6).reshape(2, 3)),
            "masked": np.ma.masked_array([1, 2], mask=[True, False]),
        }


def test_nested_batches_arrive_as_they_were_returned(root, executor):
    with load(root, Nests(), **executor) as loader:
        batches = list(loader)
    assert len(batches) == 3
    for batch, rows in zip(batches, ([0, 1, 2, 3], [4, 5, 6, 7], [8, 9]), strict=True):
        assert list(batch) == list(Nests().collate_batch({"x": rows}))
        assert batch["dict"]["x"].tolist() == rows
        deep = batch["dict"][1]["deep"]
        assert type(deep) is list
        assert type(deep[1]) is tuple
        assert deep[0].tolist() == deep[1][0].tolist() == rows
        assert deep[1][1:] == ("text", None)
        assert type(batch["pair"]) is Pair
        assert batch["pair"].a.tolist() == rows
        assert batch["pair"].b == Pair(b"bytes", 1.5)
        assert type(batch["plain"]) is Plain
        assert batch["plain"].x.tolist() == rows
        assert type(batch["frozen"]) is Frozen
        assert batch["frozen"].inner.note == "in"
        assert batch["frozen"].inner.x.tolist() == rows
        assert type(batch["ordered"]) is collections.OrderedDict
        assert list(batch["ordered"]) == ["b", "a"]
        assert batch["ordered"]["a"].tolist() == [2 * x for x in rows]
        assert type(batch["default"]) is collections.defaultdict
        assert batch["default"]["new"] == []
        assert batch["default"]["x"][0].tolist() == rows
        assert batch["scalars"] == [1, 2.5, True, np.float32(1), 1j, {1, 2}]
        assert [type(s) for s in batch["scalars"]] == [int, float, bool, np.float32, complex, set]
        assert batch["objects"].tolist() == [{"a": 1}, None]
        zero, scalar, thin, *rest = batch["empty"]
        assert (zero.shape, zero.dtype, thin.shape, rest) == ((0, 3), np.float32, (2, 0), [{}, [], ()])
        assert (scalar.shape, int(scalar)) == ((), 7)
        assert batch["strings"].tolist() == ["a", "bc"]
        assert batch["times"].dtype == "M8[D]"
        assert batch["record"].dtype.names == ("i", "f")
        assert batch["strided"].tolist() == [[0, 2], [4, 6], [8, 10]]
        assert batch["fortran"].tolist() == [[0, 1, 2], [3, 4, 5]]
        assert type(batch["masked"]) is np.ma.MaskedArray
        assert batch["masked"].mask.tolist() == [True, False]


class OneArray(DataCollator):
    def collate_batch(self, features: Any) -> Any:
        return np.array(features["x"])


class OneNumber(DataCollator):
    def collate_batch(self, features: Any) -> Any:
        return len(features["x"])


def test_a_batch_may_be_one_array_or_no_array_at_all(root, executor):
    with load(root, OneArray(), **executor) as loader:
        assert [batch.tolist() for batch in loader] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    with load(root, OneNumber(), num_workers=0) as loader:
        assert list(loader) == [4, 4, 2]


# Whose memory it is --------------------------------------------------------------------------------------------------


def arrays_of(batch: Any) -> list[np.ndarray]:
    if isinstance(batch, np.ndarray):
        return [batch]
    if dataclasses.is_dataclass(batch):
        batch = [getattr(batch, field.name) for field in dataclasses.fields(batch)]
    if isinstance(batch, dict):
        batch = list(batch.values())
    return [a for part in batch for a in arrays_of(part)] if isinstance(batch, (list, tuple)) else []


def test_every_array_is_writable_and_aligned_and_shares_memory_with_no_other(root, executor):
    with load(root, Nests(), **executor) as loader:
        arrays = [a for batch in loader for a in arrays_of(batch)]
    plain = [a for a in arrays if type(a) is np.ndarray and not a.dtype.hasobject]
    assert len(plain) > 30
    assert all(a.flags.writeable for a in arrays)
    assert all(a.ctypes.data % 64 == 0 for a in plain if a.nbytes)
    for i, one in enumerate(plain):
        for other in plain[:i]:
            assert not np.shares_memory(one, other)


class KeepsAndHandsOut(DataCollator):
    """Returns what it goes on using: its own state, one array twice, overlapping parts, the input itself."""

    def __init__(self) -> None:
        self.state = np.zeros(3)
        self.objects = np.array([[0]], dtype=object)
        self.names = collections.OrderedDict(x=np.zeros(2))

    def collate_batch(self, features: Any) -> Any:
        x = np.asarray(features["x"])
        return {
            "state": self.state, "twice": self.state, "x": x, "same": x, "all": x[:], "tail": x[8:], "rows": x[::-1],
            "objects": self.objects, "names": self.names,
        }  # fmt: skip


def spoil(batch: dict[str, Any]) -> None:
    for name in ("state", "twice", "x", "same", "all", "tail", "rows"):
        batch[name][...] = -1
    batch["objects"][0] = "spoilt"
    batch["names"]["x"][:] = -1


@pytest.mark.parametrize("dataset", [Through(), NumpyThrough(), ArrowThrough()])
@pytest.mark.parametrize("reader", [CountedNumbers(batch_size=16), CountedNumbers(batch_size=16, shuffle=True)])
def test_writing_into_a_batch_changes_nothing_else(tmp_path, executor, dataset, reader):
    root = number_files(tmp_path / "n", [40, 24])
    with DataLoader(reader, dataset, KeepsAndHandsOut(), root, num_workers=0) as loader:
        expected = xs(loader)
    with DataLoader(reader, dataset, KeepsAndHandsOut(), root, **executor) as loader:
        for i, batch in enumerate(loader):
            assert batch["x"].tolist() == expected[i]
            assert batch["state"].tolist() == [0, 0, 0]
            assert batch["objects"].tolist() == [[0]]
            assert batch["names"]["x"].tolist() == [0, 0]
            names = ("state", "twice", "x", "same", "all", "tail", "rows")
            assert not [(a, b) for a in names for b in names if a < b and np.shares_memory(batch[a], batch[b])]
            for name in ("x", "same", "tail", "state"):
                batch[name][...] = -1
                assert batch["all"].tolist() == expected[i]
                assert batch["rows"].tolist() == expected[i][::-1]
                assert batch["twice"].tolist() == [0, 0, 0]
            spoil(batch)


def test_arrow_input_handed_through_without_a_copy_is_the_receivers_own(tmp_path, executor):
    root = str(tmp_path / "table")
    write_deltalake(root, pa.table({"x": pa.array(range(100), pa.int64()), "f": pa.array([0.5] * 100, pa.float32())}))
    reader = DeltaDataReader(batch_size=8)
    with DataLoader(reader, ArrowThrough(), NumpyDataCollator(), root, num_epoch=2, **executor) as loader:
        seen = []
        for batch in loader:
            seen += batch["x"].tolist()
            assert batch["f"].tolist() == [0.5] * len(batch["f"])
            batch["x"][:] = -1
            batch["f"][:] = -1
    assert seen == [*range(100)] * 2


BIG = 40_000


class Big(Dataset):
    """320 kB a batch."""

    def batch_encode(self, batch_data: Any) -> Any:
        return {"x": [np.full(BIG, x) for x in batch_data["x"]]}


def test_batches_that_are_kept_stay_as_they_were(tmp_path, executor):
    root = number_files(tmp_path / "n", [40])
    options = {"memory_budget": "8MiB"} | executor
    with numbers(root, reader=CountedNumbers(batch_size=1), dataset=Big(), num_epoch=2, **options) as loader:
        kept = list(loader)
        assert loader.stats()["leased_bytes"] <= 0.1 * (8 << 20)
    assert [batch["x"][0, 0] for batch in kept] == [*range(40)] * 2
    assert all((batch["x"] == batch["x"][0, 0]).all() for batch in kept)
    kept[0]["x"][:] = -1
    assert kept[1]["x"][0, 0] == 1


def test_every_other_batch_kept_is_never_overwritten(tmp_path, executor):
    root = number_files(tmp_path / "n", [60])
    with numbers(root, reader=CountedNumbers(batch_size=1), dataset=Big(), memory_budget="40MiB", **executor) as loader:
        kept = {}
        for i, batch in enumerate(loader):
            if i % 2:
                kept[i] = batch["x"]
            if i % 6 == 5:
                del kept[i - 2]
    assert all((x == i).all() for i, x in kept.items())
    assert len(kept) == 20


def test_views_of_a_batch_outlive_batch_and_loader(root, executor):
    loader = load(root, OneArray(), **executor)
    view = next(iter(loader))[1:3]
    loader.close()
    del loader
    assert view.tolist() == [1, 2]
    view[:] = 7


# finalize, rng -------------------------------------------------------------------------------------------------------


class Finalizes(AsIs):
    def collate_batch(self, features: Any) -> Any:
        return {"x": features["x"], "made in": os.getpid()}

    def finalize(self, batch: Any) -> Any:
        return batch | {"finalized in": os.getpid()}


def test_finalize_runs_in_the_training_process(root, executor):
    with load(root, Finalizes(), **executor) as loader:
        for batch in loader:
            assert batch["finalized in"] == os.getpid()
            assert (batch["made in"] == os.getpid()) == (executor.get("workers") != "process")


class Augments(Dataset):
    def batch_encode(self, batch_data: Any) -> Any:
        n = len(batch_data["x"])
        return {"x": batch_data["x"], "noise": self.rng.random(n), "more": self.rng.integers(0, 100, n)}


class AugmentsToo(NumpyDataCollator):
    def collate_batch(self, features: Any) -> Any:
        return super().collate_batch(features) | {"flip": self.rng.random(2)}


class RowwiseAugments(Augments):
    rowwise = True


@pytest.mark.parametrize("dataset", [Augments(), RowwiseAugments()])
def test_random_augmentation_is_the_same_for_any_workers(tmp_path, dataset):
    root = number_files(tmp_path / "n", [7, 8, 6])
    found = []
    for n_workers, kind in ((0, "thread"), (1, "thread"), (4, "thread"), (1, "process"), (2, "process")):
        reader = CountedNumbers(batch_size=2, shuffle=True)
        options = {"num_workers": n_workers, "workers": kind, "num_epoch": 2, "shuffle": True}
        with DataLoader(reader, dataset, AugmentsToo(), root, **options) as loader:
            found.append([{name: array.tolist() for name, array in batch.items()} for batch in loader])
    assert all(batches == found[0] for batches in found[1:])
    noise = [tuple(batch["noise"]) for batch in found[0]]
    assert len(set(noise)) == len(noise) == 22
    assert len({tuple(batch["flip"]) for batch in found[0]}) == 22


def test_rng_depends_on_the_seed_and_works_alone(root):
    def noise(seed: int) -> list[float]:
        with load(root, NumpyDataCollator(), Augments(), num_workers=0, random_seed=seed) as loader:
            return [value for batch in loader for value in batch["noise"]]

    assert noise(0) == noise(0) != noise(1)
    assert len(Augments().batch_encode({"x": [1, 2]})["noise"]) == 2


class DrawsFromGlobals(Dataset):
    def batch_encode(self, batch_data: Any) -> Any:
        n = len(batch_data["x"])
        return {"x": batch_data["x"], "py": [random.random() for _ in range(n)], "np": np.random.random(n)}


def test_worker_processes_seed_the_global_states_of_each_call(root):
    found = []
    for n_workers in (1, 2):
        options = {"num_workers": n_workers, "workers": "process", "num_epoch": 2}
        with load(root, NumpyDataCollator(), DrawsFromGlobals(), 2, **options) as loader:
            found.append([(tuple(batch["py"]), tuple(batch["np"])) for batch in loader])
    assert found[0] == found[1]
    assert len(set(found[0])) == 10


# Frameworks ----------------------------------------------------------------------------------------------------------


class TorchKinds(DataCollator):
    def collate_batch(self, features: Any) -> Any:
        import torch

        x = torch.tensor(features["x"])
        return {
            "x": x, "half": x.to(torch.bfloat16), "bool": x > 2, "t": x.reshape(2, -1).T, "same": x,
            "grad": x.float().requires_grad_(), "empty": torch.zeros(0, 2), "scalar": torch.tensor(3.0),
            "sparse": torch.eye(2).to_sparse(),
        }  # fmt: skip


def test_torch_tensors_arrive_as_tensors(root, executor):
    import torch

    with load(root, TorchKinds(), batch_size=2, **executor) as loader:
        for batch in loader:
            x = batch["x"]
            assert all(type(value) is torch.Tensor for value in batch.values())
            assert x.dtype == torch.int64
            assert batch["half"].dtype == torch.bfloat16
            assert torch.equal(batch["half"].long(), x)
            assert torch.equal(batch["bool"], x > 2)
            assert torch.equal(batch["t"], x.reshape(2, -1).T)
            assert batch["empty"].shape == (0, 2)
            assert batch["scalar"].item() == 3.0
            assert torch.equal(batch["sparse"].to_dense(), torch.eye(2))
            expected = x.clone()
            batch["same"][:] = -1
            batch["half"][:] = -1
            assert torch.equal(x, expected)
        assert x.tolist() == [8, 9]


class OnADevice(DataCollator):
    def collate_batch(self, features: Any) -> Any:
        import torch

        return {"x": torch.zeros(2, device="meta")}


def test_a_device_tensor_made_by_a_worker_is_an_error_that_names_finalize(root, executor):
    with (
        load(root, OnADevice(), **executor) as loader,
        pytest.raises(ContractError, match=r"on meta: a worker gives CPU tensors; .*finalize"),
    ):
        next(iter(loader))


class MovesToADevice(TorchDataCollator):
    def finalize(self, batch: Any) -> Any:
        return {name: tensor.to("meta") for name, tensor in super().finalize(batch).items()}


def test_finalize_may_move_tensors_to_a_device_and_a_peek_is_moved_again(root):
    with load(root, MovesToADevice(), num_workers=0) as loader:
        assert next(iter(loader))["x"].device.type == "meta"
        assert [batch["x"].device.type for batch in loader] == ["meta"] * 3


def test_the_torch_collator_gives_tensors_of_the_entries_own_types(root, executor):
    import torch

    class Several(Dataset):
        def batch_encode(self, batch_data):
            x = np.array(batch_data["x"])
            return {"i": batch_data["x"], "f": x.astype("f4"), "b": x > 1, "none": None, "m": np.stack([x, x], axis=1)}

    with load(root, TorchDataCollator(), Several(), **executor) as loader:
        for batch in loader:
            assert {name: tensor.dtype for name, tensor in batch.items()} == {
                "i": torch.int64, "f": torch.float32, "b": torch.bool, "m": torch.int64,
            }  # fmt: skip
            assert all(tensor.data_ptr() % 64 == 0 for tensor in batch.values())
            batch["i"].add_(1)


def test_the_tensorflow_collator_gives_tensors_of_the_entries_own_types(root, executor):
    import tensorflow as tf

    class Several(Dataset):
        def batch_encode(self, batch_data):
            x = np.array(batch_data["x"])
            return {"i": batch_data["x"], "f": x.astype("f4"), "s": [str(v) for v in x], "none": None}

    with load(root, TFDataCollator(), Several(), **executor) as loader:
        kept = list(loader)
    for batch, rows in zip(kept, ([0, 1, 2, 3], [4, 5, 6, 7], [8, 9]), strict=True):
        assert {name: tensor.dtype for name, tensor in batch.items()} == {
            "i": tf.int64,
            "f": tf.float32,
            "s": tf.string,
        }
        assert batch["i"].numpy().tolist() == rows
        assert batch["s"].numpy().tolist() == [str(v).encode() for v in rows]


class TensorFlowKinds(DataCollator):
    def collate_batch(self, features: Any) -> Any:
        import tensorflow as tf

        x = tf.constant(features["x"])
        return {"x": x, "s": tf.constant(["a", "b"]), "scalar": tf.constant("text"), "n": tf.constant(1.5)}


@pytest.mark.slow
def test_tensorflow_tensors_arrive_as_tensors(root, executor):
    import tensorflow as tf

    with load(root, TensorFlowKinds(), **executor) as loader:
        batch = next(iter(loader))
    assert all(isinstance(value, tf.Tensor) for value in batch.values())
    assert batch["x"].numpy().tolist() == [0, 1, 2, 3]
    assert batch["s"].numpy().tolist() == [b"a", b"b"]
    assert batch["scalar"].numpy() == b"text"
    assert batch["n"].numpy() == 1.5


@pytest.mark.parametrize(
    ("collator", "values", "text"),
    [
        (TorchDataCollator(), ["a", "b"], "'x' has dtype <U1, which torch cannot hold"),
        (TorchDataCollator(), np.array(["2020"], "M8[s]"), r"'x' has dtype datetime64\[s\], which torch cannot hold"),
        (TFDataCollator(), np.array(["2020"], "M8[s]"), "which TensorFlow cannot hold: turn it into numbers"),
        (TorchDataCollator(), [1, None], "row 1 is None. Fill it in batch_encode"),
    ],
)
def test_a_collator_names_the_entry_that_its_framework_cannot_hold(collator, values, text):
    with pytest.raises(ValueTypeError, match=text):
        collator.collate_batch({"x": values})


@dataclasses.dataclass
class TwoArrays:
    x: Any
    name: str


class TorchInADataclass(TorchDataCollator):
    def collate_batch(self, features: Any) -> Any:
        return TwoArrays(np.array(features["x"]), "n"), collections.OrderedDict(x=np.array(features["x"]))


def test_finalize_of_the_torch_collator_goes_into_what_a_subclass_returns(root):
    import torch

    with load(root, TorchInADataclass(), num_workers=0) as loader:
        for one, two in loader:
            assert type(one) is TwoArrays
            assert type(one.x) is torch.Tensor
            assert type(two) is collections.OrderedDict
            assert type(two["x"]) is torch.Tensor
