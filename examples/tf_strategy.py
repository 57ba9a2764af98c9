"""`tf.distribute`: each worker reads its own share, by `distribute_datasets_from_function`; all train one model.

`experimental_distribute_dataset` would run the whole loader in every worker and cut its batches up. With `TF_CONFIG` in
the environment this is one of the workers that it names, else it is one process with `--replicas` devices. What every
replica computed of a step is summed over all of them before weights change, so they stay equal to the last bit.
Run `python -m examples.tf_strategy --replicas 2`.
"""

from __future__ import annotations

import argparse
import os
import sys
import zlib
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import tensorflow as tf

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for `python examples/tf_strategy.py`

from examples import tables
from pyloader_delta import DataLoader, FieldSpec

FIELDS = [FieldSpec("image", decode_numpy_and_apply_shape=(8, 8)), "label"]


def make_strategy(replicas: int) -> tf.distribute.Strategy:
    if "TF_CONFIG" in os.environ:
        return tf.distribute.MultiWorkerMirroredStrategy()
    (cpu,) = tf.config.list_physical_devices("CPU")
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * replicas)
    return tf.distribute.MirroredStrategy([f"CPU:{number}" for number in range(replicas)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", default=tables.FOLDER, help="where the table is kept (default: %(default)s)")
    parser.add_argument("--replicas", type=int, default=1, help="devices of this process (default: %(default)s)")
    parser.add_argument("--epochs", type=int, default=3)
    options = parser.parse_args()
    table = tables.digits(options.folder)
    strategy = make_strategy(options.replicas)
    loaders = []

    def dataset(context: tf.distribute.InputContext) -> tf.data.Dataset:
        loader = DataLoader.from_delta(
            table, 64, fields=FIELDS, filter="split = 'train'", shuffle=True, framework="tensorflow",
            rank=context.input_pipeline_id, world_size=context.num_input_pipelines,
        )  # fmt: skip
        loaders.append(loader)
        return loader.to_tf()

    with strategy.scope():
        weights = tf.Variable(tf.zeros((64, 10)))
    batches = strategy.distribute_datasets_from_function(dataset)

    def logits(images: tf.Tensor) -> tf.Tensor:
        return tf.reshape(tf.cast(images, tf.float32) / 255, (-1, 64)) @ weights

    def told(images: tf.Tensor) -> tf.Tensor:
        return tf.cast(tf.argmax(logits(images), axis=1), tf.int64)

    def one(batch: dict[str, tf.Tensor]) -> tuple[tf.Tensor, tf.Tensor]:
        with tf.GradientTape() as tape:
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(batch["label"], logits(batch["image"]))
            loss = tf.reduce_sum(losses)  # the mean is over the rows of all replicas, which may have unequal many
        return tape.gradient(loss, weights), tf.shape(batch["label"])[0]

    @tf.function
    def step(batch: dict[str, tf.Tensor]) -> tf.Tensor:
        gradients, counts = strategy.run(one, args=(batch,))
        gradient, n_rows = (strategy.reduce("SUM", values, axis=None) for values in (gradients, counts))
        weights.assign_sub(0.5 * gradient / tf.cast(n_rows, tf.float32))  # outside of the replicas: in each of them
        return n_rows

    for epoch in range(options.epochs):
        n_rows = sum(int(step(batch)) for batch in batches)
        print(f"epoch {epoch + 1}: {n_rows} rows")
    with DataLoader.from_delta(table, 360, fields=FIELDS, filter="split = 'test'", framework="tensorflow") as test:
        right = sum(int(tf.math.count_nonzero(told(batch["image"]) == batch["label"])) for batch in test)
    print(f"tf.distribute: {right / 360:.1%} of the test images are right")
    for copy in strategy.experimental_local_results(weights):
        print(f"weights: {zlib.crc32(copy.numpy().tobytes()):08x}")
    for loader in loaders:
        loader.close()


if __name__ == "__main__":
    main()
