"""The older form of deltatorch's call, as its README had it. Only the import is ours."""

import json
import sys

import numpy as np
import torch

from pyloader_delta import create_pytorch_dataloader

path, length, report = sys.argv[1], int(sys.argv[2]), sys.argv[3]


def transform(image):
    return torch.from_numpy(np.array(image)).float()[None]


dl = create_pytorch_dataloader(
    path,
    length,
    src_field="image",
    target_field="label",
    id_field="id",
    load_pil=True,
    transform=transform,
    target_transform=lambda label: label,
    batch_size=64,
    num_workers=2,
    timeout=60,
    queue_size=1000,
)
sums, labels = [], []
for X, y in dl:
    assert X.shape[1:] == (1, 8, 8)
    sums += X.sum(dim=(1, 2, 3)).tolist()
    labels += y.tolist()
with open(report, "w", encoding="utf-8") as file:
    json.dump([sums, labels], file)
