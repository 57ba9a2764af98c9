"""The benchmarks of shuffling and of resuming: their figures are those of the run."""

import pytest

from benchmarks import resume, shuffle, tables


@pytest.fixture
def small(tmp_path, monkeypatch):
    monkeypatch.setattr(tables, "DATA", tmp_path)
    monkeypatch.setattr(tables, "ROWS_PER_GROUP", 500)
    monkeypatch.setattr(tables, "GROUPS_PER_FILE", 4)


def test_more_is_mixed_in_larger_windows_and_most_in_full(small):
    table = tables.tabular(10_000)
    found = {window: shuffle.run(table, 10_000, 100, window, seed=1) for window in (1, 4, "full")}
    for window, figures in found.items():
        assert figures.keys() == shuffle.MEANING.keys()
        assert figures["rows_per_s"] > 0
        assert (figures["scratch_mib"] > 0) == (window == "full")
    chunks = [figures["chunks_per_batch"] for figures in found.values()]
    assert chunks[0] < chunks[1] <= chunks[2]
    assert chunks[2] > 19.5
    assert found["full"]["spread"] == pytest.approx(0.994, abs=0.02)


def test_a_state_costs_little_and_going_on_reads_one_window(small, monkeypatch):
    monkeypatch.setattr(resume, "WINDOW_ROWS", 5000)
    table = tables.coarse(50_000)
    states, figures = resume.taken(table)
    assert 200 < figures["state_bytes"] < 1000
    assert figures["state_dict_us"] > 0
    assert [*states] == list(resume.PLACES)
    for state, expected in states.values():
        found = resume.resumed(table, state, expected, rounds=1)
        assert found.keys() == resume.MEANING.keys()
        assert 0 < found["read_mib"] <= 2.1 * found["window_mib"]  # a batch may cross a window's border
