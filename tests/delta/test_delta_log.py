"""Which files of a log make up a version."""

import pytest

from pyloader_delta.delta.log import Listing, Segment
from pyloader_delta.errors import TableError


def commit(version: int) -> tuple[str, int]:
    return f"{version:020d}.json", 1


def checkpoint(version: int, *, size: int = 1) -> tuple[str, int]:
    return f"{version:020d}.checkpoint.parquet", size


def part(version: int, i: int, n: int) -> tuple[str, int]:
    return f"{version:020d}.checkpoint.{i:010d}.{n:010d}.parquet", 1


def v2(version: int) -> tuple[str, int]:
    return f"{version:020d}.checkpoint.80a083e8-7026-4e79-81be-64bd76c43a11.json", 1


def ways(entries: list[tuple[str, int]], version: int | None = None) -> list[Segment]:
    return Listing(entries).segments("/t", version)


def test_commits_alone_reach_back_to_version_0():
    assert ways([commit(1), commit(0)]) == [Segment(1, (), (commit(0)[0], commit(1)[0]))]


def test_the_newest_checkpoint_comes_first_and_older_ways_serve_if_it_is_unreadable():
    entries = [commit(v) for v in range(4)] + [checkpoint(1), checkpoint(2)]
    assert [(way.checkpoint, len(way.commits)) for way in ways(entries)] == [
        ((checkpoint(2)[0],), 1),
        ((checkpoint(1)[0],), 2),
        ((), 4),
    ]


def test_a_checkpoint_above_the_version_is_not_used():
    entries = [commit(v) for v in range(4)] + [checkpoint(2)]
    assert [way.checkpoint for way in ways(entries, 1)] == [()]


def test_a_checkpoint_of_size_0_is_none():
    assert ways([commit(0), commit(1), checkpoint(1, size=0)])[0].checkpoint == ()


def test_a_multi_part_checkpoint_counts_only_with_all_its_parts():
    entries = [commit(0), commit(1), part(1, 1, 2)]
    assert [way.checkpoint for way in ways(entries)] == [()]
    entries.append(part(1, 2, 2))
    assert ways(entries)[0].checkpoint == (part(1, 1, 2)[0], part(1, 2, 2)[0])


def test_a_checkpoint_alone_is_enough():
    assert ways([checkpoint(5)]) == [Segment(5, (checkpoint(5)[0],), ())]


def test_other_files_in_the_log_are_passed_over():
    odd = [("00000000000000000000.crc", 1), ("_last_checkpoint", 1), ("0.json", 1), (f"{0:020d}.json.tmp", 1)]
    assert len(ways([commit(0), *odd])) == 1


@pytest.mark.parametrize(
    ("entries", "version", "text"),
    [
        ([], None, "holds no commit"),
        ([commit(0), commit(1)], 2, r"has no version 2; versions 0\.\.1 can"),
        ([commit(0), commit(1)], -1, r"has no version -1; versions 0\.\.1 can"),
        ([checkpoint(5), commit(5), commit(6)], 3, r"has no version 3; versions 5\.\.6 can"),
        ([commit(0), commit(2)], None, r"at version 2: commit 00000000000000000001\.json is missing"),
        ([commit(1), commit(2)], None, r"commit 00000000000000000000\.json is missing"),
        ([commit(0), commit(1), commit(4), checkpoint(2)], None, r"commit 00000000000000000003\.json is missing"),
        ([v2(5), commit(5), commit(6)], None, "reader feature 'v2Checkpoint'"),
    ],
)
def test_a_version_that_cannot_be_replayed_is_refused_with_the_reason(entries, version, text):
    with pytest.raises(TableError, match=text):
        ways(entries, version)


def test_a_version_before_the_missing_commit_can_still_be_read():
    assert ways([commit(0), commit(2)], 0)[0].version == 0
