"""Digits with JAX: batches are JAX arrays, on the loader's memory where JAX can take them so.

JAX has 32 bits unless `jax_enable_x64` is set, and what it would narrow is an error; so the label, a long in other
tables, is given a type. Run `python -m examples.digits_jax`.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import jax
import jax.numpy as jnp

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for `python examples/digits_jax.py`

from examples import tables
from pyloader_delta import DataLoader, FieldSpec

FIELDS = [FieldSpec("image", decode_numpy_and_apply_shape=(8, 8)), FieldSpec("label", dtype="int32")]


def logits(weights: jax.Array, images: jax.Array) -> jax.Array:
    return images.reshape(-1, 64).astype(jnp.float32) / 255 @ weights


@jax.jit
def step(weights: jax.Array, batch: dict[str, jax.Array]) -> jax.Array:
    def loss(weights: jax.Array) -> jax.Array:
        chances = jax.nn.log_softmax(logits(weights, batch["image"]))
        return -jnp.take_along_axis(chances, batch["label"][:, None], axis=1).mean()

    return weights - 0.5 * jax.grad(loss)(weights)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--folder", default=tables.FOLDER, help="where the table is kept (default: %(default)s)")
    options = parser.parse_args()
    table = tables.digits(options.folder)

    train = DataLoader.from_delta(
        table, 64, fields=FIELDS, filter="split = 'train'", shuffle=True, drop_last=True, framework="jax"
    )
    test = DataLoader.from_delta(table, 360, fields=FIELDS, filter="split = 'test'", framework="jax")
    with train, test:
        weights = jnp.zeros((64, 10))
        for _ in range(options.epochs):
            for batch in train:
                weights = step(weights, batch)
        right = sum(int((logits(weights, batch["image"]).argmax(1) == batch["label"]).sum()) for batch in test)
        print(f"jax: {right / test.rows_per_epoch:.1%} of the test images are right")
        print(f"{train.stats()['rows_delivered_total']} rows trained on")


if __name__ == "__main__":
    main()
