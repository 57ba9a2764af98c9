"""Keras on each of its backends, and tf.distribute: exact steps, every epoch whole."""

import importlib.util
import os
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest
from deltalake import write_deltalake

from pyloader_delta import DataLoader
from tests.test_examples import ROOT, needs_sources, number, run

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
sys.modules["keras.src.trainers.data_adapters.data_adapter"] = None
from pyloader_delta.adapters import keras
assert keras._adapter_class() is None
"""


def test_keras_without_its_private_module_is_no_error():
    pytest.importorskip("keras")
    env = os.environ | {"KERAS_BACKEND": "jax"}
    done = subprocess.run([sys.executable, "-c", WITHOUT], cwd=ROOT, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_strategy_gets_each_workers_own_share(folder):
    pytest.importorskip("tensorflow")
    text = run("-m", "examples.tf_strategy", "--folder", folder)
    assert "epoch 1: 1437 rows" in text
    assert "epoch 2: 1437 rows" in text


@pytest.mark.parametrize("workers", ["thread", "process"])
@pytest.mark.parametrize("dtype", ["float32", "int32"])
def test_jax_takes_the_arrays_of_a_batch_without_a_copy_where_they_are_aligned(dtype, workers, tmp_path):
    jax = pytest.importorskip("jax")
    write_deltalake(tmp_path, pa.table({"x": np.arange(4096).astype(dtype)}))
    with DataLoader.from_delta(tmp_path, 1024, framework="numpy", num_workers=1, workers=workers) as loader:
        arrays = []
        for batch in loader:
            taken = jax.dlpack.from_dlpack(batch["x"])
            aligned = batch["x"].ctypes.data % 64 == 0
            assert aligned or workers == "process"
            assert (taken.unsafe_buffer_pointer() == batch["x"].ctypes.data) == aligned
            arrays.append(taken)
        assert np.concatenate(arrays).tolist() == list(range(4096))
