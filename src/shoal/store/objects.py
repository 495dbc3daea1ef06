"""A bucket of an object store, for parts (`shoal.store.parts`): S3 and all that speaks like it, GCS, Azure.

Credentials, region and endpoint come from the variables of the environment that the tools of each provider
read: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN, AWS_REGION, AWS_ENDPOINT_URL; for GCS
GOOGLE_SERVICE_ACCOUNT; for Azure AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import obstore
from obstore.exceptions import (
    AlreadyExistsError,
    BaseError,
    InvalidPathError,
    NotSupportedError,
    PermissionDeniedError,
    UnauthenticatedError,
    UnknownConfigurationKeyError,
)
from obstore.store import from_url

from shoal.errors import ConfigError, StoreError, StoreUnavailable
from shoal.place import shown

ANSWER_S = 15.0  # the leases of the pages that wait run on meanwhile
RETRIES = 2  # within a try; the worker itself tries again for ever

_REFUSED = (
    InvalidPathError,
    NotSupportedError,
    PermissionDeniedError,
    UnauthenticatedError,
    UnknownConfigurationKeyError,
)


class Bucket:
    """What is below one URL: s3://BUCKET/PREFIX, gs://..., az://... Raises ConfigError for a wrong one."""

    def __init__(self, url: str) -> None:
        self.shown = self.name = shown(url)
        endpoint = os.environ.get("AWS_ENDPOINT_URL", "")
        try:
            self._store = from_url(
                url,
                config={"disable_bulk_delete": True} if url.startswith("s3://") else None,
                client_options={
                    "timeout": timedelta(seconds=ANSWER_S),
                    "connect_timeout": timedelta(seconds=5),
                    "allow_http": endpoint.startswith("http://"),
                },
                retry_config={"max_retries": RETRIES, "retry_timeout": timedelta(seconds=ANSWER_S)},
            )
        except (BaseError, ValueError) as exc:
            raise ConfigError(f"cannot write to {self.shown}: {_reason(exc)}") from None

    def open(self, *, create: bool) -> None:
        """Buckets are made by people, and what is below them needs no making."""

    def create(self, name: str, content: bytes) -> bool:
        """See `Folder.create`."""
        with self._translated():
            try:
                obstore.put(self._store, name, content, mode="create")
            except AlreadyExistsError:
                return False
            return True

    def put(self, name: str, content: bytes) -> None:
        """See `Folder.put`."""
        with self._translated():
            obstore.put(self._store, name, content)

    def get(self, name: str) -> bytes | None:
        """See `Folder.get`."""
        with self._translated():
            try:
                return bytes(obstore.get(self._store, name).bytes())
            except FileNotFoundError as exc:
                self._complain_of_bucket(exc)
                return None

    def names(self) -> list[str]:
        """See `Folder.names`."""
        with self._translated():
            return [each["path"] for found in obstore.list(self._store) for each in found]

    def delete(self, name: str) -> None:
        """See `Folder.delete`. One by one: not all servers delete many at once."""
        with self._translated():
            try:
                obstore.delete(self._store, name)
            except FileNotFoundError as exc:
                self._complain_of_bucket(exc)

    def close(self) -> None:
        """See `Folder.close`: connections close by themselves."""

    def _complain_of_bucket(self, exc: Exception) -> None:
        if "NoSuchBucket" in str(exc):
            raise StoreError(f"cannot write to {self.shown}: there is no such bucket") from exc

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError as exc:
            raise StoreError(f"cannot write to {self.shown}: there is no such bucket") from exc
        except _REFUSED as exc:
            raise StoreError(f"cannot write to {self.shown}: {_reason(exc)}") from exc
        except BaseError as exc:
            self._complain_of_bucket(exc)
            raise StoreUnavailable(f"cannot write to {self.shown}: {_reason(exc)}") from exc


def _reason(exc: Exception) -> str:
    """In one line, without the request and what it was made of."""
    line = str(exc).partition("\n")[0]
    for code in ("<Code>", "HTTP error: "):
        _, found, rest = str(exc).partition(code)
        if found:
            return rest.partition("\n")[0].partition("<")[0]
    return line[:200]
