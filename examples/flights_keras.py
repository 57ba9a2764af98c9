"""The flights once more, with Keras: one call each for training and test data, and no class to write.

A flight is late if it arrives 15 minutes or more behind its plan. Known are the plan and the departure. Cancelled and
diverted flights never arrived: the filter leaves them out. Run `python -m examples.flights_keras`.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow as tf

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for `python examples/flights_keras.py`

from examples import tables
from pyloader_delta import DataLoader, FieldSpec


def hour_of_day(microseconds: np.ndarray) -> np.ndarray:
    return (microseconds // 3_600_000_000 % 24).astype(np.float32)


def is_late(minutes: np.ndarray) -> np.ndarray:
    return (minutes >= 15).astype(np.float32)


FIELDS = [
    FieldSpec("scheduled", target_name="hour", batch_transform=hour_of_day),
    FieldSpec("arr_delay", target_name="late", batch_transform=is_late),
]
OPTIONS = {
    "fields": FIELDS,
    "features": ["dep_delay", "distance"],
    "features_dtype": "float32",
    "framework": "tensorflow",
}


def make_model() -> tf.keras.Model:
    inputs = {"hour": tf.keras.Input((), name="hour"), "features": tf.keras.Input((2,), name="features")}
    hour = tf.keras.layers.Rescaling(1 / 24)(inputs["hour"][:, None])
    numbers = tf.keras.layers.Rescaling([1 / 30, 1 / 1000])(inputs["features"])
    hidden = tf.keras.layers.Concatenate()([hour, numbers])
    for _ in range(2):
        hidden = tf.keras.layers.Dense(32, activation="relu")(hidden)
    return tf.keras.Model(inputs, tf.keras.layers.Dense(1, activation="sigmoid")(hidden))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--folder", default=tables.FOLDER, help="where the table is kept (default: %(default)s)")
    options = parser.parse_args()
    table = tables.flights(options.folder)

    tf.keras.utils.set_random_seed(0)
    arrived = "arr_delay IS NOT NULL AND month"
    train = DataLoader.from_delta(table, 512, filter=f"{arrived} <= 10", shuffle=True, **OPTIONS)
    test = DataLoader.from_delta(table, 2048, filter=f"{arrived} > 10", **OPTIONS)
    with train, test:
        print(train.schema)
        print(train.preview(3))
        model = make_model()
        model.compile("adam", "binary_crossentropy", metrics=["accuracy"], steps_per_execution=16)
        model.fit(train.to_tf(label="late"), epochs=options.epochs, verbose=2)
        _, accuracy = model.evaluate(test.to_tf(label="late"), verbose=0)
        on_time = 1 - np.concatenate([batch["late"] for batch in test]).mean()
    print(f"flights: {accuracy:.1%} of the test flights are told right ('on time' alone {on_time:.1%})")
    counts = train.stats()
    print(f"{counts['epochs_completed_total']} epochs of {len(train)} batches, {counts['rows_planned_total']} rows")


if __name__ == "__main__":
    main()
