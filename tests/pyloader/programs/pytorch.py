"""PyLoader's PyTorch test program, over texts and labels. Only the import is ours.

Three defects of the original are mended, for it never ran: it makes a bare `DataReader`, which has no `read_file`; it
iterates a JSON object without `.items()`; and its `batch_encode` takes a dict of lists for a list of dicts.
"""

import json
import sys

import torch

from pyloader_delta import DataCollator, DataLoader, DataReader, Dataset


class JsonLineDataReader(DataReader):
    def __init__(self, batch_size=4, shuffle=False, random_seed=42):
        super(JsonLineDataReader, self).__init__(batch_size, shuffle=shuffle, random_seed=random_seed)  # noqa: UP008

    def read_file(self, path):
        print(f"reading {path}")
        dict_samples, n_sample = {}, 0
        with open(path, encoding="utf-8") as f:
            for line in f:
                n_sample += 1
                for k, v in json.loads(line).items():
                    dict_samples.setdefault(k, []).append(v)
        return dict_samples, n_sample


class TextDataset(Dataset):
    def __init__(self, vocab_file, max_seq_len=100):
        self.max_seq_len = max_seq_len
        with open(vocab_file, encoding="utf-8") as fr:
            self.stoi = {line.strip().split("\t")[0]: idx for idx, line in enumerate(fr)}

    def batch_encode(self, batch_data):
        input_ids, attention_mask = [], []
        for text in batch_data["input_text"]:
            ids = [self.stoi.get(w, 0) for w in text.split()][: self.max_seq_len]
            rest = self.max_seq_len - len(ids)
            input_ids.append(ids + [0] * rest)
            attention_mask.append([1] * len(ids) + [0] * rest)
        return {"input_ids": input_ids, "attention_mask": attention_mask, "label": batch_data["label"]}


class PyDataCollator(DataCollator):
    def collate_batch(self, features):
        batch = {}
        if features.get("label") is not None:
            kind = torch.long if type(features["label"][0]) is int else torch.float
            batch["label"] = torch.tensor(features["label"], dtype=kind)
        for k, v in features.items():
            if k != "label" and v is not None:
                batch[k] = torch.tensor(v, dtype=torch.long)
        return batch


def main_test(data_dir, vocab_file, report):
    datareader = JsonLineDataReader(batch_size=16, shuffle=True)
    dataset = TextDataset(vocab_file, max_seq_len=60)
    datacollator = PyDataCollator()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

    train_loader = DataLoader(
        datareader, dataset, datacollator, data_dir, num_epoch=5, max_queue_size=20, shuffle=True
    )  # fmt: skip

    seen = []
    for batch_step, inputs in enumerate(train_loader):
        for k, v in inputs.items():
            inputs[k] = v.to(device)
        assert inputs["input_ids"].dtype == inputs["label"].dtype == torch.long
        assert inputs["input_ids"].shape == inputs["attention_mask"].shape == (len(inputs["label"]), 60)
        rows = inputs["input_ids"][:, 0].tolist()
        seen.append([batch_step, train_loader.get_epoch(), rows, inputs["label"].tolist()])
    with open(report, "w", encoding="utf-8") as f:
        json.dump(seen, f)


if __name__ == "__main__":
    main_test(*sys.argv[1:])
