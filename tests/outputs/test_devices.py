"""Tensors are moved to a device in the training process, and nowhere else."""

import pickle

import numpy as np
import pyarrow as pa
import pytest
from deltalake import write_deltalake

from pyloader_delta import (
    ConfigError,
    DataLoader,
    DeltaDataReader,
    FieldSpec,
    TorchDataCollator,
    create_pytorch_dataloader,
)
from tests.fakes import NumpyThrough

torch = pytest.importorskip("torch")


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    path = str(tmp_path_factory.mktemp("table"))
    rows = {"id": np.arange(20), "words": [[i] * (i % 3) for i in range(20)], "text": [str(i) for i in range(20)]}
    write_deltalake(path, pa.table(rows))
    return path


@pytest.mark.parametrize("device", ["meta", torch.device("meta")])
@pytest.mark.parametrize("where", [{"num_workers": 0}, {"num_workers": 1, "workers": "process"}], ids=str)
def test_every_tensor_of_a_batch_is_moved(device, where, table):
    fields = ["id", "words", FieldSpec("text", as_list=True)]
    with DataLoader.from_delta(table, 8, fields=fields, device=device, **where) as loader:
        batch = next(iter(loader))
    assert {name: value.device.type for name, value in batch.items() if name != "text"} == {
        "id": "meta", "words": "meta", "words_lengths": "meta",
    }  # fmt: skip
    assert batch["text"] == [str(i) for i in range(8)]


class Nested(TorchDataCollator):
    device = "meta"

    def __init__(self):
        """Settings are class attributes: no call of super is needed."""

    def collate_batch(self, features):
        return {"both": [features["id"], torch.ones(3)], "n": 3}, torch.zeros(2)


def test_a_subclass_says_it_once_and_nested_tensors_are_moved(table):
    reader = DeltaDataReader(8, columns=["id"])
    with DataLoader(reader, NumpyThrough(), Nested(), table, num_workers=0) as loader:
        first, second = next(iter(loader))
    assert [t.device.type for t in (*first["both"], second)] == ["meta"] * 3
    assert first["n"] == 3


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_pinning_does_nothing_where_there_is_nothing_to_pin_for(table, recwarn):
    with DataLoader.from_delta(table, 8, columns=["id"], num_workers=0, pin_memory=True, device="cpu") as loader:
        assert next(batch["id"].tolist() for batch in loader) == list(range(8))
    assert not recwarn.list


class OnGpu(torch.Tensor):
    """A tensor that stands for one in a GPU's memory."""


@pytest.fixture
def gpu(monkeypatch):
    """Stands in for a GPU: return what was asked of torch, in order, with the tensors it was asked of."""
    asked = []

    def pinned(tensor):
        assert type(tensor) is torch.Tensor
        copy = tensor.clone()
        copy.is_pinned_here = True
        asked.append(("pin", copy))
        return copy

    def moved(tensor, device, non_blocking=False):
        asked.append((device, non_blocking, getattr(tensor, "is_pinned_here", False)))
        return tensor.clone().as_subclass(OnGpu)

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.Tensor, "pin_memory", pinned)
    monkeypatch.setattr(torch.Tensor, "to", moved)
    return asked


@pytest.mark.parametrize("where", [{"num_workers": 0}, {"num_workers": 1, "workers": "process"}], ids=str)
def test_a_batch_is_pinned_and_then_sent_without_waiting(gpu, table, where):
    fields = ["id", "words", FieldSpec("text", as_list=True)]
    with DataLoader.from_delta(table, 8, fields=fields, device="cuda:1", pin_memory=True, **where) as loader:
        batches = list(loader)
    tensors = [value for batch in batches for name, value in batch.items() if name != "text"]
    assert all(type(tensor) is OnGpu for tensor in tensors)
    assert gpu[1::2] == [("cuda:1", True, True)] * len(tensors)
    assert [step[0] for step in gpu[::2]] == ["pin"] * len(tensors)
    assert [i for batch in batches for i in batch["id"].tolist()] == list(range(20))
    assert [text for batch in batches for text in batch["text"]] == [str(i) for i in range(20)]


def test_a_batch_that_is_not_pinned_is_sent_and_waited_for(gpu, table):
    with DataLoader.from_delta(table, 8, columns=["id"], device="cuda", num_workers=0) as loader:
        assert type(next(iter(loader))["id"]) is OnGpu
    assert gpu[0] == ("cuda", False, False)
    assert not any(step[0] == "pin" for step in gpu)


def test_pinned_without_a_device_stays_where_it_is(gpu, table):
    with DataLoader.from_delta(table, 8, columns=["id"], pin_memory=True, num_workers=0) as loader:
        batch = next(iter(loader))
    assert [name for name, _ in gpu] == ["pin"]
    assert batch["id"] is gpu[0][1]


def test_torch_s_own_loader_is_told_to_pin(table):
    with DataLoader.from_delta(table, 8, columns=["id"], num_workers=0) as loader:
        assert loader.to_torch(pin_memory=True).pin_memory
    made = create_pytorch_dataloader(table, fields=[FieldSpec("id")], num_workers=0, pin_memory=True)
    assert made.pin_memory
    made.dataset.loader.close()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_pinned_batches_reach_the_gpu_whole(table):
    with DataLoader.from_delta(table, 8, columns=["id"], num_workers=0, pin_memory=True, device="cuda") as loader:
        assert torch.cat([batch["id"] for batch in loader]).tolist() == list(range(20))


def test_workers_get_the_device_as_text():
    collator = TorchDataCollator(torch.device("cuda:1"), True)
    assert (collator.device, collator.pin_memory) == ("cuda:1", True)
    assert b"torch.device" not in pickle.dumps(collator)


@pytest.mark.parametrize("options", [{"device": "cpu"}, {"pin_memory": True}], ids=str)
def test_arrays_have_no_device(options, table):
    with pytest.raises(ConfigError, match="go with framework='torch'"):
        DataLoader.from_delta(table, 8, columns=["id"], framework="numpy", **options)
