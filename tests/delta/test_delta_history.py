"""Which version a moment in time means, and what is said where that cannot be told."""

import datetime as dt
import os
import shutil

import pytest
from deltalake import DeltaTable, write_deltalake
from pyarrow import table as arrow_table

from pyloader_delta.delta import load_snapshot, moment_ms
from pyloader_delta.errors import ConfigError, ReadError, TableError
from pyloader_delta.read.delta import DeltaDataReader

UTC = dt.UTC
BERLIN = dt.timezone(dt.timedelta(hours=1))


def info(**times: int) -> dict:
    return {"commitInfo": times}


def at(table, time_ms: int) -> int:
    return load_snapshot(str(table), time_ms=time_ms).version


@pytest.fixture
def timed(hand):
    """Versions 0..3, made at 1000, 2000, 1500 (by another clock) and 5000."""
    table = hand.table()
    table.commit(0, info(timestamp=1000), hand.protocol, hand.metadata(), hand.add("a"))
    table.commit(1, hand.add("b"), info(timestamp=2000))
    table.commit(2, info(timestamp=1500), hand.add("c"))
    table.commit(3, info(timestamp=5000), hand.add("d"), indent=1)
    return table


@pytest.mark.parametrize(
    ("timestamp", "expected"),
    [
        ("1970-01-01T00:00:01Z", 1000),
        ("1970-01-01 00:00:01.0005+00:00", 1000),
        ("1970-01-01T01:00:01+01:00", 1000),
        (" 19700101T000001Z\n", 1000),
        (dt.datetime(1970, 1, 1, 0, 0, 1, 999, tzinfo=UTC), 1000),
        (dt.datetime(1970, 1, 1, 1, 0, 1, tzinfo=BERLIN), 1000),
        ("1969-12-31T23:59:59.9999Z", -1),
        ("9999-12-31T23:59:59Z", 253402300799000),
    ],
)
def test_a_moment_is_counted_in_milliseconds(timestamp, expected):
    assert moment_ms(timestamp) == expected


@pytest.mark.parametrize("timestamp", ["2026-01-31T12:00:00", "2026-01-31", dt.datetime(2026, 1, 31)])
def test_a_moment_without_a_zone_is_refused(timestamp):
    with pytest.raises(ConfigError, match=r"timestamp must state its time zone, such as 2026-01-31T..:00:00Z"):
        moment_ms(timestamp)


@pytest.mark.parametrize("timestamp", ["yesterday", "", 5, 5.0, dt.date(2026, 1, 31), b"2026-01-31T12:00:00Z", []])
def test_what_is_no_moment_is_refused(timestamp):
    with pytest.raises(ConfigError, match="timestamp must be a datetime or a text such as"):
        moment_ms(timestamp)


@pytest.mark.parametrize(
    ("time_ms", "version"), [(1000, 0), (1999, 0), (2000, 1), (2001, 2), (4999, 2), (5000, 3), (10**12, 3)]
)
def test_the_newest_version_that_was_there_counts(timed, time_ms, version):
    assert at(timed, time_ms) == version


def test_a_moment_before_the_first_version_is_refused_with_its_time(timed):
    with pytest.raises(
        TableError, match=r"no version as old as 1970-01-01 00:00:00\.999000\+00:00: .*version 0, is of"
    ):
        at(timed, 999)


def test_a_moment_in_the_future_is_refused(timed):
    with pytest.raises(ConfigError, match="lies in the future"):
        at(timed, moment_ms(dt.datetime.now(UTC) + dt.timedelta(days=1)))


def test_a_clock_that_is_ahead_may_name_its_own_commits(hand):
    table = hand.table()
    ahead = moment_ms(dt.datetime.now(UTC) + dt.timedelta(days=1))
    table.commit(0, info(timestamp=ahead), hand.protocol, hand.metadata())
    assert at(table, ahead) == 0


def test_in_commit_timestamps_count_before_others(hand):
    table = hand.table()
    table.commit(0, info(timestamp=9000, inCommitTimestamp=1000), hand.protocol, hand.metadata())
    table.commit(1, info(timestamp=9001, inCommitTimestamp=2000), hand.add("a"))
    assert [at(table, time_ms) for time_ms in (1000, 1999, 2000)] == [0, 0, 1]
    assert load_snapshot(str(table)).timestamp_ms == 2000


def test_versions_before_the_first_checkpoint_of_a_cleaned_log_do_not_count(hand):
    table = hand.table()
    table.commit(4, info(timestamp=400), hand.add("a"))
    table.commit(5, info(timestamp=500), hand.add("b"))
    table.checkpoint(5, hand.protocol, hand.metadata(), hand.add("a"), hand.add("b"))
    table.commit(6, info(timestamp=600), hand.add("c"))
    assert [at(table, time_ms) for time_ms in (500, 600)] == [5, 6]
    with pytest.raises(TableError, match=r"no version as old as .*version 5, is of"):
        at(table, 450)
    with pytest.raises(TableError, match=r"has no version 4; versions 5\.\.6 can be asked for.* cleaned up"):
        load_snapshot(str(table), 4)


def test_without_stated_times_those_of_the_files_count_and_it_is_said(hand):
    table = hand.table()
    table.commit(0, info(timestamp=1000), hand.protocol, hand.metadata())
    table.commit(1, {"txn": {"appId": "a", "version": 1}})
    os.utime(table.log / f"{1:020d}.json", (3, 3))
    with pytest.warns(UserWarning, match="1 commits of .*, version 1 the first, do not state their time"):
        assert at(table, 2999) == 0
    with pytest.warns(UserWarning, match="which a copy of the table does not keep"):
        assert at(table, 3000) == 1


def test_a_table_whose_commits_are_gone_has_no_times(hand):
    table = hand.table()
    table.checkpoint(5, hand.protocol, hand.metadata(), hand.add("a"))
    with pytest.raises(TableError, match="ask for a version instead of a timestamp"):
        at(table, 10**12)


def test_a_broken_commit_is_named_when_times_are_looked_up(timed):
    (timed.log / f"{1:020d}.json").write_text('{"commitInfo": nonsense')
    with pytest.raises(TableError, match=r"0001\.json in the log of .* cannot be read"):
        at(timed, 5000)


# The reader ----------------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:VACUUM may delete")
def test_a_copied_table_keeps_its_times(tmp_path):
    root = str(tmp_path / "t")
    for x in range(3):
        write_deltalake(root, arrow_table({"x": [x]}), mode="overwrite")
    times = {commit["version"]: commit["timestamp"] for commit in DeltaTable(root).history()}
    shutil.copytree(root, tmp_path / "copy")
    for version, time_ms in times.items():
        moment = dt.datetime(1970, 1, 1, tzinfo=UTC) + dt.timedelta(milliseconds=time_ms)
        for timestamp in (moment, moment.astimezone(BERLIN).isoformat()):
            reader = DeltaDataReader(timestamp=timestamp)
            (chunk,) = reader.chunks(str(tmp_path / "copy"))
            assert reader.snapshot.version == version
            assert reader.read_chunk(chunk)["x"].to_pylist() == [version]
            reader.close()


@pytest.mark.filterwarnings("ignore:VACUUM may delete")
def test_a_version_whose_files_were_vacuumed_says_so(tmp_path):
    root = str(tmp_path / "t")
    write_deltalake(root, arrow_table({"x": [1]}))
    write_deltalake(root, arrow_table({"x": [2]}), mode="overwrite")
    DeltaTable(root).vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    with pytest.raises(ReadError, match="of version 0 is missing; was the table vacuumed"):
        DeltaDataReader(version=0).chunks(root)


def test_version_and_timestamp_exclude_each_other(timed):
    with pytest.raises(ConfigError, match="version and timestamp of DeltaDataReader exclude each other, got 1 and '"):
        DeltaDataReader(version=1, timestamp="2026-01-31T12:00:00Z").chunks(str(timed))


def test_a_timestamp_may_be_a_class_attribute_and_pins_what_it_found(hand):
    table = hand.table()
    table.commit(0, info(timestamp=1000), hand.protocol, hand.metadata(), table.data("a.parquet", {"x": [1]}))

    class Reader(DeltaDataReader):
        timestamp = "1970-01-01T00:00:05Z"

    reader = Reader()
    assert len(reader.chunks(str(table))) == 1
    table.commit(1, info(timestamp=2000), table.data("b.parquet", {"x": [2]}))
    assert len(reader.chunks(str(table))) == 1  # the pin holds, though version 1 was there then, too
    assert len(Reader().chunks(str(table))) == 2
