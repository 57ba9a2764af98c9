"""Passes and epochs: what `iter()` gives, how epochs follow each other, what a dropped iterator means."""

import gc

import pytest
from fakes import CountedNumbers, Numbers, NumpyThrough, Through, number_files, numbers, xs

from pyloader_delta import ConfigError

ALL = [[0, 1], [2, 3], [4, 5], [6]]


@pytest.fixture
def root(tmp_path):
    return number_files(tmp_path / "numbers", [3, 4])


@pytest.fixture
def loader(root):
    """Four batches an epoch, in the caller's thread."""
    with numbers(root, num_workers=0) as made:
        yield made


def test_each_iter_goes_on_with_the_next_epoch(root, executor):
    reader = CountedNumbers(batch_size=2, shuffle=True)
    with (
        numbers(root, reader=reader, **executor) as one,
        numbers(root, reader=reader, num_epoch=3, num_workers=0) as all3,
    ):
        assert xs(one) + xs(one) + xs(one) == xs(all3)


def test_one_iter_yields_num_epoch_epochs(root, executor):
    with numbers(root, num_epoch=2, **executor) as loader:
        assert xs(loader) == ALL + ALL
        assert xs(loader) == ALL + ALL


def test_no_batch_crosses_epochs(root):
    with numbers(root, reader=CountedNumbers(batch_size=5), num_epoch=2, num_workers=0) as loader:
        assert [len(batch) for batch in xs(loader)] == [5, 2, 5, 2]


def test_len_is_what_one_iter_yields(root):
    for size, drop_last, n in ((1, False, 7), (2, False, 4), (2, True, 3), (7, True, 1), (8, True, 0), (8, False, 1)):
        for num_epoch in (1, 3):
            reader = CountedNumbers(batch_size=size)
            options = {"num_epoch": num_epoch, "drop_last": drop_last, "num_workers": 0}
            with numbers(root, reader=reader, **options) as loader:
                assert len(loader) == n * num_epoch
                assert loader.batches_per_epoch == n
                if n:
                    assert len(list(loader)) == len(loader)


def test_drop_last_with_less_than_a_batch_warns_once(root):
    with numbers(root, reader=CountedNumbers(batch_size=8), drop_last=True, num_workers=0) as loader:
        with pytest.warns(UserWarning, match="drop_last leaves no batch of the 7 rows") as warned:
            assert list(loader) == []
        assert len(warned) == 1


def test_an_endless_loader_has_no_len_but_batches_per_epoch(root):
    with numbers(root, num_epoch=None, num_workers=0) as loader:
        with pytest.raises(TypeError, match="num_epoch=None has no end"):
            len(loader)
        assert loader.batches_per_epoch == 4
        assert bool(loader)
        batches = iter(loader)
        assert xs(next(batches) for _ in range(10)) == (ALL * 3)[:10]
        assert loader.get_epoch() == 3


def test_unknown_lengths_have_no_len_but_the_same_order(root, executor):
    options = {"shuffle": True, "shuffle_window": "8B", "num_epoch": 2}
    with numbers(root, reader=Numbers(batch_size=2, shuffle=True), **options, **executor) as unknown:
        with pytest.raises(TypeError, match=r"define count_samples\(self, path\) in Numbers to have len\(\)"):
            len(unknown)
        with pytest.raises(TypeError, match="count_samples"):
            _ = unknown.batches_per_epoch
        assert bool(unknown)
        with numbers(root, reader=CountedNumbers(batch_size=2, shuffle=True), **options, num_workers=0) as known:
            assert len(known) == 8
            assert xs(unknown) == xs(known)


def test_unknown_lengths_drop_the_last_short_batch_too(root, executor):
    with numbers(root, reader=Numbers(batch_size=2), drop_last=True, **executor) as loader:
        assert xs(loader) == ALL[:3]
        assert loader.stats()["rows_dropped_total"] == 1


def test_empty_files_are_no_rows(tmp_path, executor):
    root = number_files(tmp_path / "numbers", [0, 3, 0, 0, 2, 0])
    for reader in (Numbers(batch_size=2), CountedNumbers(batch_size=2)):
        with numbers(root, reader=reader, **executor) as loader:
            assert xs(loader) == [[0, 1], [2, 3], [4]]


@pytest.mark.parametrize("reader", [Numbers(), CountedNumbers()])
@pytest.mark.parametrize("num_epoch", [1, 3, None])
def test_no_rows_are_no_batches_and_one_warning(tmp_path, reader, num_epoch):
    root = number_files(tmp_path / "numbers", [0, 0])
    with numbers(root, reader=reader, num_epoch=num_epoch, num_workers=0) as loader:
        with pytest.warns(UserWarning, match="has no rows: the loader yields no batch") as warned:
            assert list(loader) == []
        assert len(warned) == 1


def test_get_epoch_is_of_the_batch_last_delivered(root, executor):
    with numbers(root, num_epoch=2, **executor) as loader:
        assert loader.get_epoch() == 0
        seen = [(loader.get_epoch(), batch["x"][0]) for batch in loader]
        assert [epoch for epoch, _ in seen] == [1, 1, 1, 1, 2, 2, 2, 2]
        assert loader.get_epoch() == 2
        iter(loader)
        assert loader.get_epoch() == 2
        next(loader)
        assert loader.get_epoch() == 3


def test_next_and_get_batch_drive_one_pass_of_the_loaders_own(loader):
    assert xs([next(loader), loader.get_batch(), next(loader), loader.get_batch()]) == ALL
    with pytest.raises(StopIteration):
        next(loader)
    assert xs([loader.get_batch()]) == ALL[:1]
    assert loader.get_epoch() == 2


def test_a_second_iter_ends_the_older_iterator(loader):
    first = iter(loader)
    assert xs([next(first)]) == ALL[:1]
    second = iter(loader)
    with pytest.raises(RuntimeError, match="newer iter"):
        next(first)
    assert xs(second) == ALL


def test_an_iterator_that_came_to_its_end_stays_there(loader):
    first = iter(loader)
    assert xs(first) == ALL
    second = iter(loader)
    assert list(first) == []
    assert xs(second) == ALL
    assert list(second) == []


@pytest.mark.parametrize("peeked", [0, 1, 2])
def test_a_peek_is_replayed_from_private_copies(root, executor, peeked):
    with numbers(root, num_epoch=2, **executor) as loader:
        batches = iter(loader)
        for _ in range(peeked):
            next(batches)["x"][:] = -1
        del batches
        assert xs(loader) == ALL + ALL
        assert loader.get_epoch() == 2


def test_peeks_upon_peeks_are_replayed(loader):
    for _ in range(3):
        assert xs([next(iter(loader))]) == ALL[:1]
    batches = iter(loader)
    assert xs([next(batches), next(batches)]) == ALL[:2]
    assert xs(loader) == ALL
    assert loader.get_epoch() == 1


def test_a_pass_abandoned_after_more_than_a_peek_goes_on_with_the_next_epoch(root, executor):
    reader = CountedNumbers(batch_size=2, shuffle=True)
    with numbers(root, reader=reader, num_epoch=2, num_workers=0) as loader:
        epochs = [xs(loader)]
        first, second = epochs[0][:4], epochs[0][4:]
    with numbers(root, reader=reader, **executor) as loader:
        for i, batch in enumerate(loader):
            assert batch["x"].tolist() == first[i]
            if i == 2:
                break
        assert xs(loader) == second
        assert loader.get_epoch() == 2


def test_an_epoch_of_one_batch_is_no_peek(tmp_path):
    root = number_files(tmp_path / "numbers", [2])
    with numbers(root, num_workers=0) as loader:
        next(iter(loader))
        assert loader.get_epoch() == 1
        next(iter(loader))
        assert loader.get_epoch() == 2


def test_set_epoch_names_the_epoch_of_the_next_pass(root):
    reader = CountedNumbers(batch_size=2, shuffle=True)
    with numbers(root, reader=reader, num_epoch=6, num_workers=0) as loader:
        epochs = xs(loader)
    with numbers(root, reader=reader, num_workers=0) as loader:
        loader.set_epoch(5)
        assert xs(loader) == epochs[20:24]
        assert loader.get_epoch() == 6
        loader.set_epoch(0)
        assert xs(loader) == epochs[:4]
        assert xs(loader) == epochs[4:8]
        for epoch in (0, 1, 2):  # torch's habit
            loader.set_epoch(epoch)
            assert xs(loader) == epochs[4 * epoch : 4 * epoch + 4]


def test_set_epoch_of_the_current_epoch_changes_nothing(loader):
    batches = iter(loader)
    next(batches)
    loader.set_epoch(0)
    assert xs(batches) == ALL[1:]
    next(iter(loader))
    loader.set_epoch(1)  # a peek is the epoch under way, too
    assert xs(loader) == ALL
    assert loader.get_epoch() == 2


def test_set_epoch_of_an_abandoned_epoch_begins_it_again(loader):
    batches = iter(loader)
    assert xs(next(batches) for _ in range(3)) == ALL[:3]
    del batches
    gc.collect()
    loader.set_epoch(0)
    assert xs(loader) == ALL
    assert loader.get_epoch() == 1


@pytest.mark.parametrize("epoch", [-1, 1.0, "1", True, None])
def test_set_epoch_takes_a_number_of_an_epoch(loader, epoch):
    with pytest.raises(ConfigError, match="epoch must be an int >= 0, got"):
        loader.set_epoch(epoch)


def test_an_error_ends_the_pass_and_the_next_begins_the_epoch_again(tmp_path, executor):
    root = number_files(tmp_path / "numbers", [3, 3])
    (tmp_path / "numbers" / "01.txt").rename(tmp_path / "away")
    with numbers(root, reader=Numbers(batch_size=2), **executor) as loader:
        assert xs(loader) == [[0, 1], [2]]
    (tmp_path / "numbers" / "01.txt").write_text("3\nx\n5")
    with numbers(root, reader=Numbers(batch_size=2), **executor) as loader:
        batches = iter(loader)
        assert xs([next(batches)]) == [[0, 1]]
        with pytest.raises(ValueError, match="invalid literal"):
            next(batches)
        assert list(batches) == []
        (tmp_path / "numbers" / "01.txt").write_text("3\n4\n5")
        assert xs(loader) == [[0, 1], [2, 3], [4, 5]]


def test_a_loader_that_nobody_else_holds_lives_while_it_is_iterated(root, executor):
    found = []
    for batch in numbers(root, dataset=NumpyThrough(), num_epoch=2, **executor):
        gc.collect()
        found.append(batch)
    assert xs(found) == ALL + ALL
    assert xs(list(numbers(root, dataset=Through(), **executor))) == ALL
    assert xs(batch for batch, _ in zip(numbers(root, **executor), range(9), strict=False)) == ALL


def test_repr_tells_the_state_in_one_line(loader):
    assert "rows=7 batch_size=2 epoch=0 batches_delivered=0 workers=the caller's thread idle>" in repr(loader)
    batches = iter(loader)
    next(batches)
    assert "epoch=1 batches_delivered=1 workers=the caller's thread iterating>" in repr(loader)
    list(batches)
    assert repr(loader).endswith("batches_delivered=4 workers=the caller's thread idle>")
    loader.close()
    assert repr(loader).endswith("closed>")
    assert "\n" not in repr(loader)


def test_a_closed_loader_says_so(loader):
    batches = iter(loader)
    next(batches)
    loader.close()
    loader.close()
    for use in (lambda: next(batches), lambda: iter(loader), lambda: next(loader)):
        with pytest.raises(RuntimeError, match="this DataLoader is closed"):
            use()
