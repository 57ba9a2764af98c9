"""The benchmarks run, and what they compare does the same work."""

import argparse
import json
import os
from itertools import chain

import numpy as np
import pyarrow as pa
import pytest
from programs import python

from benchmarks import checking, handmade, limit, limit_batches, measure, page, picture, tables
from benchmarks.contenders import CONTENDERS
from benchmarks.memory import NO_CGROUP
from benchmarks.workloads import WORKLOADS


@pytest.fixture
def table(request, tmp_path, monkeypatch):
    monkeypatch.setattr(tables, "DATA", tmp_path)
    monkeypatch.setattr(tables, "ROWS_PER_GROUP", group_rows(request.param))
    monkeypatch.setattr(tables, "GROUPS_PER_FILE", 3)
    return WORKLOADS[request.param].table(n_rows(request.param))


def n_rows(workload: str) -> int:
    return {"jpeg": 420, "wide": 2_100}.get(workload, 10_500)


def group_rows(workload: str) -> int:
    return n_rows(workload) * 2 // 21


by_workload = pytest.mark.parametrize(("workload", "table"), [(name, name) for name in WORKLOADS], indirect=["table"])


@by_workload
@pytest.mark.parametrize("shuffle", [False, True])
def test_the_rival_gives_each_row_once_in_each_epoch(workload, table, shuffle):
    from benchmarks import rival_torch

    size, shuffle_rows = group_rows(workload) // 4 + 6, 4 * group_rows(workload) * shuffle
    loader = rival_torch.loader(handmade.paths(table), size, shuffle_rows, num_workers=0, workload=workload)
    epochs = [[batch["id"].numpy() for batch in loader] for _ in range(2)]
    for batches in epochs:
        assert {len(ids) for ids in batches[:-1]} == {size}
        np.testing.assert_array_equal(np.sort(np.concatenate(batches)), np.arange(n_rows(workload)))
    same_order = all(np.array_equal(a, b) for a, b in zip(*epochs, strict=True))
    assert same_order == (not shuffle)


@by_workload
def test_the_rival_and_we_make_the_same_batches_of_a_table(workload, table):
    from benchmarks import ours, rival_torch

    size = group_rows(workload) // 4  # the rival's batches begin anew with each row group
    with ours.tensors(workload, table, batch_size=size, shuffle=False, num_workers=0) as loader:
        theirs = rival_torch.loader(handmade.paths(table), size, num_workers=0, workload=workload)
        for batch, other in zip(loader, theirs, strict=True):
            assert batch.keys() == other.keys()
            for name in batch:
                assert batch[name].dtype == other[name].dtype
                assert batch[name].equal(other[name]), name


@by_workload
def test_runs_of_row_groups_give_the_rows_that_workers_give(workload, table):
    paths, size, mixed = handmade.paths(table), group_rows(workload) // 4, 4 * group_rows(workload)
    wanted = checking.digest(handmade.batches(workload, paths, size))
    runs = handmade.windows(paths, mixed)
    assert max(map(len, runs)) == 4
    assert max(map(len, handmade.windows(paths, mixed + 1))) == 5  # at least so many rows, as ours has
    found = (batch for number, run in enumerate(runs) for batch in handmade.window(workload, run, size, [number]))
    assert checking.difference(checking.digest(found), wanted) is None
    shared = (handmade.batches(workload, paths, size, mixed, worker=n, n_workers=2) for n in (0, 1))
    assert checking.difference(checking.digest(chain.from_iterable(shared)), wanted) is None


@pytest.mark.parametrize(("workload", "table"), [("tokens", "tokens"), ("images", "images")], indirect=["table"])
def test_tf_data_gives_the_rows_of_the_table(workload, table):
    from benchmarks import rival_tf

    paths, size = handmade.paths(table), 200
    wanted = checking.digest(handmade.batches(workload, paths, size))
    loader = rival_tf.loader(paths, size, 4000, workload=workload)
    for _ in range(2):
        assert checking.difference(checking.digest(iter(loader)), wanted) is None


@pytest.mark.parametrize(
    ("batches", "text"),
    [
        ([[1, 2], [3]], None),
        ([[3, 1, 2]], None),
        ([[1, 2]], "gives 2 rows, not 3"),
        ([[1, 2], [2]], "gives 2 distinct rows, not 3"),
        ([[1, 2], [4]], "gives 7 as the sum of ids, not 6"),
    ],
)
def test_rows_that_are_lost_or_doubled_are_found(batches, text):
    wanted = checking.digest([{"id": np.array([1, 2, 3])}])
    assert checking.difference(checking.digest({"id": np.array(ids)} for ids in batches), wanted) == text


def test_outputs_that_differ_are_found():
    def digest(**outputs):
        return checking.digest([{"id": np.arange(3), **outputs}])

    wanted = digest(x=np.ones(3, np.float32))
    assert checking.difference(digest(), wanted) == "gives ['id'], not ['id', 'x']"
    assert checking.difference(digest(x=np.ones(3)), wanted) == "gives x as float64, not float32"
    assert checking.difference(digest(x=np.zeros(3, np.float32)), wanted) == "gives other values for x"


@pytest.mark.parametrize("table", WORKLOADS, indirect=True)
def test_the_limit_decodes_each_row(table, request):
    workload = request.node.callspec.params["table"]
    assert sum(limit.decoded(handmade.paths(table), workload)) == n_rows(workload)


@pytest.mark.parametrize("table", WORKLOADS, indirect=True)
@pytest.mark.parametrize("window_rows", [70, 1 << 20])
def test_the_limit_of_shuffling_takes_each_row_once(table, window_rows, request, monkeypatch):
    workload = request.node.callspec.params["table"]
    read, taken = [], []
    rows_of, encoded = limit.rows_of, limit.encoded

    def spied(array):
        found = rows_of(array)
        if found is not None and pa.types.is_int64(array.type):
            read.append(len(found))
        return found

    monkeypatch.setattr(limit, "rows_of", spied)
    monkeypatch.setattr(limit, "encoded", lambda rows, workload: (taken.append(rows.num_rows), encoded(rows, workload)))
    windows = list(limit.decoded_on_each_core(handmade.paths(table), workload, window_rows))
    assert sum(windows) == n_rows(workload)
    assert max(windows) <= window_rows
    assert sum(read) == 2 * n_rows(workload)
    assert sum(taken) == (n_rows(workload) if workload in ("jpeg", "tokens", "text") else 0)


@pytest.mark.parametrize("table", CONTENDERS["limit-batches"].workloads, indirect=True)
@pytest.mark.parametrize("sent", [False, True])
def test_the_limits_of_batches_give_each_row(table, sent, request):
    workload, paths = request.node.callspec.params["table"], handmade.paths(table)
    cores = os.sched_getaffinity(0)
    found = checking.digest(limit_batches.batches(paths, workload, 7, sent=sent))
    assert checking.difference(found, checking.digest(handmade.batches(workload, paths, 7))) is None
    assert os.sched_getaffinity(0) == cores


def test_a_window_of_the_limit_holds_what_was_placed_and_takes_all_of_it():
    window = limit.Window(8)
    kinds = {"x": pa.array([1, 2, 3]), "image": pa.array([b"ab", b"cd", b"ef"]), "text": pa.array(["a", "bb", "c"])}
    window.place(pa.table(kinds).slice(1))
    window.place(pa.table(kinds))
    assert window._columns["x"][:5].tolist() == [2, 3, 1, 2, 3]
    assert window._columns["image"][:5].tolist() == [b"cd", b"ef", b"ab", b"cd", b"ef"]
    assert pa.concat_tables(window._tables)["text"].to_pylist() == ["bb", "c", "a", "bb", "c"]
    assert window.taken("tabular") == 5
    assert sorted(window._room[:10].view("V2").tolist()) == [b"ab", b"cd", b"cd", b"ef", b"ef"]
    assert window.n_rows == 0


def test_texts_are_cut_and_filled_up_to_64_tokens():
    words = handmade.words().to_pylist()
    texts = pa.array(["", f"{words[0]}  {words[7]} Unknown", " ".join(words[:70])])
    ids = handmade.token_ids(pa.concat_arrays([pa.array(["gone"]), texts]).slice(1))
    assert ids.shape == (3, 64)
    assert ids.dtype == np.int32
    np.testing.assert_array_equal(ids[0], 0)
    np.testing.assert_array_equal(ids[1], [1, 8] + 62 * [0])
    np.testing.assert_array_equal(ids[2], np.arange(1, 65))


@pytest.mark.slow
def test_the_throughput_benchmark_prints_every_figure():
    few = ["--rows", "62500", "--rounds", "1", "--only", "threads", "processes shuffled", "torch"]
    done = python("-m", "benchmarks.throughput", *few)
    document = json.loads(done.stdout)
    for figures in document["medians"].values():
        assert figures.keys() == document["meaning"].keys()
        assert all(value > 0 for value in figures.values())


@pytest.mark.slow
def test_twice_the_memory_there_is_streams_through_torchs_and_tensorflows_forms_with_every_row():
    """Loaders alone: test_memory_benchmark.py."""
    runs = ["--runs", "torch", "to_tf"]
    done = python("-m", "benchmarks.memory", "--rows", "6500000", *runs, status=None)  # 600 MiB decoded, in 300 MiB
    if done.returncode == NO_CGROUP:
        pytest.skip(done.stderr)
    assert done.returncode == 0, done.stdout + done.stderr
    for workers in json.loads(done.stdout)["runs"].values():
        assert workers["complete"]
        assert workers["oom_kills"] == 0


# The picture: no processes ------------------------------------------------------------------------------------------


def picture_run(name: str, cpu_s: float, **more) -> dict:
    figures = dict.fromkeys(measure.MEANING, 1.0) | {"cpu_s_per_million_rows": cpu_s}
    figures.pop("ratio_to_limit")
    run = {"workload": "tabular", "name": name, "round": 0, "batch_size": None, "n_rows": 1000}
    return run | figures | more


def test_ratios_are_to_the_limit_of_the_same_round():
    runs = [
        picture_run("limit", 1.0), picture_run("threads", 2.0),
        picture_run("limit", 2.0, round=1), picture_run("threads", 2.0, round=1),
        picture_run("hf", 8.0, batch_size=32), {**picture_run("tf", 0.0), "failed": "gives 2 rows, not 3"},
    ]  # fmt: skip
    document = picture.summary(runs)
    assert document["medians"]["tabular"]["threads"]["ratio_to_limit"] == 1.5
    assert document["medians"]["tabular"]["threads"]["rounds"] == 2
    assert document["batch_sizes"]["hf"][32]["ratio_to_limit"] == 8.0
    assert document["failed"] == {"tabular": {"tf": "gives 2 rows, not 3"}}
    text = page.picture(document)
    assert "| tf | fails: gives 2 rows, not 3 |" in text
    assert "threads: 1.5 times the limit, 1.3 is wanted" in page.verdict(document)


def test_workloads_that_were_measured_anew_stand_in_their_place():
    runs = [picture_run("limit", 1.0, workload=workload) for workload in ("images", "wide", "tabular")]
    assert list(picture.summary(runs)["medians"]) == ["tabular", "wide", "images"]


def test_what_mixing_alone_costs_stands_beside_a_ratio_that_is_not_reached():
    runs = [picture_run("limit", 1.0), picture_run("limit shuffled", 1.9), picture_run("threads shuffled", 2.5)]
    found = page.verdict(picture.summary(runs))
    assert "tabular, threads shuffled: 2.5 times the limit, 1.8 is wanted; decoding and mixing alone: 1.9" in found


@pytest.mark.parametrize(
    ("floor", "name", "told"),
    [
        ("limit-batches", "threads", "1.3 is wanted; decoding and making tensors alone: 1.2"),
        ("limit-sent", "processes", "1.6 is wanted; decoding, one copy and making tensors alone: 1.2"),
    ],
)
def test_the_page_tells_what_batches_take_alone(floor, name, told):
    runs = [picture_run("limit", 1.0), picture_run(floor, 1.2), picture_run(name, 1.9)]
    found = page.verdict(picture.summary(runs))
    assert f"tabular, {name}: 1.9 times the limit, {told}" in found


def test_a_rival_that_is_ahead_is_told():
    runs = [picture_run("limit", 1.0), picture_run("threads", 1.2), picture_run("nodes", 1.1, rows_per_s=9.0)]
    found = page.verdict(picture.summary(runs))
    assert "tabular, CPU a row: nodes (1.1 to 1.2)" in found
    assert "tabular, rows a second: nodes (9 to 1)" in found
    assert "memory" not in found


def test_a_picture_keeps_figures_of_workloads_that_are_not_measured_again():
    before = picture.summary(
        [
            picture_run("limit", 1.0, workload="wide"), picture_run("limit", 1.0), picture_run("threads", 3.0),
            picture_run("limit", 2.0, batch_size=32), {**picture_run("tf", 0.0, workload="wide"), "failed": "breaks"},
        ]
    )  # fmt: skip
    found = picture.completed(picture.summary([picture_run("limit", 1.5)]), before)
    assert list(found["medians"]) == ["tabular", "wide"]
    assert {name: one["cpu_s_per_million_rows"] for name, one in found["medians"]["tabular"].items()} == {"limit": 1.5}
    assert found["medians"]["wide"] == before["medians"]["wide"]
    assert found["failed"] == {"wide": {"tf": "breaks"}}
    assert found["batch_sizes"] == before["batch_sizes"]


def test_a_picture_goes_on_where_it_was_cut_off():
    args = argparse.Namespace(workloads=["jpeg"], only=["threads", "torch"], rounds=2, rival_rounds=1)
    every = list(picture.missing(args, []))
    assert [run["name"] for run in every[:4]] == ["limit", "limit shuffled", "threads", "threads shuffled"]
    assert len(every) == 4 + 2 + 4
    assert list(picture.missing(args, every[:5])) == every[5:]
    failed = [*every[:4], {**every[4], "failed": "no"}]
    assert all(run["name"] != every[4]["name"] for run in picture.missing(args, failed))


def test_the_page_keeps_what_stands_around_its_markers():
    text = "a\n<!-- x: made by python -m it -->\nold\n<!-- end of x -->\nb\n"
    once = page.between(text, "x", "new\n")
    assert once == "a\n<!-- x: made by python -m it -->\n\nnew\n\n<!-- end of x -->\nb\n"
    assert page.between(once, "x", "new\n") == once
    with pytest.raises(ValueError, match="markers of y"):
        page.between(text, "y", "")
