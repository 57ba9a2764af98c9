"""Blocks opened as columns: what blocks of one schema have in common is found once, and few objects stay of each."""

import gc
import json
from queue import SimpleQueue

import numpy as np
import pyarrow as pa
import pytest

from pyloader_delta.arrays import address
from pyloader_delta.columns import FILES
from pyloader_delta.engine.gather import gather
from pyloader_delta.engine.leases import Lease
from pyloader_delta.engine.opening import opening
from pyloader_delta.engine.pack import Part, Tray, unpack
from pyloader_delta.engine.tasks import Segment
from pyloader_delta.engine.window import WindowBlocks
from pyloader_delta.schemas import BySchema

MANY = 600


def numbers(n_columns, n_rows=10, path="a"):
    columns = {f"f{i:03}": np.arange(n_rows, dtype=np.float32) for i in range(n_columns)}
    return pa.record_batch(columns).replace_schema_metadata({FILES: json.dumps([[path, n_rows]])})


def whole(block, names=()):
    """Return a window of one block, and the segment of all its rows."""
    window = WindowBlocks([block], own=True)
    return window, Segment(0, block.num_rows, 0, block.num_rows, None, tuple(names))


# What is found once ---------------------------------------------------------------------------------------------------


def test_what_is_asked_of_schemas_is_found_once_for_equal_ones():
    asked = []
    names = BySchema(lambda schema: asked.append(schema) or schema.names)
    one = pa.schema({"a": pa.int64(), "b": pa.string()})
    assert names(one) == names(pa.schema({"a": pa.int64(), "b": pa.string()})) == ["a", "b"]
    assert names(one.with_metadata({"of": "this block"})) == ["a", "b"]
    assert len(asked) == 1
    for other in (
        pa.schema({"a": pa.int32(), "b": pa.string()}),
        pa.schema({"b": pa.string(), "a": pa.int64()}),
        pa.schema([pa.field("a", pa.int64(), metadata={"of": "its own"}), pa.field("b", pa.string())]),
        pa.schema([pa.field("a", pa.int64(), nullable=False), pa.field("b", pa.string())]),
    ):
        assert names(other) == other.names
        assert asked[-1].equals(other, check_metadata=True)


def test_only_the_last_few_schemas_are_kept():
    asked = []
    n_fields = BySchema(lambda schema: asked.append(schema) or len(schema))
    for n in range(40):
        assert n_fields(pa.schema([(f"{n}.{i}", pa.int8()) for i in range(n)])) == n
    assert n_fields(pa.schema([])) == 0
    assert len(asked) == 41


def test_two_functions_of_one_schema_have_answers_of_their_own():
    schema = pa.schema({"x": pa.int8()})
    assert BySchema(lambda s: s.names)(schema) == ["x"]
    assert BySchema(len)(schema) == 1


def test_windows_of_blocks_of_one_schema_share_what_their_columns_are():
    one, other = WindowBlocks([numbers(5)]), WindowBlocks([numbers(5, 20, "b")])
    assert one.gathered(("f001",)) is other.gathered(("f001",))
    assert opening(numbers(5).schema) is opening(numbers(5, 20, "b").schema)
    assert [one.files, other.files] == [[["a", 10]], [["b", 20]]]


def test_a_block_with_nulls_is_not_taken_for_one_without():
    plain = pa.record_batch({"x": [1, 2], "y": [1.0, 2.0]})
    with_null = pa.record_batch({"x": pa.array([1, None]), "y": [1.0, 2.0]})
    assert plain.schema.equals(with_null.schema)
    for block, dtypes in [(plain, ["i8", "f8"]), (with_null, [None, "f8"]), (plain, ["i8", "f8"])]:
        window, segment = whole(block)
        found = list(window.dtypes.values())
        assert [None if d is None else d.str[1:] for d in found] == dtypes
        columns = gather([window], [segment])
        assert [column.tolist() if hasattr(column, "tolist") else column for column in columns.arrays] == [
            block["x"].to_pylist(),
            block["y"].to_pylist(),
        ]


# What stays of a block ------------------------------------------------------------------------------------------------


def tracked():
    """Return the number of objects that the cyclic collector goes through."""
    for _ in range(3):  # tuples of tuples of numbers are let go of level by level
        gc.collect()
    return len(gc.get_objects())


@pytest.mark.parametrize("n_rows", [1000, 1024])
def test_a_batch_that_is_lent_keeps_one_object_a_column(n_rows):
    """Four times as many, or more, took a quarter of the CPU with thousands of columns, for the collector."""

    def batch():
        window, segment = whole(numbers(MANY, n_rows))
        tray = Tray(lambda size: np.zeros(size, np.uint8))
        columns = gather([window], [segment], (tray, True), lease=Lease(1, SimpleQueue()))
        spec = ("arrays", tuple(window.dtypes))
        packed = tray.pack([Part(spec, list(columns.arrays))])
        return window, packed, list(unpack(packed, np.zeros(0, np.uint8)))

    batch()  # what is found once
    before = tracked()
    kept = batch()
    assert tracked() - before < 1.2 * MANY
    assert kept[2][0]["f007"].tolist() == list(range(n_rows))


def test_an_open_window_keeps_no_object_a_column():
    WindowBlocks([numbers(MANY)])
    block = numbers(MANY)
    before = tracked()
    window = WindowBlocks([block], own=True)
    assert tracked() - before < 0.2 * MANY
    assert window.column("f007")[0][0].tolist() == list(range(10))


# Where arrays lie -----------------------------------------------------------------------------------------------------

ARRAYS = {
    "numbers": np.arange(5.0),
    "a part": np.arange(9)[3:7],
    "every second": np.arange(9)[::2],
    "backwards": np.arange(9)[::-1],
    "columns first": np.zeros((3, 4), order="F"),
    "one value": np.zeros(()),
    "no value": np.zeros((0, 3)),
    "times": np.zeros(3, "M8[us]"),
    "void": np.zeros(3, "V784"),
    "text": np.zeros(3, "U7"),
    "the other byte order": np.zeros(3, ">f4"),
    "repeated": np.broadcast_to(np.arange(3), (4, 3)),
    "long": np.zeros(3, np.longdouble),
    "structured": np.zeros(3, [("a", "i4"), ("b", "f8")]),
}


@pytest.mark.parametrize("name", ARRAYS)
@pytest.mark.parametrize("writeable", [True, False])
def test_the_address_of_an_array_is_that_of_its_first_value(name, writeable):
    array = ARRAYS[name].view()
    if not writeable:
        array.flags.writeable = False
    assert address(array) == array.__array_interface__["data"][0]


def test_arrays_that_touch_each_other_both_stay_and_those_that_overlap_do_not():
    memory = np.zeros(4096, np.uint8)
    tray = Tray(lambda size: np.zeros(size, np.uint8))
    tray.keep(memory)
    a, b, over_both, none = memory[:64], memory[64:128], memory[32:96], memory[64:64]
    packed = tray.pack([Part(("arrays", ("a", "b", "c", "d")), [a, b, over_both, none])])
    places = packed.layouts[0][1]
    assert [place[4] for place in places] == [1, 1, 0, 1]  # the third was copied, out of nobody's memory
    assert [place[2] for place in places[:2]] == [0, 64]
