"""PyLoader's way: JSON lines with text, its reader and dataset, a collator in torch, one loop for all epochs.

Run `python -m examples.json_lines_text`. A program written for PyLoader looks like this one but for its imports.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
from pathlib import Path

import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for `python examples/json_lines_text.py`

from pyloader_delta import DataCollator, DataLoader, JsonLineDataReader, TextDataset

GOOD = ["fine", "great", "tasty", "friendly", "quick", "warm", "fresh", "lovely", "generous", "crisp"]
BAD = ["cold", "slow", "stale", "rude", "bland", "greasy", "noisy", "dirty", "salty", "burnt"]
PLAIN = ["the", "soup", "bread", "waiter", "table", "service", "was", "and", "very", "we", "had", "a", "dinner", "with"]


class TorchCollator(DataCollator):
    """Makes tensors of what TextDataset gives: lists of equally long lists."""

    def collate_batch(self, features: dict[str, list]) -> dict[str, torch.Tensor]:
        return {name: torch.tensor(values) for name, values in features.items()}


class ReviewModel(nn.Module):
    """The mean of the words' vectors, padding left out, and one layer upon it."""

    def __init__(self, n_words: int) -> None:
        super().__init__()
        self.words = nn.Embedding(n_words, 16)
        self.score = nn.Linear(16, 2)

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        mask = attention_mask[:, :, None].float()
        return self.score((self.words(input_ids) * mask).sum(1) / mask.sum(1))


def write_reviews(folder: Path, n_files: int, seed: int) -> int:
    """Write files of 100 to 200 reviews each, one JSON object a line, and return the number of reviews."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = random.Random(seed)
    n_rows = 0
    for number in range(n_files):
        with open(folder / f"{number:03}.jsonl", "w", encoding="utf-8") as file:
            for _ in range(rng.randint(100, 200)):
                label = rng.randint(0, 1)
                # Two or three words that tell, sometimes one from the other side among them.
                same, other = (GOOD, BAD) if label else (BAD, GOOD)
                words = rng.sample(same, rng.randint(2, 3)) + rng.sample(other, rng.randint(0, 1))
                words += rng.choices(PLAIN, k=rng.randint(4, 12))
                rng.shuffle(words)
                file.write(json.dumps({"input_text": " ".join(words), "label": label}) + "\n")
                n_rows += 1
    return n_rows


parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--epochs", type=int, default=5)
options = parser.parse_args()

scratch = tempfile.TemporaryDirectory()
folder = Path(scratch.name)
n_train, n_test = write_reviews(folder / "train", 12, seed=1), write_reviews(folder / "test", 4, seed=2)
vocab_file = folder / "vocab.txt"
vocab_file.write_text("\n".join(["<pad>", *GOOD, *BAD, *PLAIN]), encoding="utf-8")
print(f"reviews: {n_train} to train on, {n_test} to test on")

torch.manual_seed(0)
torch.set_num_threads(1)  # the model is tiny; the other core is for the workers
dataset = TextDataset(str(vocab_file), max_seq_len=20)
model = ReviewModel(n_words=len(dataset.stoi))
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)

# The collator needs torch: threads have it already, worker processes would each import it first.
train_loader = DataLoader(
    JsonLineDataReader(batch_size=16, shuffle=True),
    dataset,
    TorchCollator(),
    str(folder / "train"),
    num_epoch=options.epochs,
    max_queue_size=10,
    shuffle=True,
    workers="thread",
)
rows_seen = 0
with train_loader:
    for batch_step, inputs in enumerate(train_loader):
        labels = inputs.pop("label")
        loss = nn.functional.cross_entropy(model(**inputs), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        rows_seen += len(labels)
        if batch_step % 50 == 0:
            print(f"reviews: epoch {train_loader.get_epoch()}, step {batch_step}, loss {loss.item():.3f}")

right = 0
test_loader = DataLoader(
    JsonLineDataReader(batch_size=100), dataset, TorchCollator(), str(folder / "test"), workers="thread"
)
with test_loader, torch.no_grad():
    for inputs in test_loader:
        labels = inputs.pop("label")
        right += (model(**inputs).argmax(1) == labels).sum().item()
print(f"reviews: {rows_seen} rows seen, {right / n_test:.1%} of the test reviews are told right (by chance 50%)")
