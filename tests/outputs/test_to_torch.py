"""A loader as torch's DataLoader: torch's lengths, the loader's batches, states between any two of them."""

import itertools
import json

import numpy as np
import pytest
from writing import number_table

from pyloader_delta import ConfigError, DataLoader, DeltaDataReader, NumpyDataCollator
from tests.conftest import EXECUTORS
from tests.fakes import NumpyThrough

torch = pytest.importorskip("torch")

N_ROWS = 100


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    return number_table(tmp_path_factory.mktemp("table"), [30, 30, 30, 10], column="id")


def made(table, **options):
    return DataLoader.from_delta(table, **{"batch_size": 16, "num_workers": 0, "shuffle": True} | options)


def ids(batches):
    return [batch["id"].tolist() for batch in batches]


@pytest.mark.parametrize(
    "options", [*EXECUTORS.values(), {"drop_last": True}, {"batch_size": 10}, {"batch_size": 1000}], ids=str
)
def test_lengths_are_torchs_and_batches_the_loaders(options, table):
    with made(table, **options) as loader:
        expected = [ids(loader), ids(loader)]
    with made(table, **options) as loader:
        view = loader.to_torch()
        assert isinstance(view, torch.utils.data.DataLoader)
        assert type(view).__init__ is torch.utils.data.DataLoader.__init__  # else Lightning refuses it
        assert (len(view), len(view.dataset)) == (len(expected[0]), N_ROWS)
        assert (view.batch_size, view.drop_last) == (loader.batch_size, loader.drop_last)
        assert [ids(view), ids(view)] == expected


@pytest.mark.parametrize("n_taken", [0, 1, 3, 6, 7])
def test_a_state_between_any_two_batches_goes_on_in_another_loader(n_taken, table):
    with made(table) as loader:
        view = loader.to_torch()
        batches = iter(view)
        head = ids(itertools.islice(batches, n_taken))
        state = json.loads(json.dumps(view.state_dict()))
        rest = ids(batches) + ids(view)
    with made(table) as loader:
        view = loader.to_torch()
        view.load_state_dict(state)
        assert view.state_dict() == state
        found = ids(view)
        assert found + ids(view) == rest if n_taken < 7 else found == rest
        assert head + rest[: 7 - n_taken] == ids(made(table))


def test_a_peek_costs_no_rows_and_a_break_ends_the_epoch(table):
    with made(table) as loader:
        first, second = ids(loader), ids(loader)
    with made(table) as loader:
        view = loader.to_torch()
        assert ids([next(iter(view))]) == first[:1]
        assert ids(itertools.islice(view, 4)) == first[:4]
        assert ids(view) == second


def test_set_epoch_is_the_loaders(table):
    with made(table) as loader:
        view = loader.to_torch()
        first, second = ids(view), ids(view)
        view.set_epoch(0)
        assert ids(view) == first
        view.set_epoch(1)
        assert ids(view) == second


def test_a_pass_of_several_epochs_is_refused(table):
    for num_epoch in (2, None):
        with made(table, num_epoch=num_epoch) as loader, pytest.raises(ConfigError, match=f"not {num_epoch}"):
            loader.to_torch()


def test_an_unknown_length_is_a_type_error_and_all_batches_come(table):
    with made(table, filter="id < 50", exact_length=False) as loader:
        view = loader.to_torch()
        with pytest.raises(TypeError, match="length"):
            len(view)
        assert sorted(itertools.chain(*ids(view))) == list(range(50))
        assert bool(view)


def test_batches_are_what_the_collator_gives(table):
    with DataLoader(DeltaDataReader(40), NumpyThrough(), NumpyDataCollator(), table, num_workers=0) as loader:
        assert [type(batch["id"]) for batch in loader.to_torch()] == [np.ndarray] * 3


# Who cuts or shares out again ---------------------------------------------------------------------------------------


def again(view, kind=torch.utils.data.DataLoader, **options):
    return kind(view.dataset, collate_fn=view.collate_fn, **options)


def test_workers_of_torch_are_refused(table):
    view = made(table).to_torch()
    with pytest.raises(ConfigError, match="leave num_workers of torch's DataLoader at 0"):
        next(iter(again(view, batch_size=16, num_workers=1, multiprocessing_context="fork")))


def test_one_that_is_made_again_in_the_same_form_is_as_good(table):
    view = made(table, rank=0, world_size=2).to_torch()
    expected = ids(made(table, rank=0, world_size=2))
    assert ids(again(view, type(view), batch_size=16)) == expected  # as Lightning would


@pytest.mark.parametrize("rank", [0, 1])
def test_sharing_out_again_is_refused_at_once_on_every_rank(rank, table):
    view = made(table, rank=rank, world_size=2).to_torch()
    with pytest.raises(ConfigError, match="cut or shared out again"):
        iter(again(view, batch_size=16))


@pytest.mark.parametrize("batch_size", [8, 32])
def test_another_batch_size_is_refused(batch_size, table):
    view = made(table).to_torch()
    with pytest.raises(ConfigError, match="cut or shared out again"):
        list(again(view, batch_size=batch_size))


@pytest.mark.parametrize("rank", [0, 1])
def test_each_rank_has_its_share(rank, table):
    with made(table, rank=rank, world_size=2) as loader:
        view = loader.to_torch()
        assert (len(view), len(view.dataset)) == (4, 50)
        assert sum(map(len, ids(view))) == 50
