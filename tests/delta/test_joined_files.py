"""Small files read as one: the same rows as of each alone, whatever the files hold, and each file's own errors."""

import copy
import datetime as dt
import decimal
import os
import pickle
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake
from reading import read

from pyloader_delta import DeltaDataReader
from pyloader_delta.delta import joined
from pyloader_delta.delta.compact import Reader, header, list_header, signed, unsigned
from pyloader_delta.delta.files import OpenFiles
from pyloader_delta.delta.parts import JoinError
from pyloader_delta.delta.schema import plain_fields
from pyloader_delta.delta.selection import Selection
from pyloader_delta.delta.store import Store
from pyloader_delta.errors import ReadError
from pyloader_delta.values import Chunk

KINDS = {
    "int": pa.int64(),
    "float": pa.float32(),
    "bool": pa.bool_(),
    "text": pa.string(),
    "bytes": pa.binary(),
    "day": pa.date32(),
    "time": pa.timestamp("us", "UTC"),
    "decimal": pa.decimal128(20, 3),
    "struct": pa.struct({"a": pa.int16(), "b": pa.struct({"c": pa.string()})}),
    "list": pa.list_(pa.int32()),
    "words": pa.list_(pa.string()),
}
REPEATED = {
    "fixed": pa.list_(pa.float32(), 2),
    "map": pa.map_(pa.string(), pa.float64()),
    "below": pa.struct({"a": pa.int16(), "b": pa.list_(pa.string())}),
    "lists": pa.list_(pa.list_(pa.int32())),
    "structs": pa.list_(pa.struct({"a": pa.int16()})),
}


def value(name, i):
    if i % 5 == 3:
        return None
    return {
        "int": i - 7,
        "float": i / 2,
        "bool": i % 3 == 0,
        "text": "é" * (i % 4) + str(i),
        "bytes": bytes([i % 256]) * (i % 6),
        "day": dt.date(2020, 1, 1) + dt.timedelta(days=i),
        "time": dt.datetime(2020, 1, 1, tzinfo=dt.UTC) + dt.timedelta(seconds=i),
        "decimal": decimal.Decimal(i) / 8,
        "struct": {"a": i % 100, "b": None if i % 4 else {"c": str(i)}},
        "list": [i, None, -i][: i % 4],
        "words": [] if i % 7 == 1 else ["a" * i, str(i)],
        "fixed": [i, -i],
        "lists": [[i], [], None][: i % 4],
        "structs": [{"a": i}] * (i % 3),
        "below": {"a": i % 100, "b": [str(i)] * (i % 3)},
        "map": [(str(k), float(k)) for k in range(i % 3)],
    }[name]


def rows(start, n, kinds=KINDS):
    return pa.table({name: pa.array([value(name, i) for i in range(start, start + n)], kinds[name]) for name in kinds})


def written(folder, tables, **options):
    """Write a file of each table; return the chunks of all."""
    chunks = []
    for number, table in enumerate(tables):
        path = str(folder / f"{number:02}.parquet")
        pq.write_table(table, path, **options)
        chunks += chunks_of(path)
    return chunks


def chunks_of(path):
    metadata, start, chunks = pq.read_metadata(path), 0, []
    for number in range(metadata.num_row_groups):
        n_rows = metadata.row_group(number).num_rows
        there = range(start, start + n_rows)
        chunks.append(Chunk(path, 1000, there, number, there, file_bytes=os.path.getsize(path)))
        start += n_rows
    return chunks


def opened(schema, **selected):
    return OpenFiles(Store("/"), Selection(plain_fields(schema), **selected))


@pytest.fixture
def alone(monkeypatch):
    """Paths of the files that were read alone."""
    found = []
    through = OpenFiles._of_one_file

    def noted(files, chunks):
        found.append(chunks[0].path)
        return through(files, chunks)

    monkeypatch.setattr(OpenFiles, "_of_one_file", noted)
    return found


def same(found, expected):
    assert found.schema.equals(expected.schema, check_metadata=True)
    found.validate(full=True)
    assert found.to_pylist() == expected.to_pylist()


@pytest.mark.parametrize("compression", ["none", "snappy", "gzip", "brotli", "zstd", "lz4"])
@pytest.mark.parametrize("pages", ["1.0", "2.0"])
@pytest.mark.parametrize("row_group_rows", [1000, 7])
def test_rows_of_all_types_are_those_of_each_file(tmp_path, alone, compression, pages, row_group_rows):
    tables = [rows(start, n) for start, n in ((0, 40), (40, 1), (41, 21), (62, 90))]
    options = {"compression": compression, "data_page_version": pages, "row_group_size": row_group_rows}
    chunks = written(tmp_path, tables, **options, use_dictionary=["text"], write_page_checksum=pages == "2.0")
    found = opened(tables[0].schema).read_together(chunks)
    assert not alone
    same(found, pa.concat_tables(tables))


@pytest.mark.parametrize("name", REPEATED)
def test_maps_and_lists_in_other_types_are_read_alone(tmp_path, alone, name):
    """Damage can give a page of them other rows than it had: those of the files behind it would move."""
    tables = [rows(start, 40, REPEATED) for start in (0, 40)]
    chunks = written(tmp_path, tables)
    schema = pa.schema([tables[0].schema.field(name)])
    for run in (files := opened(schema)).together(chunks):
        files.read_together(run)
    same(files.read_together(chunks), pa.concat_tables(tables).select([name]))
    assert alone == [chunk.path for chunk in chunks] * 2


@pytest.mark.parametrize(
    "levels", [0b1010_1110, 0b1000_1010, 0b1010_1011], ids=["merged", "parted", "begun in the middle"]
)
@pytest.mark.parametrize("damaged", [0, 1, 2])
def test_lists_whose_levels_are_damaged_do_not_move_those_of_other_files(tmp_path, levels, damaged):
    """Levels say where rows begin: 0 where one does, and 1 where one goes on."""
    tables = [pa.table({"x": range(4), "list": [[n, n + 1] for n in range(0, 8, 2)]}) for _ in range(3)]
    chunks = written(tmp_path, tables, compression="none", use_dictionary=False, data_page_version="1.0")
    path = Path(chunks[damaged].path)
    whole = path.read_bytes()
    before = (2).to_bytes(4, "little") + bytes([0x03, 0b1010_1010])  # a length, and one group of eight levels
    assert whole.count(before) == 1
    path.write_bytes(whole.replace(before, before[:-1] + bytes([levels])))
    schema = tables[0].schema
    if levels != 0b1000_1010:  # pyarrow refuses too few rows, and those that begin in the middle of one
        for some in ([chunks[damaged]], chunks):
            with pytest.raises(ReadError, match=path.name):
                opened(schema).read_together(some)
        return
    each = [opened(schema).read_together([chunk]) for chunk in chunks]
    assert each[damaged]["list"].to_pylist() != tables[damaged]["list"].to_pylist()
    same(opened(schema).read_together(chunks), pa.concat_tables(each))


def test_columns_beside_lists_are_read_as_one(tmp_path, alone):
    tables = [rows(start, 40, REPEATED | KINDS) for start in (0, 40)]
    found = opened(rows(0, 1).schema).read_together(written(tmp_path, tables))
    assert not alone
    same(found, pa.concat_tables(tables).select(list(KINDS)))


def test_columns_of_several_pages_are_read_alone(tmp_path, alone):
    tables = [rows(start, 40) for start in (0, 40)]
    chunks = written(tmp_path, tables, data_page_size=64, max_rows_per_page=10)
    same(opened(tables[0].schema).read_together(chunks), pa.concat_tables(tables))
    assert alone == [chunk.path for chunk in chunks]


def test_a_dictionary_may_be_where_the_data_is_said_to_be(tmp_path, alone):
    """As parquet-mr wrote it until 1.11."""
    tables = [pa.table({"text": [str(i % 7) for i in range(start, start + 50)]}) for start in (0, 50)]
    chunks = written(tmp_path, tables)
    for chunk in chunks:
        text = Path(chunk.path).read_bytes()
        parts = joined.Footers()._parts(chunk.path, memoryview(text))
        numbers = parts.numbers[:, :, :-1].astype(np.int64)
        assert 0 < numbers[0, 0, 4] < numbers[0, 0, 3]
        numbers[0, 0, 3:] = numbers[0, 0, 4], 0
        with_footer(chunk.path, parts.template.footer(parts.rows, numbers, parts.codecs))
    chunks = [chunk for path in sorted(tmp_path.iterdir()) for chunk in chunks_of(str(path))]
    assert pq.read_metadata(chunks[0].path).row_group(0).column(0).data_page_offset == 4
    same(opened(tables[0].schema).read_together(chunks), pa.concat_tables(tables))
    assert not alone


def with_footer(path, footer):
    """Give a file another footer."""
    text = Path(path).read_bytes()
    pages = text[: -8 - int.from_bytes(text[-8:-4], "little")]
    Path(path).write_bytes(pages + footer + len(footer).to_bytes(4, "little") + b"PAR1")


def test_numbers_of_all_files_become_one_array(tmp_path, alone):
    tables = [rows(start, 3, {"int": pa.int64(), "float": pa.float32()}) for start in range(0, 60, 3)]
    found = opened(tables[0].schema).read_together(written(tmp_path, tables))
    assert not alone
    assert [column.num_chunks for column in found.columns] == [1, 1]


def test_row_groups_may_be_left_out(tmp_path, alone):
    tables = [rows(0, 40), rows(40, 40)]
    chunks = written(tmp_path, tables, row_group_size=10)
    chosen = [chunks[i] for i in (0, 2, 3, 5, 7)]
    found = opened(tables[0].schema).read_together(chosen)
    assert not alone
    whole = pa.concat_tables(tables)
    same(found, pa.concat_tables([whole.slice(start, 10) for start in (0, 20, 30, 50, 70)]))


def test_some_columns_in_another_order(tmp_path, alone):
    tables = [rows(0, 9), rows(9, 9)]
    schema = pa.schema([pa.field("text", pa.string()), pa.field("lacking", pa.int32()), pa.field("int", pa.int64())])
    found = opened(schema).read_together(written(tmp_path, tables))
    assert not alone
    whole = pa.concat_tables(tables)
    lacking = whole.append_column("lacking", pa.nulls(18, pa.int32()))
    same(found, lacking.select(["text", "lacking", "int"]))


def test_many_columns_and_files(tmp_path, alone):
    """More than 14 of each, which lists count in another way."""
    tables = [pa.table({f"c{i}": np.arange(n, n + 5) * i for i in range(40)}) for n in range(20)]
    found = opened(tables[0].schema).read_together(written(tmp_path, tables))
    assert not alone
    same(found, pa.concat_tables(tables))


@pytest.mark.parametrize("what", ["type", "order", "writer", "one column more"])
def test_files_that_are_not_alike_are_read_one_by_one(tmp_path, alone, what):
    kinds = {"int": pa.int64(), "float": pa.float32()}
    tables = [rows(0, 9, kinds), rows(9, 9, kinds), rows(18, 9, kinds)]
    other = {
        "type": tables[1].set_column(0, "int", tables[1]["int"].cast(pa.int32())),
        "order": tables[1].select(["float", "int"]),
        "writer": tables[1],
        "one column more": tables[1].append_column("more", tables[1]["int"]),
    }[what]
    chunks = written(tmp_path, [tables[0], other, tables[2]])
    if what == "writer":
        path = tmp_path / "01.parquet"
        text = path.read_bytes()
        assert text.count(b"parquet-cpp-arrow") == 1
        path.write_bytes(text.replace(b"parquet-cpp-arrow", b"parquet-cpp-worra"))
    found = opened(tables[0].schema).read_together(chunks)
    assert alone == [chunk.path for chunk in chunks]
    same(found, pa.concat_tables(tables))


def test_what_writers_note_beside_the_schema_does_not_count(tmp_path, alone):
    tables = [rows(9 * n, 9).replace_schema_metadata({"pandas": f"rows {n}"}) for n in range(4)]
    chunks = written(tmp_path, tables)
    found = opened(tables[0].schema.remove_metadata()).read_together(chunks)
    assert not alone
    same(found, pa.concat_tables(tables).replace_schema_metadata(None))


def test_more_kinds_of_files_than_are_kept_are_read_all_the_same(tmp_path):
    tables = [pa.table({"int": np.arange(5), f"x{n}": np.arange(5)}) for n in range(joined._MAX_TEMPLATES + 2)]
    twice = [table for table in tables for _ in range(2)]
    files = opened(pa.schema([pa.field("int", pa.int64())]))
    chunks = written(tmp_path, twice)
    for start in range(0, len(chunks), 2):
        assert files.read_together(chunks[start : start + 2])["int"].to_pylist() == [*range(5)] * 2


def test_other_partitions_keep_their_values(tmp_path):
    for day in ("a", "b"):
        for start in range(0, 30, 10):
            table = pa.table({"x": np.arange(start, start + 10), "day": [day] * 10})
            write_deltalake(str(tmp_path), table, mode="append", partition_by=["day"])
    found = read(tmp_path)
    assert sorted(zip(found["x"].to_pylist(), found["day"].to_pylist(), strict=True)) == sorted(
        (x, day) for day in ("a", "b") for x in range(30)
    )


@pytest.mark.parametrize("selected", ["rows numbered", "deleted", "large", "size unknown"])
def test_files_that_are_not_plain_and_small_are_read_alone(tmp_path, alone, monkeypatch, selected):
    tables = [rows(0, 9), rows(9, 9)]
    chunks = written(tmp_path, tables)
    if selected == "large":
        monkeypatch.setattr("pyloader_delta.delta.files._SMALL_BYTES", chunks[1].file_bytes - 1)
    elif selected == "size unknown":
        chunks = [Chunk(c.path, c.size_bytes, c.rows, 0, c.rows) for c in chunks]
    files = opened(tables[0].schema, numbered=selected == "rows numbered")
    if selected == "deleted":
        assert not files._is_small(Chunk(chunks[0].path, 1, range(9), 0, range(9), file_bytes=9, deletion_vector=...))
        return
    for run in files.together(chunks):
        files.read_together(run)
    assert alone == [chunk.path for chunk in chunks]


def test_files_are_joined_up_to_so_many_bytes(tmp_path, alone, monkeypatch):
    tables = [rows(9 * n, 9) for n in range(7)]
    chunks = written(tmp_path, tables)
    monkeypatch.setattr("pyloader_delta.delta.files._MAX_JOINED_BYTES", 3 * max(chunk.file_bytes for chunk in chunks))
    footers = []
    through = joined.Footers.joined
    monkeypatch.setattr(joined.Footers, "joined", lambda *args: footers.append(through(*args)) or footers[-1])
    same(opened(tables[0].schema).read_together(chunks), pa.concat_tables(tables))
    assert [footer.num_row_groups for footer in footers] == [3, 3]
    assert alone == [chunks[-1].path]


# What is wrong with files ---------------------------------------------------------------------------------------------


def spoilt(path, how):
    text = bytearray(path.read_bytes())
    length = int.from_bytes(text[-8:-4], "little")
    if how == "cut":
        del text[len(text) // 2 :]
    elif how == "longer":
        text += b"x"
    elif how == "footer":
        text[-8 - length : -8] = bytes(length)
    elif how == "footer's length":
        text[-8:-4] = (len(text) * 2).to_bytes(4, "little")
    elif how == "end":
        text[-4:] = b"PAR2"
    elif how == "page":
        text[4:60] = b"\xff" * 56
    else:
        path.unlink()
        return
    path.write_bytes(text)


@pytest.mark.parametrize("how", ["cut", "longer", "footer", "footer's length", "end", "page", "missing"])
@pytest.mark.parametrize("known", [False, True])
def test_a_file_that_cannot_be_read_is_named(tmp_path, how, known):
    tables = [rows(9 * n, 9) for n in range(4)]
    chunks = written(tmp_path, tables)
    files = opened(tables[0].schema)
    if known:
        files.read_together(chunks)
    spoilt(tmp_path / "02.parquet", how)
    with pytest.raises(ReadError, match=r"02\.parquet"):
        files.read_together(chunks)
    same(files.read_together(chunks[:2]), pa.concat_tables(tables[:2]))


def test_other_rows_than_were_planned_are_an_error(tmp_path):
    tables = [rows(9 * n, 9) for n in range(3)]
    chunks = written(tmp_path, tables)
    stale = Chunk(chunks[1].path, 1000, range(8), 0, range(8), file_bytes=chunks[1].file_bytes)
    with pytest.raises(ReadError, match=r"01\.parquet was changed"):
        opened(tables[0].schema).read_together([chunks[0], stale, chunks[2]])


def test_a_file_that_was_written_anew_is_read_as_it_is(tmp_path, alone):
    tables = [rows(9 * n, 9) for n in range(3)]
    chunks = written(tmp_path, tables)
    files = opened(tables[0].schema)
    files.read_together(chunks)
    chunks = written(tmp_path, [tables[0], tables[2], tables[1].slice(0, 5)], compression="zstd", row_group_size=4)
    same(files.read_together(chunks), pa.concat_tables([tables[0], tables[2], tables[1].slice(0, 5)]))
    assert not alone


@pytest.mark.parametrize(("column", "more"), [(3, 10_000), (2, 10_000), (0, 1), (0, -1)])
def test_a_footer_that_points_into_the_next_file_is_an_error(tmp_path, column, more):
    """Alone such a file ends too early, or has values that are none of its rows."""
    tables = [pa.table({"x": np.arange(start, start + 4000)}) for start in (0, 4000)]
    chunks = written(tmp_path, tables, use_dictionary=False, compression="none")
    path = tmp_path / "00.parquet"
    text = path.read_bytes()
    parts = joined.Footers()._parts(str(path), memoryview(text))
    numbers = parts.numbers[:, :, :-1].astype(np.int64)
    numbers[0, 0, column] += more
    with_footer(path, parts.template.footer(parts.rows, numbers, parts.codecs))
    (first,) = chunks_of(str(path))
    with pytest.raises(JoinError, match="what cannot be"):
        joined.Footers().joined([[first], chunks[1:]], Store("/").read_joined(*sources([first, chunks[1]])))


@pytest.mark.parametrize("nullable", [False, True])
@pytest.mark.parametrize("dictionary", [False, True])
@pytest.mark.parametrize("n", [4000, 4001])
def test_a_page_that_states_more_values_than_it_has_pushes_no_others(tmp_path, nullable, dictionary, n):
    schema = pa.schema([pa.field("x", pa.int64(), nullable)])
    tables = [pa.table({"x": np.arange(start, start + n) // 2}, schema) for start in (0, n, 2 * n)]
    chunks = written(tmp_path, tables, use_dictionary=dictionary, compression="none", write_statistics=False)
    path = tmp_path / "01.parquet"
    text = path.read_bytes()
    stated, more = header(1, 5) + signed(n), header(1, 5) + signed(n + 1)
    place = text.rindex(stated)  # the last in the file's pages: a dictionary's comes before
    path.write_bytes(text[:place] + more + text[place + len(more) :])
    assert pq.read_table(path).equals(tables[1].cast(pa.schema([schema.field("x")])))  # alone nobody notices
    same(opened(schema).read_together(chunks), pa.concat_tables(tables))


def test_a_footer_that_pyarrow_dies_of_is_an_error(tmp_path):
    """It says how often each level is there, for one level too few: `RowGroupMetaData.column` ends the process then."""
    tables = [pa.table({"x": [start, None, start]}) for start in range(3)]
    chunks = written(tmp_path, tables)
    path = tmp_path / "01.parquet"
    text = bytearray(path.read_bytes())
    levels = header(1, 9) + list_header(2, 6) + signed(1) + signed(2)
    place = text.rindex(levels)
    text[place : place + len(levels)] = header(1, 9) + list_header(1, 6) + signed(1)
    text[-8:-4] = (int.from_bytes(text[-8:-4], "little") - 1).to_bytes(4, "little")
    path.write_bytes(text)
    chunks[1] = Chunk(str(path), 1000, range(3), 0, range(3), file_bytes=len(text))
    found = opened(tables[0].schema).read_together(chunks)  # the levels' numbers are for nothing that is read
    same(found, pa.concat_tables(tables))
    with pytest.raises(ReadError, match=r"01\.parquet.*histogram"):
        opened(tables[0].schema)._of_one_file(chunks[1:2])


def test_a_page_of_another_type_is_an_error(tmp_path):
    tables = [pa.table({"x": np.arange(start, start + 40)}) for start in (0, 40)]
    chunks = written(tmp_path, tables, use_dictionary=False, compression="none")
    text = bytearray((tmp_path / "01.parquet").read_bytes())
    assert text[4:6] == header(1, 5) + signed(0)
    text[5:6] = signed(1)  # an index page, which nobody writes
    (tmp_path / "01.parquet").write_bytes(text)
    with pytest.raises(JoinError, match="what cannot be"):
        joined.Footers().joined([[chunk] for chunk in chunks], Store("/").read_joined(*sources(chunks)))
    with pytest.raises(ReadError, match=r"01\.parquet"):
        opened(tables[0].schema).read_together(chunks)


def sources(chunks):
    return [chunk.path for chunk in chunks], [chunk.file_bytes for chunk in chunks]


# What is kept ---------------------------------------------------------------------------------------------------------


def test_what_is_known_of_footers_is_bounded_and_the_same_without_it(tmp_path, alone, monkeypatch):
    tables = [rows(9 * n, 9) for n in range(10)]
    chunks = written(tmp_path, tables)
    files = opened(tables[0].schema)
    files.read_together(chunks)
    a_file = files._footers._size_bytes // 10
    assert len(files._footers._known) == 10
    monkeypatch.setattr(joined, "_MAX_KNOWN_BYTES", 4 * a_file)
    for _ in range(2):
        same(files.read_together(chunks), pa.concat_tables(tables))
        assert list(files._footers._known) == [chunk.path for chunk in chunks[-4:]]
        assert files._footers._size_bytes == 4 * a_file
    assert not alone


def test_threads_share_what_is_known_and_other_processes_begin_anew(tmp_path):
    tables = [rows(9 * n, 9) for n in range(2)]
    chunks = written(tmp_path, tables)
    files = opened(tables[0].schema)
    files.read_together(chunks)
    assert copy.deepcopy(files)._footers is files._footers
    assert not pickle.loads(pickle.dumps(files))._footers._known


def test_a_reader_reads_small_files_as_one(tmp_path, alone):
    for start in range(0, 100, 10):
        write_deltalake(str(tmp_path), pa.table({"x": np.arange(start, start + 10)}), mode="append")
    reader = DeltaDataReader(7)
    chunks = reader.chunks(str(tmp_path))
    (run,) = reader._together(chunks)
    assert sorted(reader._read_together(run)["x"].to_pylist()) == list(range(100))
    assert not alone


# Thrift's compact protocol --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [0, 1, 127, 128, 300, 2**31, 2**40])
def test_numbers_are_written_as_they_are_read(number):
    assert Reader(unsigned(number)).number() == number
    assert Reader(signed(number)).number() == 2 * number


def test_fields_of_all_kinds_are_passed_over():
    values = {
        1: (3, b"\x05"),
        2: (4, signed(7)),
        3: (5, signed(300)),
        4: (6, signed(2**40)),
        5: (7, bytes(8)),
        6: (8, unsigned(3) + b"abc"),
        7: (9, list_header(20, 2) + bytes(20)),
        8: (10, list_header(2, 8) + (unsigned(1) + b"x") * 2),
        9: (12, header(1, 5) + signed(1) + header(1, 1) + header(1, 2) + b"\0"),
    }
    text = b"".join(header(1, kind) + value for kind, value in values.values())
    text += header(15, 1) + bytes([0x05]) + signed(90) + signed(11) + b"\0" + b"behind"
    reader = Reader(text)
    assert reader.fields() == {name: value for name, (_, value) in values.items()} | {24: b"", 90: signed(11)}
    assert text[reader.at :] == b"behind"
    assert Reader(list_header(20, 5)).items() == (20, 5)
    with pytest.raises(ValueError, match="10 bytes"):
        Reader(b"\xff" * 20).integer()
    with pytest.raises(IndexError):
        Reader(header(1, 6) + b"\xff" * 20).fields()
    with pytest.raises(IndexError):
        Reader(header(1, 9) + list_header(1 << 60, 2) + bytes(9)).fields()
    with pytest.raises(ValueError, match="kind 11"):
        Reader(header(1, 11) + b"\0").fields()
