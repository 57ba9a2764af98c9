"""Resume: after any batch, in a new loader with other workers, the rest of the stream is the same, bit for bit."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from deltalake import write_deltalake
from fakes import AsIs, CountedNumbers, Numbers, NumpyThrough, Through, number_files, xs
from writing import number_table

from pyloader_delta import (
    ConfigError,
    DataLoader,
    DeltaDataReader,
    IncompleteEpochError,
    JsonLineDataReader,
    NumpyDataCollator,
    StateError,
)

LENGTHS = [20, 1, 3, 17, 0, 9, 30]


class Noisy(NumpyThrough):
    """Adds random numbers: they depend on where the call of `batch_encode` begins."""

    rowwise = True

    def batch_encode(self, batch_data):
        n = len(batch_data["x"])
        return {"x": batch_data["x"], "noise": self.rng.random(n)}


class Read(CountedNumbers):
    """Notes which files were read."""

    def read_file(self, path):
        self.seen.append(Path(path).name)
        return super().read_file(path)


@pytest.fixture
def root(tmp_path):
    return number_files(tmp_path / "t", LENGTHS)


def loader(root, *, kind=CountedNumbers, dataset=None, **options):
    options = {"num_workers": 0, "shuffle": True, "shuffle_window": 25, "workers": "thread"} | options
    collator = options.pop("collator", None) or NumpyDataCollator()
    return DataLoader(kind(batch_size=7, shuffle=True), dataset or Through(), collator, root, **options)


def stream(root, **options):
    """Return all batches and the state before each and after the last, as JSON gives it back."""
    with loader(root, **options) as whole:
        states, batches = [whole.state_dict()], []
        for batch in whole:
            batches.append({name: values.copy() for name, values in batch.items()})
            states.append(json.loads(json.dumps(whole.state_dict())))
    return batches, states


def equal(found, expected):
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        assert one.keys() == other.keys()
        for name in one:
            assert one[name].dtype == other[name].dtype
            assert np.array_equal(one[name], other[name])


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("dataset", [Through, Noisy])
def test_T3_after_every_batch_the_rest_is_the_same(root, dataset, drop_last):
    batches, states = stream(root, dataset=dataset(), num_epoch=2, drop_last=drop_last)
    for done, state in enumerate(states[:-1]):
        with loader(root, dataset=dataset(), num_epoch=2, drop_last=drop_last) as rest:
            rest.load_state_dict(state)
            assert rest.state_dict() == state
            equal(list(rest), batches[done:])
            assert (
                rest.stats()["rows_planned_total"]
                == rest.stats()["rows_delivered_total"] + rest.stats()["rows_dropped_total"]
            )


@pytest.mark.parametrize(("workers", "n"), [("thread", 1), ("thread", 3), ("process", 2)])
def test_T4_with_other_workers_the_rest_is_the_same(root, workers, n):
    batches, states = stream(root, dataset=Noisy(), num_epoch=2)
    for done in (1, 8, 13):
        with loader(root, dataset=Noisy(), num_epoch=2, workers=workers, num_workers=n) as rest:
            rest.load_state_dict(states[done])
            equal(list(rest), batches[done:])


@pytest.mark.parametrize("uneven", ["pad", "mask", "drop"])
def test_T4_each_rank_goes_on_with_its_own_share_from_one_state(root, uneven):
    taken = []
    for rank in range(3):
        batches, states = stream(root, rank=rank, world_size=3, uneven=uneven)
        taken.append(states[2])
        with loader(root, rank=rank, world_size=3, uneven=uneven, num_workers=2) as rest:
            rest.load_state_dict(states[2])
            equal(list(rest), batches[2:])
    assert taken[0] == taken[1] == taken[2]


def test_at_an_epochs_end_a_state_loads_for_another_number_of_ranks(root):
    with loader(root, rank=0, world_size=3) as before:
        list(before)
        state = before.state_dict()
    with loader(root) as whole:
        whole.load_state_dict(state)
        found = xs(whole)
    with loader(root) as expected:
        expected.set_epoch(1)
        assert xs(expected) == found


def test_T14_windows_that_were_delivered_are_not_read_again(tmp_path):
    root = number_files(tmp_path / "many", [10] * 50)
    options = {"kind": Read, "shuffle_window": 40}
    with loader(root, **options) as whole:
        whole.datareader.seen = []
        batches, state = [], None
        for batch in whole:
            batches.append(batch["x"].tolist())
            if len(batches) == 64:  # of 72: row 448 of 500, the 12th window
                state = whole.state_dict()
    with loader(root, **options) as rest:
        rest.datareader.seen = []
        rest.load_state_dict(state)
        assert xs(rest) == batches[64:]
        assert len(rest.datareader.seen) == 6  # windows of 40 rows: from row 440 on


def test_T14_of_a_table_only_the_row_groups_from_the_window_on_are_read(tmp_path, monkeypatch):
    root = number_table(tmp_path / "table", [40] * 10)

    def table(**options):
        reader = DeltaDataReader(9, shuffle=True)
        return DataLoader(
            reader, NumpyThrough(), NumpyDataCollator(), root, shuffle=True, shuffle_window=80, num_workers=0, **options
        )

    with table() as whole:
        batches, states = [], []
        for batch in whole:
            batches.append(batch["x"].tolist())
            states.append(whole.state_dict())
    real, seen = DeltaDataReader.read_chunk, []
    monkeypatch.setattr(DeltaDataReader, "read_chunk", lambda self, chunk: seen.append(chunk) or real(self, chunk))
    with table() as rest:
        rest.load_state_dict(states[39])
        assert xs(rest) == batches[40:]
    assert sum(len(chunk.rows) for chunk in seen) == 80  # rows 320..399, the window in progress
    write_deltalake(root, pa.table({"x": [1]}), mode="append")
    with table() as later, pytest.raises(StateError, match=r"version.*9.*10"):
        later.load_state_dict(states[39])


def test_T15_after_an_early_break_and_after_set_epoch_the_state_is_that_of_the_loop(root):
    batches, _ = stream(root, num_epoch=3)
    per_epoch = len(batches) // 3
    with loader(root) as broken:
        for number, _ in enumerate(broken):
            if number == 4:
                break
        state = broken.state_dict()
    with loader(root, num_workers=2) as rest:
        rest.load_state_dict(state)
        rest.set_epoch(0)  # of the epoch under way, as loops over epochs do: changes nothing
        equal(list(rest), batches[5:per_epoch])
        equal(list(rest), batches[per_epoch : 2 * per_epoch])
        rest.set_epoch(2)
        assert (rest.state_dict()["epoch"], rest.state_dict()["history"]) == (2, [])
        equal(list(rest), batches[2 * per_epoch :])
        rest.load_state_dict(state)
        rest.set_epoch(1)
        equal(list(rest), batches[per_epoch : 2 * per_epoch])


def test_T15_a_peek_is_given_again_after_a_state_was_loaded(root):
    batches, states = stream(root)
    with loader(root) as rest:
        rest.load_state_dict(states[3])
        equal([next(iter(rest))], batches[3:4])
        rest_of_it = iter(rest)
        assert rest.state_dict() == states[3]
        equal([next(rest_of_it)], batches[3:4])
        assert rest.state_dict() == states[4]
        equal(list(rest_of_it), batches[4:])


def test_a_wrapper_that_fetches_ahead_tells_how_many_batches_were_used(root):
    _, states = stream(root, num_epoch=2)
    with loader(root, num_epoch=2) as whole:
        live = iter(whole)
        for _ in range(16):
            next(live)
        assert [whole.state_dict(batches=n) for n in range(17)] == states[:17]
        with pytest.raises(ConfigError, match="at most the 16"):
            whole.state_dict(batches=17)


@pytest.mark.parametrize("kind", [Numbers, JsonLineDataReader])
def test_files_of_unknown_length_or_with_differing_columns_go_on_the_same(tmp_path, kind):
    root = tmp_path / "t"
    if kind is Numbers:
        number_files(root, LENGTHS)
    else:
        root.mkdir()
        for i in range(6):
            rows = [{"x": 10 * i + j} | ({"y": j} if i == 2 else {}) for j in range(9)]
            (root / f"{i}.jsonl").write_text("\n".join(map(json.dumps, rows)))
    options = {"kind": kind, "shuffle_window": "1KiB", "collator": AsIs()}
    with loader(str(root), **options) as whole:
        states, batches = [whole.state_dict()], []
        for batch in whole:
            batches.append({name: list(values) for name, values in batch.items()})
            states.append(whole.state_dict())
    for done, state in enumerate(states[:-1]):
        with loader(str(root), **options) as rest:
            rest.load_state_dict(state)
            found = [{name: list(values) for name, values in batch.items()} for batch in rest]
            assert repr(found) == repr(batches[done:])


def test_files_that_have_become_shorter_are_an_error_not_a_hang(tmp_path):
    root = tmp_path / "t"
    number_files(root, [4, 4, 4])
    options = {"kind": Numbers, "shuffle_window": "1KiB"}
    with loader(str(root), **options) as whole:
        next(iter(whole))
        state = whole.state_dict()
    for path in root.iterdir():
        path.write_text("1" * path.stat().st_size)  # as large, with one row
    with loader(str(root), **options) as rest:
        rest.load_state_dict(state)
        with pytest.raises(IncompleteEpochError, match="files have changed"):
            list(rest)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"drop_last": True}, "drop_last"),
        ({"shuffle": False}, "shuffle"),
        ({"random_seed": 1}, "random_seed"),
        ({"shuffle_window": 30}, "shuffle_window"),
    ],
)
def test_a_state_of_another_order_is_refused_and_says_what_differs(root, options, named):
    with loader(root) as one:
        next(iter(one))
        state = one.state_dict()
    with loader(root, **options) as other:
        with pytest.raises(StateError, match=named):
            other.load_state_dict(state)
        assert len(list(other)) == len(other)  # a refused state changes nothing


def test_a_state_of_other_files_is_refused_and_one_of_a_moved_folder_is_not(root, tmp_path):
    with loader(root) as one:
        state = one.state_dict()
    moved = number_files(tmp_path / "moved", LENGTHS)
    with loader(moved) as other:
        other.load_state_dict(state)
    other = loader(number_files(tmp_path / "other", [*LENGTHS[:-1], 29, 1]))
    with other, pytest.raises(StateError, match="the files"):
        other.load_state_dict(state)


@pytest.mark.parametrize(
    "change",
    [
        {"format": 2}, {"epoch": -1}, {"epoch": "1"}, {"history": [[1, 10**6, "pad"]]}, {"history": [[1]]},
        {"history": None}, {"history": [[2, 1, "pad"], [1, 10**6, "pad"]]}, {"pass_epoch": 5}, {"order": None},
    ],
)  # fmt: skip
def test_what_is_no_state_is_refused(root, change):
    with loader(root) as one:
        state = one.state_dict()
        with pytest.raises(StateError):
            one.load_state_dict(state | change)
        for wrong in (None, [], {}, "state"):
            with pytest.raises(StateError, match="no state"):
                one.load_state_dict(wrong)


def test_a_state_is_small_plain_json(root):
    _, states = stream(root, num_epoch=2)
    assert all(len(json.dumps(state)) < 600 for state in states)
    assert states[-1]["epoch"] == 2
