"""Where a table and its files lie."""

import os

import pytest

from pyloader_delta.delta.paths import data_path, table_path
from pyloader_delta.errors import TableError


@pytest.mark.parametrize(
    "uri", ["/t/a b", "file:///t/a%20b", "file:/t/a%20b", "file://localhost/t/a%20b", "/t/x/../a b/"]
)
def test_paths_and_file_uris_name_the_same_table(uri):
    assert table_path(uri) == "/t/a b"


def test_a_relative_path_is_made_absolute():
    assert table_path("t") == os.path.join(os.getcwd(), "t")


def test_a_path_is_not_unquoted():
    assert table_path("/t/a%20b") == "/t/a%20b"


@pytest.mark.parametrize("uri", ["s3://bucket/t", "abfss://c@a/t", "http://host/t"])
def test_other_stores_are_refused_by_their_scheme(uri):
    with pytest.raises(TableError, match=rf"{uri.split(':')[0]}:// are not supported yet"):
        table_path(uri)


@pytest.mark.parametrize(
    ("spelled", "path"),
    [
        ("a.parquet", "/t/a.parquet"),
        ("p=a%20b/a.parquet", "/t/p=a b/a.parquet"),
        ("p=a%2520b/a.parquet", "/t/p=a%20b/a.parquet"),
        ("p=2020-01-01 10:00:00/a.parquet", "/t/p=2020-01-01 10:00:00/a.parquet"),
        ("/t/a.parquet", "/t/a.parquet"),
        ("file:/t/a.parquet", "/t/a.parquet"),
        ("file:///t/a.parquet", "/t/a.parquet"),
        ("file:///o/a%20b.parquet", "/o/a b.parquet"),
        ("s3://bucket/a.parquet", "s3://bucket/a.parquet"),
    ],
)
def test_a_path_in_the_log_is_unquoted_once_and_one_file_has_one_spelling(spelled, path):
    assert data_path("/t", spelled) == path
