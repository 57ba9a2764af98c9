"""A look at how a loader mixes: by its plan, true to what it then delivers, and reading the label column alone."""

import builtins
import json
import sys
from datetime import date, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from deltalake import WriterProperties, write_deltalake
from fakes import CountedNumbers, Numbers, number_files, numbers

from pyloader_delta import ConfigError, DataLoader
from pyloader_delta.shuffling.labels import grouped
from pyloader_delta.shuffling.preview import preview_shuffle


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """1,000 rows in 5 files, a label each, row groups of 50; `big` is not to be read."""
    root = str(tmp_path_factory.mktemp("preview") / "table")
    for label in range(5):
        x = np.arange(label * 200, (label + 1) * 200)
        days = [date(2024, 1, 1) + timedelta(int(i)) for i in x]
        rows = pa.table({"x": x, "label": [f"class {label}"] * 200, "day": days, "big": [[1.0] * 8] * 200})
        write_deltalake(root, rows, mode="append", writer_properties=WriterProperties(max_row_group_size=50))
    return root


def loader(root: str, **options: Any) -> DataLoader[Any]:
    options = {"shuffle": True, "shuffle_window": 250, "num_workers": 0, "framework": "numpy"} | options
    return DataLoader.from_delta(root, 20, **options)


OPTIONS = [
    {}, {"shuffle": False}, {"shuffle_window": None}, {"shuffle_window": "chunk"}, {"shuffle_window": "2kB"},
    {"filter": "x >= 100"}, {"rank": 1, "world_size": 3}, {"limit": 30},
]  # fmt: skip


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_what_is_shown_is_what_is_delivered(table, options):
    with loader(table, columns=["x"], drop_last=True, num_epoch=2, **options) as one:
        preview = one.preview_shuffle(epoch=1, batches=1000)
        delivered = np.stack([batch["x"] for batch in one])[len(one) // 2 :]
    rows = delivered - 100 if "filter" in options else delivered
    np.testing.assert_array_equal(preview.sources, rows)
    np.testing.assert_array_equal(preview.batches, np.arange(len(rows)))
    if "filter" not in options:
        assert preview.chunks_per_batch.tolist() == [len(set((batch // 50).tolist())) for batch in delivered]
    assert preview.n_rows == (900 if "filter" in options else 1000)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_the_mix_of_labels_is_that_of_the_rows(table, options):
    with loader(table, columns=["x"], **options) as one:
        preview = preview_shuffle(one, "label", batches=7)
    classes = [int(name.removeprefix("class ")) for name in preview.labels]
    assert len(classes) >= 4
    first = 100 if "filter" in options else 0
    expected = [[np.mean((batch + first) // 200 == i) for i in classes] for batch in preview.sources]
    np.testing.assert_allclose(preview.shares, expected)
    np.testing.assert_allclose(preview.shares.sum(axis=1), 1)
    assert len(preview.batches) == 7


def test_figures_tell_good_from_bad(table):
    with loader(table) as good, loader(table, shuffle=False) as bad:
        mixed, sorted_ = good.preview_shuffle("label"), bad.preview_shuffle("label")
    assert mixed.spread > 0.9
    assert abs(mixed.correlation) < 0.3
    assert sorted_.spread < 0.1
    assert sorted_.correlation == pytest.approx(1)
    assert sorted_.windows == 0 < mixed.windows
    assert sorted_.label_distance > 0.7 > 2 * mixed.label_distance
    assert mixed.label_distance < 3 * mixed.label_distance_of_chance
    assert json.loads(json.dumps(mixed.figures())) == mixed.figures()
    assert "mixed in 4 windows" in str(mixed)
    assert "mix of 'label'" in str(mixed)
    assert "label" not in str(good.preview_shuffle())


def noting(method: Any, asked: list[Any]) -> Any:
    def noted(self: Any, *args: Any, **kwargs: Any) -> Any:
        asked.append(kwargs["columns"])
        return method(self, *args, **kwargs)

    return noted


def test_only_the_label_column_is_read_and_a_pass_under_way_goes_on(table, monkeypatch):
    import pyarrow.parquet as pq

    with loader(table) as one:
        batches = iter(one)
        first = [next(batches)["x"] for _ in range(3)]
        asked: list[Any] = []
        for name in ("read_row_group", "iter_batches"):
            monkeypatch.setattr(pq.ParquetFile, name, noting(getattr(pq.ParquetFile, name), asked))
        assert one.preview_shuffle().label is None
        assert asked == []
        one.preview_shuffle("label", batches=2)
        assert {str(columns) for columns in asked} == {"['label']"}
        monkeypatch.undo()
        rows = np.concatenate([*first, *(batch["x"] for batch in batches)])
    assert sorted(rows.tolist()) == list(range(1000))


def test_a_picture_is_a_png(table, tmp_path):
    before = set(sys.modules)
    with loader(table) as one:
        one.preview_shuffle("day").save(tmp_path / "label.png")
        one.preview_shuffle().save(str(tmp_path / "plain.png"))
    for name in ("label.png", "plain.png"):
        assert (tmp_path / name).read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    assert "matplotlib.pyplot" not in set(sys.modules) - before


def test_without_matplotlib_the_extra_is_named(table, tmp_path, monkeypatch):
    true = builtins.__import__

    def without(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.startswith("matplotlib"):
            raise ModuleNotFoundError(name)
        return true(name, *args, **kwargs)

    with loader(table) as one:
        preview = one.preview_shuffle()
        monkeypatch.setattr(builtins, "__import__", without)
        with pytest.raises(ConfigError, match=r"pip install 'pyloader_delta\[plot\]'"):
            preview.save(tmp_path / "a.png")


def test_what_cannot_be_previewed_is_said(table, tmp_path):
    root = number_files(tmp_path / "n", [5, 6])
    with loader(table) as one:
        for wrong in ({"label": "big"}, {"label": "none"}, {"batches": 0}, {"epoch": -1}, {"epoch": True}):
            with pytest.raises(ConfigError, match=next(iter(wrong.values()) if "label" in wrong else iter(wrong))):
                one.preview_shuffle(**wrong)
    with numbers(root, reader=Numbers(batch_size=2)) as unknown, pytest.raises(ConfigError, match="count_samples"):
        unknown.preview_shuffle()
    with numbers(root, reader=CountedNumbers(batch_size=2, shuffle=True)) as files:
        with pytest.raises(ConfigError, match="label needs a reader of tables"):
            files.preview_shuffle("x")
        assert files.preview_shuffle().n_chunks == 2
    with loader(table, filter="x < 0") as empty, pytest.raises(ConfigError, match="no rows"):
        empty.preview_shuffle()


def test_batches_of_one_row_have_figures_that_json_holds(table):
    with DataLoader.from_delta(table, 1, shuffle=True, framework="numpy", num_workers=0) as one:
        many, single = one.preview_shuffle("label"), one.preview_shuffle(batches=1)
    assert many.spread == single.spread == single.correlation == 0
    assert json.dumps(many.figures(), allow_nan=False)
    assert json.dumps(single.figures(), allow_nan=False)


def test_a_table_smaller_than_a_batch_is_one(table):
    with loader(table, filter="x < 3") as one:
        preview = one.preview_shuffle("x")
    assert sorted(preview.sources.ravel().tolist()) == [0, 1, 2]
    assert preview.n_batches == 1
    assert preview.labels == ("0", "1", "2")


@pytest.mark.parametrize(
    ("values", "names", "groups"),
    [
        ([3, None, 1, 3], ["1", "3", "None"], [1, 2, 0, 1]),
        ([True, False], ["False", "True"], [1, 0]),
        (["ü", "a", None], ["a", "ü", "None"], [1, 0, 2]),
        ([b"x", "x"], ["x", "b'x'"], None),
        ([float("nan"), 1.0], ["1.0", "None"], [1, 0]),
        ([None, None], ["None"], [0, 0]),
    ],
)
def test_labels_of_any_type_are_few_groups(values, names, groups):
    found = grouped(values, "label")
    assert sorted(found[0]) == sorted(names)
    if groups is not None:
        assert (found[0], found[1].tolist()) == (names, groups)


def test_many_labels_are_ranges_or_the_commonest_and_others():
    names, groups = grouped([*range(100), None], "x")
    assert names[0] == "0 – 10"
    assert names[-1] == "None"
    assert np.bincount(groups).tolist() == [10] * 10 + [1]
    names, groups = grouped(["often"] * 5 + [f"text {i}" for i in range(50)], "s")
    assert names[0] == "often"
    assert names[-1] == "others"
    assert np.bincount(groups).tolist() == [5] + [1] * 8 + [42]
    names, groups = grouped([7.0] * 95 + [float(i) for i in range(20)], "x")
    assert len(groups) == 115
    assert groups.max() < len(names)
