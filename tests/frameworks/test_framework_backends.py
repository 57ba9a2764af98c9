"""Keras on each of its backends, and tf.distribute: exact steps, every epoch whole."""

import importlib.util
import json
import re

import pytest
from programs import free_ports, python, together

from examples.tables import digits
from tests.test_examples import needs_sources, number, run

pytestmark = [pytest.mark.frameworks, needs_sources]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return str(tmp_path_factory.mktemp("tables"))


@pytest.mark.parametrize("backend", ["tensorflow", "torch", "jax"])
def test_keras_trains_on_every_backend_and_peeks_cost_no_rows(backend, folder, monkeypatch):
    for package in ("keras", backend):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed")
    monkeypatch.setenv("KERAS_BACKEND", backend)
    text = run("-m", "examples.keras_backends", "--folder", folder, "--epochs", "5")
    assert number(rf"{backend}: ([\d.]+)% of the test images are right", text) >= 90
    assert "115 steps in 5 whole epochs of 23" in text


# Keras as a later release may be: what to_keras needs of its inside is not there.
WITHOUT = """
import sys
import keras
import pyarrow as pa
from deltalake import write_deltalake
from pyloader_delta import ConfigError, DataLoader
from pyloader_delta.adapters import keras as ours

sys.modules["keras.src.trainers.data_adapters.data_adapter"] = None
write_deltalake(sys.argv[1], pa.table({"x": [float(i) for i in range(50)], "y": [i % 2.0 for i in range(50)]}))
model = keras.Sequential([keras.layers.Dense(1)])
model.compile(loss="mse", jit_compile=False)
with DataLoader.from_delta(sys.argv[1], 16, features=["x"], columns=["y"], framework="numpy") as loader:
    history = model.fit(loader.to_keras(label="y"), epochs=2, verbose=0)
    assert len(history.history["loss"]) == 2 and loader.stats()["rows_delivered_total"] >= 100
    ours.find_spec = lambda name: None
    try:
        loader.to_keras(label="y")
    except ConfigError as error:
        assert "without TensorFlow" in str(error)
    else:
        raise AssertionError
"""


def test_keras_without_its_private_module_takes_what_tensorflow_would(tmp_path):
    for package in ("keras", "jax", "tensorflow"):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed")
    python("-c", WITHOUT, tmp_path / "t", env={"KERAS_BACKEND": "jax"})


def test_replicas_of_one_process_share_its_rows_and_keep_equal_weights(folder):
    pytest.importorskip("tensorflow")
    text = run("-m", "examples.tf_strategy", "--folder", folder, "--replicas", "2")
    assert re.findall(r"epoch \d: (\d+) rows", text) == ["1437"] * 3
    assert number(r"tf.distribute: ([\d.]+)% of the test images are right", text) >= 85
    one, other = re.findall(r"weights: (\w+)", text)
    assert one == other


def test_two_workers_train_the_same_weights_on_different_rows(folder):
    pytest.importorskip("tensorflow")
    addresses = [f"127.0.0.1:{port}" for port in free_ports(2)]
    digits(folder)  # so that they do not both write it
    tasks = [{"cluster": {"worker": addresses}, "task": {"type": "worker", "index": index}} for index in range(2)]
    command = ("-m", "examples.tf_strategy", "--folder", folder)
    texts = together([command, command], [{"TF_CONFIG": json.dumps(task)} for task in tasks])
    for text in texts:
        assert re.findall(r"epoch \d: (\d+) rows", text) == ["1438"] * 3  # an odd number of rows: one is repeated
        assert number(r"tf.distribute: ([\d.]+)% of the test images are right", text) >= 85
    assert re.findall(r"weights: (\w+)", texts[0]) == re.findall(r"weights: (\w+)", texts[1])
