"""A table of paths and labels: each image is loaded when its row is needed, and never before.

Run `python -m examples.path_images`. Large files often stay outside the table, which holds where they are. The loader
mixes rows, whose paths take few bytes; `batch_encode` opens the images of a batch, in worker processes. What is made
ahead of the training loop is bounded as ever, so at no time more images are loaded than a few batches.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
from deltalake import write_deltalake
from PIL import Image

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for `python examples/path_images.py`

from pyloader_delta import DataLoader, Dataset, DeltaDataReader, NumpyDataCollator

SIZE, N_IMAGES, BATCH = 32, 400, 50


class PathImages(Dataset):
    """Opens the image that a row names."""

    input_format = "python"
    rowwise = True

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def batch_encode(self, batch: dict[str, list]) -> dict[str, np.ndarray]:
        images = [self.load(path) for path in batch["path"]]
        return {"image": np.stack(images), "label": np.array(batch["label"])}

    def load(self, path: str) -> np.ndarray:
        with Image.open(self.folder / path) as image:
            return np.asarray(image.convert("L").resize((SIZE, SIZE)), np.float32) / 255


def write_images(folder: Path) -> str:
    """Write pictures of bright disks and dark ones, and a table of their paths; return the table's path."""
    rng = np.random.default_rng(0)
    y, x = np.mgrid[:SIZE, :SIZE]
    paths, labels = [], []
    for number in range(N_IMAGES):
        label = int(number >= N_IMAGES // 2)  # sorted by label, as folders of images are
        centre, radius = rng.uniform(8, 24, 2), rng.uniform(4, 8)
        disk = (x - centre[0]) ** 2 + (y - centre[1]) ** 2 < radius**2
        pixels = rng.normal(110, 20, disk.shape) + np.where(disk, 60 if label else -60, 0)
        path = f"images/{number:04}.png"
        (folder / path).parent.mkdir(exist_ok=True)
        Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(folder / path)
        paths.append(path)
        labels.append(label)
    table = str(folder / "table")
    write_deltalake(table, pa.table({"path": paths, "label": pa.array(labels, pa.int64())}))
    return table


def features(images: np.ndarray) -> np.ndarray:
    """Return for each image how bright its brightest and darkest parts are, and 1."""
    flat = images.reshape(len(images), -1)
    return np.stack([*np.quantile(flat, [0.03, 0.5, 0.97], axis=1), np.ones(len(flat))], axis=1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        table = write_images(folder)
        reader = DeltaDataReader(BATCH, shuffle=True)
        weights = np.zeros(4)
        right = seen = 0
        with DataLoader(
            reader, PathImages(folder), NumpyDataCollator(), table, num_epoch=options.epochs, num_workers=2
        ) as loader:
            for batch in loader:
                inputs, label = features(batch["image"]), batch["label"]
                chance = 1 / (1 + np.exp(-inputs @ weights))
                if loader.get_epoch() == options.epochs:
                    right, seen = right + int(((chance > 0.5) == label).sum()), seen + len(label)
                weights += 2.0 * inputs.T @ (label - chance) / len(label)
            stats = loader.stats()
        assert stats["rows_delivered_total"] == options.epochs * N_IMAGES
        print(f"{stats['rows_delivered_total']} images loaded in {options.epochs} epochs, each when its row was needed")
        print(f"{right / seen:.1%} of the last epoch's images are told right before they are learned from")


if __name__ == "__main__":
    main()
