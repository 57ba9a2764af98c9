"""Credentials of AWS that lie in the user's files: profiles, which the client itself does not read."""

from __future__ import annotations

import configparser
import os
from collections.abc import Mapping
from typing import Any

from pyloader_delta.errors import ConfigError

_GIVEN = ("access_key_id", "skip_signature", "web_identity_token_file", "container_credentials")
_STATIC = ("aws_access_key_id", "aws_secret_access_key", "aws_session_token")
_NEED_BOTO3 = ("role_arn", "sso_session", "sso_start_url", "credential_process", "source_profile")


def credentials(options: Mapping[str, str]) -> tuple[dict[str, str], Any]:
    """Return options with what a profile adds to them, and a provider of credentials that expire; None for none.

    The profile is `aws_profile` of the options, else `AWS_PROFILE`, else `default`. It is not asked where options or
    the environment have credentials already.

    Raises:
        ConfigError: The profile named is not there, or needs boto3, which is not installed.
    """
    config = dict(options)
    named = config.pop("aws_profile", None) or os.environ.get("AWS_PROFILE")
    given = any(part in name for name in config for part in _GIVEN)
    known = any(part in name.lower() for name in os.environ if name.startswith("AWS_") for part in _GIVEN)
    if given or (known and "aws_profile" not in options):
        return config, None
    profile = _profile(named or "default")
    if profile is None:
        if named:
            raise ConfigError(f"there is no profile {named!r} in ~/.aws/config or ~/.aws/credentials")
        return config, None
    if "region" in profile and not any(name.endswith("region") for name in config):
        config.setdefault("aws_region", os.environ.get("AWS_REGION", profile["region"]))
    if "aws_access_key_id" in profile:
        return config | {name: profile[name] for name in _STATIC if name in profile}, None
    if not any(name in profile for name in _NEED_BOTO3):
        return config, None
    try:
        import boto3
        from obstore.auth.boto3 import Boto3CredentialProvider
    except ImportError as error:
        raise ConfigError(f"the AWS profile {named or 'default'!r} needs boto3: pip install boto3") from error
    return config, Boto3CredentialProvider(boto3.session.Session(profile_name=named))


def _profile(name: str) -> dict[str, str] | None:
    found: dict[str, str] | None = None
    for variable, default, section in (
        ("AWS_CONFIG_FILE", "~/.aws/config", name if name == "default" else f"profile {name}"),
        ("AWS_SHARED_CREDENTIALS_FILE", "~/.aws/credentials", name),
    ):
        parser = configparser.RawConfigParser()
        try:
            parser.read(os.path.expanduser(os.environ.get(variable, default)), encoding="utf-8")
        except (configparser.Error, UnicodeDecodeError):  # whose text may have a secret
            raise ConfigError(f"{os.environ.get(variable, default)} is no file of AWS profiles: mend it") from None
        if parser.has_section(section):
            found = (found or {}) | dict(parser.items(section))
    return found
