"""Names of storage options: sorted by what they set, those of other libraries answered with the right ones."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from pyloader_delta.errors import ConfigError

_HTTP = {
    "allow_http", "allow_invalid_certificates", "connect_timeout", "http1_only", "http2_only", "pool_idle_timeout",
    "pool_max_idle_per_host", "proxy_ca_certificate", "proxy_excludes", "proxy_url", "randomize_addresses",
    "read_timeout", "root_certificate", "timeout", "user_agent",
}  # fmt: skip
_WRITING = {
    "allow_unsafe_rename", "aws_s3_allow_unsafe_rename", "aws_s3_locking_provider", "aws_conditional_put",
    "conditional_put", "aws_copy_if_not_exists", "copy_if_not_exists", "delta_dynamo_table_name",
    "dynamo_lock_table_name", "dynamo_lock_owner_name", "dynamo_lock_partition_key_value", "dynamo_lock_lease_duration",
    "mount_allow_unsafe_rename", "max_concurrency", "concurrency_limit",
}  # fmt: skip
_RIGHT = {
    "s3": {
        "key": "aws_access_key_id",
        "access_key": "aws_access_key_id",
        "secret": "aws_secret_access_key",
        "secret_key": "aws_secret_access_key",
        "anon": "aws_skip_signature",
        "anonymous": "aws_skip_signature",
        "endpoint_override": "aws_endpoint_url",
        "client_kwargs": "aws_endpoint_url and aws_region",
        "region_name": "aws_region",
        "profile": "aws_profile",
        "use_ssl": "aws_allow_http",
        "scheme": "aws_allow_http",
        "requester_pays": "aws_request_payer",
    },
    "gs": {
        "token": "google_service_account, the path of a key file, or google_service_account_key",
        "project": "google_service_account, whose key file names it",
        "access": "google_service_account",
        "anon": "google_skip_signature",
        "anonymous": "google_skip_signature",
        "endpoint_url": "google_base_url",
        "endpoint_override": "google_base_url",
    },
    "az": {
        "connection_string": "azure_storage_account_name and azure_storage_account_key",
        "credential": "azure_storage_account_key, azure_storage_sas_token or azure_storage_token",
        "anon": "azure_skip_signature",
        "blob_storage_authority": "azure_endpoint",
        "account_url": "azure_endpoint",
    },
}


class Options(NamedTuple):
    """Options by what they set."""

    config: dict[str, str]
    """Of the kind of store, under the names that it knows."""
    http: dict[str, object]
    """Of its HTTP client."""
    max_retries: int | None
    """How often a request is repeated; None where nothing is said."""


def sort(kind: str, options: Iterable[tuple[str, str]]) -> Options:
    """Return options by what they set; those that only writing needs are left out.

    Args:
        kind: `s3`, `gs` or `az`.
        options: Names in any case, and values.

    Raises:
        ConfigError: A name is another library's; the text has the right one.
    """
    found = Options({}, {}, None)
    for name, value in options:
        lower = name.lower()
        bare = lower.removeprefix("aws_").removeprefix("azure_").removeprefix("google_")
        if right := _RIGHT[kind].get(lower):
            raise ConfigError(f"storage_options: {name!r} is not known for {kind}://; the name is {right}")
        if lower in _WRITING or lower.startswith(("backoff_config", "aws_dynamo", "dynamo_")):
            continue
        if lower == "max_retries":
            found = found._replace(max_retries=_whole(name, value))
        elif lower == "retry_timeout":
            continue  # stall_timeout bounds it
        elif bare in _HTTP:
            found.http[bare] = value == "true" if value in ("true", "false") else value
        else:
            found.config[lower] = value
    return found


def unknown(kind: str, text: str) -> ConfigError:
    """Return the error for options that the client refused, with its own text, which has no values in it."""
    return ConfigError(
        f"storage_options for {kind}://: {text}; names are delta-rs's, see docs/delta.md, for example "
        f"{ {'s3': 'aws_access_key_id', 'gs': 'google_service_account', 'az': 'azure_storage_account_name'}[kind]!r}"
    )


def _whole(name: str, value: str) -> int:
    if not value.isascii() or not value.isdigit():
        raise ConfigError(f"storage_options[{name!r}] must be an int >= 0, got {value!r}")
    return int(value)
