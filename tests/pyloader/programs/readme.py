"""The program of PyLoader's README with its three classes filled in. Only the import is ours.

It has no `if __name__ == "__main__"`, as many such scripts have none. The training code counts what it is given.
"""

import json
import sys

import numpy as np

from pyloader_delta import DataCollator, DataLoader, DataReader, Dataset

data_dir, report = sys.argv[1:]


class MyDataReader(DataReader):
    def __init__(self, batch_size=16, shuffle=False, random_seed=42):
        super(MyDataReader, self).__init__(batch_size, shuffle=shuffle, random_seed=random_seed)  # noqa: UP008

    def read_file(self, path):
        dict_samples = {"id": [], "label": []}
        n_sample = 0
        with open(path, encoding="utf-8") as f:
            for line in f:
                sample = json.loads(line)
                for k in dict_samples:
                    dict_samples[k].append(sample[k])
                n_sample += 1
        return dict_samples, n_sample


class MyDataset(Dataset):
    def __init__(self, offset):
        self.offset = offset

    def batch_encode(self, batch_data):
        return {"id": [i + self.offset for i in batch_data["id"]], "label": batch_data["label"]}


class MyDataCollator(DataCollator):
    def collate_batch(self, features):
        return {k: np.array(v) for k, v in features.items()}


datareader = MyDataReader(batch_size=16, shuffle=True)
dataset = MyDataset(offset=100)
datacollator = MyDataCollator()

train_loader = DataLoader(
    datareader, dataset, datacollator, data_dir, num_epoch=5, max_queue_size=10, shuffle=True
)  # fmt: skip

seen = []
for batch_step, inputs in enumerate(train_loader):
    for k, v in inputs.items():
        inputs[k] = v.astype(np.float32)
    seen.append([batch_step, train_loader.get_epoch(), inputs["id"].tolist(), inputs["label"].tolist()])

with open(report, "w", encoding="utf-8") as f:
    json.dump(seen, f)
