"""`convert` makes tables that hold what the source holds, goes on where it was cut off, and lists what it rejects."""

import gzip
import json
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from pyloader_delta import DataLoader, FieldSpec
from pyloader_delta.cli import writing
from pyloader_delta.cli.sources.base import unpacked

PIL = pytest.importorskip("PIL.Image", reason="Pillow is not installed")


def rows(table: Path) -> list[dict]:
    return DeltaTable(table).to_pyarrow_table().to_pylist()


def types(table: Path) -> dict[str, str]:
    return {field.name: str(pa.field(field).type) for field in DeltaTable(table).schema().to_arrow()}


# CSV ----------------------------------------------------------------------------------------------------------------

CSV = """n,x,ok,day,time,zip,word
1,0.5,true,2026-01-31,2026-01-31T12:00:00,007,plain
-20,1e3,false,2026-02-01,2026-01-31 12:00:00.25,10115,"with, comma"
,,,,,,
9007199254740993,nan,True,0001-01-01,1969-12-31 23:59,00000,"two
lines, ü"
"""


def test_csv_cells_become_their_types_and_lose_nothing(run, tmp_path):
    (tmp_path / "a.csv").write_text(CSV, encoding="utf-8")
    found = run("convert", tmp_path / "a.csv", tmp_path / "t", "--json").document
    assert (found["n_rows"], found["n_rejects"], found["rejects"]) == (4, 0, None)
    kinds = {"n": "int64", "x": "double", "ok": "bool", "day": "date32[day]", "time": "timestamp[us]", "zip": "string"}
    assert types(tmp_path / "t") == kinds | {"word": "string"}
    table = DeltaTable(tmp_path / "t").to_pyarrow_table()
    assert table["n"].to_pylist() == [1, -20, None, 9007199254740993]
    assert table["zip"].to_pylist() == ["007", "10115", None, "00000"]
    assert table["word"].to_pylist() == ["plain", "with, comma", None, "two\nlines, ü"]
    assert table["time"][1].as_py().microsecond == 250_000
    assert np.isnan(table["x"][3].as_py())


@pytest.mark.parametrize(
    ("cells", "kind"),
    [
        (["1", "2.5"], "double"),
        (["1", "01"], "string"),
        (["1", " 2"], "string"),
        (["99999999999999999999"], "string"),
        (["1.5", "12345678901234567"], "string"),
        (["0x10"], "string"),
        (["1_000"], "string"),
        (["0", "1"], "int64"),
        (["true", "1"], "string"),
        (["2026-13-01"], "string"),
        (["2026-01-01", "2026-01-01T00:00:00"], "string"),
        (["2026-01-01T00:00:00Z", "2026-01-01T02:00:00+02:00"], "timestamp[us, tz=UTC]"),
        (["2026-01-01T00:00:00Z", "2026-01-01T00:00:00"], "string"),
        (["2026-01-01T00:00:00.123456789"], "string"),
        (["", ""], "string"),
        (["-0"], "double"),
        (["."], "string"),
    ],
)
def test_a_csv_column_has_the_type_that_all_its_cells_are_spelled_in(run, tmp_path, cells, kind):
    (tmp_path / "a.csv").write_text("a,b\n" + "".join(f"{cell},z\n" for cell in cells))
    run("convert", tmp_path / "a.csv", tmp_path / "t")
    assert types(tmp_path / "t")["a"] == kind
    if kind == "string":
        assert [row["a"] for row in rows(tmp_path / "t")] == [cell or None for cell in cells]


def test_csv_rows_that_do_not_fit_are_listed_and_the_others_are_there(run, tmp_path):
    lines = ["id,n,word", "1,10,a", "2,x,b", "3,30", "4,40,d", "5,50,e,f", "6,,g"]
    content = "\n".join(lines).encode() + b"\n7,70,\xff\n8,80,h\n"
    (tmp_path / "a.csv").write_bytes(content)
    ended = run("convert", tmp_path / "a.csv", tmp_path / "t", "--type", "n=int64", "--type", "word=string", "--json")
    assert ended.status == 3
    assert [row["id"] for row in rows(tmp_path / "t")] == [1, 4, 6, 8]
    listed = [json.loads(line) for line in Path(ended.document["rejects"]).read_text().splitlines()]
    assert len(listed) == ended.document["n_rejects"] == 4
    text = "\n".join(f"{one['place']}: {one['reason']}" for one in listed)
    for words in ("column 'n': 'x' is no int64", "2 cells, not 3", "4 cells, not 3", r"'\\xff' is no string"):
        assert words in text
    again = run("convert", tmp_path / "a.csv", tmp_path / "t", "--type", "n=int64", "--type", "word=string", "--json")
    assert (again.status, again.document["n_rows"], again.document["n_rejects"]) == (3, 0, 4)
    assert len(rows(tmp_path / "t")) == 4


def test_csv_options(run, tmp_path):
    folder = tmp_path / "in"
    (folder / "b").mkdir(parents=True)
    (folder / "a.tsv").write_text("n\tword\n1\tNA\n2\t-\n")
    with gzip.open(folder / "b" / "c.tsv.gz", "wt") as file:
        file.write("n\tword\n3\t\n")
    run("convert", folder, tmp_path / "t", "--null", "-", "--null", "NA", "--type", "n=float32")
    assert rows(tmp_path / "t") == [{"n": 1.0, "word": None}, {"n": 2.0, "word": None}, {"n": 3.0, "word": ""}]
    assert types(tmp_path / "t")["n"] == "float"


def test_a_csv_that_seems_to_have_another_delimiter_is_told_of(run, tmp_path):
    (tmp_path / "a.csv").write_text("a;b\n1;2\n")
    ended = run("convert", tmp_path / "a.csv", tmp_path / "t")
    assert (ended.status, "if ';' separates cells, give --delimiter ';'" in ended.err) == (0, True)
    ended = run("convert", tmp_path / "a.csv", tmp_path / "u", "--delimiter", ";")
    assert (types(tmp_path / "u"), ended.err) == ({"a": "int64", "b": "int64"}, "")


def test_a_csv_with_a_header_alone_is_an_empty_table(run, tmp_path):
    (tmp_path / "a.csv").write_text("a,b\n")
    assert run("convert", tmp_path / "a.csv", tmp_path / "t").status == 0
    assert (rows(tmp_path / "t"), types(tmp_path / "t")) == ([], {"a": "string", "b": "string"})


# JSON lines ---------------------------------------------------------------------------------------------------------


def test_json_lines_become_columns_and_missing_keys_null(run, tmp_path):
    lines = [
        {"id": 1, "x": 1, "tags": ["a", None], "at": {"lat": 1.5}},
        {"id": 2, "x": 2.5, "tags": [], "at": {"lat": 2, "lon": None}, "ü": True},
        {"id": 3, "x": None},
    ]
    text = "\n".join(json.dumps(line, ensure_ascii=False) for line in lines)
    (tmp_path / "a.jsonl").write_text(text.replace("\n", "\r\n\n"), encoding="utf-8")
    assert run("convert", tmp_path / "a.jsonl", tmp_path / "t").status == 0
    found = rows(tmp_path / "t")
    assert [row["x"] for row in found] == [1.0, 2.5, None]
    assert [row["ü"] for row in found] == [None, True, None]
    assert found[0]["tags"] == ["a", None]
    assert [row["at"] for row in found] == [{"lat": 1.5, "lon": None}, {"lat": 2.0, "lon": None}, None]


def test_json_lines_that_are_none_are_listed(run, tmp_path):
    content = b'{"a": 1}\n{"a": \n[1]\n{"a": 2, "a": 3}\n\n"x"\n{"a": "\xff"}\n{"a": 9}'
    (tmp_path / "a.jsonl").write_bytes(content)
    ended = run("convert", tmp_path / "a.jsonl", tmp_path / "t", "--json")
    assert (ended.status, [row["a"] for row in rows(tmp_path / "t")]) == (3, [1, 9])
    listed = [json.loads(line)["place"] for line in Path(ended.document["rejects"]).read_text().splitlines()]
    assert listed == [f"a.jsonl, line {n}" for n in (2, 3, 4, 6, 7)]


@pytest.mark.parametrize("values", [[1, "x"], [1, [1]], [True, 1], [1, 2**70], [{"a": 1}, {"a": "x"}]])
def test_values_without_a_common_type_ask_for_one(run, tmp_path, values):
    (tmp_path / "a.jsonl").write_text("\n".join(json.dumps({"k": value}) for value in values))
    ended = run("convert", tmp_path / "a.jsonl", tmp_path / "t")
    assert (ended.status, "--type k=" in ended.err) == (1, True), ended.err
    assert run("convert", tmp_path / "a.jsonl", tmp_path / "t", "--type", "k=string").status == 0
    found = [row["k"] for row in rows(tmp_path / "t")]
    assert found == [value if isinstance(value, str) else json.dumps(value) for value in values]


def test_a_given_type_rejects_what_is_none(run, tmp_path):
    (tmp_path / "a.jsonl").write_text('{"k": 1}\n{"k": "x"}\n{"k": null}\n')
    ended = run("convert", tmp_path / "a.jsonl", tmp_path / "t", "--type", "k=int64")
    assert (ended.status, [row["k"] for row in rows(tmp_path / "t")]) == (3, [1, None])


# Parquet ------------------------------------------------------------------------------------------------------------


def test_parquet_files_become_a_table_with_types_that_it_holds(run, tmp_path):
    folder = tmp_path / "in"
    for part, more in (("p=1", {}), ("p=2", {"late": pa.array([1, 2], pa.int8())})):
        (folder / part).mkdir(parents=True)
        columns = {
            "small": pa.array([200, None], pa.uint8()),
            "huge": pa.array([2**64 - 1, 0], pa.uint64()),
            "half": pa.array([0.5, None], pa.float16()),
            "kind": pa.array(["a", "b"]).dictionary_encode(),
            "time": pa.array([1_000, None], pa.timestamp("ns")),
            "list": pa.array([[1.5], None], pa.list_(pa.float16())),
            "fixed": pa.array([b"abc", b"def"], pa.binary(3)),
        }
        pq.write_table(pa.table(columns | more), folder / part / "a.parquet")
    assert run("convert", folder, tmp_path / "t").status == 0
    found = rows(tmp_path / "t")
    assert [row["p"] for row in found] == [1, 1, 2, 2]
    assert [row["late"] for row in found] == [None, None, 1, 2]
    assert found[0] | {"time": None} == {
        "small": 200, "huge": Decimal(2**64 - 1), "half": 0.5, "kind": "a", "time": None, "list": [1.5],
        "fixed": b"abc", "late": None, "p": 1,
    }  # fmt: skip
    assert found[0]["time"].microsecond == 1


@pytest.mark.parametrize(
    ("column", "words"),
    [
        (pa.array([1], pa.timestamp("ns")), "'a'"),
        (pa.array([1], pa.time64("us")), "no Delta table holds"),
        (pa.array([1], pa.duration("s")), "no Delta table holds"),
    ],
)
def test_what_a_table_cannot_hold_is_named(run, tmp_path, column, words):
    pq.write_table(pa.table({"a": column}), tmp_path / "a.parquet")
    ended = run("convert", tmp_path / "a.parquet", tmp_path / "t")
    assert (ended.status, words in ended.err) == (1, True), ended.err


# Images -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def photos(tmp_path) -> Path:
    """Forty images in two classes, one of them cut, one that is none, and a text among them."""
    folder = tmp_path / "photos"
    for name, colour in (("cat", 10), ("dög", 200)):
        (folder / name / "deep").mkdir(parents=True)
        for i in range(20):
            image = PIL.fromarray(np.full((8 + i, 16, 3), colour, np.uint8))
            image.save(folder / name / ("deep" if i % 2 else "") / f"{i:02}.{'png' if i % 3 else 'jpg'}")
    whole = (folder / "cat" / "00.jpg").read_bytes()
    (folder / "cat" / "cut.jpg").write_bytes(whole[: len(whole) // 2])
    (folder / "cat" / "text.png").write_text("no image")
    (folder / "cat" / "readme.txt").write_text("left out")
    return folder


def test_images_become_rows_in_mixed_order_and_damaged_ones_are_listed(run, tmp_path, photos):
    ended = run("convert", photos, tmp_path / "t", "--json")
    assert (ended.status, ended.document["n_rows"], ended.document["n_rejects"]) == (3, 40, 2)
    assert "'.txt'" in ended.err
    listed = {json.loads(line)["place"] for line in Path(ended.document["rejects"]).read_text().splitlines()}
    assert listed == {"cat/cut.jpg", "cat/text.png"}
    found = rows(tmp_path / "t")
    assert {(row["class"], row["label"]) for row in found} == {("cat", 0), ("dög", 1)}
    assert all(row["image"] == (photos / row["path"]).read_bytes() for row in found)
    assert sorted(row["height"] for row in found) == sorted([*range(8, 28)] * 2)
    labels = [row["label"] for row in found]
    assert labels != sorted(labels)
    assert 5 <= sum(labels[:20]) <= 15  # any half has both classes
    in_order = run("convert", photos, tmp_path / "u", "--keep-order")
    assert in_order.status == 3
    assert [row["label"] for row in rows(tmp_path / "u")] == sorted(labels)


def test_a_converted_folder_trains_at_once(run, tmp_path, photos):
    run("convert", photos, tmp_path / "t")
    image = FieldSpec("image", decode="image", resize=(8, 8), load_image_using_pil=True)
    with DataLoader.from_delta(tmp_path / "t", 10, fields=[image, "label"], framework="numpy", num_workers=0) as loader:
        batches = list(loader)
    assert [batch["image"].shape for batch in batches] == [(10, 8, 8, 3)] * 4
    dark = np.concatenate([batch["image"].mean(axis=(1, 2, 3)) < 100 for batch in batches])
    assert np.array_equal(dark, np.concatenate([batch["label"] == 0 for batch in batches]))


# Going on -----------------------------------------------------------------------------------------------------------

SOURCES = {
    "csv": lambda path: path.with_suffix(".csv").write_text("n\n" + "".join(f"{i}\n" for i in range(20_000))),
    "jsonl": lambda path: path.with_suffix(".jsonl").write_text("".join(f'{{"n": {i}}}\n' for i in range(20_000))),
    "parquet": lambda path: pq.write_table(pa.table({"n": range(20_000)}), path.with_suffix(".parquet")),
}


@pytest.mark.parametrize("kind", SOURCES)
@pytest.mark.parametrize("fails_at", [0, 1, 2])
def test_a_conversion_that_was_cut_off_goes_on(run, tmp_path, monkeypatch, kind, fails_at):
    source = tmp_path / f"a.{kind}"
    SOURCES[kind](tmp_path / "a")
    for module in ("base", "csv", "jsonl", "parquet"):
        for name in ("PIECE_BYTES", "_BLOCK_BYTES"):
            monkeypatch.setattr(f"pyloader_delta.cli.sources.{module}.{name}", 20_000, raising=False)
    write, n_written = writing.write_deltalake, 0

    def failing(*args, **options):
        nonlocal n_written
        if n_written == fails_at:
            raise OSError("the disk is full")
        n_written += 1
        write(*args, **options)

    small = ["--commit-size", "40KB", "--row-group-size", "8KB"]
    with monkeypatch.context() as patch:
        patch.setattr(writing, "write_deltalake", failing)
        ended = run("convert", source, tmp_path / "t", *small)
    assert (ended.status, "the disk is full; run the command again" in ended.err) == (1, True)
    found = run("convert", source, tmp_path / "t", *small, "--json").document
    assert found["n_records_before"] > 0 or fails_at == 0
    assert found["n_records"] == 20_000
    with DataLoader.from_delta(tmp_path / "t", 1000, framework="numpy", num_workers=0) as loader:
        numbers = np.concatenate([batch["n"] for batch in loader])
    assert np.array_equal(numbers, np.arange(20_000))
    assert DeltaTable(tmp_path / "t").version() >= 2
    again = run("convert", source, tmp_path / "t", *small, "--json").document
    assert (again["n_rows"], len(rows(tmp_path / "t"))) == (0, 20_000)


def test_row_groups_and_files_have_the_sizes_asked_for(run, tmp_path):
    SOURCES["parquet"](tmp_path / "a")
    run("convert", tmp_path / "a.parquet", tmp_path / "t", "--row-group-size", "8000B")
    found = run("inspect", tmp_path / "t", "--json").document
    assert (found["n_files"], found["row_groups"]["n_rows"]["median"]) == (1, 1000)


def test_a_table_made_of_something_else_is_not_touched_unless_asked(run, tmp_path):
    (tmp_path / "a.csv").write_text("n\n1\n")
    assert run("convert", tmp_path / "a.csv", tmp_path / "t").status == 0
    (tmp_path / "a.csv").write_text("n\n1\n2\n")
    ended = run("convert", tmp_path / "a.csv", tmp_path / "t")
    assert (ended.status, "--append" in ended.err) == (1, True)
    assert len(rows(tmp_path / "t")) == 1
    assert run("convert", tmp_path / "a.csv", tmp_path / "t", "--append").status == 0
    assert sorted(row["n"] for row in rows(tmp_path / "t")) == [1, 1, 2]


# What is wrong ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("files", "options", "words"),
    [
        ({}, [], "no file of a format that is known"),
        ({"a.txt": "x"}, [], "no file of a format that is known"),
        ({"a.csv": "n\n1\n", "b.jsonl": "{}"}, [], "csv and jsonl"),
        ({"a.csv": "n\n1\n", "b.csv": "m\n1\n"}, [], "has the columns ['m']"),
        ({"a.csv": "n,N\n1,2\n"}, [], "takes for one"),
        ({"a.csv": "n,\n1,2\n"}, [], "a column without a name"),
        ({"a.csv": ""}, [], "cannot be read as CSV"),
        ({"a.csv": "n\n1\n"}, ["--type", "m=int64"], "--type names 'm'"),
        ({"a.csv": "n\n1\n"}, ["--commit-size", "much"], "--commit-size"),
        ({"a.csv": "n\n1\n"}, ["--commit-size", "2GiB"], "at most 1 GiB"),
        ({"a.jsonl": "\n\n"}, [], "no object with a key"),
        ({"a.jsonl": "1\n"}, [], "no object with a key"),
        ({"a.json": ' [\n{"a": 1},\n{"a": 2}\n]'}, [], "is a JSON array"),
        ({"a.jsonl": '{"a": {}}\n'}, [], "only empty objects"),
        ({"a.csv": "n\n1\n"}, ["--delimiter", "ab"], "--delimiter must be one character"),
        ({"a.parquet": "x"}, [], "a.parquet"),
        ({"a.parquet": "x"}, ["--type", "m=int64"], "--type is for CSV"),
        ({"a.png": "x"}, [], "in no folder of a class"),
        ({"cat/a.txt": "x"}, ["--format", "images"], "holds no image"),
        ({"a.csv.gz": "no gzip"}, [], "cannot be read as CSV"),
        ({"t/_delta_log/0.json": "{}", "t/a.parquet": "x"}, [], "is a Delta table"),
    ],
)
def test_a_wrong_source_is_an_error_and_makes_no_table(run, tmp_path, files, options, words):
    folder = tmp_path / "in"
    folder.mkdir()
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    ended = run("convert", folder, tmp_path / "out", *options)
    assert (ended.status, words in ended.err) == (1, True), ended.err
    assert not (tmp_path / "out").exists()


def test_rejects_go_where_there_is_a_folder_which_is_known_before_anything_is_read(run, tmp_path):
    (tmp_path / "a.csv").write_text("n\nx\n")
    ended = run("convert", tmp_path / "a.csv", tmp_path / "t", "--type", "n=int64", "--rejects", tmp_path / "no" / "r")
    assert (ended.status, ended.err) == (1, f"error: --rejects: there is no folder {tmp_path / 'no'}\n")
    assert not (tmp_path / "t").exists()


@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz", "\udcff.csv"])
def test_what_arrows_threads_read_ahead_runs_nothing_in_python(tmp_path, name):
    """A thread that is inside of Python when the process ends would abort it: status 134 after an error."""
    (tmp_path / name).write_bytes(gzip.compress(b"n\n") if name.endswith("gz") else b"n\n")
    with unpacked(tmp_path / name) as (stream, raw):
        assert {type(stream), type(raw)} <= {pa.OSFile, pa.CompressedInputStream}
        assert (stream.read(), raw.tell()) == (b"n\n", (tmp_path / name).stat().st_size)


def test_a_table_inside_its_source_is_refused(run, tmp_path):
    (tmp_path / "a.csv").write_text("n\n1\n")
    ended = run("convert", tmp_path, tmp_path / "t")
    assert (ended.status, "lies inside" in ended.err) == (1, True)


@pytest.mark.parametrize("at", ["write_deltalake", "DeltaTable.is_deltatable"])
def test_a_secret_is_not_told_where_writing_fails(run, tmp_path, monkeypatch, at):
    (tmp_path / "a.csv").write_text("n\n1\n")

    def failing(*args, **options):
        raise OSError("\x1b[31mPUT\x1b[0m https://x.test/t?sig=s3cr3t with key s3cr3tkey\nfailed")

    monkeypatch.setattr(f"pyloader_delta.cli.writing.{at}", failing)
    ended = run("convert", tmp_path / "a.csv", tmp_path / "t", "--storage-option", "aws_secret_access_key=s3cr3tkey")
    assert (ended.status, "PUT https://x.test/t with key *** failed" in ended.err) == (1, True), ended.err
    assert "s3cr3t" not in ended.out + ended.err


def test_a_place_that_can_hold_no_table_is_named(run, tmp_path):
    (tmp_path / "a.csv").write_text("n\n1\n")
    ended = run("convert", tmp_path / "a.csv", tmp_path / "a.csv" / "t")
    assert (ended.status, ended.err) == (1, f"error: no table can be made at {tmp_path}/a.csv/t: Not a directory\n")
