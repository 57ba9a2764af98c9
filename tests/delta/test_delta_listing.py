"""In a store the log is listed from the last checkpoint on, by a hint that may be missing, wrong or old."""

import json

import pytest
from pyarrow.fs import LocalFileSystem

from pyloader_delta.delta import TableLog
from pyloader_delta.delta.store import Store, table_root
from pyloader_delta.delta.stores.settings import StoreSettings
from pyloader_delta.errors import TableError


class Recorded(Store):
    """A store that is no disk, and writes down what is asked of it."""

    def __init__(self, root: object) -> None:
        settings = StoreSettings(filesystem=LocalFileSystem())
        super().__init__(table_root(str(root), settings), settings)
        self.asked: list[str] = []

    def list(self, folder, start_after=""):
        self.asked.append(f"list from {int(start_after)}" if start_after else "list")
        return super().list(folder, start_after)

    def read(self, path):
        self.asked.append(path.split("/")[-1].lstrip("0"))
        return super().read(path)

    def open(self, path, size=None):
        self.asked.append(path.split("/")[-1].lstrip("0"))
        return super().open(path, size)


@pytest.fixture
def table(hand):
    """Versions 0..4, each with one file more, and checkpoints of versions 2 and 3."""
    table = hand.table()
    files = [hand.add(f"f{i}") for i in range(5)]
    table.commit(0, hand.protocol, hand.metadata(), files[0])
    for i in range(1, 5):
        table.commit(i, files[i])
    for version in (2, 3):
        table.checkpoint(version, hand.protocol, hand.metadata(), *files[: version + 1])
    return table


def hint(table, text: str) -> None:
    (table.log / "_last_checkpoint").write_text(text)


def n_files(store: Store, version: int | None = None) -> int:
    return len(TableLog(store).snapshot(version).files)


def test_a_hint_saves_the_list_of_what_is_before_it(table):
    hint(table, '{"version":3,"size":6}')
    store = Recorded(table)
    assert n_files(store) == 5
    assert store.asked == ["_last_checkpoint", "list from 3", "4.json", "3.checkpoint.parquet"]


def test_an_old_hint_does_no_harm(table):
    hint(table, '{"version":2}')
    store = Recorded(table)
    assert n_files(store) == 5
    assert store.asked == ["_last_checkpoint", "list from 2", "4.json", "3.checkpoint.parquet"]


def test_a_version_before_the_hint_is_looked_for_in_the_whole_list(table):
    hint(table, '{"version":3}')
    store = Recorded(table)
    assert n_files(store, 2) == 3
    assert store.asked[:2] == ["_last_checkpoint", "list"]


@pytest.mark.parametrize(
    "text", [None, "", "nonsense", "[]", "{}", '{"version":"3"}', '{"version":-1}', '{"version":99}', '{"version":4}']
)
def test_a_hint_that_is_missing_or_wrong_is_not_needed(table, text):
    if text is not None:
        hint(table, text)
    assert n_files(Recorded(table)) == 5


def test_a_bad_checkpoint_at_the_hint_gives_way_to_what_is_before_it(table):
    hint(table, '{"version":3}')
    (table.log / f"{3:020d}.checkpoint.parquet").write_bytes(b"nonsense")
    store = Recorded(table)
    assert n_files(store) == 5
    assert store.asked.count("list") == 1
    assert "2.checkpoint.parquet" in store.asked


def test_errors_are_those_of_the_whole_log(table):
    hint(table, '{"version":3}')
    with pytest.raises(TableError, match=r"has no version 9; versions 0\.\.4 can be asked for"):
        n_files(Recorded(table), 9)


@pytest.mark.parametrize("error", [TimeoutError("no answer"), PermissionError("no entry")])
def test_a_store_that_does_not_answer_is_not_asked_for_another_way(table, error):
    class Silent(Recorded):
        def open(self, path, size=None):
            self.asked.append("checkpoint")
            raise error

    hint(table, json.dumps({"version": 3}))
    store = Silent(table)
    with pytest.raises(TableError, match=rf"0003\.checkpoint\.parquet in the log of .* cannot be read: {error}$"):
        n_files(store)
    assert store.asked.count("checkpoint") == 1


def test_a_missing_table_is_named(tmp_path):
    with pytest.raises(TableError, match=r"there is no table at .*nowhere.*is the path right\?"):
        n_files(Recorded(tmp_path / "nowhere"))
