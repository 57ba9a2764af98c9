"""`FieldSpec` and `FieldsDataset`: nulls, casts, ragged lists, images, functions, matrices, and their errors."""

import datetime as dt
import io
import sys
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from deltalake import write_deltalake
from programs import python

from pyloader_delta import ConfigError, ContractError, DataLoader, FieldSpec, ValueTypeError
from pyloader_delta.collate.framework import collator_of
from pyloader_delta.encode import images
from pyloader_delta.encode.fields import FieldsDataset

INT8S = pa.list_(pa.int8())
DAYS = pa.array([dt.date(2020, 1, 1), None])


def made(array: pa.Array, framework: str = "numpy", **options: Any) -> dict[str, Any]:
    """Return the batch of one column x."""
    dataset = FieldsDataset([FieldSpec("x", **options)], framework=framework)
    collator = collator_of(framework)
    return collator.finalize(collator.collate_batch(dataset.batch_encode(pa.record_batch({"x": array}))))


@pytest.mark.parametrize(
    ("array", "options", "wanted"),
    [
        (pa.array([1, None]), {"fill_null": float("nan"), "dtype": "float32"}, [1.0, "nan"]),
        (pa.array([1.0, None, 3.0]), {"dtype": "int32", "fill_null": -1}, [1, -1, 3]),
        (pa.array([1, 0]), {"dtype": bool}, [True, False]),
        (pa.array([5, 1, 2, None], pa.int16())[1:], {"fill_null": 7}, [1, 2, 7]),
        (pa.array([True, None, False] * 5)[7:], {"fill_null": True}, [True, False] + [True, True, False] * 2),
        (pa.array([dt.date(2020, 1, 1), None]), {"fill_null": dt.date(1970, 1, 2)},
         [dt.date(2020, 1, 1), dt.date(1970, 1, 2)]),
        (pa.array(["a", None, "b"]).dictionary_encode(), {"fill_null": "?"}, ["a", "?", "b"]),
        (pa.array([{"a": 1}, None]), {"null_mask": True}, [{"a": 1}, None]),
        (pa.array([[1], None, [2, None]], INT8S), {"fill_null": 9}, [[1, 0], [0, 0], [2, 9]]),
        (pa.array([[1, 2], None], INT8S), {"ragged": 2, "fill_null": 7}, [[1, 2], [7, 7]]),
        (pa.array([[1, 2], None], pa.list_(pa.int8(), 2)), {"null_mask": True}, [[1, 2], [0, 0]]),
        (pa.array([[9], [1], [2, 3]], pa.large_list(pa.int64()))[1:], {"pad_value": -1}, [[1, -1], [2, 3]]),
        (pa.array([[[1], None], None, [[2]]], pa.list_(INT8S)), {"fill_null": 0}, [[[1], [0]], [[0], [0]], [[2], [0]]]),
        (pa.array([[dt.date(1970, 1, 2)], []], pa.list_(pa.date32())), {},
         [[dt.date(1970, 1, 2)], [dt.date(1970, 1, 1)]]),
        (pa.array([b"ab", None, b"cd"]), {"decode_numpy_and_apply_shape": 2, "fill_null": 3},
         [[97, 98], [3, 3], [99, 100]]),
        (pa.array(["a", None], pa.large_string()), {"fill_null": "ü"}, ["a", "ü"]),
        (pa.array([b"ab", None], pa.binary(2)), {"fill_null": b"cd"}, [b"ab", b"cd"]),
        (pa.array([b"ab", None], pa.binary(2)), {"null_mask": True}, [b"ab", b"\0\0"]),
        (pa.array([], INT8S), {}, []),
        (pa.array([], pa.string()), {}, []),
        (pa.array([Decimal(2**53 + 1), None], pa.decimal128(38, 0)), {"dtype": "int64", "fill_null": -1},
         [2**53 + 1, -1]),
        (pa.array([Decimal(2**64 - 1)]), {"dtype": "uint64"}, [2**64 - 1]),
        (pa.array([1.0, None]), {"fill_null": float("inf"), "dtype": "float32"}, [1.0, "inf"]),
        (pa.array([dt.date(2020, 1, 1), None]), {"fill_null": np.datetime64("NaT")}, [dt.date(2020, 1, 1), None]),
        (pa.array([[dt.date(2020, 1, 1)], []], pa.list_(pa.date32())), {"pad_value": dt.datetime(2020, 1, 2)},
         [[dt.date(2020, 1, 1)], [dt.date(2020, 1, 2)]]),
        (pa.array(["a", "bcd"]), {"transform": len}, [1, 3]),
        (pa.array([b"ab"]), {"decode_numpy_and_apply_shape": (2,), "transform": lambda row: row[::-1].copy()},
         [[98, 97]]),
        (pa.array(["a", "bcd"]), {"batch_transform": lambda texts: np.array([len(t) for t in texts])}, [1, 3]),
        (pa.array([1, 2]), {"batch_transform": lambda x: x[:, None] / 2}, [[0.5], [1.0]]),
        (pa.array([[1, 2], [3]]), {"transform": sum}, [3, 3]),
    ],
)  # fmt: skip
def test_values(array, options, wanted):
    found = made(array, **options)["x"].tolist()
    assert str(found).replace("'", "") == str(wanted).replace("'", "")


def test_a_null_has_its_place_in_torch_as_well():
    pytest.importorskip("torch")
    array = pa.array([dt.datetime(1970, 1, 1, 0, 0, 2), None], pa.timestamp("us", "UTC"))
    filled = dt.datetime(1970, 1, 1, 0, 0, 1, tzinfo=dt.UTC)
    assert made(array, "torch", fill_null=filled)["x"].tolist() == [2_000_000, 1_000_000]
    lists = pa.array([[dt.date(1970, 1, 2)], []], pa.list_(pa.date32()))
    assert made(lists, "torch", pad_value=dt.date(1970, 1, 3))["x"].tolist() == [[1], [2]]


@pytest.mark.parametrize(
    ("array", "options", "error", "text"),
    [
        (pa.array([1, None, None]), {}, ValueTypeError, "column 'x' has 2 nulls in 3 values.*fill_null"),
        (pa.array([[1, None]], INT8S), {"null_mask": True}, ValueTypeError, "1 null elements"),
        (pa.array([[[1], None]], pa.list_(INT8S)), {"null_mask": True}, ValueTypeError, "1 null lists inside"),
        (pa.array([1.5]), {"dtype": "int32"}, ValueTypeError, "holds 1.5, which int32 cannot hold"),
        (pa.array([float("nan")]), {"dtype": "int32"}, ValueTypeError, "nan"),
        (pa.array([-1]), {"dtype": "uint8"}, ValueTypeError, "-1"),
        (pa.array([2**63 - 1]), {"dtype": "int32"}, ValueTypeError, str(2**63 - 1)),
        (pa.array([2]), {"dtype": "bool"}, ValueTypeError, "2"),
        (pa.array([1e300]), {"dtype": "float32"}, ValueTypeError, "1e.300"),
        (pa.array([1]), {"fill_null": 0.5}, ConfigError, "fill_null must be a value of type int64, got 0.5"),
        (pa.array([1]), {"fill_null": float("nan")}, ConfigError, "fill_null must be a value of type int64, got nan"),
        (pa.array([1.0]), {"fill_null": 1e300, "dtype": "float32"}, ConfigError, "type float32, got 1e.300"),
        (DAYS, {"fill_null": 1.5}, ConfigError, r"fill_null must be a value of type datetime64\[D\], got 1.5"),
        (DAYS, {"fill_null": float("nan")}, ConfigError, "got nan"),
        (DAYS, {"fill_null": True}, ConfigError, "got True"),
        (DAYS, {"fill_null": dt.datetime(2020, 1, 1, 12)}, ConfigError, "got datetime.datetime"),
        (DAYS.cast("timestamp[us]"), {"fill_null": np.datetime64(1, "ns")}, ConfigError, r"datetime64\[us\]"),
        (pa.array([[1]], pa.list_(pa.date32())), {"pad_value": 2.5}, ConfigError, "pad_value must be.*got 2.5"),
        (pa.array([Decimal("1.5")]), {"dtype": "int32"}, ValueTypeError, "holds 1.5, which int32 cannot hold"),
        (pa.array([Decimal(300)]), {"dtype": "uint8"}, ValueTypeError, "holds 300"),
        (pa.array([Decimal(2)]), {"dtype": "bool"}, ValueTypeError, "holds 2"),
        (pa.array(["a"]), {"fill_null": 3}, ConfigError, "fill_null must be str"),
        (pa.array([[1]], INT8S), {"pad_value": 300}, ConfigError, "pad_value must be a value of type int8"),
        (pa.array(["a"]), {"dtype": "int32"}, ConfigError, "dtype is for numbers; the column is string"),
        (pa.array([1]), {"ragged": "jagged"}, ConfigError, "ragged is for lists"),
        (pa.array([1]), {"decode": "image"}, ConfigError, "binary column; this one is int64"),
        (pa.array([1]), {"decode": "unscaled"}, ConfigError, "decimals"),
        (pa.array([[1, 2], [3]], INT8S), {"ragged": 2}, ContractError, r"a list has 1 numbers, shape \(2,\) needs 2"),
        (pa.array([b"ab", b"c"]), {"decode_numpy_and_apply_shape": (2,)}, ContractError, "1 bytes.*needs 2"),
        (pa.array([["a"], ["b", "c"]]), {"ragged": "jagged"}, ConfigError, "ragged is for lists of numbers"),
        (pa.array([["a"], ["b", "c"]]), {"dtype": "float32"}, ConfigError, "dtype is for numbers"),
        (pa.array([[Decimal("1.5")]]), {"dtype": "float64"}, ConfigError, "dtype is for numbers"),
        (pa.array([[{"a": 1}]]), {"pad_value": 3}, ConfigError, "pad_value is for lists of numbers"),
        (pa.array([[1], [2, 3]]), {"batch_transform": len, "dtype": "int8"}, ConfigError, "dtype does nothing beside"),
        (pa.array([Decimal(1)]), {"batch_transform": len, "dtype": "int8"}, ConfigError, "dtype does nothing beside"),
        (pa.array([[1], [2]]), {"batch_transform": len, "ragged": "jagged"}, ConfigError, "ragged does nothing beside"),
        (pa.nulls(2), {"fill_null": [1, 2]}, ConfigError, "fill_null must be one number or bool"),
        (pa.nulls(2), {"fill_null": 300, "dtype": "int8"}, ConfigError, "fill_null must be a value of type int8"),
        (pa.array([1, 2]), {"batch_transform": lambda x: x[:1]}, ContractError, "got 2 rows and returned 1"),
        (pa.array(["a", "bc"]), {"transform": lambda t: np.zeros(len(t))}, ContractError, r"\(1,\).*row 1 \(2,\)"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_an_error(array, options, error, text):
    with pytest.raises(error, match=text):
        made(array, **options)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"name": ""}, "name must be"),
        ({"dtype": "text"}, "dtype must be"),
        ({"ragged": "cut"}, "ragged must be a shape such as"),
        ({"decode": "png"}, "decode must be"),
        ({"resize": (2, 2)}, "resize is for images"),
        ({"resize": (2, 0), "decode": "jpeg"}, r"resize must be \(height, width\)"),
        ({"decode_numpy_and_apply_shape": (-1,)}, "decode_numpy_and_apply_shape must be a shape"),
        ({"decode_numpy_and_apply_shape": (2,), "decode": "jpeg"}, "exclude each other"),
        ({"transform": len, "batch_transform": len}, "exclude each other"),
        ({"as_list": True, "dtype": "int32"}, "exclude each other"),
        ({"as_list": True, "ragged": "jagged"}, "as_list and ragged exclude each other"),
        ({"as_list": True, "pad_value": 1}, "as_list and pad_value exclude each other"),
        ({"transform": len, "dtype": "int32"}, "transform and dtype exclude each other"),
        ({"transform": len, "ragged": 2}, "transform and ragged exclude each other"),
        ({"transform": 3}, "transform must be a function"),
        ({"null_mask": "yes"}, "null_mask must be True or False"),
    ],
)
def test_a_wrong_spec_is_refused_at_once(options, text):
    with pytest.raises(ConfigError, match=text):
        FieldSpec(**({"name": "x"} | options))


def test_an_error_of_a_transform_says_whose_it_is():
    with pytest.raises(ZeroDivisionError) as raised:
        made(pa.array([0]), transform=lambda value: 1 / value)
    assert raised.value.__notes__ == ["in transform of FieldSpec('x')"]


# Images -------------------------------------------------------------------------------------------------------------


def image(height: int, width: int, kind: str = "PNG", mode: str = "RGB", value: Any = (10, 20, 30)) -> bytes:
    pil = pytest.importorskip("PIL.Image")
    file = io.BytesIO()
    pil.new(mode, (width, height), value).save(file, kind)
    return file.getvalue()


@pytest.mark.parametrize("options", [{"load_image_using_pil": True}, {"decode": "image"}])
def test_images_become_one_array(options):
    found = made(pa.array([image(2, 3), image(2, 3)]), **options)["x"]
    assert found.shape == (2, 2, 3, 3)
    assert found.dtype == np.uint8
    assert (found == [10, 20, 30]).all()


def test_grey_and_jpeg_images():
    grey = image(2, 3, "JPEG", "L", 128)
    assert made(pa.array([grey]), decode="image")["x"].shape == (1, 2, 3)
    found = made(pa.array([grey, image(2, 3, "JPEG")]), decode="jpeg")["x"]
    assert found.shape == (2, 2, 3, 3)
    assert abs(found[1].astype(int) - [10, 20, 30]).max() <= 4


def test_images_of_unequal_sizes_are_an_error_that_names_both_or_resized():
    images = pa.array([image(2, 3), image(4, 5)])
    with pytest.raises(ContractError, match=r"\(2, 3, 3\) in row 0 and \(4, 5, 3\) in row 1.*resize"):
        made(images, decode="image")
    assert made(images, decode="image", resize=(6, 7))["x"].shape == (2, 6, 7, 3)


def test_a_null_image_is_black_where_a_mask_says_so_and_a_broken_one_an_error():
    found = made(pa.array([None, image(1, 1)]), decode="image", null_mask=True)
    assert found["x"].tolist() == [[[[0, 0, 0]]], [[[10, 20, 30]]]]
    assert found["x_null"].tolist() == [True, False]
    with pytest.raises(ValueTypeError, match="row 1 of the call, is no image"):
        made(pa.array([image(1, 1), b"broken"]), decode="image")


def test_a_transform_gets_the_image_as_pillow_has_it():
    found = made(pa.array([image(2, 3)]), load_image_using_pil=True, transform=lambda pil: np.array(pil.size))
    assert found["x"].tolist() == [[3, 2]]


# Matrices -----------------------------------------------------------------------------------------------------------


def test_features_become_one_row_major_matrix_and_stand_nowhere_else():
    n_rows = 9000  # more than two blocks
    batch = pa.record_batch({"a": np.arange(n_rows), "b": np.arange(n_rows) / 2, "c": np.arange(n_rows) % 2 == 0})
    dataset = FieldsDataset(features=["c", "a", "b"], features_dtype="float32")
    found = dataset.batch_encode(batch)
    assert list(found) == ["features"] == list(dataset.outputs(batch.schema))
    assert found["features"].dtype == np.float32
    assert found["features"].flags.c_contiguous
    wanted = np.stack([np.arange(n_rows) % 2 == 0, np.arange(n_rows), np.arange(n_rows) / 2], axis=1)
    assert (found["features"] == wanted).all()


def test_several_matrices_with_nulls_that_are_filled():
    batch = pa.record_batch({"a": pa.array([1, None]), "b": [3, 4], "c": [0.5, 1.5]})
    dataset = FieldsDataset(["b"], features={"x": [FieldSpec("a", fill_null=-1, null_mask=True), "b"], "y": ["c"]})
    found = {name: values.tolist() for name, values in dataset.batch_encode(batch).items()}
    assert found == {"b": [3, 4], "x": [[1, 3], [-1, 4]], "a_null": [False, True], "y": [[0.5], [1.5]]}


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"features": ["a", "b"]}, "types int64 .'a'. and float64 .'b'.*features_dtype"),
        ({"features": ["s"]}, "'s' is no column of numbers"),
        ({"features": []}, "has no columns"),
        ({"features": "a"}, "features must be a list"),
        ({"features": {"x": "a"}}, "features.'x'. must be a list of columns, got 'a'"),
        ({"features": {}}, "features is empty"),
        ({"features": ["missing"]}, "there is no column 'missing'"),
        ({"features_dtype": "float32"}, "features_dtype is for features"),
        ({"fields": ["missing"]}, "there is no column 'missing'"),
        ({"fields": ["a", FieldSpec("b", target_name="a")]}, "two entries of a batch would be named 'a'"),
        ({"fields": "a"}, "fields must be a list"),
        ({"fields": []}, "fields is empty: name one column or more"),
        ({"framework": "mxnet"}, "framework must be one of"),
    ],
)
def test_wrong_fields_are_refused(options, text):
    schema = pa.schema([("a", pa.int64()), ("b", pa.float64()), ("s", pa.string())])
    with pytest.raises(ConfigError, match=text):
        FieldsDataset(**options).outputs(schema)


def test_a_tables_column_names_are_listed_as_often_for_many_columns_as_for_few():
    """Each listing makes all names anew: one for each column is a second and more of thousands of columns."""

    def listings(n_columns):
        schema = pa.schema([(f"c{i}", pa.int64()) for i in range(n_columns)])
        found = []

        class Spied:
            @property
            def names(self):
                found.append(1)
                return schema.names

        assert FieldsDataset(fields=schema.names).columns(Spied()) == schema.names
        return len(found)

    assert listings(50) == listings(2) > 0


# Through a loader ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", ["inline", "thread", "process"])
@pytest.mark.parametrize("mean", [3, 300])
def test_ragged_rows_of_many_batches_arrive_as_they_were(workers, mean, tmp_path):
    rng = np.random.default_rng(0)
    rows = [list(range(n)) for n in rng.integers(0, 2 * mean, 50)]
    deep = [[row[:2], row[2:5]][: len(row) % 3] for row in rows]
    table = pa.table({
        "i": pa.array(range(50)), "x": pa.array(rows, pa.list_(pa.int32())),
        "deep": pa.array(deep, pa.list_(pa.list_(pa.int16()))),
    })  # fmt: skip
    write_deltalake(tmp_path, table)
    options = {"num_workers": 0} if workers == "inline" else {"num_workers": 1, "workers": workers}
    with DataLoader.from_delta(
        tmp_path, batch_size=7, fields=["i", FieldSpec("x", pad_value=-1), FieldSpec("deep", dtype="float32")],
        framework="numpy", shuffle=True, **options,
    ) as loader:  # fmt: skip
        seen = []
        for batch in loader:
            assert batch["x"].shape[1] == max(batch["x_lengths"])
            for i, row, n, inner, sizes in zip(
                *(batch[k] for k in ("i", "x", "x_lengths", "deep", "deep_lengths_2")), strict=True
            ):
                assert row[:n].tolist() == rows[i]
                assert (row[n:] == -1).all()
                there = len(deep[i])
                assert [inner[k, : sizes[k]].tolist() for k in range(there)] == deep[i]
                assert not sizes[there:].any()
                seen.append(int(i))
            batch["x"][:] = 0
            batch["x_lengths"][:] = 0
    assert sorted(seen) == list(range(50))


def test_a_faster_decoder_is_used_where_it_is_installed():
    simplejpeg = pytest.importorskip("simplejpeg")
    wanted = simplejpeg.decode_jpeg(image(8, 9, "JPEG"))
    assert (made(pa.array([image(8, 9, "JPEG")]), decode="jpeg")["x"][0] == wanted).all()
    assert made(pa.array([image(8, 9, "JPEG")]), decode="jpeg", resize=(4, 4))["x"].shape == (1, 4, 4, 3)
    with pytest.raises(ValueTypeError, match="is no image"):
        made(pa.array([b"broken"]), decode="jpeg")


TORCHVISION = """
import io, numpy, torch
from PIL import Image
ImageReadMode = type("ImageReadMode", (), {"RGB": "RGB"})
def decode_jpeg(data, mode):
    assert data.dtype == torch.uint8 and data.ndim == 1
    try:
        image = Image.open(io.BytesIO(data.numpy().tobytes())).convert(mode)
    except OSError as error:
        raise RuntimeError(str(error)) from error
    return torch.from_numpy(numpy.array(image)).permute(2, 0, 1)
"""


@pytest.fixture
def torchvision(tmp_path, monkeypatch):
    """Write a library that speaks as torchvision does; simplejpeg is not there."""
    torch = pytest.importorskip("torch")

    def write(source: str, *, registered: bool = True) -> None:
        (tmp_path / "torchvision").mkdir()
        (tmp_path / "torchvision" / "__init__.py").write_text("")
        (tmp_path / "torchvision" / "io.py").write_text(source)
        if registered:
            monkeypatch.setattr(torch.ops.image, "decode_jpeg", None, raising=False)

    for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(sys.modules, "simplejpeg", None)
    images._jpeg.cache_clear()
    yield write
    images._jpeg.cache_clear()
    for name in ("torchvision.io", "torchvision"):
        sys.modules.pop(name, None)


def test_without_simplejpeg_torchvision_decodes(torchvision):
    torchvision(TORCHVISION)
    assert images._jpeg() is not None
    rows = [image(8, 9, "JPEG"), None, image(8, 9, "JPEG")]
    found = made(pa.array(rows), decode="jpeg", null_mask=True)["x"]
    wanted = np.asarray(images.decode_images(rows[:1], "image", None, "x", as_pil=False))[0]
    assert (found[0] == wanted).all()
    assert (found[2] == wanted).all()
    assert not found[1].any()
    assert made(pa.array(rows[:1]), decode="jpeg", resize=(4, 5))["x"].shape == (1, 4, 5, 3)
    with pytest.raises(ValueTypeError, match="row 0 of the call, is no image"):
        made(pa.array([b"broken"]), decode="jpeg")


@pytest.mark.parametrize(
    ("source", "registered"),
    [("raise RuntimeError('operator torchvision::nms does not exist')", True), (TORCHVISION, False)],
    ids=["for another torch", "without its library"],
)
def test_a_torchvision_that_does_not_work_leaves_images_to_pillow(torchvision, source, registered):
    torchvision(source, registered=registered)
    assert images._jpeg() is None
    assert made(pa.array([image(8, 9, "JPEG")]), decode="jpeg")["x"].shape == (1, 8, 9, 3)


def test_fixed_length_bytes_are_filled_by_as_many():
    with pytest.raises(ConfigError, match="fill_null must have 4 bytes like the column, got 1"):
        made(pa.array([b"abcd", None], pa.binary(4)), fill_null=b"a")


def test_filling_texts_imports_no_pandas():
    program = """
import sys
import pyarrow as pa
from pyloader_delta import FieldSpec
from pyloader_delta.collate.framework import collator_of
from pyloader_delta.encode.fields import FieldsDataset

kind = pa.struct([("s", pa.string()), ("b", pa.binary())])
rows = pa.RecordBatch.from_struct_array(pa.nulls(2, kind))
for framework in ("numpy", "tensorflow"):
    specs = [FieldSpec("s", fill_null="a"), FieldSpec("b", null_mask=True)]
    specs += [FieldSpec("b", (2,), target_name="fixed", fill_null=1)]
    encoded = FieldsDataset(specs, framework=framework).batch_encode(rows)
    collator_of(framework).collate_batch(encoded)
assert not {"pandas", "torch", "tensorflow"} & set(sys.modules)
"""
    python("-c", program)
