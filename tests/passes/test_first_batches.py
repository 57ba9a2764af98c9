"""`limit`, `take` and `num_epoch=None`: the first batches of the same order, and no more read than they need."""

from itertools import islice

import pytest
from fakes import CountedNumbers, Numbers, Through, number_files, xs

from pyloader_delta import ConfigError, DataLoader, NumpyDataCollator

LENGTHS = [20, 1, 3, 17, 0, 9, 30]


class Read(CountedNumbers):
    """Notes which files were read."""

    def read_file(self, path):
        self.seen.append(path)
        return super().read_file(path)


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return number_files(tmp_path_factory.mktemp("first") / "t", LENGTHS)


def loader(root, *, kind=CountedNumbers, shuffle=True, **options):
    options = {"num_workers": 0, "workers": "thread", "shuffle_window": 25, "shuffle": shuffle} | options
    return DataLoader(kind(batch_size=7, shuffle=shuffle), Through(), NumpyDataCollator(), root, **options)


@pytest.mark.parametrize("shuffle", [True, False])
@pytest.mark.parametrize("drop_last", [True, False])
def test_limit_gives_the_first_batches_of_each_epoch(root, shuffle, drop_last):
    with loader(root, shuffle=shuffle, num_epoch=2, drop_last=drop_last) as whole:
        epochs = whole.batches_per_epoch
        batches = xs(whole)
    for limit in range(1, epochs + 2):
        options = {"num_epoch": 2, "limit": limit, "drop_last": drop_last, "audit": True, "num_workers": limit % 3}
        with loader(root, shuffle=shuffle, **options) as some:
            assert xs(some) == batches[:epochs][:limit] + batches[epochs:][:limit]
            assert len(some) == 2 * min(limit, epochs)
            assert (some.get_epoch(), some.receipt().complete) == (2, True)
            assert some.receipt().delivered + some.receipt().dropped == some.rows_per_epoch
            assert some.stats()["rows_planned_total"] == 2 * some.rows_per_epoch


def test_limit_reads_no_file_beyond_the_window_that_it_ends_in(root):
    with loader(root, kind=Read, shuffle=False, limit=4) as some:
        some.datareader.seen = []
        assert [x for batch in xs(some) for x in batch] == list(range(28))
        assert [path[-6:-4] for path in some.datareader.seen] == ["00", "01", "02", "03"]


def test_limit_of_ranks_is_the_same_number_of_batches_on_each(root):
    found = []
    for rank in range(3):
        with loader(root, rank=rank, world_size=3, limit=3) as share:
            found.append(xs(share))
            assert share.receipt().padded == 0
    assert [list(map(len, one)) for one in found] == [[7, 7, 7]] * 3
    assert len({x for one in found for batch in one for x in batch}) == 63


def test_limit_where_only_reading_tells_lengths(root):
    with loader(root, kind=Numbers, shuffle_window="60B") as whole:
        batches = xs(whole)
    for limit in (1, 5, len(batches), len(batches) + 1):
        with loader(root, kind=Numbers, shuffle_window="60B", limit=limit, num_epoch=2, num_workers=2) as some:
            assert xs(some)[: min(limit, len(batches))] == batches[:limit]
            assert some.stats()["batches_delivered_total"] == 2 * min(limit, len(batches))


def test_a_state_of_a_limited_loader_goes_on_in_a_whole_one(root):
    with loader(root) as whole:
        batches = xs(whole)
    with loader(root, limit=5) as some:
        for _ in islice(some, 3):
            state = some.state_dict()
    with loader(root) as rest:
        rest.load_state_dict(state)
        assert xs(rest) == batches[3:]


@pytest.mark.parametrize("wrong", [0, -1, 1.5, True, "3"])
def test_limit_and_take_are_numbers_of_batches(root, wrong):
    with pytest.raises(ConfigError, match="limit must be"):
        loader(root, limit=wrong)
    with loader(root) as whole, pytest.raises(ConfigError, match="n must be"):
        whole.take(wrong)


@pytest.mark.parametrize("n", [1, 2, 3, 7, 40])
def test_take_uses_nothing_up(root, n, executor):
    with loader(root, num_epoch=2) as whole:
        batches = xs(whole)
    with loader(root, num_epoch=2, **executor) as some:
        first = some.take(n)
        assert len(first) == min(n, 24)
        for _ in range(2):
            assert xs(first) == batches[:n]
        assert some.state_dict()["epoch"] == 0
        assert xs(some) == batches


def test_take_after_a_break_is_of_the_pass_to_come(root):
    with loader(root, num_epoch=3) as whole:
        batches = xs(whole)
    with loader(root) as some:
        list(islice(some, 5))
        assert xs(some.take(3)) == batches[12:15]
        for batch in some.take(9):  # left early: that does not use them up either
            assert xs([batch]) == batches[12:13]
            break
        assert xs(some) == batches[12:24]
        some.load_state_dict(some.state_dict() | {"epoch": 1, "pass_epoch": 1, "history": [[1, 4, "pad"]]})
        assert xs(some.take(2)) == batches[16:18]
        assert xs(some) == batches[16:24]


def test_take_shows_no_bar_and_uses_nothing_up_beside_one(root, capsys):
    pytest.importorskip("tqdm")
    with loader(root, progress=True) as some:
        for _ in range(2):
            assert len(list(some.take(5))) == 5
        assert capsys.readouterr().err == ""
        assert len(list(some)) == 12
        assert some.get_epoch() == 1


def test_take_ends_an_older_iterator_and_gives_way_to_a_newer_one(root):
    with loader(root) as some:
        older = iter(some)
        next(older)
        taken = iter(some.take(5))
        next(taken)
        with pytest.raises(RuntimeError, match="newer iter"):
            next(older)
        newer = xs(some)
        del taken
        assert len(newer) == 12
        assert some.state_dict()["epoch"] == 1


def test_num_epoch_none_never_ends_and_each_epoch_has_its_receipt(root, executor):
    with loader(root, num_epoch=3) as three:
        batches = xs(three)
    with loader(root, num_epoch=None, audit=True, **executor) as endless:
        found, digests = [], []
        for batch in islice(endless, 3 * 12):
            found.append(batch)
            if endless.receipt().complete:
                digests.append((endless.receipt().epoch, endless.receipt().digest))
        assert xs(found) == batches
        assert [epoch for epoch, _ in digests] == [1, 2, 3]
        assert len({digest for _, digest in digests}) == 1
        with pytest.raises(TypeError, match="no end"):
            len(endless)
        assert len(endless.take(5)) == 5
