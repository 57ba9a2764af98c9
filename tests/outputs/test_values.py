"""Every line of docs/values.md: what each Delta type becomes, as input and in each framework."""

import math
from re import findall
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from fakes import AsIs
from value_cases import CASES, COLUMNS, Case, Column, Out, Refused, write_table
from write_values import PAGE, rewritten

from pyloader_delta import DataLoader, Dataset, DeltaDataReader, FieldSpec, LoaderError
from pyloader_delta.collate.framework import collator_of
from pyloader_delta.columns import as_numpy, opened
from pyloader_delta.encode.fields import FieldsDataset
from pyloader_delta.outputs import map_leaves
from pyloader_delta.ragged import RaggedBatch

FRAMEWORKS = ("numpy", "torch", "tensorflow", "arrow", "pandas", pytest.param("jax", marks=pytest.mark.frameworks))


@pytest.fixture
def installed(framework):
    """The framework, or a skip; JAX with all its types."""
    if framework == "jax":
        with pytest.importorskip("jax").enable_x64(True):
            yield
        return
    if framework not in ("numpy", "arrow"):
        pytest.importorskip(framework)
    yield


def test_the_page_prints_what_the_tests_hold():
    text = PAGE.read_text(encoding="utf-8")
    assert rewritten(text) == text, "run: python tests/outputs/write_values.py"


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return write_table(tmp_path_factory.mktemp("values") / "table")


@pytest.fixture(scope="module")
def read(root):
    """The table as `read_chunk` gives it, in the order of column row."""
    reader = DeltaDataReader()
    table = pa.concat_tables([reader.read_chunk(chunk) for chunk in reader.chunks(root)])
    reader.close()
    return table.sort_by("row").combine_chunks()


# Input --------------------------------------------------------------------------------------------------------------


class Kept(Dataset):
    """Keeps what it is given."""

    def __init__(self, input_format: str) -> None:
        self.input_format, self.seen = input_format, []

    def batch_encode(self, batch_data: Any) -> Any:
        self.seen.append(batch_data)
        return {
            "n": np.zeros(len(next(iter(batch_data.values()))) if isinstance(batch_data, dict) else len(batch_data))
        }


def given(root: str, input_format: str, names: list[str]) -> Any:
    """Return what `batch_encode` gets of a whole table."""
    reader = DeltaDataReader(batch_size=100, columns=[*names, "row"])
    with DataLoader(reader, Kept(input_format), AsIs(), root, num_workers=0) as loader:
        list(loader)
        (batch,) = loader._engine._executor._workshop._stages.dataset.seen
    return batch


@pytest.fixture(scope="module")
def inputs(root):
    names = [column.name for column in COLUMNS]
    numpy = [column.name for column in COLUMNS if column.numpy != "error"]
    return {kind: given(root, kind, numpy if kind == "numpy" else names) for kind in ("python", "numpy", "arrow")}


def in_order(values: Any, rows: Any) -> list[Any]:
    return [value for _, value in sorted(zip(list(rows), values, strict=True), key=lambda pair: pair[0])]


@pytest.mark.parametrize("column", COLUMNS, ids=lambda column: column.name)
def test_python_input(column: Column, inputs):
    found = in_order(inputs["python"][column.name], inputs["python"]["row"])
    assert same(found, column.values)
    words = column.python.split(" ")[0].split(",")[0]
    assert {type(value).__name__ for value in found} <= {words, "NoneType"}


@pytest.mark.parametrize("column", COLUMNS, ids=lambda column: column.name)
def test_numpy_input(column: Column, inputs, read):
    if column.numpy == "error":
        with pytest.raises(LoaderError, match=column.name):
            as_numpy(opened(read[column.name].chunk(0), read.schema.field(column.name)), read.schema.field(column.name))
        return
    found = inputs["numpy"][column.name]
    dtype, _, rows = column.numpy.partition(": ")
    assert str(found.dtype) == dtype
    assert found.shape == (len(column.values),)
    assert not rows or {type(value).__name__ for value in found} == {rows}
    array = read[column.name].chunk(0)
    view = opened(array, read.schema.field(column.name))
    assert (as_numpy(view, read.schema.field(column.name)) is view) is not column.copied


@pytest.mark.parametrize("column", COLUMNS, ids=lambda column: column.name)
def test_arrow_input(column: Column, inputs):
    found = inputs["arrow"].column(column.name)
    assert str(found.type).replace("item", "element") == column.arrow.replace("item", "element")
    assert same(in_order(found.to_pylist(), inputs["arrow"].column("row").to_pylist()), column.values)


# Output -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.usefixtures("installed")
def test_output(case: Case, framework: str, read):
    expected = getattr(case, framework)
    array = read[case.column].chunk(0)
    batch = pa.record_batch([array], schema=pa.schema([read.schema.field(case.column)]))
    if isinstance(expected, Refused):
        with pytest.raises(LoaderError, match=rf"{case.column!r}.*{expected.remedy.split('=')[0]}"):
            encoded(case, framework, batch)
        return
    dataset, features = encoded(case, framework, batch)
    found = collated(framework, features)
    column = next(column for column in COLUMNS if column.name == case.column)
    beside = case.beside_in(framework)
    assert list(found) == ["out", *(f"out{end}" for end in beside)]
    assert is_as_said(found["out"], expected)
    assert same(listed(found["out"]), column.values if expected.values is None else expected.values)
    for end, values in beside.items():
        assert listed(found[f"out{end}"]) == values
    said = dataset.outputs(batch.schema)
    assert list(said) == list(found)
    if framework in ("arrow", "pandas"):
        assert said["out"].dtype == arrow_type(found["out"])
    elif said["out"].dtype is not None:
        tensor = found["out"].values if isinstance(found["out"], RaggedBatch) else found["out"]
        assert str(said["out"].dtype) in str(tensor.dtype)
    worker = features["out"]
    if isinstance(worker, np.ndarray) and not expected.copied:
        assert any(buffer is not None and inside(worker, buffer) for buffer in deep_buffers(array))
    elif isinstance(worker, np.ndarray):
        assert not any(buffer is not None and inside(worker, buffer) for buffer in deep_buffers(array))


def encoded(case: Case, framework: str, batch: pa.RecordBatch) -> tuple[FieldsDataset, dict[str, Any]]:
    dataset = FieldsDataset([FieldSpec(case.column, target_name="out", **case.options)], framework=framework)
    return dataset, dataset.batch_encode(batch)


def collated(framework: str, features: dict[str, Any]) -> dict[str, Any]:
    collator = collator_of(framework)
    batch = collator.collate_batch(features)
    finished = collator.finalize({name: own(value) for name, value in batch.items()})
    return dict(map_leaves(lambda value: value, finished))


def own(value: Any) -> Any:
    """Return a value as the engine delivers it: arrays writable."""
    if isinstance(value, RaggedBatch):
        return value._replace(values=value.values.copy())
    return value.copy() if isinstance(value, np.ndarray) else value


def arrow_type(found: Any) -> pa.DataType:
    return found.dtype.pyarrow_dtype if hasattr(found, "dtype") else found.type


def is_as_said(found: Any, out: Out) -> bool:
    if type(found).__module__.startswith(("pyarrow", "pandas")):
        kind = arrow_type(found)
        if out.shape.startswith("tensor"):
            return str(kind.value_type) == out.dtype and kind.shape == [int(n) for n in findall(r"\d+", out.shape)]
        return str(kind).replace("item", "element") == out.dtype.replace("item", "element")
    if out.dtype == "list":
        kinds = {type(value).__name__ for value in found}
        return isinstance(found, list) and kinds <= {*out.shape.removeprefix("of ").split(", "), "NoneType"}
    n_axes = out.shape.count(",") + (1 if not out.shape.endswith(",)") else 0)
    word, _, dtype = out.dtype.rpartition(" ")
    if word == "RaggedBatch":
        return isinstance(found, RaggedBatch) and str(found.values.dtype) == dtype and len(found.lengths) + 1 == n_axes
    if word:
        assert bool(getattr(found, "is_nested", False)) == (word == "jagged")
        assert (type(found).__name__ == "RaggedTensor") == (word == "RaggedTensor")
    name = getattr(found.dtype, "name", str(found.dtype)).removeprefix("torch.")
    sizes = [part.strip() for part in out.shape.strip("(),").split(",")]
    fixed = all(not size.isdigit() or int(size) == found.shape[axis] for axis, size in enumerate(sizes))
    return name == dtype and len(found.shape) == n_axes and fixed


def listed(found: Any) -> Any:
    """Return the values of any output as Python lists."""
    if hasattr(found, "to_numpy_ndarray"):
        return found.to_numpy_ndarray().tolist()
    if type(found).__module__.startswith("pandas"):
        return listed(pa.chunked_array(found.array.__arrow_array__()).combine_chunks())
    if type(found).__module__.startswith("pyarrow"):
        return found.to_pylist()
    if isinstance(found, RaggedBatch):
        values: Any = found.values.tolist()
        for lengths in reversed(found.lengths):
            ends = np.cumsum(lengths).tolist()
            values = [values[end - n : end] for end, n in zip(ends, lengths.tolist(), strict=True)]
        return values
    if getattr(found, "is_nested", False):
        return [row.tolist() for row in found.unbind()]
    if hasattr(found, "to_list"):
        return found.to_list()
    if type(found).__module__.startswith("tensorflow"):
        found = found.numpy()
    return found if isinstance(found, list) else found.tolist()


def same(found: Any, wanted: Any) -> bool:
    """Return whether values are equal, NaN to NaN, and bytes to the text that they are."""
    if isinstance(wanted, list):
        return len(found) == len(wanted) and all(same(a, b) for a, b in zip(found, wanted, strict=True))
    if isinstance(wanted, float) and math.isnan(wanted):
        return math.isnan(found)
    if isinstance(found, bytes) and isinstance(wanted, str):
        return found.decode() == wanted
    return bool(found == wanted)


def deep_buffers(array: pa.Array) -> list[Any]:
    return array.buffers()


def inside(array: np.ndarray, buffer: pa.Buffer) -> bool:
    start = array.__array_interface__["data"][0]
    return buffer.address <= start < buffer.address + buffer.size


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("workers", ["inline", "thread", "process"])
@pytest.mark.usefixtures("installed")
def test_a_loader_delivers_every_line(framework, workers, root):
    cases = [case for case in CASES if isinstance(getattr(case, framework), Out)]
    fields = [FieldSpec(case.column, target_name=str(case), **case.options) for case in cases]
    options = {"num_workers": 0} if workers == "inline" else {"num_workers": 1, "workers": workers}
    with DataLoader(
        DeltaDataReader(batch_size=4), FieldsDataset(["row", *fields], framework=framework), collator_of(framework),
        root, **options,
    ) as loader:  # fmt: skip
        batches = list(loader)
    assert [len(batch["row"]) for batch in batches] == [4, 2]
    for case in cases:
        out = getattr(case, framework)
        if out.dtype == "list" or "longest" not in out.shape:
            column = next(column for column in COLUMNS if column.name == case.column)
            wanted = column.values if out.values is None else out.values
            found = [(row, value) for batch in batches for row, value in rows_of(batch, str(case))]
            assert same([value for _, value in sorted(found, key=lambda pair: pair[0])], wanted), case


def rows_of(batch: dict[str, Any], name: str) -> list[tuple[int, Any]]:
    return list(zip(listed(batch["row"]), listed(batch[name]), strict=True))
