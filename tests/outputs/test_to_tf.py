"""A loader as a tf.data.Dataset: the same batches, complete, bounded, and right under Keras."""

import gc
import itertools

import numpy as np
import pyarrow as pa
import pytest
from deltalake import write_deltalake

from pyloader_delta import ConfigError, DataCollator, DataLoader, Dataset, DeltaDataReader, FieldSpec, TFDataCollator
from pyloader_delta.adapters.slabs import aligned_array, slabs
from tests.fakes import NumpyThrough, until_error

tf = pytest.importorskip("tensorflow")

N_ROWS = 1000


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    path = str(tmp_path_factory.mktemp("table"))
    ids = np.arange(N_ROWS)
    rows = {
        "id": ids,
        "x": np.linspace(0, 1, N_ROWS, dtype=np.float32),
        "late": ids % 3 == 0,
        "weight": np.full(N_ROWS, 0.5, np.float32),
        "name": [f"é{i}" for i in ids],
        "words": [list(range(i % 4)) for i in ids],
    }
    for start in range(0, N_ROWS, 300):
        write_deltalake(path, pa.table(rows).slice(start, 300), mode="append")
    return path


def loader_of(table, **options):
    return DataLoader.from_delta(table, **{"batch_size": 32, "framework": "tensorflow", "num_workers": 0} | options)


def ids(dataset) -> list[list[int]]:
    return [batch["id"].numpy().tolist() for batch in dataset]


# The same batches ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [{}, {"num_epoch": 2}, {"drop_last": True}, {"num_epoch": 2, "drop_last": True}, {"batch_size": 7}],
    ids=str,
)
def test_the_dataset_gives_the_batches_of_the_loop(options, table, executor):
    options = {"columns": ["id", "x"], "shuffle": True} | options | executor
    with loader_of(table, **options) as loader:
        expected = [(batch["id"].numpy().tolist(), batch["x"].numpy().tolist()) for batch in loader]
    with loader_of(table, **options) as loader:
        dataset = loader.to_tf()
        assert dataset.cardinality() == len(expected) == len(loader)
        assert [(batch["id"].numpy().tolist(), batch["x"].numpy().tolist()) for batch in dataset] == expected
        assert loader.stats()["epochs_completed_total"] == options.get("num_epoch", 1)


def test_each_iteration_is_the_next_pass(table):
    with (
        loader_of(table, columns=["id"], shuffle=True) as loader,
        loader_of(table, columns=["id"], shuffle=True) as other,
    ):
        dataset = loader.to_tf()
        assert [ids(dataset), ids(dataset)] == [ids(other), ids(other)]
        assert loader.get_epoch() == 2


def test_every_type_arrives(table):
    fields = ["id", "x", "late", "name", FieldSpec("words", ragged="jagged"), FieldSpec("words", target_name="padded")]
    with loader_of(table, fields=fields, features=["weight"]) as loader:
        dataset = loader.to_tf()
        spec = dataset.element_spec
        assert {name: s.dtype.name for name, s in spec.items()} == {
            "id": "int64", "x": "float32", "late": "bool", "name": "string", "words": "int64", "padded": "int64",
            "padded_lengths": "int64", "features": "float32",
        }  # fmt: skip
        assert spec["features"].shape.as_list() == [None, 1]
        n_rows = 0
        for batch, expected in zip(dataset, loader_of(table, fields=fields, features=["weight"]), strict=True):
            n_rows += len(batch["id"])
            assert batch.keys() == expected.keys()
            for name, tensor in batch.items():
                assert spec[name].is_compatible_with(tensor), name
                one, other = (
                    tf.convert_to_tensor(t) if name != "words" else t.to_tensor() for t in (tensor, expected[name])
                )
                np.testing.assert_array_equal(one.numpy(), other.numpy())
        assert n_rows == N_ROWS


# Keras --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ({"label": "late"}, (["id", "x"], None)),
        ({"label": "late", "weight": "weight"}, (["id", "x"], None, None)),
        ({"label": ["late", "x"]}, (["id", "weight"], ["late", "x"])),
    ],
    ids=str,
)
def test_label_and_weight_make_x_y_and_weight(options, names, table):
    columns = ["id", "x", "late"] + (["weight"] if "weight" in str(options) + str(names) else [])
    with loader_of(table, columns=columns) as loader:
        batch = next(iter(loader.to_tf(**options)))
        assert isinstance(batch, tuple)
        assert [sorted(part) if isinstance(part, dict) else None for part in batch] == list(names)


def test_one_input_is_no_dict(table):
    with loader_of(table, columns=["late"], features=["x", "weight"]) as loader:
        x, y = next(iter(loader.to_tf(label="late")))
        assert (x.shape, y.shape) == ((32, 2), (32,))


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"label": "lte"}, "there is no output 'lte'; there are 'id', 'late'"),
        ({"weight": "id"}, "weight is of use only beside label"),
        ({"label": "late", "weight": 3}, "weight must be the name of an output, got 3"),
        ({"label": ["id", "late"]}, "label and weight leave no output for x"),
    ],
    ids=str,
)
def test_a_wrong_label_or_weight_is_named(options, text, table):
    with loader_of(table, columns=["id", "late"]) as loader, pytest.raises(ConfigError, match=text):
        loader.to_tf(**options)


@pytest.mark.filterwarnings("ignore:.*shuffle=True.*")
@pytest.mark.parametrize("built", [True, False])
def test_keras_fit_sees_each_row_once_an_epoch(built, table):
    with loader_of(table, columns=["late"], features=["x", "weight"], shuffle=True) as loader:
        model = tf.keras.Sequential(([tf.keras.Input((2,))] if built else []) + [tf.keras.layers.Dense(1)])
        model.compile("sgd", "mse")
        steps = []
        counted = tf.keras.callbacks.LambdaCallback(on_train_batch_end=lambda step, logs: steps.append(step))
        model.fit(loader.to_tf(label="late"), epochs=3, verbose=0, callbacks=[counted])
        assert steps == [*range(len(loader))] * 3
        assert loader.get_epoch() == 3
        assert loader.stats()["rows_delivered_total"] - 3 * N_ROWS in (0, 32, 64)  # a peek is delivered twice
        assert loader.stats()["epochs_completed_total"] == 3


# Iterators that are dropped -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("n_taken", "epoch"), [(1, 1), (2, 1), (3, 2), (20, 2)])
def test_a_peek_costs_no_rows_and_more_ends_the_epoch(n_taken, epoch, table, executor):
    with loader_of(table, columns=["id"], shuffle=True, **executor) as loader:
        dataset = loader.to_tf()
        taken = [batch["id"].numpy().tolist() for batch in itertools.islice(iter(dataset), n_taken)]
        gc.collect()
        whole = ids(dataset)
        assert loader.get_epoch() == epoch
        assert sorted(itertools.chain(*whole)) == list(range(N_ROWS))
        assert (whole[:n_taken] == taken) == (epoch == 1)


@pytest.mark.parametrize("n_taken", [1, 3, 4, 10])
def test_a_dropped_iterator_leaves_nothing_behind(n_taken, table):
    with loader_of(table, columns=["id"], num_workers=1, workers="thread") as loader:
        dataset = loader.to_tf()
        batches = iter(dataset)
        for _ in range(n_taken):
            next(batches)
        del batches
        gc.collect()
        assert loader._iterator() is None


def test_a_newer_iterator_ends_the_older(table):
    with loader_of(table, columns=["id"]) as loader:
        dataset = loader.to_tf()
        old = iter(dataset)
        next(old)
        new = iter(dataset)
        next(new)
        with pytest.raises(tf.errors.UnknownError, match=r"a newer iter\(\) of this loader"):
            list(old)
        assert len(list(new)) == len(loader) - 1


def test_a_dataset_keeps_its_loader_and_lets_it_go(table):
    dataset = loader_of(table, columns=["id"], num_workers=1, workers="process").to_tf()
    assert sorted(itertools.chain(*ids(dataset))) == list(range(N_ROWS))
    del dataset  # the leak guard waits for the process to go


# Errors -------------------------------------------------------------------------------------------------------------


class Wrong(Dataset):
    input_format = "numpy"

    def batch_encode(self, batch_data):
        if 500 in batch_data["id"]:
            raise ValueError("500 is not wanted")
        return {"id": batch_data["id"]}


def test_an_error_comes_with_its_text_and_its_place(table):
    with DataLoader(DeltaDataReader(10), Wrong(), TFDataCollator(), table, num_workers=0) as loader:
        found, error = until_error(loader.to_tf())
        assert isinstance(error, tf.errors.UnknownError)
        assert "ValueError: 500 is not wanted" in error.message
        assert "in Wrong.batch_encode" in error.message
        assert list(itertools.chain(*(batch["id"].numpy() for batch in found))) == list(range(500))


def test_a_closed_loader_says_so(table):
    loader = loader_of(table, columns=["id"])
    dataset = loader.to_tf()
    loader.close()
    with pytest.raises(tf.errors.UnknownError, match="this DataLoader is closed"):
        list(dataset)


@pytest.mark.parametrize("framework", ["numpy", "torch"])
def test_what_tensorflow_cannot_hold_is_named(framework, tmp_path):
    write_deltalake(tmp_path, pa.table({"day": pa.array([1, 2], pa.timestamp("us"))}))
    if framework == "torch":
        pytest.importorskip("torch")
    loader = DataLoader.from_delta(tmp_path, framework=framework, num_workers=0)
    with loader, pytest.raises(ConfigError, match=r"which tf\.data cannot hold"):
        loader.to_tf()


# The user's own classes ---------------------------------------------------------------------------------------------


class Nested(DataCollator):
    """What Keras takes, in a structure of its own: a tuple of a dict of lists of arrays, and an array."""

    def collate_batch(self, features):
        n = len(features["id"])
        wide = np.zeros((n, int(features["id"][-1]) % 5 + 1), np.float32)
        return {"both": [features["x"], features["id"]], "wide": wide, "fixed": np.ones((n, 3))}, features["late"]


def test_the_signature_of_the_users_own_collator_is_learned(table):
    reader = DeltaDataReader(32, columns=["id", "x", "late"])
    with DataLoader(reader, NumpyThrough(), Nested(), table, num_workers=0) as loader:
        dataset = loader.to_tf()
        spec = dataset.element_spec
        assert spec[0]["both"][1] == tf.TensorSpec((None,), tf.int64)
        assert spec[0]["wide"] == tf.TensorSpec((None, None), tf.float32)
        assert spec[0]["fixed"] == tf.TensorSpec((None, 3), tf.float64)
        assert spec[1] == tf.TensorSpec((None,), tf.bool)
        found = [x["both"][1].numpy() for x, _ in dataset]
        np.testing.assert_array_equal(np.concatenate(found), np.arange(N_ROWS))


class Late(DataCollator):
    """Has another width from row 500 on: nothing in the first batches tells it."""

    def collate_batch(self, features):
        return {"wide": np.zeros((len(features["id"]), 2 if features["id"][0] < 500 else 3), np.float32)}


def test_a_size_that_differs_only_later_is_an_error_that_names_the_signature(table):
    def make():
        return DataLoader(DeltaDataReader(10, columns=["id"]), NumpyThrough(), Late(), table, num_workers=0)

    with make() as loader, pytest.raises(tf.errors.UnknownError, match=r"None in to_tf\(signature="):
        list(loader.to_tf())
    with make() as loader:
        widths = [batch["wide"].shape for batch in loader.to_tf(signature={"wide": tf.TensorSpec((None, None))})]
    assert widths == [(10, 2)] * 50 + [(10, 3)] * 50


def test_a_signature_of_the_users_own_neither_casts_nor_counts_rows(table):
    with loader_of(table, columns=["id", "x"]) as loader:
        spec = {
            "x": tf.TensorSpec([None], loader.schema["x"].dtype),
            "id": tf.TensorSpec([None], tf.int64),
        }  # any order
        assert sum(map(len, ids(loader.to_tf(signature=spec)))) == N_ROWS
        with pytest.raises(tf.errors.UnknownError, match=r"array of int64, but to_tf.signature=.... says int32"):
            list(loader.to_tf(signature=spec | {"id": tf.TensorSpec([None], tf.int32)}))
        with pytest.raises(ConfigError, match="must say how many sizes there are"):
            loader.to_tf(signature=spec | {"id": tf.TensorSpec(None, tf.int64)})
        with pytest.raises(ConfigError, match="counts rows, and must be None"):
            loader.to_tf(signature=spec | {"id": tf.TensorSpec([32], tf.int64)})
        with pytest.raises(ConfigError, match=r"signature must be made of tf\.TypeSpecs, got 'id'"):
            loader.to_tf(signature=["id"])


def test_an_unknown_length_has_no_cardinality_and_an_endless_one_is_infinite(table):
    with loader_of(table, columns=["id"], filter="id < 100", exact_length=False) as loader:
        dataset = loader.to_tf()
        assert dataset.cardinality() == tf.data.UNKNOWN_CARDINALITY
        assert sum(map(len, ids(dataset))) == 100
    with loader_of(table, columns=["id"], num_epoch=None) as loader:
        dataset = loader.to_tf()
        assert dataset.cardinality() == tf.data.INFINITE_CARDINALITY
        assert len(list(dataset.take(100))) == 100


# Slabs --------------------------------------------------------------------------------------------------------------


def test_slabs_hold_whole_batches_in_order_and_are_about_a_mebibyte():
    batches = [{"x": np.full((32, 512), i, np.float32)} for i in range(40)] + [{"x": np.full((5, 512), 40, np.float32)}]
    found = list(slabs(iter(batches), 32))
    assert [len(slab["x"]) for slab in found] == [512, 512, 261]
    np.testing.assert_array_equal(np.concatenate([s["x"] for s in found]), np.concatenate([b["x"] for b in batches]))
    assert all(slab["x"].ctypes.data % 64 == 0 for slab in found)


@pytest.mark.parametrize(
    "batches",
    [
        [{"x": np.zeros((4, 2))}, {"x": np.zeros((4, 3))}],  # other widths
        [{"x": np.zeros(4)}, {"x": np.zeros(4, np.float32)}],  # other types
        [{"x": np.zeros(3)}, {"x": np.zeros(4)}],  # a short batch ends an epoch
        [{"x": np.zeros(4), "n": np.array(4)}] * 2,  # no rows
        [{"x": np.zeros(4), "y": np.zeros(5)}] * 2,
        [{"x": np.zeros(4), "y": object()}] * 2,
        [{"x": np.zeros(8)}] * 2,  # more rows than a batch has
        [np.array(3.0)] * 2,
    ],
    ids=["widths", "types", "short", "no rows", "lengths", "no array", "long", "scalar"],
)
def test_what_cannot_be_cut_again_stays_apart(batches):
    assert [id(slab) for slab in slabs(iter(batches), 4)] == [id(batch) for batch in batches]


@pytest.mark.parametrize(
    "value", [np.arange(12)[1:], np.arange(12).reshape(3, 4)[:, 1:], np.arange(12.0), np.zeros((1, 3))]
)
def test_an_aligned_array_is_equal_and_in_one_piece(value):
    found = aligned_array(value)
    np.testing.assert_array_equal(found, value)
    assert found.dtype == value.dtype
    assert found.flags.c_contiguous
    assert found.ctypes.data % 64 == 0
    assert aligned_array(found) is found
