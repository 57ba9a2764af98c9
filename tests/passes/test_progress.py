"""`progress=True`: a bar that is exact, ends with the loop, and changes nothing of what is delivered."""

import re
from itertools import islice

import pytest
from programs import python

from pyloader_delta import ConfigError, progress
from tests.fakes import CountedNumbers, Numbers, number_files, numbers, xs

pytest.importorskip("tqdm", reason="tqdm is not installed")


@pytest.fixture
def root(tmp_path) -> str:
    """18 rows: 5 batches of 4 an epoch."""
    return number_files(tmp_path / "numbers", [10, 8])


def make(root, reader=CountedNumbers, **options):
    return numbers(root, reader=reader(4), **{"num_workers": 0, "progress": True} | options)


def bars(capsys) -> list[str]:
    """Return the last state of each bar that was shown."""
    return [bar.split("\r")[-1] for bar in capsys.readouterr().err.split("\n") if bar]


def test_a_bar_is_exact_and_changes_no_batch(root, capsys):
    with make(root, num_epoch=2) as loader, make(root, num_epoch=2, progress=False) as silent:
        assert xs(loader) == xs(silent)
    (bar,) = bars(capsys)
    assert re.match(r"epoch 2 of 2: 100%\|█+\| 10/10 \[", bar)
    assert re.search(r"[\d,]+ rows/s, waited \d+%\]", bar)


def test_each_loop_has_its_own_bar(root, capsys):
    with make(root) as loader:
        for _ in range(2):
            assert sum(1 for _ in loader) == 5
    assert [bar.split(":")[0] for bar in bars(capsys)] == ["epoch 1", "epoch 2"]


def test_a_bar_goes_on_where_a_resumed_epoch_does(root, capsys):
    with make(root, progress=False, num_epoch=2) as loader:
        batches = iter(loader)
        list(islice(batches, 7))
        state = loader.state_dict()
    with make(root, num_epoch=2) as loader:
        loader.load_state_dict(state)
        assert len(list(loader)) == 3
    (bar,) = bars(capsys)
    assert "10/10" in bar


def test_a_bar_after_a_peek_counts_the_replayed_batches_once(root, capsys):
    with make(root) as loader:
        peek = iter(loader)
        next(peek)
        del peek
        assert len(list(loader)) == 5
    assert [re.search(r"(\d+)/5 ", bar)[1] for bar in bars(capsys)] == ["1", "5"]


@pytest.mark.parametrize("options", [{"reader": Numbers}, {"num_epoch": None}])
def test_without_a_known_end_batches_are_counted(root, capsys, options):
    with make(root, **options) as loader:
        assert len(list(islice(loader, 5))) == 5
    (bar,) = bars(capsys)
    assert "5batch [" in bar
    assert "%|" not in bar


def test_a_loop_that_is_left_or_fails_ends_its_bar(root, capsys):
    from tqdm import tqdm

    with make(root) as loader:
        for _ in loader:
            break
        loader.close()
        with pytest.raises(RuntimeError, match="closed"):
            next(iter(loader))
    assert not [bar for bar in getattr(tqdm, "_instances", ()) if not bar.disable]
    (bar,) = bars(capsys)
    assert "1/5" in bar


def test_only_rank_0_shows_a_bar(root, capsys):
    for rank in (0, 1):
        with make(root, rank=rank, world_size=2) as loader:
            assert len(list(loader)) == 3
    assert len(bars(capsys)) == 1


def test_it_is_a_flag_and_needs_tqdm(root, monkeypatch):
    with pytest.raises(ConfigError, match="progress must be True or False"):
        make(root, progress="yes")
    monkeypatch.setattr(progress.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"pip install 'pyloader_delta\[progress\]'"):
        make(root)
    make(root, progress=False).close()


def test_tqdm_is_not_imported_unless_a_bar_is_shown(root):
    code = (
        "import sys; from tests.fakes import *; l = numbers(sys.argv[1], progress=False, num_workers=0); "
        "list(l); l.close(); assert 'tqdm' not in sys.modules"
    )
    python("-c", code, root)
