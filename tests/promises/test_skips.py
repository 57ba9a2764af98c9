"""on_error="skip": rows that cannot be read or encoded are listed, steps stay what they were, and the order too."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from deltalake import write_deltalake
from fakes import AsIs, CountedNumbers, Numbers, Through, number_files, text_of, until_error, xs
from writing import number_table

from pyloader_delta import (
    ConfigError,
    ContractError,
    DataLoader,
    DeltaDataReader,
    FieldSpec,
    NumpyDataCollator,
    ReadError,
)

LENGTHS = [20, 1, 3, 17, 0, 9, 30]
BAD = {3, 5, 22, 79}

pytestmark = pytest.mark.filterwarnings("ignore:on_error='skip' has skipped:UserWarning")


class Picky(Through):
    """Raises for some rows."""

    def batch_encode(self, batch_data):
        for x in batch_data["x"]:
            if x in BAD:
                raise ValueError(f"{x} is bad")
        return batch_data


class PickyRowwise(Picky):
    rowwise = True
    input_format = "numpy"


class Adds(Picky):
    """Changes its input before it raises."""

    rowwise = True
    input_format = "numpy"

    def batch_encode(self, batch_data):
        bad = set(batch_data["x"]) & BAD
        batch_data["x"] += 1000
        if bad:
            raise ValueError(f"{bad} are bad")
        return batch_data


class PickyCollator(NumpyDataCollator):
    def collate_batch(self, features):
        Picky().batch_encode(features)
        return super().collate_batch(features)


class Torn(CountedNumbers):
    """Cannot read one file."""

    def read_file(self, path):
        if path.endswith("03.txt"):
            raise OSError("torn")
        return super().read_file(path)


class UnknownTorn(Torn):
    count_samples = Numbers.count_samples


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return number_files(tmp_path_factory.mktemp("skips") / "t", LENGTHS)


def loader(root, dataset=None, *, kind=CountedNumbers, collator=None, shuffle=True, **options):
    options = {"num_workers": 0, "shuffle_window": 25, "shuffle": shuffle, "on_error": "skip"} | options
    reader = kind(batch_size=7, shuffle=shuffle)
    return DataLoader(reader, dataset or Through(), collator or NumpyDataCollator(), root, **options)


def whole(root, **options):
    with loader(root, on_error="raise", **options) as undisturbed:
        return xs(undisturbed)


def place(x):
    """Return the file that has a number, and its row there."""
    for i, n in enumerate(LENGTHS):
        if x < n:
            return f"{i:02}.txt", x
        x -= n
    raise AssertionError


def refilled(batches, bad=BAD):
    """Return batches with other rows of their own in the places of bad ones."""
    found = []
    for batch in batches:
        good = [x for x in batch if x not in bad]
        wrong = iter(range(len(batch)))
        found.append([good[next(wrong) % len(good)] if x in bad else x for x in batch])
    return found


@pytest.mark.parametrize(
    "parts", [(Picky, None), (PickyRowwise, None), (Through, PickyCollator)], ids=["encode", "rowwise", "collate"]
)
@pytest.mark.parametrize("shuffle", [True, False])
def test_rows_that_raise_are_skipped_and_others_of_their_batch_stand_in(root, parts, shuffle, executor):
    dataset, collator = parts
    expected = refilled(whole(root, shuffle=shuffle, num_epoch=2))
    made = collator and collator()
    with loader(root, dataset(), collator=made, shuffle=shuffle, num_epoch=2, audit=True, **executor) as some:
        assert xs(some) == expected
        found = some.receipt()
        assert some.stats()["rows_skipped_total"] == 2 * len(BAD)
    assert (found.planned, found.delivered, found.skipped, found.whole) == (80, 80, 4, True)
    assert {(skip.file, skip.first_row, skip.n_rows) for skip in found.skips} == {(*place(x), 1) for x in BAD}
    assert {skip.error.split(" (in ")[0] for skip in found.skips} == {f"ValueError: {x} is bad" for x in BAD}
    assert found.files["00.txt"].delivered == 18
    assert found.digest is not None


@pytest.mark.parametrize("executor", [{"num_workers": 0}, {"num_workers": 1, "workers": "process"}])
def test_rows_are_encoded_as_they_were_also_after_an_error(root, executor):
    expected = refilled(whole(root))
    with loader(root, Adds(), **executor) as skipping:
        assert xs(skipping) == [[x + 1000 for x in batch] for batch in expected]


def test_a_warning_says_once_an_epoch_that_rows_were_skipped(root):
    with loader(root, Picky()) as some, pytest.warns(UserWarning, match=r"receipt\(\) lists them") as told:
        list(some)
    assert len([w for w in told if "skipped" in str(w.message)]) == 1


def test_masks_are_false_where_other_rows_stand(root):
    with loader(root, Picky(), uneven="mask", rank=0, world_size=1) as some:
        batches = list(some)
    assert sum(int((~batch["_valid"]).sum()) for batch in batches) == len(BAD)


def test_without_skipping_all_is_as_ever(root):
    with loader(root, Picky(), on_error="raise") as some:
        _, error = until_error(some)
    assert isinstance(error, ValueError)
    with pytest.raises(ConfigError, match="on_error must be 'raise' or 'skip'"):
        loader(root, on_error="ignore")


# Batches of bad rows alone --------------------------------------------------------------------------------------------


BAD_FILE = {*range(24, 43)}  # all rows of 03.txt, and the first two of 05.txt


class BadFile(Through):
    def batch_encode(self, batch_data):
        if bad := BAD_FILE & set(batch_data["x"]):
            raise ValueError(f"{min(bad)} is bad")
        return batch_data


class BadFileRowwise(BadFile):
    rowwise = True
    input_format = "numpy"


@pytest.mark.parametrize("dataset", [BadFile, BadFileRowwise])
def test_rows_of_the_next_chunk_stand_in_for_a_batch_of_bad_rows_alone(root, dataset, executor):
    expected = whole(root, shuffle=False)
    assert (expected[3], expected[5]) == ([*range(21, 28)], [*range(35, 42)])
    expected[3] = [21, 22, 23, 21, 22, 23, 21]
    expected[4] = [43, 44, 45, 46, 47, 43, 44]  # the good ones of the first rows of the next file
    expected[5] = [*range(50, 57)]  # it ends in that file: of the one after it
    expected[6] = [43, *range(43, 49)]
    with loader(root, dataset(), shuffle=False, audit=True, **executor) as some:
        assert xs(some) == expected
        found = some.receipt()
    assert (found.planned, found.delivered, found.skipped, found.whole) == (80, 80, 19, True)
    assert {(skip.file, skip.first_row) for skip in found.skips} == {place(x) for x in BAD_FILE}


@pytest.mark.parametrize("shuffle", [True, False])
def test_a_batch_of_one_bad_row_is_skipped_the_same_whatever_the_workers(root, shuffle):
    found = []
    for options in ({}, {"num_workers": 2, "workers": "thread"}, {"num_workers": 2, "workers": "process"}):
        reader = CountedNumbers(batch_size=1, shuffle=shuffle)
        options |= {"shuffle_window": 25, "shuffle": shuffle, "on_error": "skip", "num_epoch": 2}
        with DataLoader(reader, BadFile(), NumpyDataCollator(), root, **{"num_workers": 0} | options) as some:
            found.append(xs(some))
            assert (some.receipt().skipped, some.receipt().whole) == (19, True)
    assert found[0] == found[1] == found[2]
    assert len(found[0]) == 160
    assert not BAD_FILE & {x for (x,) in found[0]}


def test_a_table_of_one_row_group_has_rows_to_stand_in_too(tmp_path):
    root = number_table(tmp_path / "t", [80])
    with DataLoader(DeltaDataReader(4), BadFile(), AsIs(), root, on_error="skip", num_workers=2) as some:
        found = xs(some)
    assert found[:6] == [[x, x + 1, x + 2, x + 3] for x in range(0, 24, 4)]
    assert found[6:10] == [[0, 1, 2, 3]] * 4
    assert found[10] == [43] * 4


def test_batches_that_can_be_encoded_alone_are(root):
    """Nothing is skipped where it takes several batches together to fail."""

    class AtMostOneBatch(Through):
        rowwise = True

        def batch_encode(self, batch_data):
            if len(batch_data["x"]) > 7:
                raise ValueError("too many")
            return batch_data

    with loader(root, AtMostOneBatch()) as some:
        assert xs(some) == whole(root)
        assert some.receipt().skipped == 0


def test_good_rows_are_never_left_out_with_bad_ones(root):
    """Rows of another chunk do not stand in for rows that can be encoded: a batch that raises anyway is an error."""

    class NoneTwice(Picky):
        def batch_encode(self, batch_data):
            if len(set(batch_data["x"])) < len(batch_data["x"]):
                raise ValueError("a row is there twice")
            return super().batch_encode(batch_data)

    with loader(root, NoneTwice(), shuffle=False) as some:
        batches, error = until_error(some)
    assert batches == []
    assert str(error) == "a row is there twice"
    assert "no single row is to blame" in text_of(error)


class AllBad(Through):
    def batch_encode(self, batch_data):
        raise KeyError("typo")


class Flaky(Through):
    """Raises for the whole batch only."""

    def batch_encode(self, batch_data):
        if len(batch_data["x"]) > 6:
            raise ValueError("too many")
        return batch_data


class Short(Through):
    def batch_encode(self, batch_data):
        return {"x": batch_data["x"][:-1]}


@pytest.mark.parametrize(
    ("dataset", "kind", "text"),
    [
        (AllBad, KeyError, "no row of the batch can be encoded"),
        (Flaky, ValueError, "no single row is to blame"),
        (Short, ContractError, "returned 6 values"),
    ],
)
def test_what_is_no_fault_of_single_rows_is_an_error(root, dataset, kind, text):
    with loader(root, dataset()) as some:
        batches, error = until_error(some)
    assert batches == []
    assert isinstance(error, kind)
    assert text in text_of(error)


def test_images_that_cannot_be_decoded_are_skipped(tmp_path):
    from io import BytesIO

    from PIL import Image

    def png(value):
        sink = BytesIO()
        Image.new("L", (2, 2), value).save(sink, "PNG")
        return sink.getvalue()

    images = [b"no image" if i in (4, 9) else png(i) for i in range(12)]
    write_deltalake(str(tmp_path / "t"), pa.table({"i": range(12), "image": images}))
    options = {"fields": ["i", FieldSpec("image", load_image_using_pil=True)], "framework": "numpy"}
    with DataLoader.from_delta(tmp_path / "t", 4, on_error="skip", num_workers=1, **options) as some:
        batches = list(some)
        found = some.receipt()
    assert [batch["i"].tolist() for batch in batches] == [[0, 1, 2, 3], [5, 5, 6, 7], [8, 8, 10, 11]]
    assert all((batch["image"][:, 0, 0] == batch["i"]).all() for batch in batches)
    assert [skip.first_row for skip in found.skips] == [4, 9]
    assert all(skip.error.partition(" (in ")[0].endswith("cannot identify image file") for skip in found.skips)


# Chunks ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shuffle", [True, False])
@pytest.mark.parametrize("n", [0, 3])
def test_other_rows_stand_in_for_a_file_that_cannot_be_read(root, shuffle, n):
    before = whole(root, shuffle=shuffle)
    lost = set(range(24, 41))
    with loader(root, kind=Torn, shuffle=shuffle, num_workers=n, workers="thread", audit=True) as some:
        found, receipt = xs(some), some.receipt()
    assert [len(batch) for batch in found] == [len(batch) for batch in before]
    for one, other in zip(found, before, strict=True):
        assert all(x == y for x, y in zip(one, other, strict=True) if y not in lost)
    flat = [x for batch in found for x in batch]
    assert not lost & set(flat)
    assert set(flat) == set(range(80)) - lost
    (skip,) = receipt.skips
    assert (skip.file, skip.first_row, skip.n_rows) == ("03.txt", 0, 17)
    assert "torn" in skip.error
    assert (receipt.skipped, receipt.whole, receipt.files["03.txt"].delivered) == (17, True, 0)


def test_the_same_rows_stand_in_whatever_the_workers(root):
    found = []
    for n in (0, 1, 3):
        with loader(root, kind=Torn, num_workers=n, workers="thread", num_epoch=2) as some:
            found.append(xs(some))
    assert found[0] == found[1] == found[2]


def test_a_file_of_unknown_length_that_cannot_be_read_has_no_rows(root):
    with loader(root, kind=UnknownTorn, shuffle_window="60B", num_workers=2, workers="thread") as some:
        found, receipt = xs(some), some.receipt()
    assert sorted(x for batch in found for x in batch) == sorted(set(range(80)) - set(range(24, 41)))
    assert (receipt.rows, receipt.skipped) == (63, 0)
    assert str(receipt.skips[0]).startswith("all rows of 03.txt: ReadError")


class AllTorn(CountedNumbers):
    def read_file(self, path):
        raise OSError("torn")


class WrongRead(CountedNumbers):
    def read_file(self, path):
        return {"x": [1], "y": [1, 2]}


def test_ranks_have_as_many_batches_each_where_a_file_is_skipped(root):
    receipts = []
    for rank in range(3):
        with loader(root, kind=Torn, audit=True, rank=rank, world_size=3) as share:
            batches = list(share)
            assert len(batches) == len(share)
            receipts.append(share.receipt())
    found = sum(receipts)
    assert (found.whole, found.delivered - found.padded) == (True, 80)
    assert found.skipped == sum(skip.n_rows for skip in found.skips) >= 17


def test_a_rank_that_has_no_other_file_says_so(root):
    with loader(root, kind=Torn, rank=35, world_size=80) as share:
        _, error = until_error(share)
    assert isinstance(error, ReadError)
    assert "there is no other chunk" in str(error)
    assert "torn" in str(error.__cause__)


@pytest.mark.parametrize(("kind", "error"), [(AllTorn, ReadError), (WrongRead, ContractError)])
def test_where_nothing_can_be_read_it_is_an_error(root, kind, error):
    with loader(root, kind=kind) as some:
        batches, found = until_error(some)
    assert batches == []
    assert type(found) is error


def test_a_corrupt_row_group_of_a_table_is_skipped(tmp_path):
    root = number_table(tmp_path / "t", [10] * 4)
    reader = DeltaDataReader(4, shuffle=True)
    path = Path(DeltaDataReader().chunks(root)[1].path)
    with DataLoader(reader, Through(), AsIs(), root, on_error="skip", num_workers=2, shuffle_window=20) as some:
        text = bytearray(path.read_bytes())
        text[4:40] = bytes(36)
        path.write_bytes(text)
        found = [x for batch in xs(some) for x in batch]
        receipt = some.receipt()
    assert len(found) == 40
    assert set(found) == {*range(10), *range(20, 40)}
    assert {skip.file for skip in receipt.skips} == {path.name}
    assert sum(skip.n_rows for skip in receipt.skips) == receipt.skipped == 10


def test_a_file_is_skipped_where_large_windows_are_mixed_in_place(tmp_path):
    root, n = str(tmp_path / "t"), 30_000
    for start in range(0, 6 * n, n):
        write_deltalake(root, pa.table({"x": np.arange(start, start + n), "y": np.arange(n) * 0.5}), mode="append")
    path = Path(DeltaDataReader().chunks(root)[2].path)
    options = {"fields": ["x", "y"], "framework": "numpy", "shuffle": True, "shuffle_window": "1536KiB"}
    with DataLoader.from_delta(root, 1000, on_error="skip", audit=True, num_workers=2, num_epoch=2, **options) as some:
        path.write_bytes(bytes(path.stat().st_size))
        counts = np.zeros(6 * n, int)
        for batch in some:
            assert (batch["x"] % n * 0.5 == batch["y"]).all()
            np.add.at(counts, batch["x"], 1)
        held = some.memory()
        receipt = some.receipt()
    assert counts.sum() == 12 * n
    assert (counts[2 * n : 3 * n] == 0).all()
    assert (np.delete(counts, np.s_[2 * n : 3 * n]) >= 2).all()
    assert sum(skip.n_rows for skip in receipt.skips) == receipt.skipped == n
    assert (held.chunks, held.cursors) == (0, 0)


class SomeNone(CountedNumbers):
    def read_file(self, path):
        return {"x": [None if x in BAD else x for x in super().read_file(path)["x"]]}


class ThroughNumpy(Through):
    input_format = "numpy"


def test_a_value_that_the_input_cannot_hold_is_a_row_to_skip(root):
    with loader(root, ThroughNumpy(), kind=SomeNone) as some:
        found = xs(some)
        skips = some.receipt().skips
    assert found == refilled(whole(root))
    assert all("ValueTypeError" in skip.error for skip in skips)
    assert len(skips) == len(BAD)


def test_what_was_skipped_before_an_error_is_counted(root):
    class Mixed(Picky):
        def batch_encode(self, batch_data):
            if 50 in batch_data["x"]:
                raise SystemExit(3)
            return super().batch_encode(batch_data)

    with loader(root, Mixed(), shuffle=False) as some:
        batches, error = until_error(some)
        assert isinstance(error, SystemExit)
        assert xs(batches) == refilled(whole(root, shuffle=False))[:7]
        assert some.receipt().skipped == 3


@pytest.mark.parametrize("dataset", [Picky, BadFile])
def test_a_resumed_epoch_skips_the_same_rows(root, dataset):
    with loader(root, dataset()) as one:
        batches, states = [], []
        for batch in one:
            batches.append(batch["x"].tolist())
            states.append(one.state_dict())
    for done in (0, 4, 9):
        with loader(root, dataset(), num_workers=2, workers="thread") as rest:
            rest.load_state_dict(states[done])
            assert xs(rest) == batches[done + 1 :]
