"""The benchmarks run, and what they compare does the same work."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks import limit, tables
from benchmarks.memory import NO_CGROUP
from benchmarks.workloads import WORKLOADS

ROOT = Path(__file__).parents[1]


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", *arguments], cwd=ROOT, capture_output=True, text=True)


@pytest.fixture
def table(request, tmp_path, monkeypatch):
    monkeypatch.setattr(tables, "DATA", tmp_path)
    monkeypatch.setattr(tables, "ROWS_PER_GROUP", 1000)
    monkeypatch.setattr(tables, "GROUPS_PER_FILE", 3)
    return WORKLOADS[request.param].table(10_500)


by_workload = pytest.mark.parametrize(("workload", "table"), [(name, name) for name in WORKLOADS], indirect=["table"])


@by_workload
@pytest.mark.parametrize("shuffle_rows", [0, 4000])
def test_the_rival_gives_each_row_once_in_each_epoch(workload, table, shuffle_rows):
    from benchmarks import rival_torch

    loader = rival_torch.loader(tables.paths(table), 256, shuffle_rows, num_workers=0, workload=workload)
    epochs = [[batch["id"].numpy() for batch in loader] for _ in range(2)]
    for batches in epochs:
        assert {len(ids) for ids in batches[:-1]} == {256}
        np.testing.assert_array_equal(np.sort(np.concatenate(batches)), np.arange(10_500))
    same_order = all(np.array_equal(a, b) for a, b in zip(*epochs, strict=True))
    assert same_order == (shuffle_rows == 0)


@by_workload
def test_the_rival_and_we_make_the_same_batches_of_a_table(workload, table):
    from benchmarks import ours, rival_torch

    with ours.tensors(workload, table, batch_size=250, shuffle=False, num_workers=0) as loader:
        # the rival's batches begin anew with each row group, which are of 1,000 rows here
        theirs = rival_torch.loader(tables.paths(table), 250, num_workers=0, workload=workload)
        for batch, other in zip(loader, theirs, strict=True):
            assert batch.keys() == other.keys()
            for name in batch:
                assert batch[name].dtype == other[name].dtype
                assert batch[name].equal(other[name]), name


@pytest.mark.parametrize("table", WORKLOADS, indirect=True)
def test_the_limit_decodes_each_row(table):
    assert sum(limit.decoded(tables.paths(table))) == 10_500


@pytest.mark.slow
def test_the_throughput_benchmark_prints_every_figure():
    few = [
        "--rows",
        "62500",
        "--rival-rows",
        "62500",
        "--rounds",
        "1",
        "--only",
        "threads",
        "processes shuffled",
        "rival",
    ]
    done = run("benchmarks.throughput", *few)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    for figures in document["medians"].values():
        assert figures.keys() == document["meaning"].keys()
        assert all(value > 0 for value in figures.values())


@pytest.mark.slow
def test_twice_the_memory_there_is_streams_through_with_every_row():
    runs = ["--runs", "process", "thread", "torch", "to_tf"]
    done = run("benchmarks.memory", "--rows", "6500000", *runs)  # 600 MiB decoded, in 300 MiB
    if done.returncode == NO_CGROUP:
        pytest.skip(done.stderr)
    assert done.returncode == 0, done.stdout + done.stderr
    for workers in json.loads(done.stdout)["runs"].values():
        assert workers["complete"]
        assert workers["oom_kills"] == 0
