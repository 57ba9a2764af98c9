"""Receipts: what came of an epoch's rows, the same digest for any order, ranks, workers and restarts."""

import json
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from deltalake import write_deltalake
from fakes import CountedNumbers, Numbers, NumpyThrough, Through, number_files, until_error, xs
from vectors import delete_rows

from pyloader_delta import (
    ConfigError,
    DataLoader,
    DeltaDataReader,
    IncompleteEpochError,
    NumpyDataCollator,
    ParquetDataReader,
    Receipt,
)
from pyloader_delta.audit import digest_of, file_key
from pyloader_delta.engine import gather, local, region

LENGTHS = [20, 1, 3, 17, 0, 9, 30]
NAMES = [f"{i:02}.txt" for i in range(len(LENGTHS))]


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return number_files(tmp_path_factory.mktemp("receipts") / "t", LENGTHS)


def loader(root, *, kind=CountedNumbers, dataset=None, shuffle=True, **options):
    options = {"num_workers": 0, "workers": "thread", "shuffle": shuffle, "shuffle_window": 25, "audit": True} | options
    reader = kind(batch_size=7, shuffle=shuffle)
    return DataLoader(reader, dataset or NumpyThrough(), NumpyDataCollator(), root, **options)


def expected(files):
    """Return the digest of rows, given as name → their numbers in the file."""
    parts = [digest_of(np.full(len(rows), file_key(name), np.uint64), np.array(rows)) for name, rows in files.items()]
    return f"{sum(parts) % 2**64:016x}"


WHOLE = expected({name: range(n) for name, n in zip(NAMES, LENGTHS, strict=True)})


@pytest.mark.parametrize("shuffle", [True, False])
def test_a_receipt_proves_each_row_on_every_executor(root, executor, shuffle):
    with loader(root, shuffle=shuffle, num_epoch=2, **executor) as whole:
        seen = set()
        for batch in whole:
            assert list(batch) == ["x"]
            assert batch["x"].dtype == np.int64
            found = whole.receipt()
            seen.add((found.epoch, found.complete))
        assert seen == {(1, False), (1, True), (2, False), (2, True)}
        assert (found.planned, found.delivered, found.padded, found.dropped) == (80, 80, 0, 0)
        assert (found.complete, found.whole, found.rows, found.ranks) == (True, True, 80, (0,))
        assert found.digest == WHOLE
        assert {name: (n.planned, n.delivered) for name, n in found.files.items()} == {
            name: (n, n) for name, n in zip(NAMES, LENGTHS, strict=True)
        }


def test_without_audit_there_are_sums_and_no_digest(root):
    with loader(root, audit=False, drop_last=True) as whole:
        with pytest.raises(ConfigError, match="no batch was delivered"):
            whole.receipt()
        list(whole)
        found = whole.receipt()
    assert (found.planned, found.delivered, found.dropped, found.digest, found.whole) == (80, 77, 3, None, True)
    assert found.files["00.txt"].planned == 20
    assert found.files["00.txt"].delivered is None


def test_a_receipt_is_json_and_reads_well(root):
    with loader(root, drop_last=True) as whole:
        list(whole)
        found = whole.receipt()
    assert Receipt.from_dict(json.loads(json.dumps(found.to_dict()))) == found
    assert found.to_dict()["whole"] is True
    lines = repr(found).splitlines()
    assert lines[0] == f"Receipt of epoch 1 of {root}"
    assert lines[1] == "  planned=80 delivered=77 dropped=3"
    assert sum("rows" in line for line in lines[3:]) == sum(n.delivered != n.planned for n in found.files.values())


@pytest.mark.parametrize(("uneven", "world_size"), [("pad", 3), ("mask", 3), ("drop", 3), ("pad", 90)])
def test_receipts_of_ranks_add_up(root, uneven, world_size):
    receipts = []
    for rank in range(world_size):
        with loader(root, rank=rank, world_size=world_size, uneven=uneven) as share:
            list(share)
            receipts.append(share.receipt())
    found = sum(receipts)
    left = 80 % world_size if uneven == "drop" else 0
    assert found.whole
    assert (found.delivered - found.padded, found.left_out) == (80 - left, left)
    assert len({one.delivered for one in receipts}) == 1
    assert found.ranks == tuple(range(world_size))
    assert (found.digest == WHOLE) is (left == 0)
    if not left:
        assert {name: n.planned for name, n in found.files.items()} == {
            name: n for name, n in zip(NAMES, LENGTHS, strict=True) if n
        }
        assert all(n.planned == n.delivered for n in found.files.values())
    assert not receipts[0].whole
    with pytest.raises(ConfigError, match="epoch is 1 in one and 2"):
        sum([receipts[0], Receipt.from_dict(receipts[1].to_dict() | {"epoch": 2})])


@pytest.mark.parametrize("workers", [0, 2])
def test_parts_of_a_resumed_epoch_add_up(root, workers):
    for taken in (1, 4, 11):
        with loader(root) as before:
            live = iter(before)
            for _ in range(taken):
                next(live)
            state, first = before.state_dict(), before.receipt()
        assert (first.complete, first.planned, first.whole) == (False, 7 * taken, False)
        with loader(root, num_workers=workers) as after:
            after.load_state_dict(state)
            list(after)
            second = after.receipt()
        both = first + second
        assert (both.complete, both.whole, both.digest, both.planned) == (True, True, WHOLE, 80)
        assert all(n.planned == n.delivered for n in both.files.values())


@pytest.mark.parametrize(("world_size", "uneven"), [(1, "pad"), (2, "mask"), (5, "pad"), (5, "drop")])
def test_receipts_add_up_where_other_ranks_finish_an_epoch(root, world_size, uneven):
    receipts, state = [], None
    for rank in range(3):
        with loader(root, rank=rank, world_size=3, uneven=uneven) as before:
            live = iter(before)
            next(live), next(live)
            state = before.state_dict()
            receipts.append(before.receipt())
    for rank in range(world_size):
        with loader(root, rank=rank, world_size=world_size, uneven=uneven) as after:
            after.load_state_dict(state)
            list(after)
            receipts.append(after.receipt())
    found = sum(receipts)
    assert (found.whole, found.delivered - found.padded + found.left_out) == (True, 80)
    assert found.left_out == (38 % 5 if uneven == "drop" else 0)
    assert found.left_out or found.digest == WHOLE


def test_lengths_that_only_reading_tells_give_a_receipt_at_the_end(root):
    with loader(root, kind=Numbers, shuffle_window="60B") as whole:
        live = iter(whole)
        next(live)
        assert whole.receipt().rows is None
        list(live)
        found = whole.receipt()
    assert (found.rows, found.whole, found.digest) == (80, True, WHOLE)
    assert found.files["00.txt"].planned is None
    assert found.files["00.txt"].delivered == 20


def table(folder, sizes=(50, 40, 30)):
    start = 0
    for n in sizes:
        text = [f"row {i}" for i in range(start, start + n)]
        numbers = list(range(start, start + n))
        write_deltalake(folder, pa.table({"x": numbers, "m": [i % 3 for i in numbers], "text": text}), mode="append")
        start += n
    return str(folder)


def streamed(root, reader, **options):
    options = {"num_workers": 2, "shuffle": True, "shuffle_window": 40, "audit": True} | options
    with DataLoader(reader, NumpyThrough(), NumpyDataCollator(), root, **options) as whole:
        rows = [n for batch in whole for n in batch["x"].tolist()]
        return rows, whole.receipt()


class OnlyX(DeltaDataReader):
    """Leaves columns out after reading, as user code may: numbers must not be among them."""

    def read_chunk(self, chunk):
        read = super().read_chunk(chunk)
        assert read.column_names[0] == "x"
        return read.select(["x"])


@pytest.mark.parametrize("kind", [DeltaDataReader, OnlyX])
def test_row_numbers_of_a_table_are_physical_under_deletion_vectors_and_filters(tmp_path, kind):
    root = table(tmp_path / "t")
    files = [(chunk.path.removeprefix(root + "/"), len(chunk.rows)) for chunk in DeltaDataReader().chunks(root)]
    delete_rows(tmp_path / "t", {files[0][0]: [0, 1, 7, 49], files[2][0]: [29]})
    gone = {0, 1, 7, 49, 119}
    rows, found = streamed(root, kind(8, shuffle=True, columns=["x"], filter="m = 1"))
    assert sorted(rows) == [x for x in range(120) if x % 3 == 1 and x not in gone]
    assert found.whole
    by_file, start = {}, 0
    for name, n in files:
        by_file[name] = [i for i in range(n) if (start + i) % 3 == 1 and start + i not in gone]
        start += n
    assert found.digest == expected(by_file)
    assert {name: n.delivered for name, n in found.files.items()} == {n: len(r) for n, r in by_file.items()}
    assert found.version == 3


def test_the_digest_of_a_table_is_the_same_for_parts_of_row_groups_and_for_plain_files(tmp_path):
    root = table(tmp_path / "t")
    _, one = streamed(root, DeltaDataReader(8, shuffle=True))
    _, parts = streamed(root, DeltaDataReader(8, shuffle=True), shuffle_window=10, workers="process", num_workers=1)
    _, ordered = streamed(root, DeltaDataReader(9), shuffle=False, num_workers=0)
    assert one.digest == parts.digest == ordered.digest
    (tmp_path / "t" / "_delta_log").rename(tmp_path / "log")
    _, plain = streamed(root, ParquetDataReader(8, shuffle=True))
    assert plain.digest == one.digest
    assert plain.version is None


# What must be noticed ------------------------------------------------------------------------------------------------


def _swap(monkeypatch, owner, name, change):
    real = getattr(owner, name)
    monkeypatch.setattr(owner, name, lambda *args, **kwargs: change(real, *args, **kwargs))


def _row_twice(found):
    found = found.copy()
    if len(found) > 1:
        found[0] = found[1]
    return found


@pytest.mark.parametrize("workers", [0, 2])
def test_a_row_that_is_given_twice_in_the_place_of_another_is_noticed(root, monkeypatch, workers):
    from pyloader_delta.engine import window

    _swap(monkeypatch, window, "permuted", lambda real, *args: _row_twice(real(*args)))
    with loader(root, audit=False) as unaudited:
        assert len({x for batch in xs(unaudited) for x in batch}) < 80  # counting alone does not see it
    with loader(root, num_workers=workers) as whole:
        batches, error = until_error(whole)
    assert isinstance(error, IncompleteEpochError)
    assert "delivered more than once" in str(error)
    assert len(batches) == 11  # with the last batch


def test_a_row_that_is_given_twice_by_mixing_a_large_window_is_noticed(tmp_path, monkeypatch):
    n = 1 << 17
    write_deltalake(str(tmp_path / "t"), pa.table({"x": np.arange(n)}))
    _swap(monkeypatch, region, "permuted", lambda real, *a, **k: real(*a, **k))
    mixed = []

    def wrong(real, arrays, names, *rest):
        real(arrays, names, *rest)
        mixed.append(sorted(names))
        for name in names:
            arrays[name][1] = arrays[name][0]

    _swap(monkeypatch, local, "mix", wrong)
    reader = DeltaDataReader(4096, shuffle=True)
    with DataLoader(reader, NumpyThrough(), NumpyDataCollator(), tmp_path / "t", num_workers=2, audit=True) as whole:
        _, error = until_error(whole)
    assert mixed[0] == ["pyloader_delta.row_number", "x"]  # the next pass's may follow
    assert isinstance(error, IncompleteEpochError)


def test_a_row_that_is_lost_on_the_way_is_noticed(root, monkeypatch):
    def wrong(real, windows, segments, *rest, **named):
        last = segments[-1]
        return real(windows, [*segments[:-1], replace(last, stop=last.stop - 1)], *rest, **named)

    from pyloader_delta.engine import work

    _swap(monkeypatch, work, "gather", wrong)
    assert gather.gather is not work.gather
    with loader(root, audit=False) as whole:
        _, error = until_error(whole)
    assert isinstance(error, IncompleteEpochError)


def test_a_window_that_is_given_twice_in_the_place_of_another_is_noticed(root, monkeypatch):
    from pyloader_delta.engine import progress

    real = progress.Progress.take

    def wrong(self, n_rows):
        found = real(self, n_rows)
        return tuple(s if s.window else replace(s, start=0, stop=s.stop - s.start) for s in found)

    monkeypatch.setattr(progress.Progress, "take", wrong)
    with loader(root, shuffle=False) as whole:
        _, error = until_error(whole)
    assert isinstance(error, IncompleteEpochError)
    assert "00.txt" in str(error)


def test_a_column_of_the_numbers_name_is_refused(tmp_path):
    write_deltalake(str(tmp_path / "t"), pa.table({"pyloader_delta.row_number": [1, 2]}))
    with DataLoader(DeltaDataReader(2), Through(), NumpyDataCollator(), tmp_path / "t", audit=True) as whole:
        _, error = until_error(whole)
    assert error is not None
    assert "pyloader_delta.row_number" in str(error)


@pytest.mark.parametrize("wrong", ["yes", 2, None])
def test_audit_is_true_or_false(root, wrong):
    with pytest.raises(ConfigError, match="audit must be True or False"):
        loader(root, audit=wrong)
