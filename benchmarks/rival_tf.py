"""tf.data over pyarrow: two generators of batches, interleaved, with batches made ahead.

TensorFlow's own readers take no Parquet. Whole batches come out of the generators, since a generator of rows takes
minutes; they share the row groups between them, as workers of torch's DataLoader do.
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import tensorflow as tf

from benchmarks import handmade

N_GENERATORS = 2


class Loader:
    def __init__(self, paths, batch_size, shuffle_rows=0, *, workload):
        self.source = workload, paths, batch_size, shuffle_rows
        self.epoch = -1
        first = next(handmade.batches(workload, paths[:1], batch_size))
        shapes = {name: [None, *values.shape[1:]] for name, values in first.items()}
        if workload == "tokens":
            shapes["tokens"] = [None, None]
        self.signature = {name: tf.TensorSpec(shapes[name], values.dtype) for name, values in first.items()}
        self.dataset = tf.data.Dataset.range(N_GENERATORS).interleave(
            lambda worker: tf.data.Dataset.from_generator(
                self.batches, args=[worker], output_signature=self.signature
            ).prefetch(4),
            cycle_length=N_GENERATORS, num_parallel_calls=N_GENERATORS,
        ).prefetch(4)  # fmt: skip

    def batches(self, worker):
        return handmade.batches(*self.source, epoch=self.epoch, worker=int(worker), n_workers=N_GENERATORS)

    def __iter__(self):
        self.epoch += 1
        return iter(self.dataset)


loader = Loader
