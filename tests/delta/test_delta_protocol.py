"""The gate: a table that needs more than we have is refused by the feature's name, whatever else it holds."""

import pytest

from pyloader_delta.delta import load_snapshot
from pyloader_delta.delta.protocol import check_protocol
from pyloader_delta.errors import TableError


def reader(version: object, *features: str) -> dict:
    return {"minReaderVersion": version, "minWriterVersion": 7, "readerFeatures": list(features)}


@pytest.mark.parametrize(
    "protocol",
    [
        reader(1),
        reader(2),
        reader(3),
        reader(3, "timestampNtz"),
        reader(3, "vacuumProtocolCheck", "timestampNtz"),
        {"minReaderVersion": 3},
    ],
)
def test_what_needs_nothing_special_passes(protocol):
    check_protocol("/t", protocol, {"configuration": {"delta.columnMapping.mode": "none"}})


@pytest.mark.parametrize(
    "feature",
    [
        "deletionVectors",
        "columnMapping",
        "typeWidening",
        "typeWidening-preview",
        "v2Checkpoint",
        "variantType",
        "variantType-preview",
        "variantShredding-preview",
        "catalogManaged",
        "catalogOwned-preview",
        "geospatial",
        "inventedTomorrow",
    ],
)
def test_a_reader_feature_that_is_not_supported_is_refused_by_name(feature):
    with pytest.raises(TableError, match=f"^/t needs reader feature '{feature}', not supported yet; read it with"):
        check_protocol("/t", reader(3, "timestampNtz", feature), {})


def test_all_features_that_are_missing_are_named():
    with pytest.raises(TableError, match="reader features 'a', 'b', not supported"):
        check_protocol("/t", reader(3, "b", "a"), {})


@pytest.mark.parametrize("version", [1, 2, 3])
@pytest.mark.parametrize("mode", ["name", "id", "Name"])
def test_column_mapping_is_refused_whatever_the_protocol_says(version, mode):
    with pytest.raises(TableError, match="'columnMapping'"):
        check_protocol("/t", reader(version), {"configuration": {"delta.columnMapping.mode": mode}})


@pytest.mark.parametrize("version", [0, 4, 99])
def test_an_unknown_reader_version_is_refused(version):
    with pytest.raises(TableError, match=f"reader version {version}, which is not supported"):
        check_protocol("/t", reader(version), {})


def test_a_protocol_without_a_version_is_refused():
    with pytest.raises(TableError, match="minReaderVersion"):
        check_protocol("/t", {}, {})


def test_other_file_formats_are_refused():
    with pytest.raises(TableError, match="'orc'"):
        check_protocol("/t", reader(1), {"format": {"provider": "orc"}})


def test_a_live_file_with_a_deletion_vector_is_refused_whatever_the_protocol_says(hand):
    table = hand.table()
    file = hand.add("a.parquet")
    file["add"]["deletionVector"] = {"storageType": "u", "pathOrInlineDv": "vBn[lx{q8@P<9BNH/isA", "offset": 1}
    table.commit(0, hand.protocol, hand.metadata(), file)
    with pytest.raises(TableError, match=r"'deletionVectors', not supported yet: .*/a\.parquet has one"):
        load_snapshot(str(table))


def test_a_deletion_vector_whose_file_was_removed_does_no_harm(hand):
    table = hand.table()
    vector = {"deletionVector": {"storageType": "u", "pathOrInlineDv": "v", "offset": 1}}
    with_vector, without = hand.add("a.parquet"), hand.remove("a.parquet")
    with_vector["add"] |= vector
    without["remove"] |= vector
    table.commit(0, hand.protocol, hand.metadata(), with_vector)
    table.commit(1, without, hand.add("b.parquet"))
    assert [file.path for file in load_snapshot(str(table)).files] == [f"{table}/b.parquet"]
