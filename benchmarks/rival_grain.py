"""grain: a MapDataset of runs of row groups, made into batches by two threads. Its Parquet source gives single rows."""

from functools import partial

import grain
import grain.experimental

from benchmarks import handmade


class Loader:
    def __init__(self, paths, batch_size, shuffle_rows=0, *, workload):
        self.paths, self.shuffle_rows, self.epoch = paths, shuffle_rows, -1
        self.batches = partial(batches, workload, batch_size)

    def __iter__(self):
        self.epoch += 1
        runs = handmade.windows(self.paths, self.shuffle_rows, epoch=self.epoch)
        keys = [[self.epoch, number] if self.shuffle_rows else None for number in range(len(runs))]
        made = grain.MapDataset.source(list(zip(runs, keys, strict=True))).map(self.batches)
        ahead = made.to_iter_dataset(grain.ReadOptions(num_threads=2, prefetch_buffer_size=2))
        return iter(grain.experimental.FlatMapIterDataset(ahead, Flat()))


class Flat(grain.experimental.FlatMapTransform):
    max_fan_out = 1 << 20

    def flat_map(self, element):
        return element


def batches(workload, batch_size, source):
    run, key = source
    return handmade.window(workload, run, batch_size, key)


loader = Loader
