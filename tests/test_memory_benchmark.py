"""Tables larger than memory stream through a cgroup that would kill for swelling: a small form of each memory run."""

import functools
import io

import pytest
from rich.console import Console

from benchmarks import memory_run, memory_tables, tables
from benchmarks.cgroup import MemoryCgroup, NoCgroup
from benchmarks.memory import readable
from benchmarks.memory_cases import MIB, Case
from benchmarks.memory_tables import Shape

TIGHT = {"shuffle_window": "8MiB", "memory_budget": "48MiB"}
LARGE = {"shuffle_window": "8MiB", "memory_budget": "96MiB"}
WIDE = {"shuffle_window": "32MiB", "memory_budget": "200MiB"}
CASES = {
    "many row groups": (Shape("floats", 2, 1_000_000, 10_000), 1000, TIGHT, 160),
    "one row group, larger than the budget": (Shape("floats", 2, 1_300_000, 1_300_000), 1000, LARGE, 200),
    "texts": (Shape("texts", 1, 22_000, 22_000), 100, TIGHT, 160),
    "rows of 50 MB": (Shape("blobs", 1, 12, 1), 2, {"shuffle_window": "20MiB", "memory_budget": "420MiB"}, 520),
    "500 columns, more row groups open than have a place": (Shape("wide", 3, 64_000, 16_000), 1000, WIDE, 320),
}
RUNS = [(name, "thread") for name in CASES]
RUNS += [(name, "process") for name in ("many row groups", "one row group, larger than the budget", "rows of 50 MB")]


@pytest.fixture(scope="module", autouse=True)
def _prepared(tmp_path_factory):
    try:
        with MemoryCgroup("pyloader_delta-test"):
            pass
    except NoCgroup as error:
        pytest.skip(str(error))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tables, "DATA", tmp_path_factory.mktemp("data"))
        yield


@pytest.mark.slow
@pytest.mark.parametrize(("name", "workers"), RUNS)
def test_a_table_larger_than_memory_streams_through_with_every_row(name, workers):
    shape, batch_size, options, allowance = CASES[name]
    through = {"texts": "texts", "blobs": "blobs"}.get(shape.kind, "arrays")
    case = Case(
        name, name, functools.partial(memory_tables.make, shape), shape.n_rows, shape.decoded_bytes, shape.file_rows,
        allowance * MIB, batch_size, workers, through, options=options,
    )  # fmt: skip
    run = memory_run.measured(case)
    assert run["complete"], run
    assert run["oom_kills"] == 0
    assert run["rows"] == shape.n_rows
    assert run["decoded_mib"] * MIB < shape.decoded_bytes * 1.01
    assert run["decoded_mib"] > allowance
    console = Console(file=io.StringIO(), width=200)
    console.print(readable({name: run}))
    assert name in console.file.getvalue()
