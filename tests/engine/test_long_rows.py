"""Shuffled windows of images, texts and lists: rows stay whole, whatever way a column is copied."""

import json

import numpy as np
import pyarrow as pa
import pytest

from pyloader_delta import DataLoader, Dataset, DeltaDataReader, FieldSpec, NumpyDataCollator
from pyloader_delta.columns import FILES, column_kind
from pyloader_delta.engine.blocks import Blocks
from pyloader_delta.engine.region import Layout, learn, learn_more, load_layout, place, wide_names, without
from pyloader_delta.engine.rows import Rows, taken
from pyloader_delta.engine.tasks import ReadTask
from pyloader_delta.engine.wide import as_bytes, fixed, width_of
from pyloader_delta.engine.window import WindowBlocks
from pyloader_delta.values import Chunk

ROWS = 3000  # a file
EXECUTORS = [(0, "auto"), (2, "thread"), (2, "process")]


def rows_of(pieces):
    return Rows.of(pieces, [pa.field("x", getattr(piece, "type", pa.int64())) for piece in pieces])


def image(i):
    return i.to_bytes(4, "little") * 64


def other(i):
    """Of one width, but for some rows of the last file."""
    return i.to_bytes(4, "little") * (17 if i >= 2 * ROWS and i % 5 == 0 else 16)


def long_bytes(i):
    return i.to_bytes(4, "little") * (i % 500)


def text(i):
    return f"é{i}" * (120 + i % 60)


def tokens(i):
    return [i] * (i % 90)


def rare(i):
    """Long, and null in the second file alone."""
    return None if ROWS <= i < 2 * ROWS and i % 3 else image(i)


COLUMNS = {
    "image": (image, pa.binary()),
    "other": (other, pa.binary()),
    "bytes": (long_bytes, pa.large_binary()),
    "text": (text, pa.string()),
    "tokens": (tokens, pa.list_(pa.int32())),
    "rare": (rare, pa.binary()),
}


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    from deltalake import write_deltalake  # not above: workers import this module

    root = tmp_path_factory.mktemp("long") / "t"
    for first in range(0, 3 * ROWS, ROWS):
        ids = range(first, first + ROWS)
        arrays = {name: pa.array([make(i) for i in ids], kind) for name, (make, kind) in COLUMNS.items()}
        write_deltalake(root, pa.table({"id": ids, **arrays}), mode="append")
    return str(root)


class Whole(Dataset):
    """Compares each value with what its id says."""

    input_format = "arrow"

    def batch_encode(self, batch):
        ids = batch["id"].to_pylist()
        for name, (make, _) in COLUMNS.items():
            assert batch[name].to_pylist() == [make(i) for i in ids], name
        return {"id": batch["id"]}


@pytest.mark.parametrize(("num_workers", "workers"), EXECUTORS)
def test_rows_of_shuffled_windows_stay_whole(table, num_workers, workers):
    reader = DeltaDataReader(batch_size=100, shuffle=True, random_seed=2)
    options = {"num_workers": num_workers, "workers": workers, "shuffle_window": 4000, "num_epoch": 2}
    with DataLoader(reader, Whole(), NumpyDataCollator(), table, **options) as loader:
        ids = np.concatenate([batch["id"] for batch in loader])
    assert sorted(ids.tolist()) == sorted([*range(3 * ROWS)] * 2)
    assert not np.array_equal(ids, np.sort(ids))


@pytest.mark.parametrize(("num_workers", "workers"), EXECUTORS)
def test_arrays_of_them_are_the_loops_own_and_aligned(table, num_workers, workers):
    fields = [FieldSpec("id"), FieldSpec("image", (8, 32)), FieldSpec("tokens", ragged="pad")]
    with DataLoader.from_delta(
        table, batch_size=64, fields=fields, framework="numpy", shuffle=True, shuffle_window=4000, random_seed=1,
        num_workers=num_workers, workers=workers,
    ) as loader:  # fmt: skip
        kept = list(loader)
    for batch in kept:
        ids = batch["id"].tolist()
        assert [row.tobytes() for row in batch["image"]] == [image(i) for i in ids]
        assert batch["image"].ctypes.data % 64 == 0
        assert batch["image"].flags.writeable
        assert [row[:n].tolist() for row, n in zip(batch["tokens"], batch["tokens_lengths"], strict=True)] == [
            tokens(i) for i in ids
        ]
        batch["image"][...] = 0  # no other batch has this memory
    assert sum(len(batch["id"]) for batch in kept) == 3 * ROWS


def some_null(values):
    return [None if i % 7 == 3 else value for i, value in enumerate(values)]


ENDS = [b"", b"a", b"x" * 11, b"x" * 12, b"\0" * 13, b"y" * 1800, b"z" * 12, b"", b"b", b"cd", b"efg", b""]
"""Rows that lie in their views and rows that do not, a few at the memory's very end."""


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([long_bytes(i) for i in range(700)], pa.binary()),
        ([long_bytes(i) for i in range(700)], pa.large_binary()),
        (some_null(long_bytes(i) for i in range(700)), pa.binary()),
        (ENDS * 25, pa.binary()),
        (some_null(ENDS * 25), pa.large_binary()),
        ([text(i) for i in range(300)], pa.string()),
        ([text(i) for i in range(300)], pa.large_string()),
        (some_null(text(i) for i in range(300)), pa.large_string()),
        ([[i] * (i % 150) for i in range(300)], pa.list_(pa.int16())),
        (some_null([i] * (i % 150) for i in range(300)), pa.list_(pa.int16())),
        ([[i] * (i % 90) for i in range(300)], pa.large_list(pa.float64())),
        (some_null([i] * (i % 90) for i in range(300)), pa.large_list(pa.float64())),
        ([[i] * (i % 120) for i in range(300)], pa.list_(pa.float16())),
    ],
)
@pytest.mark.parametrize("at_once", [16, 5000, 1 << 20])
def test_rows_are_those_of_take(monkeypatch, values, kind, at_once):
    monkeypatch.setattr("pyloader_delta.engine.rows._AT_ONCE", at_once)
    array = pa.array(values, kind)
    pieces = [array.slice(3, 100), array.slice(0, 0), array.slice(103)]  # offsets, and a piece without rows
    rows = rows_of(pieces)
    chosen = np.random.default_rng(0).permutation(len(array) - 3)[:250]
    parts = [rows.picked(chosen[:200]), rows.picked(chosen[200:])]
    room = np.zeros(sum(part.size_bytes for part in parts), np.uint8)
    found = taken(parts, room)
    right = array.slice(3).take(pa.array(chosen))
    assert found.equals(right)
    assert found.validate(full=True) is None
    data = found.buffers()[-1]
    assert data.address == room.ctypes.data
    assert data.size == room.nbytes
    assert taken(parts, None).equals(right)
    assert taken([rows.picked(chosen)], None).equals(right)
    assert len(taken([rows.picked(chosen[:0])], room[:0])) == 0
    for in_order in (taken([rows.picked(slice(5, 90))], None), taken([rows.picked(np.arange(5, 90))], None)):
        assert in_order.equals(array.slice(8, 85))


def test_rows_of_which_some_may_be_null_lie_beside_others():
    one, other = (rows_of([pa.array([b"x" * 600, last])]) for last in (None, b"y"))
    for parts, right in (([one, other], [None, b"y"]), ([other, one], [b"y", None])):
        found = taken([rows.picked(np.array([1, 0])) for rows in parts], None)
        assert found.to_pylist() == [right[0], b"x" * 600, right[1], b"x" * 600]


def test_what_lies_under_nulls_is_not_copied():
    bytes_, ends = pa.py_buffer(b"abc" * 600), pa.py_buffer(np.array([0, 600, 1200, 1800], np.int32))
    first_and_last = pa.py_buffer(np.packbits([1, 0, 1], bitorder="little"))
    array = pa.Array.from_buffers(pa.binary(), 3, [first_and_last, ends, bytes_])
    found = taken([rows_of([array]).picked(np.array([2, 1]))], None)
    assert found.to_pylist() == [b"abc" * 200, None]
    assert found.buffers()[2].size == 600


def test_blocks_larger_than_views_reach(monkeypatch):
    monkeypatch.setattr("pyloader_delta.engine.rows._MEMORY_BITS", 10)
    array = pa.array([bytes([i % 251]) * (i % 700) for i in range(900)])
    rows = rows_of([array.slice(0, 450), array.slice(450)])
    chosen = np.random.default_rng(0).permutation(900)
    assert taken([rows.picked(chosen)], None).equals(array.take(pa.array(chosen)))


@pytest.mark.parametrize(
    "pieces",
    [
        [pa.array([b"short"] * 10)],
        [pa.array([[1] * 100, [None] * 30])],
        [pa.array([["text"] * 100])],
        [pa.array([[[1] * 100]])],
        [pa.array([[1] * 100], pa.list_(pa.int32(), 100))],
        [pa.array([b"x" * 600]), pa.array(["x" * 600])],
        [pa.array([b"x" * 600]), pa.nulls(1)],
        [np.arange(3)],
        [pa.array([], pa.binary())],
        [pa.array([None] * 3, pa.string())],
        [],
    ],
)
def test_other_columns_are_left_to_arrow(pieces):
    assert rows_of(pieces) is None


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize(("num_workers", "workers"), EXECUTORS)
def test_large_rows_over_the_borders_of_windows(tmp_path, shuffle, num_workers, workers):
    from deltalake import write_deltalake

    large = [bytes([i]) * (1 << 17) for i in range(30)]
    for part in (slice(0, 7), slice(7, 8), slice(8, 30)):
        rows = pa.table({"id": range(30)[part], "image": large[part]})
        write_deltalake(str(tmp_path / "t"), rows, mode="append")
    window = {"shuffle_window": 6} if shuffle else {}
    with DataLoader.from_delta(
        str(tmp_path / "t"), batch_size=4, framework="numpy", fields=[FieldSpec("id"), FieldSpec("image", (1 << 17,))],
        shuffle=shuffle, num_workers=num_workers, workers=workers, **window,
    ) as loader:  # fmt: skip
        batches = list(loader)
    for batch in batches:
        assert (batch["image"] == batch["id"][:, None].astype(np.uint8)).all()
    assert sorted(i for batch in batches for i in batch["id"].tolist()) == [*range(30)]


def test_width_of_bytes():
    assert width_of(pa.array([b"x" * 64] * 3)) == np.dtype("V64")
    assert width_of(pa.array([b"y", *[b"x" * 64] * 3])[1:]) == np.dtype("V64")
    for other in ([b"x" * 63] * 3, [b"x" * 64, b"x" * 66], [b"x" * 64, None], []):
        assert width_of(pa.array(other, pa.binary())) is None
    assert width_of(pa.array([[1]])) is None
    assert width_of(pa.array(["x" * 64])) is None
    assert fixed(pa.array([b"x" * 64, b"x" * 65]), np.dtype("V64")) is None


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary()])
def test_bytes_of_one_width_come_back_as_they_were(kind):
    array = pa.array([image(i) for i in range(50)], kind)
    rows = fixed(array.slice(7), np.dtype("V256"))
    assert as_bytes(rows[3:9], pa.field("b", kind)).equals(array.slice(10, 6))


def test_layouts_learn_widths_and_forget_them():
    block = pa.record_batch({"id": range(3), "image": [image(i) for i in range(3)], "bytes": [b"1", b"", b"3"]})
    text = learn([block])
    assert wide_names(text) == {"image"}
    assert without(text, {"id", "image"}) is None
    numbers = Layout(tuple(block.schema), load_layout(without(text, {"image"})).numbers)
    assert [name for name, _ in numbers.numbers] == ["id"]
    assert load_layout(learn_more(numbers, [block.select(["image", "bytes"])])) == load_layout(text)
    assert learn_more(numbers, [block.select(["bytes"])]) is None
    assert learn_more(numbers, []) is None


def test_a_column_of_another_width_stays_in_its_blocks():
    text = learn([pa.record_batch({"id": [1, 2], "image": [image(1), image(2)]})])
    layout = load_layout(text)
    arrays = layout.arrays(np.zeros(layout.size_bytes(2), np.uint8), 2)
    odd = pa.record_batch({"id": [3, 4], "image": [image(3), image(4) + b"!"]})
    left, placed = place([odd], layout, arrays, 0, np.array([1, 0]))
    assert placed == {"id"}
    assert arrays["id"].tolist() == [4, 3]
    assert left[0]["image"].to_pylist() == odd["image"].to_pylist()
    assert column_kind(left[0].schema.field("image")) is None


def test_wide_rows_and_what_is_beside_them_are_placed_where_they_are_delivered():
    rows = pa.record_batch({"id": range(4), "image": [image(i) for i in range(4)]})
    layout = load_layout(learn([rows]))
    arrays = layout.arrays(np.zeros(layout.size_bytes(6), np.uint8), 6)
    left, placed = place([rows.slice(0, 3), rows.slice(3)], layout, arrays, 2, np.array([5, 0, 3, 1]))
    assert placed == {"id", "image"}
    assert arrays["id"].tolist() == [1, 3, 0, 2, 0, 0]
    assert [value.tobytes() for value in arrays["image"]] == [
        image(1),
        image(3),
        bytes(256),
        image(2),
        bytes(256),
        image(0),
    ]
    assert [block.num_rows for block in left] == [3, 1]


@pytest.mark.parametrize("odd", [None, 0, 1, 2, 3])
def test_parts_that_were_placed_whole_are_one_block_which_says_of_which_files_they_are(odd):
    """A part whose images have another width keeps them, in a block of its own, between those before and after it."""
    wide = [image(i) for i in range(20)]
    if odd is not None:
        wide[5 * odd] += b"!"
    rows = pa.record_batch({"id": range(20), "image": pa.array(wide, pa.binary())})
    parts = [Chunk(f"file {i // 2}", 1, range(5 * i, 5 * i + 5), 0, range(20)) for i in range(4)]
    layout = load_layout(learn([pa.record_batch({"id": [0], "image": [image(0)]})]))
    arrays = layout.arrays(np.zeros(layout.size_bytes(20), np.uint8), 20)
    key = ("rows", 3)
    made = Blocks(ReadTask(0, 0, 0, range(4), tuple(parts), 1, 20, 0, key), (layout, arrays))
    nothing = pa.record_batch({"id": pa.nulls(0), "image": pa.nulls(0)})  # as of a file without rows
    for i, part in enumerate(parts):
        made.add([nothing, rows.slice(5 * i, 5)], [part])
    made.end(())
    assert made.rows == [5, 5, 5, 5]
    assert made.placed == ({"id", "image"} if odd is None else {"id"})
    files = [pair for block in made.batches for pair in json.loads(block.schema.metadata[FILES])]
    assert files == [[f"file {i // 2}", 5] for i in range(4)]
    assert [block.num_rows for block in made.batches] == {
        None: [20], 0: [5, 15], 1: [5, 5, 10], 2: [10, 5, 5], 3: [15, 5],
    }[odd]  # fmt: skip
    window = WindowBlocks(made.batches, layout=layout, region=arrays, mixed=made.placed, key=key)
    found = window.column("image")[0]
    there = found[0].tobytes() if odd is None else [v for piece in found for v in piece.to_pylist()]
    order = [wide[int(i)] for i in arrays["id"]]
    assert there == (b"".join(order) if odd is None else wide)
