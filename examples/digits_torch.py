"""A PyTorch CNN that reads handwritten digits from a Delta table: a loop per epoch, random shifts made in the workers.

Run `python -m examples.digits_torch`. The three classes at the top are what one writes for a table of one's own.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from tqdm import tqdm

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for `python examples/digits_torch.py`

from examples import tables
from pyloader_delta import Chunk, DataLoader, Dataset, DeltaDataReader, TorchDataCollator

GOAL = 0.95


class DigitReader(DeltaDataReader):
    """Reads one split of the table: the chunks that lie in its partition, and no other file."""

    def __init__(self, split: str, **options: Any) -> None:
        super().__init__(columns=["image", "label"], **options)
        self.split = split

    def chunks(self, root: str) -> list[Chunk]:
        return [chunk for chunk in super().chunks(root) if dict(chunk.partition_values)["split"] == self.split]


class DigitDataset(Dataset):
    """Turns the bytes of images into pixels; for training each image is moved by up to one pixel."""

    def __init__(self, moved: bool) -> None:
        self.moved = moved

    def batch_encode(self, batch: dict[str, list]) -> dict[str, np.ndarray]:
        images = np.frombuffer(b"".join(batch["image"]), np.uint8).reshape(-1, 8, 8)
        if self.moved:
            # self.rng belongs to the batch: the same shifts for any number of workers.
            shifts = self.rng.integers(-1, 2, size=len(images))
            images = np.stack([np.roll(image, shift, axis=1) for image, shift in zip(images, shifts, strict=True)])
        return {"image": images, "label": np.array(batch["label"])}


class DigitCollator(TorchDataCollator):
    """Scales the pixels. This runs in a worker, on arrays; TorchDataCollator makes them tensors in this process."""

    def collate_batch(self, features: dict[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        return features["image"][:, None].astype(np.float32) / 255, features["label"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--folder", default=tables.FOLDER, help="where the table is kept (default: %(default)s)")
    parser.add_argument("--report", help="write the results to this file, as JSON")
    options = parser.parse_args()
    table = tables.digits(options.folder)

    torch.manual_seed(0)
    torch.set_num_threads(1)  # the images are tiny; the other core is for the workers
    model = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(32 * 4 * 4, 10),
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)

    train_reader = DigitReader("train", batch_size=32, shuffle=True)
    test_reader = DigitReader("test", batch_size=100)
    train = DataLoader(train_reader, DigitDataset(moved=True), DigitCollator(), table, shuffle=True)
    test = DataLoader(test_reader, DigitDataset(moved=False), DigitCollator(), table)
    with train, test:
        rows_seen = 0
        model.train()
        for epoch in range(1, options.epochs + 1):
            progress = tqdm(train, desc=f"digits, epoch {epoch:2}", mininterval=0.5)
            for images, labels in progress:
                loss = nn.functional.cross_entropy(model(images), labels)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                rows_seen += len(labels)
                progress.set_postfix(loss=f"{loss.item():.3f}", refresh=False)

        correct, counts = 0, torch.zeros(10)
        model.eval()
        with torch.no_grad():
            for images, labels in test:
                correct += (model(images).argmax(1) == labels).sum().item()
                counts += torch.bincount(labels, minlength=10)
        result = {
            "table": table,
            "epochs": options.epochs,
            "train": train.stats(),
            "test": test.stats(),
            "train_rows_seen": rows_seen,
            "test_rows_seen": int(counts.sum()),
            "accuracy": correct / counts.sum().item(),
            "base_rate": (counts.max() / counts.sum()).item(),
            "goal": GOAL,
        }
    print(
        f"digits: {result['accuracy']:.1%} of {result['test_rows_seen']} test images are right "
        f"(goal {GOAL:.0%}, the commonest digit alone {result['base_rate']:.1%})"
    )
    if options.report:
        Path(options.report).write_text(json.dumps(result))


if __name__ == "__main__":
    main()
