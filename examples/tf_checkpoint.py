"""`tf.train.Checkpoint` beside the loader's own state: training breaks off, and goes on with the very next batch.

TensorFlow cannot save the position of a dataset that Python feeds. The loader can: its state is a text, which a
`tf.Variable` holds, so that one checkpoint has both. Run `python -m examples.tf_checkpoint`.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import tensorflow as tf

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for `python examples/tf_checkpoint.py`

from examples import tables
from pyloader_delta import DataLoader, FieldSpec

IMAGE = FieldSpec("image", decode_numpy_and_apply_shape=(8, 8))


class Training:
    """A model, its optimizer, and where in the table it is."""

    def __init__(self, table: str, folder: str, epochs: int) -> None:
        tf.keras.utils.set_random_seed(0)
        self.loader: DataLoader[Any] = DataLoader.from_delta(
            table, 64, fields=[IMAGE, "label"], filter="split = 'train'", shuffle=True, framework="tensorflow",
            num_epoch=epochs,
        )  # fmt: skip
        self.model = tf.keras.Sequential([tf.keras.layers.Flatten(), tf.keras.layers.Dense(10)])
        self.optimizer = tf.keras.optimizers.Adam(0.01)
        self.position = tf.Variable("", dtype=tf.string, trainable=False)
        self.model.build((None, 8, 8))
        self.optimizer.build(self.model.trainable_variables)
        checkpoint = tf.train.Checkpoint(model=self.model, optimizer=self.optimizer, position=self.position)
        self.manager = tf.train.CheckpointManager(checkpoint, folder, max_to_keep=2)
        if self.manager.restore_or_initialize():
            self.loader.load_state_dict(json.loads(self.position.numpy()))

    def steps(self) -> Iterator[tuple[list[int], float]]:
        """Train, and yield (labels of the batch, its loss) after each step. A batch of the loader is one of tensors."""
        for batch in self.loader:
            with tf.GradientTape() as tape:
                output = self.model(tf.cast(batch["image"], tf.float32) / 255)
                losses = tf.nn.sparse_softmax_cross_entropy_with_logits(batch["label"], output)
                loss = tf.reduce_mean(losses)
            gradients = tape.gradient(loss, self.model.trainable_variables)
            self.optimizer.apply_gradients(zip(gradients, self.model.trainable_variables, strict=True))
            yield batch["label"].numpy().tolist(), float(loss)

    def save(self) -> None:
        """Write a checkpoint of everything."""
        self.position.assign(json.dumps(self.loader.state_dict()))
        self.manager.save()

    def close(self) -> None:
        self.loader.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--stop-after", type=int, default=30)
    parser.add_argument("--folder", default=tables.FOLDER, help="where the table is kept (default: %(default)s)")
    options = parser.parse_args()
    table = tables.digits(options.folder)
    with tempfile.TemporaryDirectory() as whole, tempfile.TemporaryDirectory() as parts:
        uninterrupted = Training(table, whole, options.epochs)
        expected = list(uninterrupted.steps())
        uninterrupted.close()

        first = Training(table, parts, options.epochs)
        found = []
        for step in first.steps():
            found.append(step)
            if len(found) == options.stop_after:
                first.save()
                break
        first.close()

        second = Training(table, parts, options.epochs)
        found += second.steps()
        second.close()
    print(f"{len(expected)} steps without a break, {len(found)} with one after {options.stop_after}")
    print(f"the same batches: {[step[0] for step in found] == [step[0] for step in expected]}")
    print(f"the same losses: {[step[1] for step in found] == [step[1] for step in expected]}")


if __name__ == "__main__":
    main()
