"""docs/migrating.md has a row for each public name of deltatorch and of PyLoader."""

import inspect
import re
from pathlib import Path

import pytest

import pyloader_delta
from pyloader_delta.compat.deltatorch import create_pytorch_dataloader

PAGE = Path(__file__).parents[2] / "docs" / "migrating.md"

# What they offer, by their last releases: deltatorch 0.0.3 with the older form of its README, PyLoader 0.5.0.
DELTATORCH = [
    "create_pytorch_dataloader", "FieldSpec", "IDBasedDeltaDataset", "DeltaIterableDataset", "SkipReadDeltaDataset",
    "path", "id_field", "fields", "partition_filter", "version", "batch_size", "use_fixed_rank", "rank", "num_ranks",
    "num_workers", "shuffle", "drop_last", "storage_options", "length", "src_field", "target_field", "load_pil",
    "apply_src_numpy_shape", "transform", "target_transform", "timeout", "queue_size", "name",
    "decode_numpy_and_apply_shape", "load_image_using_pil", "target_name", "collate_fn", "pin_memory",
    "prefetch_factor", "persistent_workers", "worker_init_fn", "multiprocessing_context", "generator", "sampler",
]  # fmt: skip
PYLOADER = [
    "DataReader", "JsonLineDataReader", "Dataset", "TextDataset", "DataCollator", "NumpyDataCollator", "DataLoader",
    "batch_size", "shuffle", "random_seed", "read_file", "load", "get_batch", "batch_encode", "vocab_file",
    "max_seq_len", "max_vocab_size", "load_vocab", "collate_batch", "datareader", "dataset", "datacollator", "root_dir",
    "num_epoch", "max_queue_size", "get_epoch",
]  # fmt: skip


def first_cells(heading: str) -> str:
    """Return the first cells of the table below a heading: what is said about something stands beside its name."""
    text = PAGE.read_text(encoding="utf-8").split(f"## {heading}\n", 1)[1].split("\n## ")[0]
    rows = [line for line in text.splitlines() if line.startswith("|")][2:]
    for row in rows:
        assert all(cell.strip() for cell in row.strip("|").split("|")), f"an empty cell: {row}"
    return "\n".join(row.strip("|").split("|")[0] for row in rows)


@pytest.mark.parametrize(
    ("heading", "name"),
    [("deltatorch", name) for name in DELTATORCH] + [("PyLoader", name) for name in PYLOADER],
)
def test_every_public_name_has_a_row(heading, name):
    assert re.search(rf"\b{name}\b", first_cells(heading)), f"no row of {heading} names {name}"


def test_what_the_page_calls_the_same_is_there():
    parameters = inspect.signature(create_pytorch_dataloader).parameters
    assert set(DELTATORCH[5:27]) - {"timeout"} <= set(parameters)
    assert set(PYLOADER[:7]) <= set(pyloader_delta.__all__)
    assert set(PYLOADER[19:25]) <= set(inspect.signature(pyloader_delta.DataLoader).parameters)
