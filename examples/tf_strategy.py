"""`tf.distribute`: each worker reads its own share, by `distribute_datasets_from_function`.

`experimental_distribute_dataset` would run the whole loader in every worker and cut its batches up. Here one process
stands for one of one worker; with more, TF_CONFIG names them and the loader gets its rank from the input context.
Run `python -m examples.tf_strategy`.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import tensorflow as tf

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for `python examples/tf_strategy.py`

from examples import tables
from pyloader_delta import DataLoader, FieldSpec


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", default=tables.FOLDER, help="where the table is kept (default: %(default)s)")
    table = tables.digits(parser.parse_args().folder)
    image = FieldSpec("image", decode_numpy_and_apply_shape=(8, 8))
    # with TF_CONFIG: tf.distribute.MultiWorkerMirroredStrategy()
    strategy = tf.distribute.MirroredStrategy(["CPU:0"])
    loaders = []

    def dataset(context: tf.distribute.InputContext) -> tf.data.Dataset:
        loader = DataLoader.from_delta(
            table, 64, fields=[image, "label"], filter="split = 'train'", shuffle=True, framework="tensorflow",
            rank=context.input_pipeline_id, world_size=context.num_input_pipelines,
        )  # fmt: skip
        loaders.append(loader)
        return loader.to_tf()

    with strategy.scope():
        weights = tf.Variable(tf.zeros((64, 10)))
    batches = strategy.distribute_datasets_from_function(dataset)

    @tf.function
    def step(batch: dict[str, tf.Tensor]) -> tf.Tensor:
        def one(batch: dict[str, tf.Tensor]) -> tf.Tensor:
            pixels = tf.reshape(tf.cast(batch["image"], tf.float32) / 255, (-1, 64))
            with tf.GradientTape() as tape:
                loss = tf.nn.sparse_softmax_cross_entropy_with_logits(batch["label"], pixels @ weights)
            (gradient,) = tape.gradient(loss, [weights])
            weights.assign_sub(0.01 * gradient)
            return tf.shape(pixels)[0]

        return strategy.reduce("SUM", strategy.run(one, args=(batch,)), axis=None)

    for epoch in range(2):
        n_rows = sum(int(step(batch)) for batch in batches)
        print(f"epoch {epoch + 1}: {n_rows} rows")
    loaders[0].close()


if __name__ == "__main__":
    main()
