"""Content codings taken off a response body, piece by piece and never past a cap. No I/O.

A body is complete when its compressed stream says so. Like browsers, and unlike gzip(1), the checksum behind
that point is not looked at, and what follows it is ignored: broken trailers are common, broken data is not.
"""

from __future__ import annotations

import sys
import zlib
from collections.abc import Callable, Iterator
from typing import Final, Protocol

import brotli

from shoal.model import FailureKind

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

ACCEPT_ENCODING: Final = "gzip, deflate, br, zstd"
"""What `Body` can read, as the value of a request header (RFC 9110 section 12.5.3)."""

_STEP_BYTES: Final = 65_536
"""The most that one step of a decoder is asked to put out, so that a bomb is noticed in time."""

_MAX_CODINGS: Final = 5
_MAX_GZIP_HEADER_BYTES: Final = 65_536
_MAX_MEMBERS: Final = 1_000
"""Of a gzip or zstd body: each costs far more time than its few bytes should."""
_ZSTD_WINDOW_LOG: Final = 23  # 8 MB: RFC 9659 section 3
_ERRORS: Final = (zlib.error, brotli.error, zstd.ZstdError)
_NO_CODING: Final = frozenset({"", "identity", "none", "binary", "7bit", "8bit"})


class FetchError(Exception):
    """What ends a fetch: the `kind` and the `detail`, one line, of the Failure that it becomes."""

    def __init__(self, kind: FailureKind, detail: str) -> None:
        super().__init__(kind, detail)
        self.kind = kind
        self.detail = detail


class Body:
    """Collects one response body: encoded bytes in, the decoded body out.

    `content_encoding` is the header's value (RFC 9110 section 8.4; several codings are taken off last one
    first), `limit_bytes` holds for what comes in and for what comes out of each coding.

    Its faults are FetchErrors of kind "decoding" (a coding that is unknown or broken), "too_large" and
    "truncated"; making it raises the first kind if a coding is unknown.
    """

    def __init__(self, content_encoding: str = "", *, limit_bytes: int) -> None:
        self._limit = limit_bytes
        self._stages = _stages(content_encoding) if content_encoding else []
        self._sizes = [0] * (len(self._stages) + 1)
        self._pieces: list[bytes] = []

    def feed(self, data: bytes) -> None:
        """Take the next bytes as received. Raises FetchError if they are broken or too many."""
        try:
            self._pass(data, 0)
        except _ERRORS as error:
            raise FetchError("decoding", f"broken coding: {error}") from error

    def finish(self) -> bytes:
        """The whole body. Raises FetchError if a coding has no end; no bytes at all are an empty body."""
        for stage, size in zip(self._stages, self._sizes, strict=False):
            if size and not stage.complete:
                raise FetchError("truncated", "the compressed body ends early")
        return self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)

    def so_far(self) -> bytes:
        """The start of the body, as far as it came before `feed` raised."""
        return b"".join(self._pieces)

    def _pass(self, data: bytes, index: int) -> None:
        if not data:
            return
        self._sizes[index] += len(data)
        if self._sizes[index] > self._limit:
            raise FetchError("too_large", f"the body is larger than {self._limit} bytes")
        if index == len(self._stages):
            self._pieces.append(data)
            return
        for piece in self._stages[index].feed(data):
            self._pass(piece, index + 1)


class _Stage(Protocol):
    """One coding being taken off."""

    @property
    def complete(self) -> bool:
        """The end of the compressed stream has been seen."""

    def feed(self, data: bytes) -> Iterator[bytes]:
        """The next decoded pieces, of bounded size; raises one of `_ERRORS`."""


def _stages(content_encoding: str) -> list[_Stage]:
    names = [name.strip().lower() for name in content_encoding.split(",")]
    codings = [name for name in names if not _means_nothing(name)]
    if len(codings) > _MAX_CODINGS:
        raise FetchError("decoding", f"more than {_MAX_CODINGS} codings")
    for name in codings:
        if name not in _CODINGS:
            raise FetchError("decoding", f"unknown coding {name[:40]!r}")
    return [_CODINGS[name]() for name in reversed(codings)]


def _means_nothing(name: str) -> bool:
    """Whether it is no coding: "identity", or a charset, which is often sent here by mistake."""
    if name in _CODINGS:
        return False
    if name in _NO_CODING:
        return True
    try:
        b"-".decode(name, "replace")
    except (LookupError, ValueError):
        return False
    return True


class _Inflate:
    """Raw deflate (RFC 1951)."""

    def __init__(self) -> None:
        self._inflate = zlib.decompressobj(-zlib.MAX_WBITS)

    @property
    def complete(self) -> bool:
        return self._inflate.eof

    @property
    def rest(self) -> bytes:
        """What follows the end."""
        return self._inflate.unused_data

    def feed(self, data: bytes) -> Iterator[bytes]:
        while not self._inflate.eof:
            piece = self._inflate.decompress(data, _STEP_BYTES)
            yield piece
            data = self._inflate.unconsumed_tail
            if not data and len(piece) < _STEP_BYTES:
                return


class _Deflate:
    """What goes by the name of "deflate": with the zlib header (RFC 1950), or without it."""

    def __init__(self) -> None:
        self._head = b""
        self._inflate: _Inflate | None = None

    @property
    def complete(self) -> bool:
        return self._inflate is not None and self._inflate.complete

    def feed(self, data: bytes) -> Iterator[bytes]:
        if self._inflate is None:
            self._head += data
            if len(self._head) < 2:
                return
            data = self._head[2:] if _is_zlib_header(self._head) else self._head
            self._inflate = _Inflate()
        yield from self._inflate.feed(data)


def _is_zlib_header(data: bytes) -> bool:
    """RFC 1950 section 2.2: method 8, a window of 32 KB or less, a multiple of 31."""
    return data[0] & 0x8F == 8 and int.from_bytes(data[:2], "big") % 31 == 0


class _Gzip:
    """gzip (RFC 1952): one member after the other."""

    def __init__(self) -> None:
        self._held = b""  # the start of a header
        self._inflate: _Inflate | None = None
        self._trailer = 0  # bytes of it still to skip
        self._members = 0
        self._ended = False

    @property
    def complete(self) -> bool:
        return self._ended or (self._members > 0 and self._inflate is None and not self._held)

    def feed(self, data: bytes) -> Iterator[bytes]:
        data, self._held = self._held + data, b""
        while data and not self._ended:
            if self._inflate is not None:
                yield from self._inflate.feed(data)
                if not self._inflate.complete:
                    return
                data, self._inflate, self._trailer = self._inflate.rest, None, 8
            elif self._trailer:
                skipped = min(self._trailer, len(data))
                data, self._trailer = data[skipped:], self._trailer - skipped
            else:
                data = self._open(data)

    def _open(self, data: bytes) -> bytes:
        """Start a member; returns what follows its header."""
        if self._members and not b"\x1f\x8b".startswith(data[:2]):
            self._ended = True
            return b""
        size = _gzip_header_size(data)
        if size is None:
            self._held = data
            return b""
        if self._members == _MAX_MEMBERS:
            raise zlib.error("too many members")
        self._inflate = _Inflate()
        self._members += 1
        return data[size:]


def _gzip_header_size(data: bytes) -> int | None:
    """How long the header is (RFC 1952 section 2.3); None if its end is not in `data`."""
    if not b"\x1f\x8b\x08".startswith(data[:3]):
        raise zlib.error("not gzip")
    if len(data) < 12:
        return None
    flags, end = data[3], 10
    if flags & 4:
        end += 2 + int.from_bytes(data[10:12], "little")
    for flag in (8, 16):  # a name, a comment: each ends with a NUL
        if flags & flag:
            nul = data.find(0, end)
            end = nul + 1 if nul >= 0 else len(data) + 1
    if flags & 2:
        end += 2
    if end <= len(data):
        return end
    if len(data) > _MAX_GZIP_HEADER_BYTES:
        raise zlib.error("endless gzip header")
    return None


class _Brotli:
    """brotli (RFC 7932)."""

    def __init__(self) -> None:
        self._brotli = brotli.Decompressor()

    @property
    def complete(self) -> bool:
        return bool(self._brotli.is_finished())

    def feed(self, data: bytes) -> Iterator[bytes]:
        while not self._brotli.is_finished():
            piece: bytes = self._brotli.process(data, output_buffer_limit=_STEP_BYTES)
            yield piece
            if not piece and self._brotli.can_accept_more_data():
                return
            data = b""


class _Zstd:
    """Zstandard (RFC 8878): one frame after the other."""

    def __init__(self) -> None:
        self._frame = self._new_frame()
        self._frames = 1

    @property
    def complete(self) -> bool:
        return self._frame.eof

    def feed(self, data: bytes) -> Iterator[bytes]:
        while data or not (self._frame.eof or self._frame.needs_input):
            if self._frame.eof:
                if self._frames == _MAX_MEMBERS:
                    raise zstd.ZstdError("too many frames")
                self._frame = self._new_frame()
                self._frames += 1
            yield self._frame.decompress(data, _STEP_BYTES)
            data = self._frame.unused_data if self._frame.eof else b""

    @staticmethod
    def _new_frame() -> zstd.ZstdDecompressor:
        return zstd.ZstdDecompressor(options={zstd.DecompressionParameter.window_log_max: _ZSTD_WINDOW_LOG})


_CODINGS: Final[dict[str, Callable[[], _Stage]]] = {
    "gzip": _Gzip,
    "x-gzip": _Gzip,
    "deflate": _Deflate,
    "br": _Brotli,
    "zstd": _Zstd,
}
