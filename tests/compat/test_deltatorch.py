"""deltatorch's programs work here, and each of its defects is not ours."""

import importlib
import io
import random
import warnings
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
import torch
from deltalake import DeltaTable, write_deltalake
from PIL import Image
from writing import number_table

import pyloader_delta
from pyloader_delta import ConfigError, FieldSpec, ValueTypeError
from pyloader_delta.compat.deltatorch import create_pytorch_dataloader
from pyloader_delta.compat.samples import BatchedFields

N_ROWS = 100


def png(value):
    stream = io.BytesIO()
    Image.fromarray(np.full((4, 5, 3), value, np.uint8)).save(stream, "PNG")
    return stream.getvalue()


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    path = str(tmp_path_factory.mktemp("deltatorch"))
    rows = {
        "id": pa.array(range(1, N_ROWS + 1)),  # as row_number() and IDENTITY columns count
        "i": pa.array(range(N_ROWS), pa.int32()),
        "f": pa.array(range(N_ROWS), pa.float32()),
        "late": [i % 3 == 0 for i in range(N_ROWS)],
        "s": [f"é{i}" for i in range(N_ROWS)],
        "raw": [bytes([i]) * 6 for i in range(N_ROWS)],
        "image": [png(i) for i in range(N_ROWS)],
        "pair": [[i, i + 1] for i in range(N_ROWS)],
        "null": pa.array([None if i == 7 else i for i in range(N_ROWS)]),
        "words": [None if i == 7 else "w" for i in range(N_ROWS)],
        "price": [Decimal(i).scaleb(-2) for i in range(N_ROWS)],
        "part": ["ab"[i % 2] for i in range(N_ROWS)],
        "year": [2020 + i % 4 for i in range(N_ROWS)],
    }
    write_deltalake(path, pa.table(rows), partition_by=["part", "year"])
    return path


def make(table, *names, **options):
    return create_pytorch_dataloader(table, "id", list(names), **{"num_workers": 0, "batch_size": 16} | options)


def ids(loader, name="id"):
    return [value for batch in loader for value in batch[name].tolist()]


# What torch's own users see -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("drop_last", "n_batches"), [(False, 7), (True, 6)])
@pytest.mark.parametrize("num_workers", [0, 4])
def test_lengths_are_those_of_torch_for_any_workers(table, drop_last, n_batches, num_workers):  # D9
    loader = make(table, "id", drop_last=drop_last, num_workers=num_workers)
    assert isinstance(loader, torch.utils.data.DataLoader)
    assert type(loader).__init__ is torch.utils.data.DataLoader.__init__  # else Lightning refuses it
    assert (len(loader), len(loader.dataset), loader.batch_size, loader.drop_last) == (n_batches, N_ROWS, 16, drop_last)
    sizes = [len(batch["id"]) for batch in loader]
    assert sizes == [16] * 6 + [4] * (not drop_last)


def test_it_is_a_name_of_the_package_itself():
    assert pyloader_delta.create_pytorch_dataloader is create_pytorch_dataloader
    assert importlib.import_module("pyloader_delta.compat.deltatorch").FieldSpec is FieldSpec


def test_batches_are_what_default_collate_makes_of_the_samples(table):
    names = ["i", "f", "late", "s", "raw", "pair"]
    batch = next(iter(make(table, *names)))
    rows = DeltaTable(table).to_pyarrow_table(columns=names).to_pylist()
    by_number = {row["i"]: row for row in rows}
    expected = torch.utils.data.default_collate([by_number[i] for i in batch["i"].tolist()])
    assert list(batch) == names
    for name in ("i", "f", "late"):
        assert batch[name].dtype == expected[name].dtype
        assert torch.equal(batch[name], expected[name])
    assert (batch["s"], batch["raw"]) == (expected["s"], expected["raw"])
    assert all(map(torch.equal, batch["pair"], expected["pair"]))


def test_an_int_label_goes_into_cross_entropy(table):
    batch = next(iter(make(table, FieldSpec("i", target_name="label"))))
    assert torch.nn.CrossEntropyLoss()(torch.zeros(16, N_ROWS), batch["label"]) > 0


def nested(image):
    pixels = torch.from_numpy(np.asarray(image).copy())
    return {"pixels": pixels, "size": image.size, "name": "x"}


@pytest.mark.parametrize("where", [{"num_workers": 0}, {"num_workers": 1}])
def test_transforms_may_give_nested_values(table, where):
    batch = next(iter(make(table, "i", FieldSpec("image", load_image_using_pil=True, transform=nested), **where)))
    image = batch["image"]
    assert image["pixels"].shape == (16, 4, 5, 3)
    assert torch.equal(image["pixels"][:, 0, 0, 0].long(), batch["i"])
    assert (image["size"][0].tolist(), image["name"]) == ([5] * 16, ["x"] * 16)


def test_lambdas_reach_the_workers(table):  # D18
    loader = make(table, FieldSpec("i", transform=lambda value: value + 0.5), num_workers=1)
    assert sorted(ids(loader, "i")) == [i + 0.5 for i in range(N_ROWS)]


def test_collate_fn_gets_a_list_of_sample_dicts(table):
    def collate(samples):
        assert type(samples) is list
        assert all(type(sample) is dict for sample in samples)
        return [(type(s["i"]), s["i"], s["s"], s["raw"].shape, type(s["image"]).__name__) for s in samples]

    fields = ["i", "s", FieldSpec("raw", (2, 3))]
    fields += [FieldSpec("image", load_image_using_pil=True, transform=lambda image: image.convert("L"))]
    batches = list(make(table, *fields, collate_fn=collate, num_workers=1))
    found = [row for batch in batches for row in batch]
    assert sorted(row[1] for row in found) == list(range(N_ROWS))
    assert all(row == (int, row[1], f"é{row[1]}", (2, 3), "Image") for row in found)


def test_an_error_of_collate_fn_says_where(table):
    loader = make(table, "i", collate_fn=lambda samples: samples[0]["missing"])
    with pytest.raises(KeyError, match="missing") as caught:
        next(iter(loader))
    assert any("collate_fn" in note for note in caught.value.__notes__)


# Options ------------------------------------------------------------------------------------------------------------


def test_options_of_workers_go_to_the_loader_and_pin_memory_to_torch(table):
    loader = make(
        table, "id", num_workers=2, prefetch_factor=3, persistent_workers=True, timeout=9,
        multiprocessing_context="spawn", pin_memory=False, in_order=True,
    )  # fmt: skip
    options = loader.dataset.loader._options
    assert (options.n_workers, options.prefetch_factor, options.timeout_s, options.workers) == (2, 3, 9.0, "process")
    assert (loader.num_workers, loader.pin_memory) == (0, False)
    loader.dataset.loader.close()


@pytest.mark.parametrize("name", ["worker_init_fn", "generator", "sampler", "batch_sampler"])
def test_what_cannot_be_honoured_is_refused_by_name(table, name):
    with pytest.raises(ConfigError, match=f"cannot honour {name}: "):
        make(table, "id", **{name: object()})
    assert len(make(table, "id", **{name: None})) == 7


WRONG = {
    "multiprocessing_context": ({"multiprocessing_context": "fork"}, "never forked"),
    "typo": ({"shufle_window": 3}, r"create_pytorch_dataloader\(\) has no option 'shufle_window'"),
    "of from_delta": ({"columns": ["id"]}, "has no option 'columns'; it is of DataLoader.from_delta alone"),
    "near one of its own": ({"use_fixd_rank": True}, "did you mean 'use_fixed_rank'"),
    "world_size": ({"use_fixed_rank": True, "rank": 0, "num_ranks": 2, "world_size": 3}, "is named num_ranks here"),
    "num_epoch": ({"num_epoch": 2}, "num_epoch is of pyloader_delta.DataLoader"),
    "exact_length": ({"exact_length": False}, "exact_length"),
    "rank": ({"use_fixed_rank": True, "rank": 0}, "needs rank and num_ranks"),
    "collate_fn": ({"collate_fn": 3}, "collate_fn must be a function"),
    "fields": ({"transform": len}, "transform goes with src_field"),
    "one of the pair": ({"fields": None, "src_field": "i"}, "target_field is missing"),
    "two filters": ({"filter": "i < 3", "partition_filter": [("part", "=", "a")]}, "exclude each other"),
    "batch_size": ({"batch_size": None}, "batch_size must be an int, got None"),
    "no fields": ({"fields": []}, "fields is empty: name one column or more"),
    "length": ({"length": -1}, "length must be >= 0"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_arguments_are_named(table, case):
    options, text = WRONG[case]
    with pytest.raises(ConfigError, match=text):
        create_pytorch_dataloader(table, "id", **{"fields": ["id"], "num_workers": 0} | options)


def test_a_missing_column_is_named(table):
    with pytest.raises(ConfigError, match="idd"):
        make(table, "idd")


# Sharding and cutting again -----------------------------------------------------------------------------------------


def again(loader, **options):
    return torch.utils.data.DataLoader(loader.dataset, collate_fn=loader.collate_fn, **options)


def test_a_trainer_may_make_the_loader_again_as_it_was(table):
    loader = make(table, "id")
    assert sorted(ids(again(loader, batch_size=16))) == list(range(1, N_ROWS + 1))


class EveryOther(torch.utils.data.IterableDataset):
    """Every other run of 16 rows: what Accelerate gives to the second of two processes."""

    def __init__(self, dataset):
        self.dataset = dataset

    def __iter__(self):
        return (row for place, row in enumerate(self.dataset) if place // 16 % 2)


def test_cutting_or_sharing_out_again_is_refused(table):
    loader = make(table, "id")
    with pytest.raises(ConfigError, match="cut or shared out again"):
        list(again(loader, batch_size=8))
    with pytest.raises(ConfigError, match="cut or shared out again"):
        list(torch.utils.data.DataLoader(EveryOther(loader.dataset), 16, collate_fn=loader.collate_fn))


# The defects of deltatorch ------------------------------------------------------------------------------------------


def test_the_default_workers_run(table):  # D1, D2
    assert sorted(ids(create_pytorch_dataloader(table, "id", [FieldSpec("id")]))) == list(range(1, N_ROWS + 1))


@pytest.mark.parametrize("values", [[5, -3, 900, 901, 7], ["b", "a", "é", "", "z"]])
def test_ids_may_be_anything(tmp_path, values):  # D3, D4
    write_deltalake(tmp_path, pa.table({"id": values, "x": range(5)}))
    assert ids(make(tmp_path, "x"), "x") == list(range(5))


def test_deleted_rows_are_gone_and_all_others_are_there(tmp_path):  # D4
    write_deltalake(tmp_path, pa.table({"id": range(10)}))
    DeltaTable(tmp_path).delete("id < 5")
    loader = make(tmp_path, "id")
    assert (ids(loader), len(loader.dataset)) == ([5, 6, 7, 8, 9], 5)


FILTERS = {
    "text": [("part", "=", "a")],
    "deltatorch's quotes": [("part", "=", "'a'")],
    "number": [("year", "=", 2021)],
    "number as text": [("year", "=", "2021")],
    "in": [("year", "in", [2020, 2023])],
    "not": [("part", "!=", "a")],
    "two": [("part", "=", "'b'"), ("year", ">", 2021)],
}
KEPT = {
    "text": lambda i: i % 2 == 0,
    "deltatorch's quotes": lambda i: i % 2 == 0,
    "number": lambda i: i % 4 == 1,
    "number as text": lambda i: i % 4 == 1,
    "in": lambda i: i % 4 in (0, 3),
    "not": lambda i: i % 2 == 1,
    "two": lambda i: i % 4 == 3,
}


@pytest.mark.parametrize("case", FILTERS)
def test_a_partition_filter_chooses_rows_as_well_as_counting_them(table, case):  # D5, D6
    loader = make(table, "i", partition_filter=FILTERS[case])
    expected = [i for i in range(N_ROWS) if KEPT[case](i)]
    assert (sorted(ids(loader, "i")), len(loader.dataset)) == (expected, len(expected))


def test_the_version_stays_what_it_was(tmp_path):  # D7
    write_deltalake(tmp_path, pa.table({"x": [0, 10, 20]}))
    loader = make(tmp_path, "x")
    write_deltalake(tmp_path, pa.table({"x": [0, -1, -2, -3]}), mode="overwrite")
    assert [ids(loader, "x") for _ in range(2)] == [[0, 10, 20]] * 2
    assert ids(make(tmp_path, "x"), "x") == [0, -1, -2, -3]
    with pytest.warns(UserWarning, match="VACUUM may delete files of version 0"):
        assert ids(make(tmp_path, "x", version=0), "x") == [0, 10, 20]


def test_rows_of_different_files_are_mixed(tmp_path):  # D11
    number_table(tmp_path, [100] * 4)
    first, second = (ids(make(tmp_path, "x", shuffle=True), "x"), ids(make(tmp_path, "x", shuffle=True), "x"))
    assert first == second
    assert sorted(first) == list(range(400))
    assert {x // 100 for x in first[:50]} == {0, 1, 2, 3}


def test_each_epoch_has_its_own_order_and_global_random_states_stay(table):  # D12
    random.seed(5)
    torch.manual_seed(5)
    expected = random.random(), torch.rand(1)
    random.seed(5)
    torch.manual_seed(5)
    loader = make(table, "id", shuffle=True)
    one, two = ids(loader), ids(loader)
    assert one != two
    assert sorted(one) == sorted(two)
    assert random.random() == expected[0]
    assert ids(make(table, "id", shuffle=True, random_seed=7)) != one


def test_a_full_shuffle_is_that_of_from_delta(table):
    full = ids(make(table, "id", shuffle="full"))
    assert sorted(full) == list(range(1, N_ROWS + 1)) != full
    options = {"columns": ["id"], "shuffle": "full", "num_workers": 0}
    with pyloader_delta.DataLoader.from_delta(table, 16, **options) as loader:
        assert ids(loader) == full


def test_nulls_are_an_error_that_names_the_column_or_what_was_said(table):  # D14
    with pytest.raises(ValueTypeError, match="null"):
        list(make(table, "null"))
    assert sorted(ids(make(table, FieldSpec("null", fill_null=-1)), "null"))[:2] == [-1, 0]
    with pytest.raises(ValueTypeError, match="'words' is None in 1 of 16 rows"):
        list(make(table, "words"))


def test_a_decimal_is_refused_with_the_remedy(table):  # D14
    with pytest.raises(ValueTypeError, match="price"):
        make(table, "price")
    assert sorted(ids(make(table, FieldSpec("price", dtype="float64")), "price")) == [i / 100 for i in range(N_ROWS)]


def test_times_and_dates_are_numbers(tmp_path):  # D14
    rows = {"t": pa.array([1, -2], pa.timestamp("us", "UTC")), "d": pa.array([3, -4], pa.date32())}
    write_deltalake(tmp_path, pa.table(rows))
    (batch,) = make(tmp_path, "t", "d")
    assert (batch["t"].dtype, batch["t"].tolist()) == (torch.int64, [1, -2])
    assert (batch["d"].dtype, batch["d"].tolist()) == (torch.int32, [3, -4])


def test_target_name_takes_the_place_of_the_column(table):  # D15
    assert list(next(iter(make(table, FieldSpec("raw", (6,), target_name="pixels"))))) == ["pixels"]


def test_a_table_that_may_have_deletion_vectors_is_read(tmp_path):  # D16
    configuration = {"delta.enableDeletionVectors": "true"}
    write_deltalake(tmp_path, pa.table({"x": [1, 2]}), configuration=configuration)
    assert ids(make(tmp_path, "x"), "x") == [1, 2]


def test_files_without_statistics_are_counted(tmp_path):  # D17
    write_deltalake(tmp_path, pa.table({"x": [1, 2, 3]}), configuration={"delta.dataSkippingNumIndexedCols": "0"})
    for commit in (tmp_path / "_delta_log").glob("*.json"):
        lines = commit.read_text().splitlines()
        commit.write_text("\n".join(line.replace('"stats":', '"none":') for line in lines))
    loader = make(tmp_path, "x")
    assert (len(loader.dataset), ids(loader, "x")) == (3, [1, 2, 3])


@pytest.mark.parametrize("n_ranks", [2, 3, 150])
def test_ranks_have_equal_shares_even_where_there_are_more_than_rows(table, n_ranks):  # D8, D10
    loaders = [make(table, "id", use_fixed_rank=True, rank=rank, num_ranks=n_ranks) for rank in range(n_ranks)]
    shares = [ids(loader) for loader in loaders[:3]]
    n_rows = -(-N_ROWS // n_ranks)
    assert [len(share) for share in shares] == [len(loader.dataset) for loader in loaders[:3]] == [n_rows] * len(shares)
    assert {len(loader) for loader in loaders} == {-(-n_rows // 16)}
    if n_ranks <= 3:
        assert {value for share in shares for value in share} == set(range(1, N_ROWS + 1))


def test_the_rank_is_found_where_the_loop_begins(table, monkeypatch):  # D20, D24
    loader = make(table, "id")
    assert len(loader.dataset) == N_ROWS
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert (len(loader), len(loader.dataset), len(ids(loader))) == (4, 50, 50)


def test_a_rank_that_does_not_hold_is_warned_of(table):
    with pytest.warns(UserWarning, match="rank and num_ranks hold with use_fixed_rank=True alone") as caught:
        loader = make(table, "id", rank=0, num_ranks=2)
    assert (len(caught), caught[0].filename, len(loader.dataset)) == (1, __file__, N_ROWS)


# The form of deltatorch's README ------------------------------------------------------------------------------------


def old(table, *length, **options):
    fixed = {"src_field": "image", "target_field": "i", "id_field": "id", "load_pil": True, "batch_size": 16}
    return create_pytorch_dataloader(table, *length, **fixed | {"num_workers": 0} | options)


def test_the_older_form_gives_pairs(table):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loader = old(table, N_ROWS, timeout=15, queue_size=100)
    batches = list(loader)
    assert all(type(batch) is list for batch in batches)
    X, y = batches[0]
    assert (X.shape, X.dtype, y.dtype) == ((16, 4, 5, 3), torch.uint8, torch.int64)
    assert torch.equal(X[:, 0, 0, 0].long(), y)
    assert sum(len(batch[1]) for batch in batches) == N_ROWS


def test_the_older_form_takes_transforms_and_shapes(table):
    loader = old(
        table, N_ROWS, src_field="raw", load_pil=False, apply_src_numpy_shape=(2, 3),
        transform=lambda array: int(array.sum()), target_transform=lambda i: i * 2,
    )  # fmt: skip
    X, y = next(iter(loader))
    assert torch.equal(X.long(), y * 3)


def test_the_older_form_gives_collate_fn_pairs(table):
    X, y = next(iter(old(table, N_ROWS, collate_fn=lambda samples: tuple(zip(*samples, strict=True)))))
    assert [int(image[0, 0, 0]) for image in X] == list(y)


@pytest.mark.parametrize("where", [((99,), {}), ((), {"length": 99})])
def test_a_wrong_length_is_warned_of_once(table, where):
    positional, named = where
    with pytest.warns(UserWarning, match="length is 99, but .* has 100 rows") as caught:
        loader = old(table, *positional, **named)
    assert len(caught) == 1
    assert len(loader.dataset) == N_ROWS


# Defects of its inside ----------------------------------------------------------------------------------------------


def test_rows_are_not_sliced_one_by_one_in_python(table):  # D13
    seen = []
    encode = BatchedFields.batch_encode

    def noted(self, batch_data):
        seen.append(batch_data.n_rows)
        return encode(self, batch_data)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(BatchedFields, "batch_encode", noted)
        assert sum(map(len, (batch["id"] for batch in make(table, "id", "f")))) == N_ROWS
    assert sum(seen) == N_ROWS
    assert len(seen) < 7  # calls, of several batches each: deltatorch makes a dict of every row


def test_the_dataset_can_be_made_and_no_class_of_deltatorchs_is_there_half(table):  # D19
    from pyloader_delta.compat import deltatorch

    for name in ("DeltaIterableDataset", "IDBasedDeltaDataset", "SkipReadDeltaDataset"):
        assert not hasattr(deltatorch, name)
    loader = make(table, "id")
    assert type(loader.dataset)(loader.dataset.loader) is not loader.dataset
    assert sum(1 for _ in loader.dataset) == N_ROWS


def test_one_signature_has_partition_filter_before_version(table):  # D21
    loader = create_pytorch_dataloader(table, "id", [FieldSpec("i")], [("part", "=", "a")], 0, 16, num_workers=0)
    assert sorted(ids(loader, "i")) == list(range(0, N_ROWS, 2))
    assert loader.dataset.loader.snapshot.version == 0
    with pytest.raises((ConfigError, TypeError)):  # deltatorch's other order
        create_pytorch_dataloader(table, "id", [FieldSpec("i")], 0, [("part", "=", "a")], num_workers=0)


def test_what_is_read_ahead_is_bounded_by_bytes(tmp_path):  # D22
    for start in range(0, 64, 4):
        images = [bytes([start + i]) * (1 << 18) for i in range(4)]
        write_deltalake(tmp_path, pa.table({"i": range(start, start + 4), "image": images}), mode="append")
    field = FieldSpec("image", (512, 512))
    loader = make(tmp_path, "i", field, batch_size=2, num_workers=2, memory_budget="8MiB", shuffle_window="1MiB")
    ours = loader.dataset.loader
    held = []
    for batch in loader:
        assert batch["image"].shape == (2, 512, 512)
        memory = ours.memory()
        held.append(memory.chunks + memory.batches)
    assert len(held) == 32
    assert 0 < max(held) <= 8 << 20


def test_the_same_table_resumes_counts_and_feeds_tensorflow(table):  # D23
    loader = make(table, "id", shuffle=True)
    batches = iter(loader)
    first = [next(batches)["id"].tolist() for _ in range(3)]
    state = loader.state_dict()
    again = make(table, "id", shuffle=True)
    again.load_state_dict(state)
    rest = [batch["id"].tolist() for batch in again]
    assert sorted(i for part in first + rest for i in part) == list(range(1, N_ROWS + 1))
    assert rest == [batch["id"].tolist() for batch in batches]
    assert again.dataset.loader.stats()["batches_delivered_total"] == 4


@pytest.mark.parametrize("part", ["a", "b"])
def test_a_partition_has_its_own_values_in_every_column(table, part):  # D25: not only some values
    loader = make(table, "i", "s", "part", "f", partition_filter=[("part", "=", part)])
    rows = [row for batch in loader for row in zip(*(batch[n] for n in ("i", "s", "part", "f")), strict=True)]
    expected = [(i, f"é{i}", part, float(i)) for i in range(N_ROWS) if "ab"[i % 2] == part]
    assert sorted((int(i), s, p, float(f)) for i, s, p, f in rows) == expected
