"""PyLoader's TensorFlow 2 test program, over posts and responses. Only the import is ours.

`np.int`, which NumPy no longer has, is mended, and the GPU is looked for by a name that TensorFlow still has.
"""

import json
import sys

import numpy as np
import tensorflow as tf

from pyloader_delta import DataCollator, DataLoader, DataReader, Dataset


class JsonLineDataReader(DataReader):
    def __init__(self, batch_size=4, shuffle=False, random_seed=42):
        super(JsonLineDataReader, self).__init__(batch_size, shuffle=shuffle, random_seed=random_seed)  # noqa: UP008

    def read_file(self, path):
        print(f"reading {path}")
        dict_samples, n_sample = {"post": [], "response": []}, 0
        with open(path, encoding="utf-8") as f:
            for line in f:
                n_sample += 1
                for k, v in json.loads(line).items():
                    if k in dict_samples:
                        dict_samples[k].append(v)
        return dict_samples, n_sample


class TextDataset(Dataset):
    def __init__(self, vocab_file, max_seq_len=100):
        self.max_seq_len = max_seq_len
        with open(vocab_file, encoding="utf-8") as fr:
            self.stoi = {line.strip().split("\t")[0]: idx for idx, line in enumerate(fr)}

    def batch_encode(self, batch_data):
        batch = {"post_ids": [], "post_mask": [], "resp_ids": [], "resp_mask": []}
        for k, data_list in batch_data.items():
            name = "post" if k == "post" else "resp"
            for text in data_list:
                ids = [self.stoi.get(w, 0) for w in text.split()][: self.max_seq_len]
                rest = self.max_seq_len - len(ids)
                batch[f"{name}_ids"].append(ids + [0] * rest)
                batch[f"{name}_mask"].append([1] * len(ids) + [0] * rest)
        return batch


class TFDataCollator(DataCollator):
    def collate_batch(self, features):
        batch = {}
        for k, v in features.items():
            if v is not None:
                batch[k] = tf.convert_to_tensor(np.array(v, dtype=np.int64))
        return batch


def main_test(data_dir, vocab_file, report):
    datareader = JsonLineDataReader(batch_size=16, shuffle=True)
    dataset = TextDataset(vocab_file, max_seq_len=60)
    datacollator = TFDataCollator()

    train_loader = DataLoader(
        datareader, dataset, datacollator, data_dir, num_epoch=5, max_queue_size=10, shuffle=True
    )  # fmt: skip

    seen = []
    with tf.device("GPU:0" if tf.config.list_physical_devices("GPU") else "CPU"):
        for batch_step, inputs in enumerate(train_loader):
            for v in inputs.values():
                assert v.dtype == tf.int64
                assert v.shape == (len(inputs["post_ids"]), 60)
            rows = inputs["post_ids"][:, 0].numpy().tolist()
            answers = inputs["resp_ids"][:, 0].numpy().tolist()
            seen.append([batch_step, train_loader.get_epoch(), rows, answers])
    with open(report, "w", encoding="utf-8") as f:
        json.dump(seen, f)


if __name__ == "__main__":
    main_test(*sys.argv[1:])
