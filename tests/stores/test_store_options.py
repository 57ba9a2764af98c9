"""What users say of a store: names of options, profiles, filesystems; and that secrets are never shown."""

import pickle

import pytest

from pyloader_delta import DeltaDataReader
from pyloader_delta.delta.stores import names
from pyloader_delta.delta.stores.aws import credentials
from pyloader_delta.delta.stores.objects import ObjectClient
from pyloader_delta.delta.stores.settings import StoreSettings
from pyloader_delta.errors import ConfigError


@pytest.mark.parametrize(
    ("kind", "name", "right"),
    [
        ("s3", "key", "aws_access_key_id"),
        ("s3", "secret", "aws_secret_access_key"),
        ("s3", "anon", "aws_skip_signature"),
        ("s3", "client_kwargs", "aws_endpoint_url and aws_region"),
        ("s3", "endpoint_override", "aws_endpoint_url"),
        ("s3", "profile", "aws_profile"),
        ("gs", "token", "google_service_account"),
        ("gs", "project", "google_service_account"),
        ("az", "connection_string", "azure_storage_account_name and azure_storage_account_key"),
        ("az", "credential", "azure_storage_account_key"),
    ],
)
def test_names_of_other_libraries_are_answered_with_the_right_one(kind, name, right):
    with pytest.raises(ConfigError, match=f"'{name}' is not known for {kind}://; the name is {right}"):
        ObjectClient(kind, "b", StoreSettings({name: "a-secret"}))


@pytest.mark.parametrize("kind", ["s3", "gs", "az"])
def test_an_unknown_name_is_refused_without_its_value(kind):
    with pytest.raises(ConfigError, match="'bogus_name' is not valid") as found:
        ObjectClient(kind, "b", StoreSettings({"bogus_name": "a-secret"}))
    assert "a-secret" not in str(found.value)
    assert found.value.__cause__ is None


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("s3", {"aws_access_key_id": "k", "aws_secret_access_key": "s", "aws_session_token": "t", "aws_region": "r"}),
        ("s3", {"AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": "s", "AWS_ENDPOINT_URL": "http://x"}),
        ("s3", {"access_key_id": "k", "secret_access_key": "s", "endpoint_url": "http://x", "region": "r"}),
        ("s3", {"aws_skip_signature": True, "aws_virtual_hosted_style_request": False, "AWS_ALLOW_HTTP": True}),
        ("s3", {"aws_conditional_put": "etag", "AWS_S3_LOCKING_PROVIDER": "dynamodb", "timeout": "30s"}),
        ("gs", {"google_skip_signature": "true"}),
        ("az", {"azure_storage_account_name": "a", "azure_storage_account_key": "aGk="}),
        ("az", {"ACCOUNT_NAME": "a", "sas_token": "sv=1&sig=x"}),
        ("az", {"account_name": "a", "azure_client_id": "i", "azure_client_secret": "s", "azure_tenant_id": "t"}),
    ],
)
def test_names_of_delta_rs_are_known(kind, options):
    ObjectClient(kind, "b", StoreSettings(options))


def test_an_account_stands_in_the_uri_too():
    ObjectClient(
        "az", "container@account.dfs.core.windows.net", StoreSettings({"azure_storage_sas_token": "sv=1&sig=x"})
    )
    with pytest.raises(ConfigError, match="Account must be specified"):
        ObjectClient("az", "container", StoreSettings())


def test_options_are_sorted_by_what_they_set():
    given = {
        "AWS_ALLOW_HTTP": "true",
        "timeout": "5s",
        "max_retries": "3",
        "aws_region": "r",
        "AWS_S3_LOCKING_PROVIDER": "x",
    }
    found = names.sort("s3", given.items())
    assert found == ({"aws_region": "r"}, {"allow_http": True, "timeout": "5s"}, 3)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ("aws_region=x", "storage_options must be a dict, got a str"),
        ({1: "x"}, "names in storage_options must be text, got 1"),
        (
            {"aws_region": None},
            r"storage_options\['aws_region'\] must be text, a number, True or False, got a NoneType",
        ),
        ({"client_kwargs": {"secret": "s"}}, r"storage_options\['client_kwargs'\] must be text"),
    ],
)
def test_options_of_a_wrong_kind_are_refused(options, text):
    with pytest.raises(ConfigError, match=text):
        DeltaDataReader(storage_options=options).chunks("s3://bucket/t")


@pytest.mark.parametrize("value", [0, -1, True, "60", float("nan"), float("inf")])
def test_a_stall_timeout_is_a_number_of_seconds(value):
    with pytest.raises(ConfigError, match="stall_timeout must be a number of seconds > 0, got"):
        DeltaDataReader(stall_timeout=value).chunks("s3://bucket/t")


def test_options_beside_a_filesystem_are_refused():
    with pytest.raises(ConfigError, match="exclude each other"):
        DeltaDataReader(storage_options={"aws_region": "x"}, filesystem=object()).chunks("t")


def test_settings_travel_and_show_nothing():
    settings = StoreSettings({"aws_secret_access_key": "hush-hush", "aws_region": "eu"})
    assert pickle.loads(pickle.dumps(settings)) == settings
    assert settings != StoreSettings({"aws_secret_access_key": "other", "aws_region": "eu"})
    assert "hush" not in f"{settings} {settings!r}"


def test_errors_lose_secrets_and_signed_queries():
    settings = StoreSettings({"azure_storage_sas_token": "sig=hush-hush", "azure_storage_account_name": "acme"})
    text = settings.clean("GET https://acme.host/c/x?sv=1&sig=abc failed: sig=hush-hush\nDebug source: {sig=abc}")
    assert text == "GET https://***.host/c/x failed: ***"


PROFILES = """
[default]
aws_access_key_id = id-of-default
aws_secret_access_key = secret-of-default
[other]
aws_access_key_id = id-of-other
aws_secret_access_key = secret-of-other
"""


@pytest.mark.parametrize(
    ("options", "environment", "expected"),
    [
        ({}, {}, "id-of-default"),
        ({"aws_profile": "other"}, {}, "id-of-other"),
        ({}, {"AWS_PROFILE": "other"}, "id-of-other"),
        ({}, {"AWS_ACCESS_KEY_ID": "x"}, None),  # the client itself takes it
        ({"aws_access_key_id": "given"}, {"AWS_PROFILE": "other"}, "given"),
        ({"aws_skip_signature": "true"}, {}, None),
    ],
)
def test_profiles_of_aws_give_credentials_where_none_are_given(tmp_path, monkeypatch, options, environment, expected):
    (tmp_path / "credentials").write_text(PROFILES)
    (tmp_path / "config").write_text("[profile other]\nregion = eu-central-1\n")
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    found, provider = credentials(options)
    assert (found.get("aws_access_key_id"), provider) == (expected, None)
    assert found.get("aws_region") == ("eu-central-1" if expected == "id-of-other" else None)


def test_a_profile_that_is_not_there_is_named():
    with pytest.raises(ConfigError, match="there is no profile 'none'"):
        credentials({"aws_profile": "none"})


def test_a_broken_file_of_profiles_is_named_without_its_text(tmp_path):
    (tmp_path / "credentials").write_text("aws_secret_access_key = hush-hush")
    with pytest.raises(ConfigError, match="credentials is no file of AWS profiles") as found:
        credentials({})
    assert "hush" not in str(found.value)
    assert found.value.__cause__ is None


def test_a_catalog_that_cannot_be_asked_is_named(monkeypatch):
    monkeypatch.delenv("DATABRICKS_HOST", raising=False)
    with pytest.raises(ConfigError, match=r"deltalake cannot resolve uc://c.s.t: .*databricks_host, databricks_token"):
        DeltaDataReader().chunks("uc://c.s.t")
