"""memory(), report() and to_chrome_trace(): looks into a loader that runs."""

import json
import time

import numpy as np
import pyarrow as pa
import pytest
from deltalake import write_deltalake
from fakes import AsIs, CountedNumbers, NumpyThrough, Through, number_files
from leaks import idle

from pyloader_delta import ConfigError, DataLoader, DeltaDataReader, NumpyDataCollator
from pyloader_delta.report import Memory, Times, reported

STAGES = ("reading", "shuffling", "encoding", "collating", "delivery")


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return number_files(tmp_path_factory.mktemp("insight") / "t", [40] * 6)


def loader(root, dataset=None, collator=None, **options):
    options = {"num_workers": 2, "workers": "thread"} | options
    reader = CountedNumbers(batch_size=10, shuffle=True)
    return DataLoader(reader, dataset or Through(), collator or NumpyDataCollator(), root, **options)


# Memory --------------------------------------------------------------------------------------------------------------


def test_memory_says_where_the_bytes_are(tmp_path):
    root, n = str(tmp_path / "t"), 1_500_000
    write_deltalake(root, pa.table({"x": np.arange(n), "y": np.arange(n) * 0.5}))
    reader = DeltaDataReader(2000, shuffle=True)
    options = {"num_workers": 2, "workers": "thread", "memory_budget": "32MiB", "shuffle_window": "2MiB"}
    with DataLoader(reader, NumpyThrough(), NumpyDataCollator(), root, **options) as loader:
        before = loader.memory()
        assert before == Memory(32 << 20, 0, 0, 0, 0, 0)
        kept = []
        for batch in loader:
            kept.append(batch)
            if len(kept) == 1:
                assert idle(loader)
                assert loader.memory().chunks > 1 << 20  # the rest of its window at least, and the next one
            held = loader.memory()
            assert held.chunks + held.batches + held.lent <= held.budget
        assert loader.memory().lent > 0
        kept.clear()
        del batch
        loader.take(1)
        assert str(held).startswith("chunks ")
        assert str(held).endswith("budget 32.0 MiB")
    assert sum(len(batch["x"]) for batch in kept) == 0


def test_memory_counts_batches_and_open_cursors_while_the_loop_sleeps(tmp_path):
    root = str(tmp_path / "t")
    write_deltalake(root, pa.table({"x": np.arange(300_000)}))
    reader = DeltaDataReader(1000, shuffle=True)
    options = {"num_workers": 1, "workers": "process", "memory_budget": "32MiB", "shuffle_window": "512KiB"}
    with DataLoader(reader, NumpyThrough(), NumpyDataCollator(), root, **options) as loader:
        live = iter(loader)
        next(live)
        assert idle(loader)
        held = loader.memory()
        assert held.batches > 0
        assert held.chunks > 0
        assert held.slabs >= held.chunks
        assert held.cursors == 1


# Report --------------------------------------------------------------------------------------------------------------


class SlowEncoding(Through):
    def batch_encode(self, batch_data):
        time.sleep(0.02)
        return batch_data


class SlowCollating(NumpyDataCollator):
    def collate_batch(self, features):
        time.sleep(0.02)
        return super().collate_batch(features)


class SlowFinalize(NumpyDataCollator):
    def finalize(self, batch):
        time.sleep(0.02)
        return batch


@pytest.mark.parametrize(
    ("parts", "bound"),
    [
        ({"dataset": SlowEncoding}, "encoding"),
        ({"collator": SlowCollating}, "collating"),
        ({"collator": SlowFinalize}, "finalize"),
    ],
)
@pytest.mark.parametrize("n", [0, 1])
def test_the_slowest_stage_is_found(root, parts, bound, n):
    made = {name: kind() for name, kind in parts.items()}
    with loader(root, num_workers=n, num_epoch=2, **made) as some:
        assert some.report().bound == "nothing"
        list(some)
        report = some.report()
    assert report.bound == bound
    assert report.times.total > 0.2
    assert 0 <= report.ready <= 1
    assert set(report.times.stages) == set(STAGES)
    assert str(report).splitlines()[0].endswith("bounds the run")
    assert all(line.startswith("  ") for line in str(report).splitlines()[1:])


def times(total=10.0, waited=0.0, first_wait=0.0, finalizing=0.0, n=2, inline=False, **stages):
    return Times(total, waited, first_wait, finalizing, dict.fromkeys(STAGES, 0.0) | stages, n, inline)


@pytest.mark.parametrize(
    ("found", "bound"),
    [
        (times(total=0.0), "nothing"),
        (times(waited=0.5), "training loop"),
        (times(waited=0.5, finalizing=6.0), "finalize"),
        (times(waited=8.0, reading=12.0, encoding=6.0), "reading"),
        (times(waited=8.0, shuffling=15.0), "shuffling"),
        (times(waited=8.0, reading=2.0), "limits"),
        (times(waited=8.0, first_wait=7.0, reading=2.0), "start"),
        (times(waited=4.5, first_wait=4.0, reading=2.0), "training loop"),
        (times(waited=8.0, delivery=7.0, inline=True, n=1), "delivery"),
        (times(waited=4.0, reading=3.0, finalizing=5.0, inline=True, n=1), "finalize"),
        (times(waited=4.0, reading=3.0, inline=True, n=1), "training loop"),
        (times(waited=9.0, encoding=18.0, reading=1.0), "encoding"),
    ],
)
def test_what_bounds_a_run_by_its_times(found, bound):
    report = reported(found, 0.5, n_cpus=8, in_threads=True, python=True)
    assert report.bound == bound
    assert report.advice
    more = [text for text in report.advice if "num_workers=8" in text]
    assert bool(more) == (bound in ("reading", "shuffling", "encoding", "collating"))
    assert any("workers='process'" in text for text in report.advice) == (bound == "encoding")


# Trace ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [0, 2])
def test_a_trace_has_each_task_and_batch(root, tmp_path, n):
    with loader(root, num_workers=n, trace=True, collator=AsIs()) as some:
        n_batches = len(list(some))
        some.to_chrome_trace(tmp_path / "trace.json")
    found = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    spans = [event for event in found if event["ph"] == "X"]
    by_kind = {kind: [e for e in spans if e["cat"] == kind] for kind in {e["cat"] for e in spans}}
    assert set(by_kind) >= {"reading", "making", "waiting", "finalizing"}
    assert len(by_kind["waiting"]) == len(by_kind["finalizing"]) == n_batches
    assert all(e["dur"] >= 0 for e in spans)
    assert {e["tid"] for e in by_kind["waiting"]} == {0}
    assert {e["tid"] for e in by_kind["reading"]} <= {1, 2}
    assert any("00.txt" in e["args"]["what"] for e in by_kind["reading"])
    names = {e["args"]["name"] for e in found if e["name"] == "thread_name"}
    assert {"training loop", "worker 0"} <= names
    counters = [e for e in found if e["ph"] == "C"]
    assert counters
    assert set(counters[0]["args"]) == {"chunks", "batches", "lent"}


def test_without_trace_nothing_is_kept_and_asking_says_so(root, tmp_path):
    with loader(root) as some:
        list(some)
        with pytest.raises(ConfigError, match="trace=True"):
            some.to_chrome_trace(tmp_path / "trace.json")
        assert some._engine.meter.events is None
        assert not some._engine.meter.samples
    with loader(root, trace=True) as unused:
        unused.to_chrome_trace(tmp_path / "trace.json")
    assert json.loads((tmp_path / "trace.json").read_text())["traceEvents"] == []
