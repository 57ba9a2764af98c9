"""Tables that need a reader feature, written by helpers, give their rows in the logical schema."""

import datetime as dt
import json
import shutil

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from reading import gather, in_parts, read
from vectors import delete_rows, protocol, write_vectors

from pyloader_delta.errors import ConfigError, ReadError, TableError
from pyloader_delta.read.delta import DeltaDataReader

# Mapped columns ------------------------------------------------------------------------------------------------------


def mapped(name: str, kind: object, number: int, stored: str) -> dict:
    metadata = {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": stored}
    return {"name": name, "type": kind, "nullable": True, "metadata": metadata}


INNER = {"type": "struct", "fields": [mapped("b", "long", 3, "col-3"), mapped("a", "string", 4, "col-4")]}
FIELDS = [
    mapped("x", "long", 1, "y"),  # y and x were renamed into each other
    mapped("y", "long", 2, "x"),
    mapped("s", INNER, 5, "col-5"),
    mapped("l", {"type": "array", "elementType": INNER, "containsNull": True}, 6, "col-6"),
    mapped("m", {"type": "map", "keyType": "string", "valueType": INNER, "valueContainsNull": True}, 7, "col-7"),
    mapped("p", "string", 8, "col-8"),
    mapped("late", INNER, 9, "col-9"),
]
ROWS = [
    {"x": 1, "y": 10, "s": {"b": 2, "a": "u"}, "l": [{"b": 3, "a": None}, None], "m": [("k", {"b": 4, "a": "v"})]},
    {"x": None, "y": 11, "s": None, "l": None, "m": None},
    {"x": 3, "y": None, "s": {"b": None, "a": "w"}, "l": [], "m": []},
]


def with_id(name: str, kind: pa.DataType, number: int | None) -> pa.Field:
    return pa.field(name, kind, metadata=None if number is None else {"PARQUET:field_id": str(number)})


def stored_rows(name, *, ids: bool) -> pa.Table:
    """Return ROWS as a file holds them, fields named by `name(id)`, in another order than the table's."""

    def field(number: int, kind: pa.DataType) -> pa.Field:
        return with_id(name(number), kind, number if ids else None)

    inner = pa.struct([field(4, pa.string()), field(3, pa.int64())])
    kinds = {7: pa.map_(pa.string(), inner), 1: pa.int64(), 5: inner, 6: pa.list_(inner), 2: pa.int64()}
    logical = {7: "m", 1: "x", 5: "s", 6: "l", 2: "y"}

    def spelled(value: object) -> object:
        if isinstance(value, dict):
            return {name(3): value["b"], name(4): value["a"]}
        if isinstance(value, list):
            return [spelled(one) for one in value]
        return (value[0], spelled(value[1])) if isinstance(value, tuple) else value

    columns = [pa.array([spelled(row[logical[n]]) for row in ROWS], kind) for n, kind in kinds.items()]
    return pa.Table.from_arrays(columns, schema=pa.schema([field(n, kind) for n, kind in kinds.items()]))


PHYSICAL = {field["metadata"]["delta.columnMapping.id"]: field["metadata"]["delta.columnMapping.physicalName"]
            for field in [*FIELDS, *INNER["fields"]]}  # fmt: skip


def mapped_table(hand, mode: str, stored: pa.Table, protocol: dict) -> object:
    table = hand.table()
    metadata = hand.metadata(("p",), {"delta.columnMapping.mode": mode})
    metadata["metaData"]["schemaString"] = json.dumps({"type": "struct", "fields": FIELDS})
    table.commit(0, protocol, metadata, table.data("f", stored, **{PHYSICAL[8]: "v"}))
    return table


@pytest.mark.parametrize(
    ("mode", "name", "ids"),
    [
        ("name", PHYSICAL.get, False),
        ("name", PHYSICAL.get, True),
        ("id", "any {}".format, True),
        ("id", PHYSICAL.get, True),
        ("id", PHYSICAL.get, False),  # a file without ids is matched by name
    ],
)
@pytest.mark.parametrize("line", [protocol("columnMapping"), {"protocol": {"minReaderVersion": 2}}, protocol(),
                                  {"protocol": {"minReaderVersion": 1}}])  # fmt: skip
def test_mapped_columns_are_found_at_any_depth_whatever_the_protocol_says(hand, mode, name, ids, line):
    table = mapped_table(hand, mode, stored_rows(name, ids=ids), line)
    assert read(table).to_pylist() == [row | {"p": "v", "late": None} for row in ROWS]
    assert read(table, columns=["late", "m", "y"]).to_pylist() == [
        {"late": None, "m": row["m"], "y": row["y"]} for row in ROWS
    ]
    reader = DeltaDataReader()
    assert gather(reader, in_parts(reader.chunks(str(table)), 1)).equals(read(table))


def test_a_file_with_ids_is_not_matched_by_name(hand):
    stored = pa.table([[1], [2]], schema=pa.schema([with_id("y", pa.int64(), 77), with_id("x", pa.int64(), 2)]))
    row = read(mapped_table(hand, "id", stored, protocol("columnMapping"))).to_pylist()[0]
    assert (row["x"], row["y"]) == (None, 2)


def test_names_in_the_file_mean_nothing_in_a_mapped_table(hand):
    stored = pa.table({"s": [{"b": 1}], "late": [1], "y": [5]})
    row = read(mapped_table(hand, "name", stored, protocol("columnMapping"))).to_pylist()[0]
    assert row == {"x": 5, "y": None, "s": None, "l": None, "m": None, "p": "v", "late": None}


def test_mapped_columns_and_deleted_rows_go_together(hand):
    table = mapped_table(hand, "id", stored_rows("any {}".format, ids=True), protocol("columnMapping"))
    delete_rows(table.path, {"f": [1]})
    assert read(table).to_pylist() == [row | {"p": "v", "late": None} for row in (ROWS[0], ROWS[2])]


@pytest.mark.parametrize(
    ("statistics", "lost"),
    [
        ({"numRecords": 1, "nullCount": {"y": 0}}, True),
        ({"numRecords": 1, "nullCount": {"y": 1}, "minValues": {"y": 5}}, True),
        ({"numRecords": 1, "nullCount": {"y": {"a": 1, "b": {"c": 0}}}}, True),
        ({"numRecords": 1, "nullCount": {"y": {"a": 1}}}, False),
        ({"numRecords": 1, "nullCount": {"y": 1}, "minValues": {"y": None}}, False),
        ({"numRecords": 1, "nullCount": {"Y": 0}}, False),
        ({"numRecords": 1, "nullCount": 7, "minValues": [1]}, False),
        ({"nullCount": {"y": 0}}, True),
    ],
)
def test_a_column_with_values_as_the_log_says_is_not_made_up_of_nulls(hand, statistics, lost):
    table = hand.table()
    file = table.data("f", {"x": [1]})
    file["add"]["stats"] = json.dumps(statistics)
    table.commit(0, hand.protocol, hand.metadata(x="long", y="string"), file)
    assert read(table, columns=["x"]).to_pylist() == [{"x": 1}]
    for options in ({}, {"columns": ["x"], "filter": "y is null or x = 1"}):
        if lost:
            with pytest.raises(ReadError, match="/f of version 0 has no column 'y', but the log states values of it"):
                read(table, **options)
        else:
            assert read(table, **options)["x"].to_pylist() == [1]


# Variants and types that cannot be read ------------------------------------------------------------------------------

VARIANT = pa.struct([pa.field("value", pa.binary(), False), pa.field("metadata", pa.binary(), False)])
SHREDDED = pa.struct({"metadata": pa.binary(), "value": pa.binary(), "typed_value": pa.int64()})


def test_variants_are_structs_of_two_binaries(hand):
    table = hand.table()
    values = [{"value": b"v", "metadata": b"m"}, None]
    stored = pa.table({"x": [1, 2], "v": pa.array(values, VARIANT), "l": pa.array([values, None], pa.list_(VARIANT))})
    nested = {"type": "array", "elementType": "variant", "containsNull": True}
    table.commit(0, protocol("variantType"), hand.metadata(x="long", v="variant", l=nested), table.data("f", stored))
    rows = read(table).to_pylist()
    assert rows == [{"x": 1, "v": values[0], "l": values}, {"x": 2, "v": None, "l": None}]
    assert read(table).schema.field("v").type == pa.struct({"metadata": pa.binary(), "value": pa.binary()})


def test_a_shredded_variant_is_refused_only_where_it_is_selected(hand):
    table = hand.table()
    stored = pa.table({"x": [1], "v": pa.array([{"metadata": b"m", "value": None, "typed_value": 7}], SHREDDED)})
    features = protocol("variantType", "variantShredding-preview")
    table.commit(0, features, hand.metadata(x="long", v="variant"), table.data("f", stored))
    assert read(table, columns=["x"]).to_pylist() == [{"x": 1}]
    with pytest.raises(TableError, match=r"column 'v' is a variant that is shredded \(feature 'variantShredding'\)"):
        read(table)


def test_a_struct_that_looks_like_a_variant_is_none(hand):
    table = hand.table()
    kind = {"type": "struct", "fields": [{"name": "value", "type": "binary"}, {"name": "typed_value", "type": "long"}]}
    stored = pa.table({"s": pa.array([{"metadata": b"m", "value": None, "typed_value": 7}], SHREDDED)})
    table.commit(0, hand.protocol, hand.metadata(s=kind), table.data("f", stored))
    assert read(table).to_pylist() == [{"s": {"value": None, "typed_value": 7}}]


def test_an_unknown_type_is_refused_only_where_it_is_selected(hand):
    table = hand.table()
    nested = {"type": "struct", "fields": [{"name": "g", "type": "geometry(OGC:CRS84)"}]}
    stored = pa.table({"x": [1], "odd": pa.array([{"g": b"?"}])})
    table.commit(0, hand.protocol, hand.metadata(x="long", odd=nested), table.data("f", stored))
    assert read(table, columns=["x"]).to_pylist() == [{"x": 1}]
    for columns in (None, ["odd"]):
        with pytest.raises(
            TableError, match=r"column 'odd\.g' has type 'geometry\(OGC:CRS84\)', which is not .*leave it"
        ):
            read(table, columns=columns)


def test_void_columns_are_null_at_any_depth(hand):
    table = hand.table()
    kind = {"type": "struct", "fields": [{"name": "a", "type": "long"}, {"name": "n", "type": "void"}]}
    stored = pa.table({"s": [{"a": 1}, None]})
    table.commit(0, hand.protocol, hand.metadata(v="void", s=kind), table.data("f", stored))
    assert read(table).to_pylist() == [{"v": None, "s": {"a": 1, "n": None}}, {"v": None, "s": None}]


# Row ids -------------------------------------------------------------------------------------------------------------

TRACKED = protocol(writer=("rowTracking", "domainMetadata"))
KEPT = {"delta.rowTracking.materializedRowIdColumnName": "_row-id-col-1", "delta.enableRowTracking": "true"}


def tracked(hand, *stored: dict, configuration: dict | None = None) -> object:
    table = hand.table()
    files = [table.data(f"f{i}", columns, time=i) for i, columns in enumerate(stored)]
    for i, file in enumerate(files):
        file["add"]["baseRowId"] = 100 * i
    table.commit(0, TRACKED, hand.metadata((), configuration), *files)
    return table


def test_row_ids_count_up_from_each_files_first(hand):
    table = tracked(hand, {"x": [1, 2]}, {"x": [3]})
    expected = [{"_row_id": 0, "x": 1}, {"_row_id": 1, "x": 2}, {"_row_id": 100, "x": 3}]
    found = read(table, columns=["_row_id", "x"])
    assert found.to_pylist() == expected
    assert found.schema.field("_row_id") == pa.field("_row_id", pa.int64(), False)
    assert read(table).column_names == ["x"]
    assert read(table, columns=["_row_id"])["_row_id"].to_pylist() == [0, 1, 100]


def test_rewritten_files_keep_row_ids(hand):
    table = tracked(hand, {"x": [1, 2], "_row-id-col-1": pa.array([7, None])}, {"x": [3]}, configuration=KEPT)
    assert read(table, columns=["x", "_row_id"])["_row_id"].to_pylist() == [7, 1, 100]


def test_row_ids_stay_with_the_rows_that_are_left(hand):
    table = tracked(hand, {"x": list(range(6)), "_row-id-col-1": pa.array([None] * 5 + [7])}, configuration=KEPT)
    delete_rows(table.path, {"f0": [0, 3]})
    reader = DeltaDataReader(columns=["_row_id", "x"])
    chunks = reader.chunks(str(table))
    expected = [{"_row_id": 7 if x == 5 else x, "x": x} for x in (1, 2, 4, 5)]
    for pieces in (chunks, in_parts(chunks, 1), in_parts(chunks, 3)):
        assert gather(reader, pieces).to_pylist() == expected


def test_row_ids_of_a_table_that_has_none_are_refused(hand):
    table = hand.table()
    table.commit(0, hand.protocol, hand.metadata(), table.data("f", {"x": [1]}))
    with pytest.raises(ConfigError, match=r"'_row_id', but version 0 of .* does not track rows"):
        read(table, columns=["_row_id"])
    other = hand.table("other")
    other.commit(0, TRACKED, hand.metadata(), other.data("f", {"x": [1]}))
    with pytest.raises(ReadError, match=r"/f of version 0 has no row ids \(no baseRowId in the log\)"):
        read(other, columns=["_row_id"])


def test_a_column_of_that_name_is_a_column(hand):
    table = hand.table()
    table.commit(0, TRACKED, hand.metadata(_row_id="string"), table.data("f", {"_row_id": ["a"]}))
    assert read(table, columns=["_row_id"]).to_pylist() == [{"_row_id": "a"}]


# Partition values ----------------------------------------------------------------------------------------------------


def test_partition_times_without_a_zone_are_in_the_zone_that_is_given(hand):
    table = hand.table()
    moments = {"a": "2013-07-05 17:01:00.123456", "b": "2013-12-05T17:01:00Z", "c": ""}
    files = [table.data(name, {"x": [1]}, time=i, t=t, n=t.rstrip("Z")) for i, (name, t) in enumerate(moments.items())]
    table.commit(0, hand.protocol, hand.metadata(("t", "n"), x="long", t="timestamp", n="timestamp_ntz"), *files)
    summer, winter = dt.datetime(2013, 7, 5, 17, 1, 0, 123456), dt.datetime(2013, 12, 5, 17, 1)
    rows = read(table, partition_timezone="America/Los_Angeles")
    assert rows["t"].to_pylist() == [
        (summer + dt.timedelta(hours=7)).replace(tzinfo=dt.UTC),
        winter.replace(tzinfo=dt.UTC),
        None,
    ]
    assert rows["n"].to_pylist() == [summer, winter, None]
    assert read(table)["t"].to_pylist() == [summer.replace(tzinfo=dt.UTC), winter.replace(tzinfo=dt.UTC), None]


@pytest.mark.parametrize("zone", ["Mars/Olympus", "", "../etc", 3, "Europe"])
def test_a_zone_that_is_none_is_refused(hand, zone):
    table = hand.table()
    table.commit(0, hand.protocol, hand.metadata())
    with pytest.raises(ConfigError, match="partition_timezone of DeltaDataReader"):
        read(table, partition_timezone=zone)


# Other places --------------------------------------------------------------------------------------------------------


def test_a_shallow_clone_reads_the_files_of_its_source(hand):
    source = hand.table("the source %20")
    files = [source.data(f"p={p}%/f {p}", {"x": [p, p, p]}, time=p, p=f"{p}%") for p in (1, 2)]
    clone = hand.table("clone")
    for file in files:
        file["add"]["path"] = (source.path / file["add"]["path"]).as_uri()
    clone.commit(0, hand.protocol, hand.metadata(("p",), x="long", p="string"), *files)
    own = clone.data("own", {"x": [3]}, time=3, p="")
    clone.commit(1, own)
    expected = [{"x": p, "p": f"{p}%"} for p in (1, 1, 1, 2, 2, 2)] + [{"x": 3, "p": None}]
    assert read(clone).to_pylist() == expected
    (vector,) = write_vectors(source.path, {"a": [0, 2]}, "p").values()
    files[0]["add"]["deletionVector"] = vector
    remove = {"remove": {"path": files[0]["add"]["path"], "dataChange": True}}
    clone.commit(2, protocol("deletionVectors"), remove, files[0])
    assert read(clone).to_pylist() == expected[2:]
    shutil.rmtree(source.path)
    with pytest.raises(ReadError, match=r"the source %20/p=1%/f 1 of version 2 is missing"):
        read(clone)


# Checksums of pages --------------------------------------------------------------------------------------------------


def test_a_flipped_bit_is_found_by_the_checksums_of_pages(hand):
    table = hand.table()
    file = table.data("f", {"x": [1, 2, 3]})
    path = table.path / "f"
    plain = {"compression": "none", "use_dictionary": False, "write_statistics": False}
    pq.write_table(pa.table({"x": [1, 2, 3]}), path, write_page_checksum=True, **plain)
    content = path.read_bytes()
    at = content.index((2).to_bytes(8, "little"))
    path.write_bytes(content[:at] + b"\x82" + content[at + 1 :])
    file["add"]["size"] = len(content)
    table.commit(0, hand.protocol, hand.metadata(), file)
    assert read(table)["x"].to_pylist() == [1, 130, 3]
    with pytest.raises(ReadError, match=rf"cannot read {path} rows 0\.\.2 of version 0: .*(crc|checksum)"):
        read(table, page_checksums=True)
    path.write_bytes(content)
    assert read(table, page_checksums=True)["x"].to_pylist() == [1, 2, 3]


def test_page_checksums_is_true_or_false(hand):
    table = hand.table()
    table.commit(0, hand.protocol, hand.metadata())
    with pytest.raises(ConfigError, match="page_checksums of DeltaDataReader must be True or False, got 'yes'"):
        read(table, page_checksums="yes")
