"""Which files of a log make up a version."""

import pytest

from pyloader_delta.delta.log import Listing, Segment
from pyloader_delta.errors import TableError

Entry = tuple[str, int, int]


def commit(version: int) -> Entry:
    return f"{version:020d}.json", 1, 0


def checkpoint(version: int, *, size: int = 1) -> Entry:
    return f"{version:020d}.checkpoint.parquet", size, 0


def part(version: int, i: int, n: int) -> Entry:
    return f"{version:020d}.checkpoint.{i:010d}.{n:010d}.parquet", 1, 0


def v2(version: int, kind: str = "json", *, size: int = 1) -> Entry:
    return f"{version:020d}.checkpoint.80a083e8-7026-4e79-81be-64bd76c43a11.{kind}", size, 0


def ways(entries: list[Entry], version: int | None = None) -> list[Segment]:
    return list(Listing(entries).segments("/t", version))


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
    assert ways([commit(0), commit(1), checkpoint(1, size=0), v2(1, size=0)])[0].checkpoint == ()


def test_a_multi_part_checkpoint_counts_only_with_all_its_parts():
    entries = [commit(0), commit(1), part(1, 1, 2)]
    assert [way.checkpoint for way in ways(entries)] == [()]
    entries.append(part(1, 2, 2))
    assert ways(entries)[0].checkpoint == (part(1, 1, 2)[0], part(1, 2, 2)[0])


def test_a_multi_part_checkpoint_may_stand_beside_one_cut_into_other_parts():
    entries = [part(1, 1, 2), part(1, 2, 2), part(1, 1, 3)]
    assert [way.checkpoint for way in ways(entries)] == [(part(1, 1, 2)[0], part(1, 2, 2)[0])]


@pytest.mark.parametrize("kind", ["json", "parquet"])
def test_of_checkpoints_of_one_version_those_named_by_a_uuid_come_first_and_multi_part_ones_last(kind):
    entries = [commit(0), part(0, 1, 1), checkpoint(0), v2(0, kind)]
    assert [way.checkpoint for way in ways(entries)] == [
        (v2(0, kind)[0],),
        (checkpoint(0)[0],),
        (part(0, 1, 1)[0],),
        (),
    ]


def test_compacted_commits_are_left_aside():
    compacted = (f"{0:020d}.{1:020d}.compacted.json", 1, 0)
    assert ways([commit(0), commit(1), compacted]) == [Segment(1, (), (commit(0)[0], commit(1)[0]))]


def test_a_checkpoint_alone_is_enough():
    assert ways([checkpoint(5)]) == [Segment(5, (checkpoint(5)[0],), ())]


def test_other_files_in_the_log_are_passed_over():
    odd = ["00000000000000000000.crc", "_last_checkpoint", "0.json", f"{0:020d}.json.tmp", f"{1:020d}.checkpoint.json"]
    assert len(ways([commit(0), *((name, 1, 0) for name in odd)])) == 1


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
        (
            [v2(5), commit(6)],
            4,
            r"no version 4; versions 5\.\.6 can be asked for: the log before them was cleaned up",
        ),
        ([v2(5, size=0), commit(6)], None, r"commit 00000000000000000000\.json is missing"),
    ],
)
def test_a_version_that_cannot_be_replayed_is_refused_with_the_reason(entries, version, text):
    with pytest.raises(TableError, match=text):
        ways(entries, version)


def test_a_version_before_the_missing_commit_can_still_be_read():
    assert ways([commit(0), commit(2)], 0)[0].version == 0
