"""torch's DataLoader over pyarrow: an IterableDataset whose workers share the row groups.

Tensors are made in the worker, for torch's DataLoader moves tensors, not arrays, through shared memory.
"""

import torch
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from benchmarks import handmade


class ParquetBatches(IterableDataset):
    def __init__(self, workload, paths, batch_size, shuffle_rows=0):
        self.source = workload, paths, batch_size, shuffle_rows
        self.epoch = -1  # counted in the worker, which lives as long as the DataLoader

    def __iter__(self):
        self.epoch += 1
        info = get_worker_info()
        share = {"worker": info.id, "n_workers": info.num_workers} if info else {}
        for batch in handmade.batches(*self.source, epoch=self.epoch, **share):
            yield {name: torch.tensor(values) for name, values in batch.items()}


def loader(paths, batch_size, shuffle_rows=0, num_workers=2, workload="tabular"):
    """Return a DataLoader of dicts of tensors; with `shuffle_rows`, its workers mix that many rows between them."""
    torch.multiprocessing.set_sharing_strategy("file_system")  # half the CPU of passing a descriptor for each tensor
    dataset = ParquetBatches(workload, paths, batch_size, shuffle_rows)
    return DataLoader(dataset, batch_size=None, num_workers=num_workers, persistent_workers=num_workers > 0)
