"""S3, Google Cloud Storage and Azure through obstore, whose Rust runtime must not have been started before a fork."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from functools import cached_property
from typing import Any

import pyarrow as pa

from pyloader_delta.delta.stores import names
from pyloader_delta.delta.stores.aws import credentials
from pyloader_delta.delta.stores.client import Entry
from pyloader_delta.delta.stores.retry import PassingError, Patience
from pyloader_delta.delta.stores.settings import StoreSettings
from pyloader_delta.errors import ConfigError

_STATUS = re.compile(r"status code: (\d{3})")
_PASSING = {408, 425, 429}
_FABRIC = ".fabric.microsoft.com"

_runtime_of: list[int] = []
"""The process that started obstore's runtime."""


class ObjectClient:
    """Reads one bucket or container.

    Args:
        kind: `s3`, `gs` or `az`.
        authority: The bucket or container, as `container@account.host` too.
        settings: How it is reached.

    Raises:
        ConfigError: Options are wrong, or the process was forked from one that used a store.
    """

    def __init__(self, kind: str, authority: str, settings: StoreSettings) -> None:
        self._name = f"{kind}://{authority}"
        self._kind, self._authority, self._settings = kind, authority, settings
        options = names.sort(kind, settings.options)
        self._config, self._http = options.config, options.http
        self.patience = Patience(settings.stall_timeout_s)
        if options.max_retries is not None:
            self.patience = Patience(settings.stall_timeout_s, options.max_retries)
        _ = self._store

    def list(self, folder: str, start_after: str, recursive: bool) -> Iterator[Entry]:
        import obstore

        prefix = f"{folder}/" if folder else ""
        try:
            for batch in obstore.list(self._usable(), folder or None, offset=f"{prefix}{start_after}" or None):
                for found in batch:
                    name = found["path"].removeprefix(prefix)
                    if not found["path"].startswith(prefix):
                        continue  # an empty object that stands for the folder itself
                    if recursive or "/" not in name:
                        yield name, found["size"], int(found["last_modified"].timestamp() * 1000)
        except Exception as error:  # obstore's errors have no base but this in common
            raise self._error(error) from None

    def read(self, path: str, start: int, stop: int | None) -> tuple[pa.Buffer, int]:
        import obstore

        options: Any = (
            {} if start == 0 and stop is None else {"range": {"offset": start} if stop is None else (start, stop)}
        )
        try:
            result = obstore.get(self._usable(), path, options=options)
            size = result.meta["size"]
            data = pa.py_buffer(result.bytes())
        except Exception as error:
            raise self._error(error) from None
        wanted = min(size, size if stop is None else stop) - start
        if data.size != wanted:
            raise PassingError(f"{self._name} gave {data.size} bytes instead of {wanted}")
        return data, size

    def _usable(self) -> Any:
        if _runtime_of and _runtime_of[0] != os.getpid():
            raise ConfigError(
                f"this process was forked from one that had read {self._name.split(':')[0]}:// before, and its client "
                "does not survive a fork: start processes by 'spawn' or 'forkserver', or pass filesystem="
            )
        if not _runtime_of:
            _runtime_of.append(os.getpid())
        return self._store

    @cached_property
    def _store(self) -> Any:
        from obstore.exceptions import BaseError
        from obstore.store import AzureStore, GCSStore, S3Store

        attempt_s = self.patience.attempt_s
        http = {
            "read_timeout": f"{int(attempt_s * 1000)}ms",
            "connect_timeout": f"{int(min(attempt_s, 10) * 1000)}ms",
            "timeout": "1day",  # a slow body is no stall
        } | self._http
        rest: dict[str, Any] = {"client_options": http, "retry_config": {"max_retries": 0}}
        try:
            if self._kind == "s3":
                rest["config"], rest["credential_provider"] = credentials(self._config)
                return S3Store(self._authority, **rest)
            if self._kind == "gs":
                rest["config"] = self._config
                return GCSStore(self._authority, **rest)
            container, rest["config"] = _azure(self._authority, self._config)
            return AzureStore(container, **rest)
        except (BaseError, ValueError, TypeError) as error:
            text = self._settings.clean(str(error))
        raise names.unknown(self._kind, text)

    def _error(self, error: Exception) -> Exception:
        """Return what an error of obstore means, without what it must not show."""
        if isinstance(error, ConfigError):
            return error
        whole = str(error)
        text = self._settings.clean(whole)
        status = int(found[1]) if (found := _STATUS.search(whole)) else None
        if any(name in whole for name in ("NoSuchBucket", "ContainerNotFound", "bucket does not exist")):
            return FileNotFoundError(f"there is no bucket or container {self._name}: {text}")
        if isinstance(error, FileNotFoundError) or status == 404:
            return FileNotFoundError(text)
        if "169.254.169.254" in whole or "metadata.google.internal" in whole:
            return PermissionError(
                f"no credentials for {self._name}: give them in storage_options or in the environment ({text})"
            )
        if type(error).__name__ in ("PermissionDeniedError", "UnauthenticatedError") or status in (401, 403):
            return PermissionError(f"{self._name} refused access; are the credentials right? {text}")
        if status == 416:
            return OSError(f"the file ends before the bytes that were asked for; was it cut? {text}")
        if "builder error" in whole:
            return OSError(f"{self._name}: {text}; for an http:// endpoint say allow_http=true in storage_options")
        if status is None and not isinstance(error, _no_answer()):
            return OSError(text)
        if status is None or status >= 500 or status in _PASSING:
            return PassingError(text)
        if 300 <= status < 400:
            return OSError(f"{self._name}: {text}; is the region right?")
        return OSError(text)


def _no_answer() -> tuple[type[Exception], ...]:
    """Return what obstore raises where it got no whole answer."""
    from obstore.exceptions import GenericError

    return GenericError, OSError


def _azure(authority: str, config: dict[str, str]) -> tuple[str, dict[str, str]]:
    """Return the container, and options that have the account of `container@account.host`."""
    container, _, host = authority.partition("@")
    if not host:
        return authority, config
    found = {"azure_storage_account_name": host.split(".")[0]} | config
    if host.endswith(_FABRIC):
        found = {"azure_use_fabric_endpoint": "true"} | found
    return container, found
