"""Responses kept in a folder, so that a scraper can be developed without fetching everything again.

One file for each response: a line of JSON about it, then the body. A file is written elsewhere and moved to
its place when it is complete, so several processes may share the folder, and be killed. Nothing is ever
removed: the folder grows to the size of the site.
"""

from __future__ import annotations

import hashlib
import logging
import os
import time
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

import msgspec

from shoal.errors import ConfigError
from shoal.headers import Headers
from shoal.model import Response

PARTS = "unfinished"
PARTS_KEPT_S = 3600.0  # by then whoever wrote one is done, or dead
GONE = (404, 410)

log = logging.getLogger("shoal.cache")


class Head(msgspec.Struct, frozen=True):
    """The first line of a file."""

    url: str
    status: int
    headers: tuple[tuple[str, str], ...]
    size_bytes: int
    """Of the body that follows."""
    fetched_at: float
    kind: str | None = None
    """The media type that somebody was asked about, whether to read the body."""
    read: bool = True
    """What he said."""


_decode = msgspec.json.Decoder(Head).decode


class Cache:
    """The responses in one folder."""

    def __init__(self, folder: Path) -> None:
        """Makes the folder, for its owner alone. Raises ConfigError if that is not possible."""
        self._folder = folder
        self._parts = folder / PARTS
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._parts.mkdir(mode=0o700, exist_ok=True)
            self._sweep()
        except OSError as error:
            raise ConfigError(
                f"the cache {folder} cannot be used: {error.strerror}; name a folder of yours"
            ) from error
        self._full = False

    def get(
        self, key: str, url: str, *, accepts: Callable[[str], bool] | None, limit: int
    ) -> Response | None:
        """The response, as a fetch with these arguments would bring it; None if that is not known.

        limit: the longest body that is wanted.
        """
        found = self._read(key)
        if found is None or found[0].url != url or found[0].size_bytes > limit:
            return None
        head, body = found
        if accepts is not None and head.kind is not None and accepts(head.kind) is not head.read:
            if not head.read:
                return None
            body = b""
        return Response(head.url, head.status, head.headers, body, replayed=True)

    def put(self, key: str, response: Response, *, kind: str | None = None, read: bool = True) -> None:
        """Keep a response, if it would be the same next time; without room for it, warn once."""
        if self._full or not (response.status < 400 or response.status in GONE) or response.status == 304:
            return
        head = Head(
            url=response.url,
            status=response.status,
            headers=response.headers,
            size_bytes=len(response.body),
            fetched_at=time.time(),
            kind=kind,
            read=read,
        )
        try:
            self._write(key, msgspec.json.encode(head) + b"\n" + response.body)
        except OSError as error:
            self._full = True
            log.warning("the cache %s cannot be written: %s; going on without", self._folder, error.strerror)

    def forget(self, key: str) -> None:
        """Ask the site next time."""
        self._path(key).unlink(missing_ok=True)

    def _path(self, key: str) -> Path:
        return self._folder / key[:2] / key[2:]

    def _read(self, key: str) -> tuple[Head, bytes] | None:
        """None if there is none, or if a power cut has left it in pieces."""
        try:
            line, _, body = self._path(key).read_bytes().partition(b"\n")
            head = _decode(line)
        except (OSError, msgspec.DecodeError):
            return None
        return (head, body) if len(body) == head.size_bytes else None

    def _write(self, key: str, content: bytes) -> None:
        part = self._parts / f"{key}.{os.getpid()}"
        with open(part, "wb", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
            file.write(content)
        path = self._path(key)
        path.parent.mkdir(mode=0o700, exist_ok=True)
        part.replace(path)

    def _sweep(self) -> None:
        """Remove what killed processes have left behind."""
        before = time.time() - PARTS_KEPT_S
        for part in self._parts.iterdir():
            if part.stat().st_mtime < before:
                part.unlink(missing_ok=True)


def key_of(url: str, who: Headers, *details: object) -> str:
    """The name of a response to a GET of `url` by somebody who sends these headers."""
    return hashlib.sha256(msgspec.json.encode([url, identity(who), *details])).hexdigest()


@lru_cache(256)
def identity(who: Headers) -> str:
    """Tells apart who sends different headers. It is slow to guess them from it: some are passwords."""
    return hashlib.scrypt(msgspec.json.encode(who), salt=b"shoal", n=2**12, r=8, p=1, dklen=16).hex()
