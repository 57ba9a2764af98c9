"""In a loop an epoch, the next pass is read as one ends; whatever then follows gets what it would have got without."""

from itertools import pairwise

import pytest
from fakes import CountedNumbers, Numbers, Through, number_files, numbers, until_error, xs
from leaks import idle, until

from pyloader_delta import ReadError

LENGTHS = [5, 4, 6, 3, 5, 4]
N_ROWS = sum(LENGTHS)
PLACES = [{"workers": "thread"}, {"workers": "process"}]


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return number_files(tmp_path_factory.mktemp("next") / "numbers", LENGTHS)


def shuffled(root, **options):
    reader = CountedNumbers(batch_size=2, shuffle=True, random_seed=5)
    reader.reads_ahead = True
    return numbers(root, reader=reader, shuffle=True, shuffle_window=6, **{"num_workers": 2} | options)


def epoch(root, number):
    with shuffled(root, num_workers=0) as loader:
        loader.set_epoch(number)
        return xs(loader)


def at_rest(loader):
    """Return whether workers are idle, two windows of the next pass in their hands."""
    held = loader.stats()
    return held["tasks_in_flight"] == 0 and held["store_bytes"] > 0


@pytest.mark.parametrize("place", PLACES)
def test_a_loop_an_epoch_gives_what_one_loop_over_all_gives(root, place):
    with shuffled(root, **place) as loader:
        found = []
        for _ in range(3):
            found.append(xs(loader))
            assert until(lambda: at_rest(loader))
            assert loader.receipt().complete
        epochs = [loader.get_epoch()]
    assert found == [epoch(root, number) for number in range(3)]
    assert epochs == [3]
    assert all(one != other for one, other in pairwise(found))


def test_the_next_pass_is_another_one_where_an_epoch_is_set_or_a_state_loaded(root):
    with shuffled(root) as loader:
        batches = iter(loader)
        taken = [next(batches) for _ in range(4)]
        state = loader.state_dict()
        rest = list(batches)
        assert until(lambda: at_rest(loader))
        loader.set_epoch(4)
        assert xs(loader) == epoch(root, 4)
        assert until(lambda: at_rest(loader))
        loader.set_epoch(5)  # what follows anyway
        assert xs(loader) == epoch(root, 5)
        loader.load_state_dict(state)
        assert xs(loader) == xs(rest)
        assert xs(taken + rest) == epoch(root, 0)
        assert xs(loader) == epoch(root, 1)


class Counts(Through):
    def __init__(self):
        self.rows = []

    def __deepcopy__(self, memo):
        return self

    def batch_encode(self, batch):
        self.rows += batch["x"]
        return batch


def test_no_row_of_the_next_pass_is_encoded_before_it_begins(root):
    dataset = Counts()
    with shuffled(root, dataset=dataset, workers="thread") as loader:
        for passes in (1, 2):
            list(loader)
            assert until(lambda: at_rest(loader))
            assert sorted(dataset.rows) == sorted([*range(N_ROWS)] * passes)


@pytest.mark.parametrize("options", [{"num_epoch": 2}, {"limit": 3}])
def test_nothing_is_read_after_one_loop_over_epochs_or_a_smoke_run(root, options):
    with shuffled(root, **options) as loader:
        list(loader)
        assert idle(loader)
        assert loader.stats()["store_bytes"] == 0


def test_leaving_a_loop_in_the_middle_lets_go_of_what_was_read_ahead(root):
    with shuffled(root) as loader:
        list(loader)
        assert until(lambda: at_rest(loader))
        for number, _ in enumerate(loader):
            if number == 3:
                break
        assert until(lambda: loader.stats()["tasks_in_flight"] == 0 and loader.stats()["store_bytes"] == 0)
        assert xs(loader) == epoch(root, 2)


def test_leaving_a_loop_with_its_last_batch_is_the_end_of_the_pass(root):
    with shuffled(root) as loader:
        for number, _ in enumerate(loader):
            if number == len(loader) - 1:
                break
        assert until(lambda: at_rest(loader))
        assert xs(loader) == epoch(root, 1)


def test_a_file_that_could_not_be_read_ahead_is_read_anew_when_its_pass_begins(tmp_path):
    root = number_files(tmp_path / "numbers", LENGTHS)
    gone = tmp_path / "numbers" / "00.txt"
    content = gone.read_text()
    reader = Numbers(batch_size=2)
    reader.reads_ahead = True
    with numbers(root, reader=reader, num_workers=1, workers="thread", max_queue_size=1) as loader:
        batches = iter(loader)
        next(batches)
        gone.unlink()
        _, error = until_error(batches)
        assert error is None
        assert idle(loader)
        gone.write_text(content)
        assert xs(loader) == xs(loader)
        gone.unlink()
        _, error = until_error(batch for _ in range(3) for batch in loader)
    assert isinstance(error, ReadError)
    assert "00.txt" in str(error)
