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


@pytest.mark.parametrize(
    ("uri", "root"),
    [
        ("s3://bucket/t/", "s3://bucket/t"),
        ("S3A://bucket/a%20b", "s3://bucket/a%20b"),
        ("gcs://bucket/t", "gs://bucket/t"),
        ("abfss://c@a.dfs.core.windows.net/t", "abfss://c@a.dfs.core.windows.net/t"),
        ("az://c/t", "az://c/t"),
        ("uc://catalog.schema.table", "uc://catalog.schema.table"),
    ],
)
def test_uris_of_object_stores_have_one_spelling(uri, root):
    assert table_path(uri) == root


@pytest.mark.parametrize(
    ("uri", "advice"),
    [
        ("hdfs://host/t", "tables at hdfs:// are read through filesystem="),
        ("http://host/t", "tables at http:// are read through filesystem="),
        ("s3:///t", "names no bucket"),
        ("dbfs:/data/t", "give /dbfs/data/t instead"),
        ("dbfs:///data/t", "give /dbfs/data/t instead"),
        ("DBFS:/Volumes/c/s/v/t", "give /Volumes/c/s/v/t instead"),
    ],
)
def test_other_uris_are_refused_with_advice(uri, advice):
    with pytest.raises(TableError, match=advice):
        table_path(uri)


@pytest.mark.parametrize("path", ["/dbfs/data/t", "/Volumes/c/s/v/t"])
def test_mounted_folders_are_plain_paths(path):
    assert table_path(path) == path


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
        ("s3a://bucket/a%20b.parquet", "s3://bucket/a b.parquet"),
    ],
)
def test_a_path_in_the_log_is_unquoted_once_and_one_file_has_one_spelling(spelled, path):
    assert data_path("/t", spelled) == path
