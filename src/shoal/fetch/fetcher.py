"""One HTTP hop: a URL in, what the server answered or why it did not out. Nothing else talks to web sites.

What a site does wrong is a value here, never an exception. Redirects are not followed, and a response is not
judged: that is `shoal.policy`.
"""

from __future__ import annotations

import asyncio
import functools
import re
from collections.abc import Callable
from time import perf_counter, time
from types import TracebackType
from typing import Final, Self

import aiohttp
from aiohttp.abc import AbstractResolver
from msgspec import Struct

from shoal.addresses import Kind, kind_of_host
from shoal.decode import ACCEPT_ENCODING, Body, FetchError
from shoal.errors import ConfigError
from shoal.fetch.connection import connector, refuse
from shoal.fetch.cookies import CookieJar
from shoal.fetch.exchange import Answer, Exchange
from shoal.fetch.trouble import explain
from shoal.headers import Headers, is_sendable, replaced
from shoal.model import Capture, Failure, FailureKind, Response
from shoal.place import shown
from shoal.urls import MAX_URL_LENGTH

_ACCEPT: Final = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"


class FetchSettings(Struct, frozen=True, kw_only=True):
    """How to fetch. Raises ConfigError for headers and proxies that cannot be sent or used."""

    user_agent: str = "shoal"
    headers: tuple[tuple[str, str], ...] = ()
    """Sent with each request to every host; they replace the standard ones of the same name."""
    connect_timeout_s: float = 10.0
    """For DNS, TCP and TLS together, and for the wait when all `connections` are taken."""
    read_timeout_s: float = 20.0
    """The longest silence, from the request on."""
    total_timeout_s: float = 60.0
    max_body_bytes: int = 10_000_000
    """For the body as received and for each step of its decoding."""
    proxy: str | None = None
    """The URL of an HTTP proxy, with its user and password if it wants them."""
    verify_tls: bool = True
    cookies: bool = True
    """Keep cookies as long as the Fetcher lives."""
    allow: frozenset[Kind] = frozenset()
    """Kinds of addresses that may be fetched from besides public ones."""
    connections: int = 200
    """Most connections in use at once; 0 means no limit."""
    idle_connections: int = 256
    """Most connections kept for later: a new one costs more than a page, with TLS more than ten; 0 means no
    limit."""
    per_host_connections: int = 0
    """Most connections in use to one host; 0 means no limit of its own."""
    keepalive_timeout_s: float = 60.0
    """How long an idle connection is kept."""
    capture: bool = False
    """Keep with each Response what went over the line."""

    def __post_init__(self) -> None:
        for name, value in (("User-Agent", self.user_agent), *self.headers):
            if not is_sendable(name, value):
                raise ConfigError(f"the header {name!r}: {value!r} cannot be sent; use printable characters")
        if self.proxy is not None and not _PROXY.fullmatch(self.proxy):
            raise ConfigError(f"the proxy {shown(self.proxy)!r} is not an http:// or https:// URL")


_PROXY: Final = re.compile(r"https?://[^/\s][^\s]*", re.IGNORECASE)
_NORMALIZED: Final = re.compile(r"https?://[!-.0->A-~]+/[!-~]*")  # the host without "/", "?" and "@"


class Fetcher:
    """Fetches with one pool of connections and one cookie jar.

    Made inside a running event loop, used in that loop, and closed there: `async with Fetcher(settings)`.
    """

    def __init__(
        self, settings: FetchSettings | None = None, *, resolver: AbstractResolver | None = None
    ) -> None:
        """resolver: looks names up, instead of the system; what it answers is guarded all the same."""
        self._settings = settings = settings or FetchSettings()
        self._exchange = Exchange(
            _connector(settings, resolver),
            _request_headers(settings),
            jar=CookieJar(unsafe=True) if settings.cookies else None,
            connect_timeout_s=settings.connect_timeout_s,
            read_timeout_s=settings.read_timeout_s,
            proxy=settings.proxy,
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections.

        A fetch still running ends as a Failure; one that waits for a free connection is cancelled.
        """
        await self._exchange.close()

    async def fetch(
        self,
        url: str,
        *,
        headers: Headers = (),
        accepts: Callable[[str], bool] | None = None,
        max_body_bytes: int | None = None,
        cut: bool = False,
        method: str = "GET",
        content: bytes | None = None,
    ) -> Response | Failure:
        """Ask for `url`, a normalized URL that is sent byte for byte; one hop.

        `accepts` is asked once, if the response is a success (2xx), with its media type ("text/html", "" if
        none is given); on False the body is not read, and empty in the Response. `max_body_bytes` replaces
        the one of the settings; with `cut`, a larger body is cut off somewhat before that many bytes instead
        of being a Failure. Only a success has to have a good body: a broken one of another status is
        left empty, since the status says enough. `headers` replace those of the settings with the same name;
        `content` is sent along. Raises nothing but CancelledError.
        """
        started, at = perf_counter(), time()
        raw: list[bytes] | None = [] if self._settings.capture else None
        limit = self._settings.max_body_bytes if max_body_bytes is None else max_body_bytes
        try:
            self._check(url)
            answer, body, whole = await self._get(method, url, headers, content, accepts, limit, cut, raw)
        except Exception as error:  # whatever a site can cause is a value
            kind, detail = self._explain(error)
            return Failure(kind, detail, perf_counter() - started)
        received = [(_name(name), value.decode("latin-1")) for name, value in answer.raw_headers]
        capture = None if raw is None or not whole else _captured(answer, at, b"".join(raw))
        return Response(url, answer.status, tuple(received), body, perf_counter() - started, capture=capture)

    async def _get(
        self,
        method: str,
        url: str,
        headers: Headers,
        content: bytes | None,
        accepts: Callable[[str], bool] | None,
        limit: int,
        cut: bool,
        raw: list[bytes] | None,
    ) -> tuple[Answer, bytes, bool]:
        answer: Answer | None = None
        try:
            async with asyncio.timeout(self._settings.total_timeout_s):
                answer = await self._exchange.ask(method, url, headers, content)
                body, whole = await _body(answer, accepts, limit, cut=cut, raw=raw)
                return answer, body, whole
        except TimeoutError:
            if answer is None or 200 <= answer.status < 300:
                raise
            return answer, b"", False
        finally:
            if answer is not None:
                answer.release()

    def _check(self, url: str) -> None:
        """Raises ValueError for a URL that is not normalized, OSError for one that is not to be fetched."""
        if len(url) > MAX_URL_LENGTH or not _NORMALIZED.fullmatch(url):
            raise ValueError("it is not normalized")
        if self._settings.proxy is not None:  # all other names are looked up by the proxy, and its business
            refuse(kind_of_host(url), self._settings.allow, "what the URL names")

    def _explain(self, error: Exception) -> tuple[FailureKind, str]:
        match error:
            case aiohttp.ConnectionTimeoutError():
                return "timeout", f"no connection within {self._settings.connect_timeout_s:g} s"
            case aiohttp.SocketTimeoutError():
                return "timeout", f"nothing received for {self._settings.read_timeout_s:g} s"
            case TimeoutError() if not isinstance(error, aiohttp.ClientConnectorError):
                return "timeout", f"not complete within {self._settings.total_timeout_s:g} s"
        return explain(error)


@functools.lru_cache(maxsize=1_024)
def _name(raw: bytes) -> str:
    return raw.decode("latin-1").lower()


async def _body(
    answer: Answer,
    accepts: Callable[[str], bool] | None,
    limit: int,
    *,
    cut: bool,
    raw: list[bytes] | None,
) -> tuple[bytes, bool]:
    """The body, and whether all of it was read; `raw` gets it as it was received."""
    if answer.status == 101:
        raise FetchError("protocol", "the server switched protocols without being asked")
    if 200 <= answer.status < 300:
        if accepts is not None and not accepts(_media_type(answer)):
            return b"", False
        return await _read(answer, limit, cut=cut, raw=raw)
    try:
        return await _read(answer, limit, cut=cut, raw=raw)
    except (FetchError, aiohttp.ClientError):
        return b"", False


async def _read(answer: Answer, limit: int, *, cut: bool, raw: list[bytes] | None) -> tuple[bytes, bool]:
    if not cut and int(answer.headers.get("Content-Length", "0")) > limit:
        raise FetchError("too_large", f"the body is larger than {limit} bytes")
    body = Body(_codings(answer), limit_bytes=limit)
    try:
        while data := await answer.content.readany():
            if raw is not None:
                raw.append(data)
            body.feed(data)
    except FetchError as error:
        if cut and error.kind == "too_large":
            return body.so_far(), False
        raise
    return body.finish(), True


_TELLING: Final = frozenset(
    {b"host", b"user-agent", b"accept", b"accept-encoding", b"if-none-match", b"if-modified-since"}
)
"""Request headers that hold no secret, whatever the user sends."""


def _captured(answer: Answer, at: float, body: bytes) -> Capture:
    """What went over the line. Chunks have been taken off the body, so the header about them is renamed."""
    first, *lines = answer.request.partition(b"\r\n\r\n")[0].split(b"\r\n")
    asked = [first, *(line for line in lines if line.partition(b":")[0].lower() in _TELLING)]
    version, reason = answer.version, answer.reason.encode("latin-1", "replace")
    answered = [f"HTTP/{version.major}.{version.minor} {answer.status} ".encode() + reason]
    for name, value in answer.raw_headers:
        archived = b"X-Archive-Orig-" + name if name.lower() == b"transfer-encoding" else name
        answered.append(archived + b": " + value)
    end = [b"", b""]
    return Capture(at, b"\r\n".join(asked + end), b"\r\n".join(answered + end), body)


def _codings(answer: Answer) -> str:
    """What the body is wrapped in, outermost last: content codings, transfer codings (RFC 9112 section 7).

    Chunks have been taken off already.
    """
    transfer = ",".join(answer.headers.getall("Transfer-Encoding", ())).split(",")
    others = [coding for coding in transfer if coding.strip().lower() != "chunked"]
    return ",".join((*answer.headers.getall("Content-Encoding", ()), *others))


def _media_type(answer: Answer) -> str:
    """The type itself, without parameters; the first of a list."""
    header = answer.headers.get("Content-Type", "")
    return header.partition(";")[0].partition(",")[0].strip().lower()


def _request_headers(settings: FetchSettings) -> Headers:
    usual = (("User-Agent", settings.user_agent), ("Accept", _ACCEPT), ("Accept-Encoding", ACCEPT_ENCODING))
    return replaced(usual, settings.headers)


def _connector(settings: FetchSettings, resolver: AbstractResolver | None) -> aiohttp.TCPConnector:
    return connector(
        allow=None if settings.proxy else settings.allow,
        connections=settings.connections,
        idle=settings.idle_connections,
        per_host=settings.per_host_connections,
        keepalive_timeout_s=settings.keepalive_timeout_s,
        verify_tls=settings.verify_tls,
        resolver=resolver,
    )
