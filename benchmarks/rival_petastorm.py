"""petastorm: `make_batch_reader` with two threads, a TransformSpec where there is more than numbers, BatchedDataLoader.

It takes no lists of different lengths: they are padded to the longest there can be, and cut in the training process.
"""

import warnings

warnings.filterwarnings("ignore")

import numpy as np  # noqa: E402
import pandas as pd  # noqa: E402
import pyarrow as pa  # noqa: E402
import torch  # noqa: E402
from petastorm import TransformSpec, make_batch_reader  # noqa: E402
from petastorm.pytorch import BatchedDataLoader  # noqa: E402

from benchmarks import handmade  # noqa: E402

MAX_TOKENS = 399
OUTPUTS = {
    "images": ("image", [("image", np.uint8, (28, 28), False)]),
    "jpeg": ("image", [("image", np.uint8, (*handmade.JPEG_SIZE, 3), False)]),
    "text": ("text", [("text", np.int32, (handmade.N_TOKENS,), False)]),
    "tokens": ("tokens", [("tokens", np.int32, (MAX_TOKENS,), False), ("tokens_lengths", np.int64, (), False)]),
}


class Loader:
    def __init__(self, paths, batch_size, shuffle_rows=0, *, workload):
        self.urls = [f"file://{path}" for path in paths]
        self.workload, self.batch_size, self.shuffle_rows, self.epoch = workload, batch_size, shuffle_rows, -1

    def __iter__(self):
        self.epoch += 1
        spec = None
        if self.workload in OUTPUTS:
            column, fields = OUTPUTS[self.workload]
            spec = TransformSpec(lambda frame: encoded(self.workload, column, frame), edit_fields=fields)
        with make_batch_reader(
            self.urls, reader_pool_type="thread", workers_count=2, num_epochs=1, seed=self.epoch,
            shuffle_row_groups=bool(self.shuffle_rows), transform_spec=spec,
        ) as reader:  # fmt: skip
            loader = BatchedDataLoader(reader, self.batch_size, shuffling_queue_capacity=self.shuffle_rows)
            for batch in loader:
                yield self.finished(batch)

    def finished(self, batch):
        if self.workload in ("matrix", "wide"):
            features = [values for name, values in sorted(batch.items()) if name not in handmade.INTS]
            return {"features": torch.stack(features, 1)} | {name: batch[name] for name in handmade.INTS}
        if self.workload == "tokens":
            batch["tokens"] = batch["tokens"][:, : batch["tokens_lengths"].max()]
        return batch


def encoded(workload, column, frame):
    made = {name: frame[name] for name in handmade.INTS}
    if workload == "images":
        made[column] = [np.frombuffer(row, np.uint8).reshape(28, 28) for row in frame[column]]
    elif workload == "jpeg":
        made[column] = list(handmade.decoded(list(frame[column])))
    elif workload == "text":
        made[column] = list(handmade.token_ids(pa.array(frame[column])))
    else:
        lists = list(frame[column])
        made[column] = [np.pad(row, (0, MAX_TOKENS - len(row))) for row in lists]
        made["tokens_lengths"] = [len(row) for row in lists]
    return pd.DataFrame(made)


loader = Loader
