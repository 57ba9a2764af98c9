"""`preview` tells how a table is mixed by the settings that one will train with."""

import json

import numpy as np
import pyarrow as pa
import pytest
from deltalake import write_deltalake

from pyloader_delta.cli.shared import print_json


@pytest.fixture(scope="module")
def table(tmp_path_factory) -> str:
    """Ten files, each of one label, with a struct beside."""
    path = str(tmp_path_factory.mktemp("tables") / "t")
    for label in range(10):
        rows = {"x": np.arange(500), "label": np.full(500, label), "pair": [{"a": None}] * 500}
        write_deltalake(path, pa.table(rows, schema=pa.schema(
            [("x", pa.int64()), ("label", pa.int64()), ("pair", pa.struct([("a", pa.int32())]))]
        )), mode="append")  # fmt: skip
    return path


def test_preview_compares_ways_of_shuffling(run, table):
    def distance(*options) -> float:
        found = run("preview", table, "--label", "label", "--batch-size", "100", "--json", *options).document
        assert (found["n_rows"], found["n_chunks"], found["label"]) == (5000, 10, "label")
        return found["label_distance"]

    whole, chunk, none = (
        distance("--shuffle-window", "all"),
        distance("--shuffle-window", "chunk"),
        distance("--shuffle", "none"),
    )
    assert whole < 0.2 < 0.8 < min(chunk, none)
    assert distance("--shuffle", "full", "--seed", "7", "--epoch", "3") < 0.2


def test_preview_prints_and_draws(run, table, tmp_path):
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    ended = run("preview", table, "--column", "x", "--shuffle-window", "500", "--plot", tmp_path / "shuffle.png")
    assert (ended.status, "5,000 rows in 10 row groups" in ended.out) == (0, True)
    assert (tmp_path / "shuffle.png").read_bytes().startswith(b"\x89PNG")


def test_one_of_a_thing_is_told_as_one(run, tmp_path):
    write_deltalake(tmp_path / "t", pa.table({"x": [1]}))
    ended = run("preview", tmp_path / "t", "--batch-size", "1")
    assert "1 of 1 batch of 1 row looked at\n1 row in 1 row group or file, mixed in 1 window\n" in ended.out
    assert "1 file, all as the log says, 1 row\n" in run("check", tmp_path / "t").out
    assert " 1 in 1 file " in run("inspect", tmp_path / "t").out


@pytest.mark.parametrize("name", ["bench", "preview"])
@pytest.mark.parametrize(
    ("plot", "words"), [("p.xyz", "p.xyz: no picture can be written as 'xyz'"), ("no/p.png", "there is no folder")]
)
def test_a_plot_that_cannot_be_written_is_refused_before_anything_is_read(run, tmp_path, name, plot, words):
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    ended = run(name, tmp_path / "no table", "--plot", tmp_path / plot)
    assert (ended.status, words in ended.err) == (1, True), ended.err


def test_a_plot_is_in_the_format_of_its_name(run, table, tmp_path):
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    for name, start in (("a.svg", b"<?xml"), ("b", b"\x89PNG")):
        assert run("preview", table, "--column", "x", "--plot", tmp_path / name).status == 0
        assert (tmp_path / name).read_bytes().startswith(start)


def test_json_has_no_nan(capsys):
    print_json({"spread": float("nan"), "rates": [1.5, float("inf")]})
    assert json.loads(capsys.readouterr().out) == {"spread": None, "rates": [1.5, None]}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--label", "lable"], "lable"),
        (["--shuffle-window", "much"], "shuffle_window"),
        (["--filter", "x < 0"], "no row"),
    ],
)
def test_preview_refuses_what_is_wrong(run, table, options, words):
    ended = run("preview", table, *options)
    assert (ended.status, words in ended.err) == (1, True), ended.err
