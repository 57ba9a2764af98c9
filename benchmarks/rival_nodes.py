"""torchdata.nodes: runs of row groups, made into batches by two threads."""

from functools import partial

import torch
import torchdata.nodes as tn

from benchmarks import handmade


class Loader:
    def __init__(self, paths, batch_size, shuffle_rows=0, *, workload):
        self.paths, self.shuffle_rows, self.epoch = paths, shuffle_rows, -1
        self.batches = partial(batches, workload, batch_size)

    def __iter__(self):
        self.epoch += 1
        runs = handmade.windows(self.paths, self.shuffle_rows, epoch=self.epoch)
        keys = [[self.epoch, number] if self.shuffle_rows else None for number in range(len(runs))]
        source = tn.IterableWrapper(list(zip(runs, keys, strict=True)))
        made = tn.ParallelMapper(source, self.batches, num_workers=2, method="thread", max_concurrent=2)
        return iter(tn.Loader(tn.Unbatcher(made)))


def batches(workload, batch_size, source):
    run, key = source
    made = handmade.window(workload, run, batch_size, key)
    return [{name: torch.from_numpy(values) for name, values in batch.items()} for batch in made]


loader = Loader
