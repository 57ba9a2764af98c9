"""`loader.memory().total` against what the kernel says that the processes of a loader take, beside their imports."""

import gc
import mmap
import os

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import convert_to_deltalake
from fakes import NumpyThrough
from leaks import idle, until

from pyloader_delta import DataLoader, DeltaDataReader, NumpyDataCollator

MIB = 1 << 20
TOLERANCE = 64 * MIB
"""What decoding and allocators of two workers keep, of which the loader knows nothing."""
N_COLUMNS, FILE_ROWS = 40, 500_000


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    """Two files of 80 MB decoded, in row groups of 4 MB; and one of 1,000 rows."""
    found = []
    for name, n_files, n_rows in (("large", 3, FILE_ROWS), ("small", 1, 1000)):
        root = tmp_path_factory.mktemp("t") / name
        root.mkdir()
        table = pa.table(
            {f"c{i:02}": np.repeat(np.arange(n_rows // 50, dtype=np.float32), 50) for i in range(N_COLUMNS)}
        )
        for number in range(n_files):
            pq.write_table(
                table, root / f"{number}.parquet", use_dictionary=False, compression="zstd", row_group_size=25_000
            )
        convert_to_deltalake(str(root))
        found.append(str(root))
    return found


def opened(root, workers):
    options = {"shuffle_window": "48MiB", "memory_budget": "224MiB", "num_workers": 2, "workers": workers}
    return DataLoader(DeltaDataReader(1000, shuffle=True), NumpyThrough(), NumpyDataCollator(), root, **options)


def taken():
    """Return bytes of memory of this process and its children that no file stands behind."""
    gc.collect()
    pa.default_memory_pool().release_unused()
    total = 0
    for process in [psutil.Process(), *psutil.Process().children(recursive=True)]:
        with open(f"/proc/{process.pid}/smaps_rollup", encoding="utf-8") as file:
            fields = dict(line.split(":", 1) for line in file.readlines()[1:])
        total += sum(int(fields[name].split()[0]) * 1024 for name in ("Pss_Anon", "Pss_Shmem"))
    return total


def off(loader, before):
    """Return by how many bytes what is told differs from what is taken."""
    return abs(taken() - before - loader.memory().total)


@pytest.mark.parametrize("batch_size", [1000, 1024])
def test_slabs_cost_what_the_kernel_says(tables, batch_size):
    """Batches of 1,000 float32 are not a multiple of 64 bytes, so that they are laid out anew in a second slab."""
    options = {"shuffle_window": "40MiB", "memory_budget": "120MiB", "num_workers": 2, "workers": "process"}
    reader = DeltaDataReader(batch_size, shuffle=True)
    with DataLoader(reader, NumpyThrough(), NumpyDataCollator(), tables[0], **options) as loader:
        for number, _ in enumerate(loader):
            if number in (300, 600, 900):
                assert idle(loader)
                slabs = loader._engine.pool._slabs.values()
                real = sum(os.fstat(slab.fd).st_blocks * 512 for slab in slabs)
                pages = len(slabs) * mmap.PAGESIZE
                assert real <= loader.memory().slabs + pages
                assert loader.memory().total <= 120 * MIB


@pytest.mark.parametrize("workers", ["thread", "process"])
def test_what_memory_tells_is_what_the_processes_take_beside_their_imports(tables, workers):
    large, small = tables
    with opened(small, workers) as loader:
        batches = iter(loader)
        next(batches)
        assert idle(loader)
        before = taken()
        del batches
    with opened(large, workers) as loader:
        batches = iter(loader)
        for number, batch in enumerate(batches):
            assert len(batch["c00"]) == 1000
            if number in (200, 700):
                assert idle(loader)
                close = until(lambda: off(loader, before) < TOLERANCE)  # workers that rest give back what Arrow keeps
                assert close, off(loader, before) // MIB
                told = loader.memory().total
                assert 80 * MIB < told <= 224 * MIB
            if number == 700:
                break
