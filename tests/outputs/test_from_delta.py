"""The one-liner: every option reaches its place, and what `schema` says is what comes."""

import inspect
from datetime import UTC, datetime

import numpy as np
import pyarrow as pa
import pytest
from deltalake import write_deltalake

from pyloader_delta import ConfigError, DataLoader, DeltaDataReader, FieldSpec
from pyloader_delta.oneline import dealt_out
from tests.fakes import CountedNumbers, Through, number_files, numbers, xs

N_ROWS = 50


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    path = str(tmp_path_factory.mktemp("table"))
    rows = {
        "id": np.arange(N_ROWS),
        "x": np.linspace(0, 1, N_ROWS, dtype=np.float32),
        "y": np.linspace(1, 2, N_ROWS),
        "late": np.arange(N_ROWS) % 3 == 0,
        "name": [f"é <{i}>" for i in range(N_ROWS)],
        "day": pa.array(range(N_ROWS), pa.date32()),
        "words": [list(range(i % 4)) for i in range(N_ROWS)],
        "image": [bytes([i]) * 6 for i in range(N_ROWS)],
    }
    write_deltalake(path, pa.table(rows).slice(0, 30))
    write_deltalake(path, pa.table(rows).slice(30), mode="append")
    return path


def one_line(table, **options):
    return DataLoader.from_delta(table, **{"batch_size": 8, "framework": "numpy", "num_workers": 0} | options)


def first(table, **options):
    with one_line(table, **options) as loader:
        return next(iter(loader))


# Options ------------------------------------------------------------------------------------------------------------

READERS = {
    "version": 0, "filter": "id < 20", "exact_length": False, "timestamp": "now", "partition_timezone": "Europe/Berlin",
    "page_checksums": True,
}  # fmt: skip
LOADERS = {
    "num_epoch": 2, "max_queue_size": 3, "shuffle_window": "1MiB", "memory_budget": "64MiB", "drop_last": True,
    "prefetch_factor": 3, "timeout": 9.0,
}  # fmt: skip
BOTH = {"self", "batch_size", "columns", "shuffle", "random_seed"}
PARTS = {"unknown", "datareader", "dataset", "datacollator", "root_dir"}


def options_of(method) -> list[str]:
    return sorted(set(inspect.signature(method).parameters) - BOTH - PARTS)


@pytest.mark.parametrize("name", options_of(DeltaDataReader.__init__))
def test_each_option_of_the_reader_is_dealt_to_it(name):
    assert dealt_out({name: 1}, DataLoader.__init__) == ({name: 1}, {})


@pytest.mark.parametrize("name", options_of(DataLoader.__init__))
def test_each_option_of_the_loader_is_dealt_to_it(name):
    assert dealt_out({name: 1}, DataLoader.__init__) == ({}, {name: 1})


@pytest.mark.parametrize("name", READERS)
def test_an_option_of_the_reader_reaches_it(name, table):
    value = datetime.now(UTC) if name == "timestamp" else READERS[name]
    with one_line(table, **{name: value}) as loader:
        assert getattr(loader.datareader, name) == value


@pytest.mark.parametrize("name", LOADERS)
def test_an_option_of_the_loader_reaches_it(name, table):
    with one_line(table, **{name: LOADERS[name]}) as loader, one_line(table) as other:
        assert loader._options != other._options


def test_shuffle_and_random_seed_are_those_of_reader_and_loader(table):
    with one_line(table, shuffle=True, random_seed=7) as loader:
        order = loader._order
        assert (order.shuffle_chunks, order.shuffle_rows, order.chunk_seed, order.row_seed) == (True, True, 7, 7)
        ids = np.concatenate([batch["id"] for batch in loader])
    assert sorted(ids) == list(range(N_ROWS))
    assert list(ids) != sorted(ids)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"batchsize": 3}, "from_delta() has no option 'batchsize'; did you mean 'batch_size'?"),
        ({"num_worker": 3}, "did you mean 'num_workers'?"),
        ({"verson": 3}, "did you mean 'version'?"),
        ({"datareader": None}, "from_delta() has no option 'datareader'"),
        ({"quux": 3}, "from_delta() has no option 'quux'; those of DataLoader and DeltaDataReader are options"),
        (
            {"framework": "mxnet"},
            "framework must be one of 'numpy', 'torch', 'tensorflow', 'jax', 'arrow', 'pandas', got 'mxnet'",
        ),
        ({"columns": "id"}, "columns must be a list of names, got 'id'"),
        ({"columns": 3}, "columns must be a list of names, got 3"),
        ({"fields": 3}, "fields must be a list of names or FieldSpecs, got 3"),
        ({"columns": ["idd"]}, "'idd'"),
        ({"fields": [FieldSpec("idd")]}, "'idd'"),
        ({"features": ["x", "name"]}, "'name'"),
        ({"features": ["x", "y"]}, "features_dtype"),
        ({"batch_size": 0}, "batch_size must be >= 1, got 0"),
    ],
    ids=str,
)
def test_a_wrong_option_is_named_before_anything_starts(options, text, table):
    with pytest.raises(ConfigError) as raised:
        one_line(table, **options)
    assert text in str(raised.value)


def test_a_framework_that_is_not_installed_is_named(table, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match="torch is not installed: pip install torch, or take framework='numpy'"):
        one_line(table, framework="torch")


@pytest.mark.parametrize(
    ("fields", "workers"),
    [(None, "thread"), ([FieldSpec("x", dtype="float64")], "thread"), ([FieldSpec("x", transform=abs)], "process")],
    ids=["plain", "cast", "transform"],
)
def test_a_transform_of_each_value_gets_processes_and_all_else_threads(fields, workers, table):
    with one_line(table, columns=["x"], fields=fields, num_workers=1) as loader:
        assert loader._options.workers == workers
        if workers == "process":
            assert np.concatenate([batch["x"] for batch in loader]).shape == (N_ROWS,)


# Outputs ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ({}, ["id", "x", "y", "late", "name", "day", "words", "words_lengths", "image"]),
        ({"columns": ["y", "id"]}, ["y", "id"]),
        ({"fields": [FieldSpec("image", (2, 3)), FieldSpec("id", target_name="number")]}, ["image", "number"]),
        ({"fields": ["id", FieldSpec("x", target_name="z")]}, ["id", "z"]),
        ({"columns": ["id", "image"], "fields": [FieldSpec("image", (2, 3))]}, ["id", "image"]),
        ({"columns": ["id", "x"], "features": ["x", "late"], "features_dtype": "float32"}, ["id", "features"]),
        ({"fields": ["late"], "features": ["x"]}, ["late", "features"]),
        ({"fields": ["late"], "features": {"a": ["x"], "b": ["y"]}}, ["late", "a", "b"]),
    ],
    ids=str,
)
def test_columns_fields_and_features_choose_the_outputs(options, names, table):
    with one_line(table, **options) as loader:
        assert sorted(loader.schema) == sorted(names)
        batch = next(iter(loader))
    assert sorted(batch) == sorted(names)


def test_the_values_are_those_of_the_table(table):
    fields = [FieldSpec("image", (2, 3)), FieldSpec("words", ragged="pad", pad_value=-1)]
    batch = first(table, columns=["id"], fields=fields, features=["x", "y"], features_dtype="float64")
    np.testing.assert_array_equal(batch["id"], np.arange(8))
    np.testing.assert_array_equal(batch["image"][3], np.full((2, 3), 3))
    np.testing.assert_array_equal(batch["words"][:4], [[-1, -1, -1], [0, -1, -1], [0, 1, -1], [0, 1, 2]])
    np.testing.assert_array_equal(batch["words_lengths"], [0, 1, 2, 3, 0, 1, 2, 3])
    x = np.linspace(0, 1, N_ROWS, dtype=np.float32)[:8].astype(float)
    np.testing.assert_array_equal(batch["features"], np.stack([x, np.linspace(1, 2, N_ROWS)[:8]], axis=1))


FIELDS = {
    "numpy": [FieldSpec("image", (2, 3)), FieldSpec("words", ragged="jagged"), "name", "day", "late", "x"],
    "torch": [FieldSpec("image", (2, 3)), FieldSpec("words", ragged="jagged"), FieldSpec("name", as_list=True), "day"],
    "tensorflow": [FieldSpec("image", (2, 3)), FieldSpec("words", ragged="jagged"), "name", "day", "late", "x"],
}


def agrees(said, found) -> bool:
    """Return whether an output is as the schema says, both as `Output`."""
    return said.kind == found.kind and all(n is None or n == m for n, m in zip(said.shape, found.shape, strict=True))


@pytest.mark.parametrize("framework", FIELDS)
def test_the_schema_says_what_comes_before_anything_is_read(framework, table):
    if framework != "numpy":
        pytest.importorskip(framework)
    with one_line(table, fields=FIELDS[framework], features=["y"], framework=framework) as loader:
        assert loader.stats()["batches_delivered_total"] == 0
        schema = loader.schema
        preview = loader.preview(8)
        assert list(schema) == list(preview.schema)
        for name, output in preview.schema.items():
            assert agrees(schema[name], output), name
        assert schema["image"].shape == (None, 2, 3)
        assert schema["features"].dtype == preview.schema["features"].dtype == "float64"
        assert schema["words"].kind == "ragged"


def test_the_schema_tells_texts_from_bytes_and_what_only_a_function_knows(table):
    fields = ["name", "image", FieldSpec("x", transform=str), FieldSpec("y", batch_transform=np.sqrt)]
    with one_line(table, fields=fields) as loader:
        found = {name: (output.dtype, output.shape) for name, output in loader.schema.items()}
        assert found == {"name": ("str", (None,)), "image": ("bytes", (None,)), "x": (None, None), "y": (None, None)}
        assert "unknown unknown numpy" in repr(loader.schema)


@pytest.mark.parametrize("exact", [True, False])
def test_a_preview_shows_the_rows_that_a_filter_keeps(exact, table):
    with one_line(table, columns=["id"], filter="late AND id > 10", exact_length=exact) as loader:
        assert loader.preview(6).batch["id"].tolist() == [12, 15, 18, 21, 24, 27]


def test_the_schema_of_the_users_own_classes_is_learned_from_the_first_rows(tmp_path):
    with numbers(number_files(tmp_path / "files", [3, 3]), num_workers=0) as loader:
        assert str(loader.schema["x"]) == "int64 (None,) numpy"
        assert xs(loader) == [[0, 1], [2, 3], [4, 5]]
        assert loader.get_epoch() == 1
        assert repr(loader.schema) == "output  what it is\nx       int64 (None,) numpy"


def test_the_schema_of_nothing_is_an_error(tmp_path):
    with numbers(number_files(tmp_path / "files", [0]), num_workers=0) as loader:
        assert repr(loader.preview()) == "no rows"
        with pytest.raises(ConfigError, match="has no row to learn the schema of batches from"):
            _ = loader.schema


def test_the_snapshot_is_the_pinned_one(table):
    with one_line(table, version=0) as loader:
        assert (loader.snapshot.version, len(loader)) == (0, 4)


# A look at the first rows -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 3, 40, 999])
def test_a_preview_is_the_first_rows_of_the_table_whatever_is_shuffled(n, table):
    with one_line(table, shuffle=True) as loader:
        preview = loader.preview(n)
    assert len(preview) == min(n, N_ROWS)
    np.testing.assert_array_equal(preview.batch["id"], np.arange(min(n, N_ROWS)))


def test_a_preview_disturbs_no_pass(table, executor):
    with one_line(table, shuffle=True, **executor) as loader:
        alone = [batch["id"].tolist() for batch in loader]
    with one_line(table, shuffle=True, **executor) as loader:
        found = []
        for batch in loader:
            found.append(batch["id"].tolist())
            loader.preview(2)
        assert found == alone
        assert loader.get_epoch() == 1


def test_a_preview_is_a_table_in_terminal_and_notebook(table):
    with one_line(table, columns=["id", "x", "name", "image"], fields=[FieldSpec("image", (2, 3))]) as loader:
        preview = loader.preview(2)
    assert repr(preview).splitlines() == [
        "id     x          name    image",
        "int64  float32    object  uint8",
        "0      0          é <0>   [0, 0, 0, 0, …] (2×3)",
        "1      0.0204082  é <1>   [1, 1, 1, 1, …] (2×3)",
    ]
    assert "<td>é &lt;1&gt;</td>" in preview._repr_html_()
    assert "<script>" not in preview._repr_html_()


def test_a_preview_reads_no_more_than_it_shows(tmp_path):
    class Counting(CountedNumbers):
        seen: list[str] = []  # noqa: RUF012

        def read_file(self, path):
            self.seen.append(path)
            return super().read_file(path)

    with numbers(number_files(tmp_path / "files", [4] * 9), reader=Counting(2), num_workers=0) as loader:
        assert xs([loader.preview(6).batch]) == [[0, 1, 2, 3, 4, 5]]
        assert len(Counting.seen) == 2


def test_a_preview_shows_an_error_of_the_users_code_as_the_loop_would(tmp_path):
    class Wrong(Through):
        def batch_encode(self, batch_data):
            raise ValueError("as it is")

    with numbers(number_files(tmp_path / "files", [4]), dataset=Wrong(), num_workers=0) as loader:
        with pytest.raises(ValueError, match="as it is") as raised:
            loader.preview()
        assert "in Wrong.batch_encode" in raised.value.__notes__


@pytest.mark.parametrize("n", [0, -1, 1.5, True, "3"])
def test_a_preview_needs_a_number_of_rows(n, table):
    with one_line(table) as loader, pytest.raises(ConfigError, match="n must be"):
        loader.preview(n)
