"""What user code frees is used again: its arrays are not new pages at each batch."""

import json
import platform
import resource
import sys

import numpy as np
import pytest
from fakes import Numbers, number_files
from programs import python

from pyloader_delta import DataLoader, Dataset, NumpyDataCollator

N_ARRAYS, BYTES = 8, 3 << 20
PAGES = N_ARRAYS * BYTES // resource.getpagesize()


class Scribbling(Dataset):
    """Fills arrays and drops them; says how many new pages these took."""

    input_format = "numpy"

    def batch_encode(self, batch):
        before = resource.getrusage(resource.RUSAGE_THREAD).ru_minflt
        arrays = [np.ones(BYTES, np.uint8) for _ in range(N_ARRAYS)]
        del arrays
        return {"pages": np.full(len(batch["x"]), resource.getrusage(resource.RUSAGE_THREAD).ru_minflt - before)}


def pages(folder, options):
    with DataLoader(Numbers(1), Scribbling(), NumpyDataCollator(), folder, **options) as loader:
        return [int(batch["pages"][0]) for batch in loader]


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library keeps what is freed by other rules")
@pytest.mark.parametrize("workers", ["inline", "thread", "process"])
def test_arrays_of_user_code_lie_in_memory_that_it_freed(workers, tmp_path):
    options = {"num_workers": 0} if workers == "inline" else {"num_workers": 1, "workers": workers}
    folder = number_files(tmp_path / "numbers", [12])
    # in a program of its own: tests before this one may have taught this process's allocator
    program = f"import json, test_freed_memory as t; print(json.dumps(t.pages({folder!r}, {options!r})))"
    taken = json.loads(python("-c", program, env={"PYTHONPATH": ":".join(sys.path)}).stdout)
    assert len(taken) == 12
    assert max(taken) > PAGES // 2
    assert max(taken[2:]) < PAGES // 10, taken
