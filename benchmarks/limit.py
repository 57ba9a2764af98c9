"""The limit: decode every row group with pyarrow in one thread, and drop it. No loader can be cheaper than this.

Where the work is not the loader's, as with JPEG images and texts, each row's is done as well.
"""

from collections.abc import Iterator

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
