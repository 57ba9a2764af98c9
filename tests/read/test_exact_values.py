"""Python values of any kind reach `batch_encode` as `read_file` returned them, on each executor."""

import math
import pickle
from typing import Any

import numpy as np
import pytest
from fakes import AsIs
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from programs import python

from pyloader_delta import DataLoader, DataReader, Dataset

SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(st.characters()), st.binary(max_size=20)
)
ARRAYS = hnp.arrays(
    st.one_of(
        hnp.integer_dtypes(endianness="?"), hnp.floating_dtypes(), hnp.boolean_dtypes(), hnp.unicode_string_dtypes()
    ),
    hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3),
)
NUMPY = st.one_of(ARRAYS, hnp.arrays(hnp.scalar_dtypes(), ()).map(lambda array: array[()]))
VALUES = st.recursive(
    st.one_of(SCALARS, NUMPY),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(st.one_of(st.text(max_size=3), st.integers()), inner, max_size=3),
    ),
    max_leaves=6,
)
ONE_KIND = st.sampled_from([
    st.integers(-(2**63), 2**63 - 1), st.integers(), st.floats(), st.booleans(), st.text(), st.binary(), NUMPY,
    st.lists(st.integers()), st.dictionaries(st.text(max_size=2), st.integers(), max_size=2),
])  # fmt: skip
COLUMN = st.one_of(
    st.lists(VALUES, min_size=1, max_size=7),
    ONE_KIND.flatmap(lambda kind: st.lists(st.one_of(kind, st.none()), min_size=1, max_size=7)),
    ONE_KIND.flatmap(lambda kind: st.lists(kind, min_size=1, max_size=7)),
)


class Pickles(DataReader):
    """Reads columns of Python values from pickles that the test wrote."""

    def read_file(self, path: str) -> Any:
        with open(path, "rb") as file:
            return {"x": pickle.load(file)}


class Compares(Dataset):
    """Gives each value as pickled by `exact_form`."""

    input_format = "python"

    def batch_encode(self, batch_data: Any) -> Any:
        return {"x": [pickle.dumps(exact_form(value)) for value in batch_data["x"]]}


def exact_form(value: Any) -> Any:
    """Return a value with its types and bits spelled out, so that only the very same is equal."""
    kind = type(value).__name__
    if isinstance(value, np.ndarray | np.generic):
        return kind, value.dtype.str, np.shape(value), np.asarray(value).tobytes()
    if isinstance(value, list | tuple):
        return kind, [exact_form(inner) for inner in value]
    if isinstance(value, dict):
        return kind, [(exact_form(name), exact_form(inner)) for name, inner in value.items()]
    if isinstance(value, float):
        return kind, "nan" if math.isnan(value) else value.hex()
    return kind, repr(value)


@pytest.fixture(params=["inline", "thread", "process"])
def loader(request, tmp_path):
    """One loader for all examples: each is a new epoch over the files that it finds rewritten."""
    folder = tmp_path
    for name in ("0.pickle", "1.pickle"):
        (folder / name).write_bytes(pickle.dumps([0]))
    options = {"num_workers": 0} if request.param == "inline" else {"num_workers": 1, "workers": request.param}
    with DataLoader(Pickles(batch_size=2), Compares(), AsIs(), str(folder), **options) as made:
        made.folder = folder
        yield made


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(first=COLUMN, second=COLUMN)
def test_values_arrive_equal_and_of_the_same_types(loader, first, second):
    # protocol 4 turns big-endian arrays of shape () into little-endian ones
    (loader.folder / "0.pickle").write_bytes(pickle.dumps(first, protocol=5))
    (loader.folder / "1.pickle").write_bytes(pickle.dumps(second, protocol=5))
    found = [pickle.loads(text) for batch in loader for text in batch["x"]]
    assert found == [exact_form(value) for value in first + second]


SCRIPT = """
import enum, pickle, sys
from collections import namedtuple
from dataclasses import dataclass
from pyloader_delta import DataLoader, DataReader, Dataset, DataCollator

@dataclass
class Point:
    x: int

class Kind(enum.Enum):
    CAT = 1

class Text(str):
    pass

def local():
    @dataclass
    class Local:
        x: int
    return Local

Local, Pair = local(), namedtuple("Pair", "a b")

class Reader(DataReader):
    @dataclass
    class Inner:
        x: int

    def read_file(self, path):
        columns = [Point(1), None], [Pair(1, 2), Kind.CAT], [Text("a"), "a"], [Local(1), self.Inner(2)]
        with open(path, "rb") as file:
            return {str(n): column for n, column in enumerate(columns)} | {"file": pickle.load(file)}

class Told(Dataset):
    def batch_encode(self, batch):
        return {"told": [[(v, type(v).__name__) for v in row] for row in zip(*batch.values())]}

class AsIs(DataCollator):
    def collate_batch(self, features):
        return {"told": features["told"], "kind": Pair(Kind.CAT, Point)}

folder = sys.argv[1]
for name in "ab":
    with open(f"{folder}/{name}", "wb") as file:
        pickle.dump([Point(5), Pair(6, 7)], file)
found = []
for options in ({"num_workers": 0}, {"num_workers": 2, "workers": "thread"}, {"num_workers": 2, "workers": "process"}):
    with DataLoader(Reader(batch_size=3), Told(), AsIs(), folder, **options) as loader:
        found.append(list(loader))
assert found[0] == found[1] == found[2], found
first, second = found[0][0]["told"][:2]
assert [value for value, _ in first] == [Point(1), Pair(1, 2), "a", Local(1), Point(5)]
assert [value for value, _ in second] == [None, Kind.CAT, "a", Reader.Inner(2), Pair(6, 7)]
assert [kind for _, kind in first + second] == (
    "Point Pair Text Local Point NoneType Kind str Inner Pair".split()
)
"""


def test_values_of_a_scripts_own_classes_arrive_as_they_are(tmp_path):
    (tmp_path / "script.py").write_text(SCRIPT)
    (tmp_path / "data").mkdir()
    python(tmp_path / "script.py", tmp_path / "data")
