"""A warning where files of the pinned version may be deleted before a training ends, and none elsewhere."""

import datetime as dt
import warnings

import pytest

from pyloader_delta.delta import moment_ms
from pyloader_delta.delta.retention import PROPERTY, retention
from pyloader_delta.read.delta import DeltaDataReader

DAY = dt.timedelta(days=1)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (None, 7 * DAY),
        ("interval 1 week", 7 * DAY),
        ("interval 2 weeks 1 day", 15 * DAY),
        ("INTERVAL 36 HOURS", 1.5 * DAY),
        ("30 days", 30 * DAY),
        ("interval 0 seconds", 0 * DAY),
        ("interval 90 minutes", DAY / 16),
        ("nonsense", 7 * DAY),
    ],
)
def test_the_tables_own_retention_counts(text, expected):
    assert retention({} if text is None else {PROPERTY: text}) == expected


def test_a_retention_beyond_all_times_is_for_ever():
    assert retention({PROPERTY: "interval 99999999999 weeks"}) > 365_000 * DAY / 2


@pytest.fixture
def make(hand):
    """Return a function that makes a table whose file `a` the second commit may drop, a while ago."""

    def made(kept: str | None, *, dropped: bool, age: dt.timedelta = DAY) -> str:
        table = hand.table()
        then = moment_ms(dt.datetime.now(dt.UTC) - age)
        metadata = hand.metadata(configuration={PROPERTY: kept} if kept else {})
        file = table.data("a.parquet", {"x": [1, 2]})
        table.commit(0, {"commitInfo": {"timestamp": then}}, hand.protocol, metadata, file)
        table.commit(1, hand.remove("a.parquet") if dropped else hand.add("b"), hand.add("c"))
        return str(table)

    return made


def warned(root: str, **options: object) -> list[str]:
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        DeltaDataReader(**options).chunks(root)
    return [str(warning.message) for warning in found]


def test_dropped_files_of_an_older_version_are_warned_of_with_the_time_from_which_on_they_may_go(make):
    (text,) = warned(make(None, dropped=True), version=0)
    from_then = dt.datetime.now(dt.UTC) + 6 * DAY
    assert f"from {from_then:%Y-%m-%d}" in text
    assert "1 of its 1 files are no longer part of the table, whose latest version is 1" in text
    assert f"kept for 7 days, 0:00:00 ({PROPERTY})" in text


def test_dropped_files_may_go_at_any_time_once_their_retention_is_over(make):
    (text,) = warned(make("interval 12 hours", dropped=True), version=0)
    assert "at any time" in text


@pytest.mark.parametrize(
    ("kept", "dropped", "age"),
    [("interval 30 days", True, DAY), (None, False, DAY), ("interval 1 hour", False, 30 * DAY)],
)
def test_files_that_stay_are_not_warned_of(make, kept, dropped, age):
    assert warned(make(kept, dropped=dropped, age=age), version=0) == []


def test_the_latest_version_is_warned_of_only_where_files_are_kept_for_less_than_a_week(hand):
    for kept, n_warnings in [("interval 1 hour", 1), ("interval 7 days", 0), (None, 0)]:
        table = hand.table(f"kept {kept}")
        metadata = hand.metadata(configuration={PROPERTY: kept} if kept else {})
        table.commit(0, hand.protocol, metadata, table.data("a.parquet", {"x": [1]}))
        found = warned(str(table))
        assert len(found) == n_warnings
        assert all("1:00:00 after a commit has dropped them" in text for text in found)


def test_a_file_whose_deletion_vector_was_replaced_counts_as_dropped(hand):
    table = hand.table()
    vector = {"storageType": "i", "pathOrInlineDv": "^Bg9^0rr910000000000iXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L"}
    vector |= {"sizeInBytes": 44, "cardinality": 6}
    file = table.data("a.parquet", {"x": list(range(40))})
    table.commit(0, hand.protocol, hand.metadata(), file)
    table.commit(1, {"add": file["add"] | {"deletionVector": vector}}, hand.remove("a.parquet"))
    assert "1 of its 1 files" in warned(str(table), version=0)[0]
    assert warned(str(table)) == []


def test_a_later_version_that_cannot_be_read_says_nothing(make):
    root = make(None, dropped=True)
    with open(f"{root}/_delta_log/{2:020d}.json", "w") as file:
        file.write("nonsense")
    assert warned(root, version=0) == []
