"""The limit: decode every row group with pyarrow in one thread, and drop it. No loader can be cheaper than this.

Where the work is not the loader's, as with JPEG images and texts, each row's is done as well.
"""

import os
from collections.abc import Iterator
from itertools import cycle

import pyarrow.parquet as pq

from benchmarks import handmade


def decoded(paths: list[str], workload: str = "tabular") -> Iterator[int]:
    """Yield the number of rows of each row group, after decoding all its columns."""
    for path in paths:
        file = pq.ParquetFile(path, memory_map=True)
        for group in range(file.num_row_groups):
            table = file.read_row_group(group, use_threads=False)
            if workload == "text":
                handmade.token_ids(table["text"])
            elif workload == "jpeg":
                for row in table["image"]:
                    handmade.decoded([row.as_py()])
            yield table.num_rows


def decoded_on_each_core(paths: list[str], workload: str = "tabular") -> Iterator[int]:
    """Do the same with the files dealt to the cores in turn, one at a time.

    The cores of a virtual machine differ in speed: 0.10 and 0.15 CPU seconds a million rows were seen at the same time.
    A loader uses all of them, where one thread stays on the one that it happens to begin on.
    """
    cores = os.sched_getaffinity(0)
    try:
        for path, core in zip(paths, cycle(cores)):
            os.sched_setaffinity(0, {core})
            yield from decoded([path], workload)
    finally:
        os.sched_setaffinity(0, cores)
