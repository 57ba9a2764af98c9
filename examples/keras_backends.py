"""Keras 3 on TensorFlow, torch or JAX: one `to_keras()` for each of them.

Run `KERAS_BACKEND=torch python -m examples.keras_backends`.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for `python examples/keras_backends.py`

from examples import tables
from pyloader_delta import DataLoader, FieldSpec


def scaled(images: np.ndarray) -> np.ndarray:
    return images.astype(np.float32) / 255


IMAGE = FieldSpec("image", decode_numpy_and_apply_shape=(8, 8, 1), batch_transform=scaled)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", default=tables.FOLDER, help="where the table is kept (default: %(default)s)")
    parser.add_argument("--epochs", type=int, default=12)
    options = parser.parse_args()
    table = tables.digits(options.folder)
    keras.utils.set_random_seed(0)
    model = keras.Sequential(  # no Input: Keras takes a batch to build it, which then comes again
        [keras.layers.Conv2D(16, 3, activation="relu"), keras.layers.Flatten(), keras.layers.Dense(10)]
    )
    model.compile(
        keras.optimizers.Adam(0.01), keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"]
    )
    steps = []
    count = keras.callbacks.LambdaCallback(on_train_batch_end=lambda step, logs: steps.append(step))
    # NumPy is the form that all backends take
    common = {"fields": [IMAGE, "label"], "framework": "numpy", "num_workers": 1}
    train = DataLoader.from_delta(table, 64, filter="split = 'train'", shuffle=True, **common)
    test = DataLoader.from_delta(table, 64, filter="split = 'test'", **common)
    with train, test:
        model.fit(train.to_keras(label="label"), epochs=options.epochs, verbose=0, callbacks=[count])
        _, accuracy = model.evaluate(test.to_keras(label="label"), verbose=0)
        counts = train.stats()
    print(f"{keras.backend.backend()}: {accuracy:.1%} of the test images are right")
    print(f"{len(steps)} steps in {int(counts['epochs_completed_total'])} whole epochs of {len(train)}")


if __name__ == "__main__":
    main()
