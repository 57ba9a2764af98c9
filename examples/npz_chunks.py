"""A binary format of one's own: `.npz` files of recorded tones, read in background processes by a softmax in NumPy.

Run `python -m examples.npz_chunks`. `count_samples` tells how many rows a file has from a few bytes of its header, so
the loader knows its exact length before anything is read. This program has no `if __name__ == "__main__":`, and needs
none: workers never run it again.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import zipfile
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for `python examples/npz_chunks.py`

from pyloader_delta import DataLoader, DataReader, Dataset, NumpyDataCollator

PITCHES = (20, 23, 26, 29)  # cycles a recording; the class of a tone is its place here
N_FILES, RECORDING = 20, 256


class NpzReader(DataReader):
    """Reads every array of an `.npz` file; the first axis of each is the rows."""

    def read_file(self, path: str) -> dict[str, np.ndarray]:
        with np.load(path) as file:
            return dict(file)

    def count_samples(self, path: str) -> int:
        with zipfile.ZipFile(path) as file, file.open("tone.npy") as array:
            assert np.lib.format.read_magic(array) == (1, 0)
            (n_rows, _), _, _ = np.lib.format.read_array_header_1_0(array)
        return n_rows


class ToneDataset(Dataset):
    """Turns a recording into the strength of each frequency."""

    input_format = "numpy"
    rowwise = True  # each row by itself, so several batches may be encoded at once

    def batch_encode(self, batch: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        strength = np.abs(np.fft.rfft(batch["tone"], axis=1))[:, :48]
        return {"strength": (strength / RECORDING**0.5).astype(np.float32), "pitch": batch["pitch"]}


def write_tones(folder: Path, seed: int) -> int:
    """Write files of 150 to 250 noisy tones each and return the number of tones."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(seed)
    time = np.arange(RECORDING) / RECORDING
    n_rows = 0
    for number in range(N_FILES):
        pitch = rng.integers(0, len(PITCHES), rng.integers(150, 251))
        cycles = np.array(PITCHES)[pitch, None] + rng.normal(0, 0.5, (len(pitch), 1))
        tone = np.sin(2 * np.pi * (cycles * time + rng.random((len(pitch), 1))))
        noise = rng.normal(0, 2, tone.shape)
        np.savez(folder / f"{number:03}.npz", tone=(tone + noise).astype(np.float32), pitch=pitch)
        n_rows += len(pitch)
    return n_rows


def probabilities(strength: np.ndarray) -> np.ndarray:
    scores = strength @ weights + bias
    scores = np.exp(scores - scores.max(axis=1, keepdims=True))
    return scores / scores.sum(axis=1, keepdims=True)


parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--epochs", type=int, default=5)
options = parser.parse_args()

scratch = tempfile.TemporaryDirectory()
train_folder, test_folder = (Path(scratch.name) / split for split in ("train", "test"))
n_train, n_test = write_tones(train_folder, seed=1), write_tones(test_folder, seed=2)
print(f"tones: {n_train} rows to train on, {n_test} to test on, in {N_FILES} files each")

weights, bias = np.zeros((48, len(PITCHES))), np.zeros(len(PITCHES))
train = DataLoader(
    NpzReader(batch_size=64, shuffle=True),
    ToneDataset(),
    NumpyDataCollator(),
    str(train_folder),
    num_epoch=options.epochs,
    shuffle=True,
)
rows_seen = 0
with train:
    print(f"tones: {len(train)} batches in {options.epochs} epochs")
    for batch in train:
        error = probabilities(batch["strength"]) - np.eye(len(PITCHES))[batch["pitch"]]
        weights -= 0.1 * batch["strength"].T @ error / len(error)
        bias -= 0.1 * error.mean(axis=0)
        rows_seen += len(error)

right = 0
with DataLoader(NpzReader(batch_size=500), ToneDataset(), NumpyDataCollator(), str(test_folder)) as test:
    for batch in test:
        right += (probabilities(batch["strength"]).argmax(axis=1) == batch["pitch"]).sum()
print(f"tones: {rows_seen} rows seen, {right / n_test:.1%} of the test tones are right (by chance 25%)")
