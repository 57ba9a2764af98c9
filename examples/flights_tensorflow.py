"""A TensorFlow 2 model that reads flights from a Delta table and tells which will arrive late, with GradientTape.

The prediction is made when the aircraft leaves the gate: from the plan of the flight and from its departure delay. What
is known only later (the time in the air, the delay on arrival) is not used. Trained on January to October, tested on
November and December. Cancelled and diverted flights never arrived: they stay in the batches with weight 0.

Run `python -m examples.flights_tensorflow`. The three classes at the top are what one writes for a table of one's own.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import tensorflow as tf
from tqdm import tqdm

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for `python examples/flights_tensorflow.py`

from examples import tables
from pyloader_delta import Chunk, DataLoader, Dataset, DeltaDataReader, TFDataCollator

LATE_MINUTES = 15
TRAIN_MONTHS, TEST_MONTHS = range(1, 11), range(11, 13)
WORDS = ("carrier", "origin", "dest")
COLUMNS = ("scheduled", *WORDS, "distance", "dep_delay", "arr_delay")
GOAL_OVER_BASE_RATE = 0.10


class FlightReader(DeltaDataReader):
    """Reads some months of the table, and adds a column to what the table holds."""

    def __init__(self, months: Iterable[int], columns: Iterable[str] = COLUMNS, **options: Any) -> None:
        super().__init__(columns=list(columns), **options)
        self.months = list(months)

    def chunks(self, root: str) -> list[Chunk]:
        return [chunk for chunk in super().chunks(root) if int(dict(chunk.partition_values)["month"]) in self.months]

    def read_chunk(self, chunk: Chunk) -> pa.Table:
        rows = super().read_chunk(chunk)
        if "arr_delay" in rows.column_names:  # null where the flight never arrived
            rows = rows.append_column("late", pc.greater_equal(rows["arr_delay"], LATE_MINUTES))
        return rows


class FlightDataset(Dataset):
    """Turns words into indices and times into numbers, a whole Arrow batch at a time."""

    input_format = "arrow"
    rowwise = True  # each row by itself, so several batches may be encoded at once

    def __init__(self, vocabulary: dict[str, pa.Array]) -> None:
        self.vocabulary = vocabulary

    def batch_encode(self, batch: pa.RecordBatch) -> dict[str, np.ndarray]:
        numbers = {
            "delay": pc.divide(pc.cast(pc.fill_null(batch["dep_delay"], 0), pa.float32()), 30),
            "distance": pc.divide(pc.cast(batch["distance"], pa.float32()), 1000),
            "hour": pc.divide(pc.cast(pc.hour(batch["scheduled"]), pa.float32()), 24),
            "weekday": pc.divide(pc.cast(pc.day_of_week(batch["scheduled"]), pa.float32()), 7),
        }
        return {
            **{word: self.index(word, batch[word]) for word in WORDS},
            "numbers": np.stack([column.to_numpy(zero_copy_only=False) for column in numbers.values()], axis=1),
            "late": pc.fill_null(batch["late"], False).to_numpy(zero_copy_only=False),
            "arrived": pc.is_valid(batch["late"]).to_numpy(zero_copy_only=False),
        }

    def index(self, word: str, values: pa.Array) -> np.ndarray:
        """Return the place of each value in the vocabulary, from 1; 0 for a null and a word never seen before."""
        found = pc.index_in(values, value_set=self.vocabulary[word], skip_nulls=True)
        return pc.add(pc.fill_null(found, -1), 1).to_numpy(zero_copy_only=False)


class FlightCollator(TFDataCollator):
    """Groups the arrays as Keras does: inputs, labels, weights. TFDataCollator makes them tensors in this process."""

    def collate_batch(self, features: dict[str, np.ndarray]) -> tuple[dict[str, np.ndarray], np.ndarray, np.ndarray]:
        inputs = {name: features[name] for name in (*WORDS, "numbers")}
        return inputs, features["late"].astype(np.float32), features["arrived"].astype(np.float32)


def learn_vocabulary(table: str) -> dict[str, pa.Array]:
    """Return the distinct words of each column of words, over the months of training."""
    reader = FlightReader(TRAIN_MONTHS, columns=WORDS)
    rows = pa.concat_tables([reader.read_chunk(chunk) for chunk in reader.chunks(table)])
    return {word: pc.unique(rows[word].drop_null()).sort() for word in WORDS}


def make_model(vocabulary: dict[str, pa.Array]) -> tf.keras.Model:
    inputs = {word: tf.keras.Input((), name=word, dtype="int32") for word in WORDS}
    inputs["numbers"] = tf.keras.Input((4,), name="numbers")
    embedded = [tf.keras.layers.Embedding(len(vocabulary[word]) + 1, 8)(inputs[word]) for word in WORDS]
    hidden = tf.keras.layers.Concatenate()([*embedded, inputs["numbers"]])
    for _ in range(2):
        hidden = tf.keras.layers.Dense(64, activation="relu")(hidden)
    return tf.keras.Model(inputs, tf.keras.layers.Dense(1)(hidden)[:, 0])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--folder", default=tables.FOLDER, help="where the table is kept (default: %(default)s)")
    parser.add_argument("--report", help="write the results to this file, as JSON")
    options = parser.parse_args()
    table = tables.flights(options.folder)

    tf.keras.utils.set_random_seed(0)
    vocabulary = learn_vocabulary(table)
    model = make_model(vocabulary)
    optimizer = tf.keras.optimizers.Adam(2e-3)

    @tf.function(reduce_retracing=True)
    def train_step(inputs, late, weight):
        with tf.GradientTape() as tape:
            losses = tf.nn.sigmoid_cross_entropy_with_logits(late, model(inputs, training=True))
            loss = tf.reduce_sum(losses * weight) / tf.reduce_sum(weight)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    @tf.function(reduce_retracing=True)
    def count_right(inputs, late, weight):
        right = tf.equal(model(inputs) > 0, late > 0.5)
        return tf.reduce_sum(tf.cast(right, tf.float32) * weight)

    train_reader = FlightReader(TRAIN_MONTHS, batch_size=512, shuffle=True)
    test_reader = FlightReader(TEST_MONTHS, batch_size=2048)
    train = DataLoader(train_reader, FlightDataset(vocabulary), FlightCollator(), table, shuffle=True)
    test = DataLoader(test_reader, FlightDataset(vocabulary), FlightCollator(), table)
    with train, test:
        train_rows = test_rows = 0
        for epoch in range(1, options.epochs + 1):
            progress = tqdm(train, desc=f"flights, epoch {epoch}", mininterval=0.5)
            for step, (inputs, late, weight) in enumerate(progress):
                loss = train_step(inputs, late, weight)
                train_rows += len(late)
                if step % 50 == 0:
                    progress.set_postfix(loss=f"{loss:.3f}", refresh=False)

        right = arrived = were_late = 0.0
        for inputs, late, weight in test:
            right += float(count_right(inputs, late, weight))
            arrived += float(tf.reduce_sum(weight))
            were_late += float(tf.reduce_sum(late * weight))
            test_rows += len(late)
        base_rate = max(were_late, arrived - were_late) / arrived
        result = {
            "table": table,
            "epochs": options.epochs,
            "train": train.stats(),
            "test": test.stats(),
            "train_rows_seen": train_rows,
            "test_rows_seen": test_rows,
            "accuracy": right / arrived,
            "base_rate": base_rate,
            "goal": base_rate + GOAL_OVER_BASE_RATE,
        }
    print(
        f"flights: {result['accuracy']:.1%} of {arrived:.0f} test flights that arrived are told right "
        f"(goal {result['goal']:.1%}, 'on time' alone {base_rate:.1%}); {test_rows - arrived:.0f} never arrived"
    )
    if options.report:
        Path(options.report).write_text(json.dumps(result))


if __name__ == "__main__":
    main()
