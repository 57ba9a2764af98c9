"""The gate: a table that needs more than we have is refused by the feature's name, whatever else it holds."""

import pytest

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
        reader(3, "columnMapping", "deletionVectors", "v2Checkpoint", "typeWidening", "typeWidening-preview"),
        reader(3, "variantType", "variantType-preview", "variantShredding", "variantShredding-preview"),
        reader(1) | {"writerFeatures": ["inventedTomorrow"]},
        reader(2) | {"readerFeatures": None},
        {"minReaderVersion": 3},
    ],
)
def test_what_needs_nothing_special_passes(protocol):
    check_protocol("/t", protocol, {"configuration": {"delta.columnMapping.mode": "none"}})


@pytest.mark.parametrize(
    "feature",
    [
        "catalogManaged",
        "catalogOwned",
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
