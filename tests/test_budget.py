"""The memory budget: what there is by cgroups of both versions, what an order needs, what is said if it is too much."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import WriterProperties, write_deltalake
from fakes import NumpyThrough

from pyloader_delta import BudgetError, DataLoader, DeltaDataReader, NumpyDataCollator, memory
from pyloader_delta.delta.cursor import rows_at_once
from pyloader_delta.delta.sizes import cursor_bytes

GIB, MIB = 1 << 30, 1 << 20
HUGE = "9223372036854771712"
V1, V2 = "/sys/fs/cgroup/memory", "/sys/fs/cgroup"
MACHINE = {"/proc/meminfo": f"MemTotal: 99 kB\nMemAvailable: {16 * MIB} kB\n"}


def v1(path, limit, used, cache=0):
    stat = f"inactive_file 7\ntotal_inactive_file {cache}\n"
    names = {"memory.limit_in_bytes": f"{limit}\n", "memory.usage_in_bytes": f"{used}\n", "memory.stat": stat}
    return {f"{path}/{name}": text for name, text in names.items()}


def v2(path, limit, used, cache=0, high="max"):
    stat = f"anon 5\ninactive_file {cache}\n"
    names = {"memory.max": f"{limit}\n", "memory.high": f"{high}\n", "memory.current": f"{used}\n", "memory.stat": stat}
    return {f"{path}/{name}": text for name, text in names.items()}


CASES = {
    "no cgroup": ({}, 32 * GIB, 16 * GIB),
    "v1": (
        {"/proc/self/cgroup": "7:memory:/job\n3:cpu:/job\n"} | v1(f"{V1}/job", GIB, 400, 100),
        GIB,
        GIB - 300,
    ),
    "v1 without a limit": ({"/proc/self/cgroup": "7:memory:/\n"} | v1(V1, HUGE, 400), 32 * GIB, 16 * GIB),
    "v1, the one above is smaller": (
        {"/proc/self/cgroup": "7:memory:/a/b\n"} | v1(f"{V1}/a/b", 3 * GIB, 0) | v1(f"{V1}/a", 2 * GIB, GIB),
        2 * GIB,
        GIB,
    ),
    "v1 in a container that sees its own cgroup as the root": (
        {"/proc/self/cgroup": "7:memory:/docker/0123\n"} | v1(V1, GIB, 0),
        GIB,
        GIB,
    ),
    "v2": ({"/proc/self/cgroup": "0::/job.slice\n"} | v2(f"{V2}/job.slice", GIB, 600, 200), GIB, GIB - 400),
    "v2 without a limit": ({"/proc/self/cgroup": "0::/job\n"} | v2(f"{V2}/job", "max", 600), 32 * GIB, 16 * GIB),
    "v2, the one above has it": (
        {"/proc/self/cgroup": "0::/a/b\n"} | v2(f"{V2}/a/b", "max", 0) | v2(f"{V2}/a", 2 * GIB, MIB),
        2 * GIB,
        2 * GIB - MIB,
    ),
    "v2 that slows down before it kills": (
        {"/proc/self/cgroup": "0::/a\n"} | v2(f"{V2}/a", 4 * GIB, 0, high=str(GIB)),
        GIB,
        GIB,
    ),
    "v2 in a container": ({"/proc/self/cgroup": "0::/\n"} | v2(V2, GIB, 0), GIB, GIB),
    "used up": ({"/proc/self/cgroup": "0::/\n"} | v2(V2, GIB, 2 * GIB), GIB, 0),
    "both mounted, v1 has memory": (
        {"/proc/self/cgroup": "7:memory:/x\n0::/x\n"} | v1(f"{V1}/x", GIB, 0),
        GIB,
        GIB,
    ),
}


@pytest.fixture
def machine(monkeypatch):
    """A machine of 32 GiB, half of them free, whose files are given."""

    def make(files):
        monkeypatch.setattr(memory, "_text", lambda path: (MACHINE | files).get(str(path), ""))
        monkeypatch.setattr(memory.os, "sysconf", {"SC_PAGE_SIZE": 4096, "SC_PHYS_PAGES": 32 * GIB // 4096}.get)
        monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)

    return make


@pytest.mark.parametrize("case", CASES)
def test_limits_of_cgroups_of_both_versions_count(machine, case):
    files, total, free = CASES[case]
    machine(files)
    assert memory.usable_bytes() == (total, free)


@pytest.mark.parametrize(
    ("limit", "used", "world", "needed", "budget"),
    [
        (8 * GIB, 0, 1, 0, 2 * GIB),
        (31 * GIB, 0, 1, 0, 4 * GIB),  # never more by itself
        (8 * GIB, 0, 4, 0, GIB // 2),  # for each of four processes
        (GIB, 0, 1, 600 * MIB, 600 * MIB),  # what the order needs, where that is free
        (GIB, 512 * MIB, 1, 600 * MIB, 256 * MIB),  # it is not
        (GIB, 0, 2, 600 * MIB, 128 * MIB),  # not for two
    ],
)
def test_the_default_is_a_quarter_or_what_the_order_needs(machine, monkeypatch, limit, used, world, needed, budget):
    machine({"/proc/self/cgroup": "0::/\n"} | v2(V2, limit, used))
    monkeypatch.setenv("LOCAL_WORLD_SIZE", str(world))
    assert memory.default_budget(needed) == budget


# What an order needs -------------------------------------------------------------------------------------------------


N_ROWS = 80_000


@pytest.fixture(scope="module")
def wide(tmp_path_factory):
    """Four files, each a row group of 1.6 MB: 20 columns of 20,000 float32, plain."""
    root = str(tmp_path_factory.mktemp("t") / "wide")
    rng = np.random.default_rng(0)
    plain = WriterProperties(max_row_group_size=20_000)
    for _ in range(4):
        columns = {f"c{i:02}": rng.random(20_000, np.float32) for i in range(20)}
        write_deltalake(root, pa.table(columns), mode="append", writer_properties=plain)
    return root


def loader(root, window, budget=None, **more):
    reader = DeltaDataReader(1000, shuffle=True)
    options = {"shuffle_window": window, "memory_budget": budget, "num_workers": 0} | more
    return DataLoader(reader, NumpyThrough(), NumpyDataCollator(), root, **options)


def rows_of(one):
    return sum(len(batch["c00"]) for batch in one)


def test_open_row_groups_count_in_the_budget(wide):
    with loader(wide, "1536KiB", "3MB") as one, pytest.raises(BudgetError, match="read piece by piece") as raised:
        next(one)
    needed = int(str(raised.value).split("Raise memory_budget to ")[1].split()[0])
    with loader(wide, "1536KiB", needed) as one:
        told = []
        assert sum(len(batch["c00"]) for batch in one if told.append(one.memory()) is None) == N_ROWS
    assert max(held.cursors for held in told) == 4
    assert max(held.cursor_bytes for held in told) > 4 << 20
    assert max(held.chunks + held.cursor_bytes for held in told) <= needed


@pytest.mark.parametrize(("workers", "num_workers"), [("thread", 0), ("thread", 3), ("process", 2)])
def test_row_groups_that_have_no_place_are_closed_and_read_again_in_the_same_order(wide, workers, num_workers):
    with loader(wide, "1536KiB", "24MB") as one:
        expected = np.concatenate([batch["c00"] for batch in one])
    with loader(wide, "1536KiB", "8MB", workers=workers, num_workers=num_workers) as one:
        with pytest.warns(UserWarning, match="read again and again"):
            batches = iter(one)
        found, told = zip(*((batch["c00"].copy(), one.memory()) for batch in batches), strict=True)
    assert np.array_equal(np.concatenate(found), expected)
    assert 0 < max(held.cursors for held in told) < 4
    assert max(held.chunks + held.cursor_bytes for held in told) <= 8_000_000


def test_the_default_holds_two_windows_and_what_is_open_and_stays_what_it_was(wide, machine):
    files = {"/proc/self/cgroup": "0::/\n"} | v2(V2, 24 * MIB, 0)
    machine(files)
    with loader(wide, "1536KiB") as one:
        budget = one.memory().budget
        assert 6 * MIB < budget < 18 * MIB  # a quarter, and three
        assert rows_of(one) == N_ROWS
        machine(files | v2(V2, 24 * MIB, 20 * MIB))  # the loader's own memory is in use now
        assert rows_of(one) == N_ROWS
        assert one.memory().budget == budget


def test_cursors_that_are_not_read_on_are_closed(wide):
    with loader(wide, "1536KiB", "24MB") as one:
        opened = one.datareader._pinned().files._cursors
        live = iter(one)
        for _ in range(10):
            next(live)
        assert len(opened) == one.memory().cursors == 4
        del live
        one.set_epoch(7)
        next(iter(one))
        assert len(opened) <= one.memory().cursors <= 4


# What is read at once ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("n_rows", "row_bytes", "expected"),
    [(10, 8, 1024), (5000, 8, 5000), (1, 50_000_000, 1), (3, 50_000_000, 3), (2, 100_000, 10), (0, 0, 1024)],
)
def test_few_large_rows_are_decoded_at_once(n_rows, row_bytes, expected):
    assert rows_at_once(n_rows, row_bytes) == expected


def test_an_open_row_group_holds_a_page_of_each_column(tmp_path):
    n, path = 300_000, tmp_path / "f.parquet"
    numbers = np.random.default_rng(0).random(n)
    pq.write_table(pa.table({"a": numbers, "b": numbers, "c": np.zeros(n)}), path, use_dictionary=["c"])
    metadata = pq.read_metadata(path)
    assert 2 << 20 < cursor_bytes(metadata, 0, [0, 1]) < 2.1 * (1 << 20)
    assert cursor_bytes(metadata, 0, [2]) < 1 << 15
    pq.write_table(pa.table({"t": [b"x" * 10_000] * 2000}), path, use_dictionary=False)  # looked at each 1,024 rows
    assert 10_000_000 < cursor_bytes(pq.read_metadata(path), 0, [0]) < 11_000_000
