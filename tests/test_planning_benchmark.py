"""The planning benchmark: both contenders find the same files, and figures are those of the run."""

import pytest

from benchmarks import logs, planning, tables


@pytest.mark.parametrize(("make", "size", "n_files"), [(logs.checkpointed, 200, 200), (logs.committed, 12, 37)])
def test_both_contenders_find_the_same_files_of_a_log(make, size, n_files, tmp_path, monkeypatch):
    monkeypatch.setattr(tables, "DATA", tmp_path)
    table = make(size)
    found = planning.figures(table, rounds=1)
    for figures in found.values():
        assert figures.keys() == planning.MEANING.keys()
        assert figures["n_files"] == n_files
        assert figures["peak_rss_mib"] >= figures["import_rss_mib"] > 0
        assert figures["s"] > 0
    assert make(size) == table  # kept
