"""Programs written for deltatorch, run as their users run them with only the import changed, on digits made here."""

import io
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from deltalake import write_deltalake
from PIL import Image
from programs import QUIET, python

pytest.importorskip("torch")
datasets = pytest.importorskip("sklearn.datasets")

PROGRAMS = Path(__file__).parent / "programs"
N_TRAIN = 1400


def png(pixels):
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, "PNG")
    return stream.getvalue()


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    """Return the folder of the tables `train` and `test`, and the pixels and labels of all rows."""
    folder = tmp_path_factory.mktemp("digits")
    found = datasets.load_digits()
    pixels, labels = found.images.astype(np.uint8), found.target.astype(np.int32)
    rows = pa.table({"id": np.arange(1, len(labels) + 1), "image": list(map(png, pixels)), "label": labels})
    write_deltalake(folder / "train", rows.slice(0, N_TRAIN))
    write_deltalake(folder / "test", rows.slice(N_TRAIN))
    return folder, pixels, labels


def run(program, *arguments, report):
    python(PROGRAMS / program, *arguments, report, env=QUIET)
    return json.loads(report.read_text())


@pytest.mark.slow
def test_the_mnist_program_learns(digits, tmp_path):
    folder, _, _ = digits
    found = run("mnist.py", folder / "train", folder / "test", report=tmp_path / "found.json")
    assert (found["rows"], found["steps"]) == (N_TRAIN, 44)
    assert found["accuracy"] > 0.85


def test_the_readme_program_gets_every_row(digits, tmp_path):
    folder, pixels, labels = digits
    sums, found = run("readme.py", folder / "train", N_TRAIN, report=tmp_path / "found.json")
    assert sums == pixels[:N_TRAIN].sum(axis=(1, 2)).tolist()
    assert found == labels[:N_TRAIN].tolist()
