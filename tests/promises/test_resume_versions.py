"""Resume after the table has got a later version: refused, or the epoch is finished on the version that it began on."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from fakes import NumpyThrough, xs
from writing import number_table

from pyloader_delta import ConfigError, DataLoader, DeltaDataReader, NumpyDataCollator, ReadError, StateError

BEFORE, AFTER = 200, 330


class Noisy(NumpyThrough):
    rowwise = True

    def batch_encode(self, batch_data):
        return {"x": batch_data["x"], "noise": self.rng.random(len(batch_data["x"]))}


def loader(root, *, reader=DeltaDataReader, **options):
    options = {"shuffle": True, "num_workers": 0, "shuffle_window": 60, "num_epoch": 2, "workers": "thread"} | options
    settings = {name: options.pop(name) for name in ("version", "columns") if name in options}
    return DataLoader(reader(8, shuffle=True, **settings), Noisy(), NumpyDataCollator(), root, **options)


def batches_of(loader):
    return [{name: values.copy() for name, values in batch.items()} for batch in loader]


def alike(found, expected):
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        assert one.keys() == other.keys()
        assert all(np.array_equal(one[name], other[name]) for name in one)


@pytest.fixture
def table(tmp_path):
    """A table of two versions, and the state after 10 of the 25 batches of the first epoch on the earlier one."""
    root = number_table(tmp_path / "t", [50] * (BEFORE // 50))
    with loader(root) as one:
        live = iter(one)
        for _ in range(10):
            next(live)
        state = json.loads(json.dumps(one.state_dict()))
        rest = batches_of(live)[: 25 - 10]
    number_table(root, [AFTER - BEFORE], start=BEFORE)
    return root, state, rest


def test_a_later_version_is_refused_and_the_text_says_what_to_do(table):
    root, state, _ = table
    with loader(root) as one:
        with pytest.raises(StateError, match=r"version differs; the state has 3, the loader 4.*version=3.*continue"):
            one.load_state_dict(state)
        assert len(list(one)) == len(one)


@pytest.mark.parametrize("options", [{}, {"num_workers": 2}, {"num_workers": 1, "workers": "process"}])
def test_the_epoch_is_finished_on_its_version_and_the_next_one_is_of_the_new(table, options):
    root, state, rest = table
    with loader(root, **options) as one:
        one.load_state_dict(state, on_new_version="continue")
        assert one.state_dict() == state
        assert len(one) == 25 + 42
        found = batches_of(one)
        assert one.state_dict()["order"]["version"] == 4
        assert len(one) == 2 * 42
    with loader(root) as expected:
        expected.set_epoch(1)
        of_new = batches_of(expected)[:42]
    alike(found, rest + of_new)


def test_receipts_are_of_the_version_that_each_epoch_was_read_from(table):
    root, state, rest = table
    with loader(root, audit=True) as one:
        one.load_state_dict(state, on_new_version="continue")
        live = iter(one)
        for _ in rest:
            next(live)
        first = one.receipt()
        list(live)
        second = one.receipt()
    assert (first.version, first.rows, first.planned, first.complete) == (3, BEFORE, BEFORE - 80, True)
    assert (second.version, second.rows, second.whole) == (4, AFTER, True)


def test_workers_that_run_already_learn_of_the_earlier_version(table):
    root, state, rest = table
    with loader(root, num_workers=2) as one:
        next(iter(one))
        one.load_state_dict(state, on_new_version="continue")
        alike(batches_of(one)[:15], rest)


def test_a_state_of_the_epoch_that_is_being_finished_is_of_the_earlier_version(table):
    root, state, rest = table
    with loader(root) as one:
        one.load_state_dict(state, on_new_version="continue")
        live = iter(one)
        for _ in range(4):
            next(live)
        again = json.loads(json.dumps(one.state_dict()))
        assert [one.state_dict(batches=n) for n in (0, 4)] == [state, again]
    assert (again["order"]["version"], again["history"]) == (3, [[1, 14, "pad"]])
    with loader(root) as one:
        with pytest.raises(StateError, match="version"):
            one.load_state_dict(again)
        one.load_state_dict(again, on_new_version="continue")
        alike(batches_of(one)[:11], rest[4:])
    with loader(root, version=3) as one:
        one.load_state_dict(again)
        alike(batches_of(one)[:11], rest[4:])


def test_a_state_of_an_epochs_end_goes_on_with_the_new_version(table):
    root, _, _ = table
    with loader(root, version=3) as one:
        live = iter(one)
        for _ in range(25):
            next(live)
        state = one.state_dict()
    with loader(root) as one:
        one.load_state_dict(state, on_new_version="continue")
        found = batches_of(one)
    with loader(root) as expected:
        expected.set_epoch(1)
        alike(found, batches_of(expected)[:42])


def test_other_ranks_finish_the_epoch_on_its_version_too(table):
    root, state, rest = table
    seen = []
    for rank in range(3):
        with loader(root, rank=rank, world_size=3, num_epoch=1, uneven="drop") as one:
            one.load_state_dict(state, on_new_version="continue")
            seen += [row for batch in xs(one) for row in batch]
    assert sorted(seen) == sorted(row for batch in xs(rest) for row in batch)


def test_columns_that_the_new_version_has_gained_come_with_the_next_epoch(table):
    root, state, rest = table
    write_deltalake(root, pa.table({"x": [1.0], "y": ["a"]}), mode="overwrite", schema_mode="overwrite")

    class All(NumpyThrough):
        def batch_encode(self, batch_data):
            return {name: values.copy() for name, values in batch_data.items()}

    def everything(**options):
        return DataLoader(
            DeltaDataReader(8, shuffle=True), All(), NumpyDataCollator(), root, shuffle=True, shuffle_window=60,
            num_epoch=2, num_workers=2, workers="thread", **options,
        )  # fmt: skip

    with everything() as one:
        state["order"]["group"] = 1  # that dataset was rowwise
        with pytest.warns(UserWarning, match="VACUUM may delete"):
            one.load_state_dict(state, on_new_version="continue")
        found = list(one)
    assert [batch["x"].tolist() for batch in found[:-1]] == xs(rest)
    assert sorted(found[-1]) == ["x", "y"]
    assert found[-1]["x"].dtype == np.float64


def test_a_reader_that_chooses_its_chunks_chooses_those_of_the_earlier_version_too(table):
    root, _, _ = table

    class Half(DeltaDataReader):
        def chunks(self, root):
            return super().chunks(root)[::2]

    with loader(root, reader=Half, version=3) as one:
        live = iter(one)
        next(live)
        state, rest = one.state_dict(), batches_of(live)
    with loader(root, reader=Half) as one:
        one.load_state_dict(state, on_new_version="continue")
        assert len(one) == 13 + 29
        alike(batches_of(one)[:12], rest[:12])


def test_an_earlier_version_whose_files_are_gone_is_an_error_that_names_it(table):
    root, state, _ = table
    write_deltalake(root, pa.table({"x": np.arange(10)}), mode="overwrite")
    DeltaTable(root).vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    with loader(root) as one:
        with (
            pytest.raises(StateError, match=r"version 3 of the table.*cannot be read any more.*set_epoch") as caught,
            pytest.warns(UserWarning, match="VACUUM may delete"),
        ):
            one.load_state_dict(state, on_new_version="continue")
        assert isinstance(caught.value.__cause__, ReadError)
        assert xs(one)[0] != []  # nothing is changed


def test_an_earlier_version_whose_log_is_gone_is_an_error_that_names_it(table):
    root, state, _ = table
    for number in range(6):
        write_deltalake(root, pa.table({"x": [number]}), mode="append")
    DeltaTable(root).create_checkpoint()
    for path in (Path(root) / "_delta_log").glob("0000000000000000000[0-4].json"):
        path.unlink()
    with loader(root) as one, pytest.raises(StateError, match="version 3 of the table"):
        one.load_state_dict(state, on_new_version="continue")


def test_another_table_an_older_version_or_other_options_are_refused_in_any_case(table, tmp_path):
    root, state, _ = table
    other = number_table(tmp_path / "other", [40] * (BEFORE // 40))
    for make, named in (
        (lambda: loader(other), "the table differs"),
        (lambda: loader(root, version=2), r"Give the reader version=3$"),
        (lambda: loader(root, random_seed=7), "random_seed"),
        (lambda: loader(root, drop_last=True), "drop_last"),
        (lambda: loader(root, columns=["x"]), "columns or filter"),
    ):
        with make() as one, pytest.raises(StateError, match=named):
            one.load_state_dict(state, on_new_version="continue")
    with loader(root) as one:
        with pytest.raises(ConfigError, match="'refuse' or 'continue'"):
            one.load_state_dict(state, on_new_version=True)
        with pytest.raises(StateError, match="no state"):
            one.load_state_dict(None, on_new_version="continue")


def test_with_the_same_version_continue_changes_nothing(table):
    root, state, rest = table
    with loader(root, version=3) as one:
        one.load_state_dict(state, on_new_version="continue")
        alike(batches_of(one)[:15], rest)
