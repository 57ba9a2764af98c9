"""JAX arrays: every value, nothing narrowed in silence, in every executor; no copy where JAX can do without."""

import numpy as np
import pyarrow as pa
import pytest
from deltalake import write_deltalake

from pyloader_delta import ConfigError, DataLoader, FieldSpec, ValueTypeError
from tests.test_examples import needs_sources, number, run

jax = pytest.importorskip("jax")
pytestmark = [pytest.mark.frameworks]

N_ROWS = 2000
EVERYWHERE = [{"num_workers": 0}, {"num_workers": 2, "workers": "thread"}, {"num_workers": 2, "workers": "process"}]
FIELDS = [
    "x",
    "flag",
    FieldSpec("id", dtype="int32"),
    FieldSpec("words", dtype="int16"),
    FieldSpec("name", as_list=True),
]


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    path = str(tmp_path_factory.mktemp("table"))
    rows = {
        "id": np.arange(N_ROWS),
        "x": np.arange(N_ROWS, dtype=np.float32),
        "flag": np.arange(N_ROWS) % 2 == 0,
        "words": [[i] * (i % 3) for i in range(N_ROWS)],
        "name": [str(i) for i in range(N_ROWS)],
    }
    write_deltalake(path, pa.table(rows))
    return path


@pytest.mark.parametrize("where", EVERYWHERE, ids=str)
def test_batches_hold_every_value_also_after_their_memory_was_due_again(where, table):
    with DataLoader.from_delta(table, 64, fields=FIELDS, framework="jax", num_epoch=2, **where) as loader:
        batches = list(loader)
        assert {name: str(value.dtype) for name, value in batches[0].items() if name != "name"} == {
            name: output.dtype for name, output in loader.schema.items() if name != "name"
        }
    assert all(isinstance(batch["x"], jax.Array) and not batch["x"].committed for batch in batches)
    for name in ("id", "x"):
        assert np.concatenate([batch[name] for batch in batches]).tolist() == [*range(N_ROWS)] * 2
    assert [text for batch in batches for text in batch["name"]] == [str(i) for i in range(N_ROWS)] * 2
    lengths = np.concatenate([batch["words_lengths"] for batch in batches])
    assert lengths.dtype == np.int32
    assert lengths.tolist() == [i % 3 for i in range(N_ROWS)] * 2


@pytest.mark.parametrize("workers", ["thread", "process"])
@pytest.mark.parametrize("dtype", ["float32", "int32"])
def test_arrays_are_taken_without_a_copy_where_they_are_aligned(dtype, workers, tmp_path):
    write_deltalake(tmp_path, pa.table({"x": np.arange(4096).astype(dtype)}))
    with DataLoader.from_delta(tmp_path, 1024, framework="jax", num_workers=1, workers=workers) as loader:
        arrays, finish = [], loader.datacollator.finalize
        for given in loader.iterate_with(lambda batch: batch):
            taken = finish(given)["x"]
            address = given["x"].ctypes.data
            assert address % 64 == 0 or workers == "process"
            assert (taken.unsafe_buffer_pointer() == address) == (address % 64 == 0)
            arrays.append(taken)
        assert np.concatenate(arrays).tolist() == list(range(4096))


def test_numbers_that_jax_would_narrow_are_an_error_that_names_them(table):
    loader = DataLoader.from_delta(table, 8, columns=["x", "id", "words"], framework="jax", num_workers=0)
    with loader, pytest.raises(ValueTypeError) as raised:
        next(iter(loader))
    text = str(raised.value)
    assert "'id' (int64), 'words' (int64)" in text
    assert "'x'" not in text
    assert "jax_enable_x64" in text
    assert "dtype='int32'" in text


def test_all_64_bits_come_where_jax_has_them(table):
    with jax.enable_x64(True), DataLoader.from_delta(table, 8, columns=["id"], framework="jax") as loader:
        assert next(iter(loader))["id"].dtype == np.int64


@pytest.mark.parametrize(
    ("fields", "error", "text"),
    [
        (["name"], ValueTypeError, "'name' is string, which jax has no tensor for.*as_list=True"),
        ([FieldSpec("words", ragged="jagged")], ConfigError, "JAX has no ragged arrays.*use ragged='pad'"),
    ],
    ids=["text", "jagged"],
)
def test_what_jax_cannot_hold_is_named(fields, error, text, table):
    with pytest.raises(error, match=text):
        DataLoader.from_delta(table, 8, fields=fields, framework="jax")


@needs_sources
def test_a_model_trains(tmp_path_factory):
    text = run("-m", "examples.digits_jax", "--folder", str(tmp_path_factory.mktemp("tables")))
    assert number(r"jax: ([\d.]+)% of the test images are right", text) >= 85
    assert f"{5 * (1437 // 64 * 64)} rows trained on" in text
