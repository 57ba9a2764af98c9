"""Hugging Face `datasets`: Parquet files streamed, a shuffle buffer, batches as Arrow tables.

`with_format("arrow").iter()` is its fastest way; `with_format("torch")` makes tensors of single rows, which takes
thousands of times as long as decoding them.
"""

import os

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import datasets
import torch

from benchmarks import handmade

datasets.disable_progress_bars()


class Loader:
    def __init__(self, paths, batch_size, shuffle_rows=0, *, workload):
        self.workload, self.batch_size, self.epoch = workload, batch_size, -1
        rows = datasets.load_dataset("parquet", data_files=paths, split="train", streaming=True)
        if shuffle_rows:
            rows = rows.shuffle(seed=0, buffer_size=shuffle_rows)
        self.rows = rows.with_format("arrow")

    def __iter__(self):
        self.epoch += 1
        self.rows.set_epoch(self.epoch)
        for table in self.rows.iter(self.batch_size):
            batch = handmade.arrays(self.workload, table)
            yield {name: torch.tensor(values) for name, values in batch.items()}


loader = Loader
