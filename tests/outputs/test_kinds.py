"""What encoders and collators may give: kinds of entries and batches, and what of them arrives."""

import sys
import types
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch
from fakes import AsIs, CountedNumbers, NumpyThrough, Through, number_files, numbers

from pyloader_delta import ContractError, DataLoader, NumpyDataCollator, TorchDataCollator
from pyloader_delta.collate.torch import from_array, to_array
from pyloader_delta.encode.base import checked_features
from pyloader_delta.engine.launch import _foreign_modules, _same_file, pickled
from pyloader_delta.engine.tree import private_copy


@dataclass
class Made:
    x: Any
    later: int = field(init=False)

    def __post_init__(self) -> None:
        self.doubled = np.asarray(self.x) * 2
        self.tag = "made"


@dataclass(slots=True)
class Slotted:
    x: Any


class More(Slotted):
    __slots__ = ("extra",)


def test_a_dataclass_keeps_what_its_post_init_set():
    made = private_copy(Made([1, 2]))
    assert made.doubled.tolist() == [2, 4]
    assert made.tag == "made"
    assert not hasattr(made, "later")


def test_a_dataclass_of_slots_keeps_them_all():
    batch = More(np.arange(2))
    batch.extra = np.arange(3)
    copied = private_copy(batch)
    assert copied.x.tolist() == [0, 1]
    assert copied.extra.tolist() == [0, 1, 2]


class MakesMade(NumpyDataCollator):
    def collate_batch(self, features: Any) -> Any:
        return Made(features["x"])


def test_a_dataclass_crosses_whole_everywhere(tmp_path, executor):
    root = number_files(tmp_path / "f", [2])
    with DataLoader(CountedNumbers(batch_size=2), NumpyThrough(), MakesMade(), root, **executor) as loader:
        (batch,) = loader
    assert (batch.doubled.tolist(), batch.tag) == ([0, 2], "made")


@pytest.mark.parametrize("shape", [(), (0,), (3, 0), (0, 3), (2, 3)])
def test_bfloat16_tensors_of_any_shape_arrive_as_they_left(shape):
    tensor = torch.ones(shape, dtype=torch.bfloat16)
    array, note = to_array(tensor)
    found = from_array(array.copy(), note)
    assert (found.dtype, found.shape) == (tensor.dtype, tensor.shape)
    assert torch.equal(found, tensor)


# Collators' rowwise ---------------------------------------------------------------------------------------------------


class SaysNo(NumpyDataCollator):
    def __init__(self) -> None:
        self.rowwise = False


class SaysYes(NumpyDataCollator):
    rowwise = True

    def collate_batch(self, features: Any) -> Any:
        return super().collate_batch(features)


class Own(SaysNo):
    pass


class OwnCollate(TorchDataCollator):
    def collate_batch(self, features: Any) -> Any:
        return super().collate_batch(features)


def test_a_collator_is_rowwise_by_its_collate_batch_unless_it_says_otherwise():
    assert [c().rowwise for c in (NumpyDataCollator, TorchDataCollator, SaysYes)] == [True] * 3
    assert [c().rowwise for c in (SaysNo, Own, OwnCollate)] == [False] * 3


# Entries of batch_encode ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("values", [{1, 2}, {"a": 1, "b": 2}, "ab", b"ab", {1: 2, 3: 4}.values(), 5])
def test_an_entry_that_has_no_rows_in_order_is_an_error_naming_it(values):
    with pytest.raises(ContractError, match=r"Own\.batch_encode: 'x' must be a list or an array"):
        checked_features({"x": values}, 2, "Own")


@pytest.mark.parametrize("values", [[1, 2], (1, 2), range(2), np.arange(2), torch.arange(2), None])
def test_an_entry_may_be_anything_that_can_be_cut_into_rows(values):
    assert checked_features({"x": values}, 2, "Own") == {"x": values}


class SetOf(Through):
    def batch_encode(self, batch_data: Any) -> Any:
        return {"x": set(batch_data["x"])}


def test_a_set_is_an_error_of_the_loader(tmp_path):
    loader = numbers(number_files(tmp_path / "f", [2]), dataset=SetOf(), num_workers=0)
    text = "'x' must be a list or an array with one value a row, got set"
    with loader, pytest.raises(ContractError, match=text):
        list(loader)


# What travels by value ------------------------------------------------------------------------------------------------


@pytest.fixture
def made_up(monkeypatch):
    """A module that no worker can import."""
    module = types.ModuleType("made_up_module")
    exec(
        "class Tokenizer:\n    def ids(self, x):\n        return x + 100\ndef plus(x):\n    return x + 1",
        module.__dict__,
    )
    monkeypatch.setitem(sys.modules, "made_up_module", module)
    return module


class Holds(Through):
    def __init__(self, held: Any) -> None:
        self.held = held

    def batch_encode(self, batch_data: Any) -> Any:
        return {"x": [self.held.ids(x) for x in batch_data["x"]]}


class Objects:
    def __init__(self, **owners: Any) -> None:
        self.__dict__.update(owners)


@pytest.mark.parametrize(
    "held",
    [
        lambda m: m.Tokenizer(),
        lambda m: m.Tokenizer,
        lambda m: m.plus,
        lambda m: [1, m.plus],
        lambda m: {"a": m.Tokenizer()},
        lambda m: (m.Tokenizer(),),
    ],
)
def test_modules_of_what_an_object_holds_travel_by_value(made_up, held):
    stages = Objects(dataset=Holds(held(made_up)), collator=AsIs())
    assert made_up in _foreign_modules(stages)
    assert pickled(stages)


def test_an_attribute_of_a_module_that_workers_cannot_import_works_there(tmp_path, made_up):
    root = number_files(tmp_path / "f", [2])
    with numbers(root, dataset=Holds(made_up.Tokenizer()), num_workers=1, workers="process") as loader:
        (batch,) = loader
    assert batch["x"].tolist() == [100, 101]


def test_files_that_are_gone_are_compared_by_name(tmp_path):
    gone = str(tmp_path / "gone.py")
    assert _same_file(gone, gone)
    assert not _same_file(gone, __file__)
