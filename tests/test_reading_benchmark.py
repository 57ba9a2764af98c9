"""The benchmark of reading measures tables that hold what it says."""

import pytest
from reading import read

from benchmarks import reading, tables


@pytest.fixture
def few(tmp_path, monkeypatch):
    monkeypatch.setattr(tables, "DATA", tmp_path)
    monkeypatch.setattr(tables, "ROWS_PER_GROUP", 1000)
    monkeypatch.setattr(tables, "GROUPS_PER_FILE", 2)
    return 5000


def test_the_tables_differ_only_in_names_and_deleted_rows(few):
    plain, mapped, deleted = (read(make(few)) for make in (reading.plain, reading.mapped, reading.deleted))
    assert mapped.equals(plain)
    assert deleted.num_rows == few * 0.95
    assert set(deleted["id"].to_pylist()) < set(plain["id"].to_pylist())


def test_figures_are_given_for_each_table(few):
    found = reading.figures(few, rounds=1)
    assert found.keys() == {"plain", "mapped", "deleted"}
    assert all(figure > 0 for figures in found.values() for figure in figures.values())
