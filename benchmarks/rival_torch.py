"""What a good engineer writes today: an IterableDataset over Parquet row groups, behind torch's DataLoader.

Two workers share the row groups. Each reads its own until it has enough rows, mixes them if asked to, and cuts batches
from them; what is left over is carried on, so that only a worker's last batch is short. Tensors are made in the worker,
for torch's DataLoader moves tensors, not arrays, through shared memory.
"""

import random

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from torch.utils.data import DataLoader, IterableDataset, get_worker_info


class ParquetBatches(IterableDataset):
    def __init__(self, paths, batch_size, shuffle_rows=0, seed=0):
        self.paths, self.batch_size, self.shuffle_rows, self.seed = paths, batch_size, shuffle_rows, seed
        self.epoch = -1  # counted in the worker, which lives as long as the DataLoader

    def __iter__(self):
        self.epoch += 1
        info = get_worker_info()
        worker, n_workers = (info.id, info.num_workers) if info else (0, 1)
        groups = [(path, g) for path in self.paths for g in range(pq.read_metadata(path).num_row_groups)]
        if self.shuffle_rows:
            random.Random(f"{self.seed} {self.epoch}").shuffle(groups)
        enough = max(self.shuffle_rows // n_workers, self.batch_size)
        tables, n_rows = [], 0
        for path, group in groups[worker::n_workers]:
            tables.append(pq.ParquetFile(path, memory_map=True).read_row_group(group, use_threads=False))
            n_rows += tables[-1].num_rows
            if n_rows >= enough:
                rest = n_rows % self.batch_size
                table = pa.concat_tables(tables)
                yield from self.mixed(table.slice(0, n_rows - rest), worker)
                tables, n_rows = [table.slice(n_rows - rest)], rest
        if n_rows:
            yield from self.mixed(pa.concat_tables(tables), worker)

    def mixed(self, table, worker):
        order = None
        if self.shuffle_rows:
            order = np.random.default_rng([self.seed, self.epoch, worker]).permutation(table.num_rows)
        yield from self.batches(table, order)

    def batches(self, table, order):
        columns = self.arrays(table)
        if order is not None:
            columns = {name: values[order] for name, values in columns.items()}
        for start in range(0, table.num_rows, self.batch_size):
            stop = start + self.batch_size
            yield {name: torch.tensor(values[start:stop]) for name, values in columns.items()}

    def arrays(self, table):
        return {name: table[name].to_numpy() for name in table.column_names}


class Images(ParquetBatches):
    def arrays(self, table):
        pieces = [
            np.frombuffer(chunk.buffers()[2], np.uint8, 784 * len(chunk), 784 * chunk.offset)
            for chunk in table["image"].chunks
        ]
        pixels = pieces[0] if len(pieces) == 1 else np.concatenate(pieces)
        return {"image": pixels.reshape(-1, 28, 28)} | super().arrays(table.drop_columns("image"))


class Matrix(ParquetBatches):
    def arrays(self, table):
        columns = super().arrays(table)
        ints = {name: columns.pop(name) for name in ("id", "label")}
        return {"features": np.stack(list(columns.values()), axis=1)} | ints


class Tokens(ParquetBatches):
    def batches(self, table, order):
        table = (table if order is None else table.take(order)).combine_chunks()
        lists = table["tokens"].chunk(0)
        words, ends = lists.values.to_numpy(), lists.offsets.to_numpy()
        others = self.arrays(table.drop_columns("tokens"))
        for start in range(0, table.num_rows, self.batch_size):
            part = ends[start : start + self.batch_size + 1]
            lengths = np.diff(part).astype(np.int64)
            padded = np.zeros((len(lengths), lengths.max()), np.int32)
            padded[np.arange(padded.shape[1]) < lengths[:, None]] = words[part[0] : part[-1]]
            batch = {name: torch.tensor(values[start : start + self.batch_size]) for name, values in others.items()}
            yield batch | {"tokens": torch.from_numpy(padded), "tokens_lengths": torch.from_numpy(lengths)}


KINDS = {"tabular": ParquetBatches, "images": Images, "matrix": Matrix, "tokens": Tokens}


def loader(paths, batch_size, shuffle_rows=0, num_workers=2, workload="tabular"):
    """Return a DataLoader of dicts of tensors; with `shuffle_rows`, its workers mix that many rows between them."""
    torch.multiprocessing.set_sharing_strategy("file_system")  # half the CPU of passing a descriptor for each tensor
    dataset = KINDS[workload](paths, batch_size, shuffle_rows)
    return DataLoader(dataset, batch_size=None, num_workers=num_workers, persistent_workers=num_workers > 0)
