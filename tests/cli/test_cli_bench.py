"""`bench` measures every stage and says what bounds them."""

import json
import os
import subprocess
import sys

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from pyloader_delta.cli.measuring import Rates
from pyloader_delta.encode.spec import FRAMEWORKS
from tests.cli.conftest import SCRIPT

N = 3000


@pytest.fixture(scope="module")
def table(tmp_path_factory) -> str:
    """Columns of kinds that arrays cannot hold, beside numbers and nulls."""
    path = str(tmp_path_factory.mktemp("tables") / "t")
    rows = {
        "n": list(range(N)),
        "gap": [None if i % 3 else i / 7 for i in range(N)],
        "word": [None if i % 5 else f"word {i}" for i in range(N)],
        "pair": [{"x": i} for i in range(N)],
        "list": [[1.0] * (i % 4) for i in range(N)],
    }
    write_deltalake(path, pa.table(rows))
    return path


def test_bench_measures_any_table_and_draws(run, table, tmp_path):
    plot = tmp_path / "rates.svg"
    found = run("bench", table, "--seconds", "0.05", "--workers", "1,2", "--plot", plot, "--json").document
    rates = found["rows_per_second"]
    assert set(rates) == {"storage", "decode", "batches", "by_workers"}
    assert all(
        rate > 0 for rate in [rates["storage"], rates["decode"], rates["batches"], *rates["by_workers"].values()]
    )
    assert set(rates["by_workers"]) == {"1", "2"}
    assert found["best_num_workers"] in (1, 2)
    assert plot.read_text(encoding="utf-8").count("batches, 2 workers") >= 1


OPTIONS = ["--seconds", "0.01", "--workers", "1", "--json"]


@pytest.mark.parametrize("framework", sorted(set(FRAMEWORKS) - {"jax"}))
def test_bench_measures_for_each_framework(run, table, framework):
    pytest.importorskip("pyarrow" if framework == "arrow" else framework, reason=f"{framework} is not installed")
    ended = run("bench", table, "--framework", framework, *OPTIONS)
    assert ended.status == 0, ended.err
    assert ended.document["rows_per_second"]["by_workers"]["1"] > 0


def test_bench_with_jax_keeps_64_bits(table):
    pytest.importorskip("jax", reason="jax is not installed")
    command = [str(SCRIPT), "bench", table, "--framework", "jax", *OPTIONS]
    environment = {name: value for name, value in os.environ.items() if name != "JAX_ENABLE_X64"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["rows_per_second"]["by_workers"]["1"] > 0


def test_bench_says_what_to_install(run, table, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    ended = run("bench", table, "--framework", "pandas", *OPTIONS)
    assert (ended.status, "pandas" in ended.document["error"]["message"]) == (1, True)


def test_bench_prints_a_line_a_stage(run, table):
    ended = run("bench", table, "--seconds", "0.05", "--workers", "1", "--column", "n", "--filter", "n < 100")
    assert ended.status == 0
    lines = [line.split("  ")[0] for line in ended.out.splitlines()]
    stages = ["bytes of the files", "decoded, 1 thread", "batches, no worker", "batches, 1 worker"]
    assert [line for line in lines if line in stages] == stages
    assert "bound by" in ended.out


@pytest.mark.parametrize(
    ("options", "status", "words"),
    [
        (["--column", "nn"], 1, "'nn'"),
        (["--filter", "n < "], 1, "filter"),
        (["--filter", "n < 0"], 1, "has no row to measure with"),
        (["--workers", "0"], 2, "numbers >= 1"),
        (["--workers", "1,b"], 2, "numbers >= 1"),
        (["--seconds", "0"], 2, "--seconds"),
        (["--shuffle-window", "much"], 1, "shuffle_window"),
    ],
)
def test_bench_refuses_what_is_wrong(run, table, options, status, words):
    ended = run(
        "bench", table, "--seconds", "0.01", *(["--workers", "1"] if options[0] != "--workers" else []), *options
    )
    assert (ended.status, words in ended.err) == (status, True), ended.err


def rates(storage=1e9, decode=1000.0, batches=500.0, **by_workers) -> Rates:
    return Rates(storage, decode, batches, {int(n[1:]): rate for n, rate in by_workers.items()})


@pytest.mark.parametrize(
    ("measured", "n_cpus", "words"),
    [
        (rates(storage=1000, w1=900.0, w2=950.0), 2, "storage:"),
        (rates(w1=400.0, w2=800.0), 8, "num_workers: the rate still rises at 2"),
        (rates(w1=400.0, w2=800.0), 2, "CPU: decoding, 50%"),
        (rates(batches=100.0, w1=100.0, w2=190.0), 2, "CPU: shuffling, encoding and collating, 90%"),
        (rates(batches=2000.0, w1=100.0), 2, "CPU: decoding, 100%"),
    ],
)
def test_what_bounds_the_rate(measured, n_cpus, words):
    assert measured.bound(n_cpus).startswith(words)


def test_the_best_number_of_workers_is_the_fewest_that_nearly_reach_the_best():
    assert rates(w1=100.0, w2=190.0, w4=196.0, w8=199.0).best_workers == 2
    assert rates(w1=100.0, w2=180.0, w4=196.0, w8=199.0).best_workers == 4
