"""What resuming reads, in bytes of the table's files; and what a loader's length reads: nothing."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from deltalake import ColumnProperties, WriterProperties, write_deltalake
from fakes import Numbers, NumpyThrough, Through, number_files, xs
from fsspec.implementations.local import LocalFileSystem

from pyloader_delta import DataLoader, DeltaDataReader, NumpyDataCollator

ROWS, GROUPS = 600_000, 80  # 8 random bytes a row: as large in the files as decoded
GROUP = ROWS // GROUPS * 8
WINDOW = 512 << 10  # eight row groups and a bit
FOOTER = 4096


class Counting(LocalFileSystem):
    """Counts the bytes that are read of data files, and how often one is opened."""

    cachable = False

    def __init__(self):
        super().__init__()
        self.bytes = self.opened = 0

    def open(self, path, mode="rb", **options):
        file = super().open(path, mode, **options)
        if not str(path).endswith(".parquet") or "w" in mode:
            return file
        self.opened += 1
        read = file.read

        def counted(n=-1):
            found = read(n)
            self.bytes += len(found)
            return found

        file.read = counted
        return file


def written(root, n_files):
    """Write files of one row group each: a store is asked for blocks of 1 MiB, so that a file is read whole."""
    plain = ColumnProperties(dictionary_enabled=False)
    properties = WriterProperties(compression="UNCOMPRESSED", max_row_group_size=ROWS, default_column_properties=plain)
    rows = pa.table({"x": np.random.default_rng(7).random(ROWS), "part": np.arange(ROWS) // (ROWS // n_files)})
    write_deltalake(str(root), rows, partition_by=["part"], writer_properties=properties)
    return str(root)


@pytest.fixture(scope="module")
def small_groups(tmp_path_factory):
    return written(tmp_path_factory.mktemp("small") / "t", GROUPS)


@pytest.fixture(scope="module")
def huge_group(tmp_path_factory):
    return written(tmp_path_factory.mktemp("huge") / "t", 1)


def loader(root, files=None, **options):
    options = {"shuffle": True, "num_workers": 0, "shuffle_window": WINDOW, "workers": "thread"} | options
    options["shuffle_window"] = f"{options['shuffle_window']}B"
    reader = DeltaDataReader(1000, shuffle=True, filesystem=files, columns=["x"])
    return DataLoader(reader, NumpyThrough(), NumpyDataCollator(), root, **options)


def read_by_resuming(root, part, **options):
    """Return the bytes of data files that are read before the first batch that follows a part of an epoch."""
    with loader(root, **options) as one:
        n = int(part * len(one))
        live = iter(one)
        for _ in range(n):
            next(live)
        state, expected = one.state_dict(), next(live)["x"].copy()
    files = Counting()
    with loader(root, files, **options) as one:
        one.load_state_dict(json.loads(json.dumps(state)))
        before = files.bytes
        assert np.array_equal(next(iter(one))["x"], expected)
        return files.bytes - before


@pytest.mark.parametrize("part", [0.1, 0.9])
def test_T14_resuming_reads_at_most_the_window_in_progress(small_groups, part):
    groups = -(-WINDOW // GROUP)  # that make a window
    assert (groups - 1) * GROUP <= read_by_resuming(small_groups, part) <= groups * (GROUP + FOOTER) < 0.15 * ROWS * 8


@pytest.mark.parametrize("part", [0.1, 0.9])
def test_T14_of_row_groups_above_an_eighth_of_the_window_those_are_read_that_it_has_parts_of(small_groups, part):
    """They are read in parts, of at most sixteen at a time, and none can be entered in the middle."""
    assert WINDOW / 3 <= read_by_resuming(small_groups, part, shuffle_window=WINDOW // 2) <= 16 * (GROUP + FOOTER)


def test_T14_other_ranks_read_at_most_a_window_of_the_old_ones_more(small_groups):
    with loader(small_groups, rank=0, world_size=2) as one:
        live = iter(one)
        for _ in range(270):  # of 300
            next(live)
        state = one.state_dict()
    files = Counting()
    with loader(small_groups, files) as one:
        one.load_state_dict(state)
        before = files.bytes
        next(iter(one))
        assert files.bytes - before <= 2 * -(-WINDOW // GROUP) * (GROUP + FOOTER)  # a batch may lie in both's windows


def test_T14_inside_a_huge_row_group_its_beginning_is_read_once_more(huge_group):
    """The cost: Parquet cannot be entered in the middle of a row group, so what lies before the window is decoded."""
    whole = ROWS * 8
    assert 0.85 * whole < read_by_resuming(huge_group, 0.9) <= 1.05 * whole


def test_T16_len_of_each_rank_is_exact_and_opens_no_data_file(small_groups):
    files = Counting()
    for rank in range(7):
        with loader(small_groups, files, rank=rank, world_size=7) as one:
            opened = files.opened
            n = len(one)
            assert (one.batches_per_epoch, one.rows_per_epoch) == (n, -(-ROWS // 7))
            assert files.opened == opened
            if rank in (0, 6):
                assert sum(1 for _ in one) == n


class Read(Numbers):
    """Notes which files were read; their lengths are not known before."""

    def read_file(self, path):
        self.seen.append(Path(path).name)
        return super().read_file(path)


def unknown(root, **options):
    reader = Read(batch_size=7, shuffle=True)
    reader.seen = []
    options = {"shuffle_window": "1KiB", "shuffle": True, "num_workers": 0} | options
    return DataLoader(reader, Through(), NumpyDataCollator(), root, **options)


@pytest.fixture
def files(tmp_path):
    return number_files(tmp_path / "t", [250, 3, 240, 0, 260, 255, 9, 11, 270, 200])  # 900 bytes each, or nearly none


def test_where_lengths_are_unknown_the_files_of_earlier_windows_are_not_read_again(files):
    with unknown(files, num_epoch=2) as one:
        states, batches = [one.state_dict()], []
        for batch in one:
            batches.append(batch["x"].tolist())
            states.append(json.loads(json.dumps(one.state_dict())))
        names = one.datareader.seen[:10]
    assert states[1]["window"] == [0, 0]
    for done in range(0, len(states) - 1, 17):
        with unknown(files, num_epoch=2, num_workers=2 * (done % 2), workers="thread") as one:
            one.load_state_dict(states[done])
            assert one.state_dict() == states[done]
            assert xs(one) == batches[done:]
    done = next(n for n, state in enumerate(states) if state["epoch"] == 0 and state.get("window", [0])[0] >= 3)
    with unknown(files, num_epoch=2) as one:
        one.load_state_dict(states[done])
        assert next(iter(one))["x"].tolist() == batches[done]
        read = one.datareader.seen
    assert 0 < len(read) < 7
    assert names.index(read[0]) >= 3
    assert not set(read) & set(names[: names.index(read[0])])


def test_where_lengths_are_unknown_a_wrapper_that_fetches_ahead_need_not_read_again_either(files):
    with unknown(files) as one:
        live, states = iter(one), []
        for _ in range(150):
            next(live)
            states.append(one.state_dict())
        assert [one.state_dict(batches=n) for n in (1, 100, 149)] == [states[0], states[99], states[148]]


def test_where_lengths_are_unknown_a_state_without_a_window_still_loads(files):
    with unknown(files) as one:
        live = iter(one)
        for _ in range(100):
            next(live)
        state, rest = one.state_dict(), xs(live)
    for other in ({k: v for k, v in state.items() if k != "window"}, state | {"window": [99, 3]}):
        with unknown(files) as one:
            one.load_state_dict(other)
            assert xs(one) == rest


def test_an_endless_pass_goes_on(files):
    with unknown(files, num_epoch=None) as one:
        live, states, batches = iter(one), [], []
        for _ in range(500):
            batches.append(next(live)["x"].tolist())
            states.append(one.state_dict())
    assert states[-1]["epoch"] >= 2
    for done in (100, 300, 450):
        with unknown(files, num_epoch=None) as one:
            one.load_state_dict(states[done - 1])
            live = iter(one)
            assert [next(live)["x"].tolist() for _ in range(500 - done)] == batches[done:]
