"""One HTTP hop: a URL in, what the server answered or why it did not out. Nothing else talks to web sites.

What a site does wrong is a value here, never an exception. Redirects are not followed, and a response is not
judged: that is `shoal.policy`.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import functools
import ipaddress
import os
import re
import socket
import ssl
from collections.abc import Callable
from http.cookies import Morsel
from time import perf_counter
from types import TracebackType
from typing import Any, Final, Self, cast

import aiohttp
from aiohttp.client_proto import ResponseHandler
from msgspec import Struct
from multidict import CIMultiDict
from yarl import URL

from shoal.decode import ACCEPT_ENCODING, Body, FetchError
from shoal.errors import ConfigError
from shoal.model import Failure, FailureKind, Response
from shoal.scope import registrable_domain
from shoal.urls import host_key

MAX_HEADER_BYTES: Final = 65_536
"""The longest single header; real sites go beyond the usual 8 KB."""

MAX_HEAD_BYTES: Final = 262_144
"""All that may come before the body, interim (1xx) responses included."""

_MAX_HEADERS: Final = 1_000
_ACCEPT: Final = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"
_DNS_CACHE_S: Final = 300


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
    allow_loopback: bool = False
    allow_private: bool = False
    """Allow private networks (RFC 1918, RFC 6598, RFC 4193)."""
    connections: int = 200
    """Most connections in use at once, and most kept idle for later; 0 means no limit."""
    per_host_connections: int = 0
    """Most connections in use to one host; 0 means no limit of its own."""
    keepalive_timeout_s: float = 60.0
    """How long an idle connection is kept."""

    def __post_init__(self) -> None:
        for name, value in (("User-Agent", self.user_agent), *self.headers):
            if not _TOKEN.fullmatch(name) or not _FIELD_VALUE.fullmatch(value):
                raise ConfigError(f"the header {name!r}: {value!r} cannot be sent; use printable characters")
        if self.proxy is not None and not _PROXY.match(self.proxy):
            raise ConfigError(f"the proxy {self.proxy!r} is not an http:// or https:// URL")


_TOKEN: Final = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")  # RFC 9110 section 5.6.2
_FIELD_VALUE: Final = re.compile(r"[^\x00-\x08\x0a-\x1f\x7f]*")
_PROXY: Final = re.compile(r"https?://[^/]", re.IGNORECASE)


class Fetcher:
    """Fetches with one pool of connections and one cookie jar.

    Made inside a running event loop, used in that loop, and closed there: `async with Fetcher(settings)`.
    """

    def __init__(self, settings: FetchSettings | None = None) -> None:
        self._settings = settings = settings or FetchSettings()
        self._session = aiohttp.ClientSession(
            connector=_connector(settings),
            cookie_jar=_CookieJar(unsafe=True) if settings.cookies else aiohttp.DummyCookieJar(),
            headers=_request_headers(settings),
            timeout=aiohttp.ClientTimeout(
                total=settings.total_timeout_s,
                connect=settings.connect_timeout_s,
                sock_read=settings.read_timeout_s,
            ),
            proxy=settings.proxy,
            auto_decompress=False,
            max_line_size=MAX_HEADER_BYTES,
            max_field_size=MAX_HEADER_BYTES,
            max_headers=_MAX_HEADERS,
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
        await self._session.close()

    async def fetch(
        self,
        url: str,
        *,
        accepts: Callable[[str], bool] | None = None,
        max_body_bytes: int | None = None,
        cut: bool = False,
        method: str = "GET",
        headers: tuple[tuple[str, str], ...] = (),
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
        started = perf_counter()
        limit = self._settings.max_body_bytes if max_body_bytes is None else max_body_bytes
        try:
            response = await self._session.request(
                method, self._target(url), headers=headers or None, data=content, allow_redirects=False
            )
            try:
                body = await _body(response, accepts, limit, cut=cut)
            finally:
                if not response.closed:  # it is not if there is something left to read
                    response.release()
        except Exception as error:  # whatever a site can cause is a value
            kind, detail = _explain(error, self._settings)
            return Failure(kind, detail, perf_counter() - started)
        received = [(_name(name), value.decode("latin-1")) for name, value in response.raw_headers]
        return Response(url, response.status, tuple(received), body, perf_counter() - started)

    def _target(self, url: str) -> URL:
        if not (url.isascii() and url.isprintable() and " " not in url):
            raise ValueError("it is not normalized")
        target = URL(url, encoded=True)
        if url.find("?") == len(url) - 1:  # yarl would drop an empty query
            target = target.with_path(target.raw_path + "?", encoded=True)
        if self._settings.proxy is not None:
            self._guard_name(target.raw_host or "")
        return target

    def _guard_name(self, host: str) -> None:
        """With a proxy the address is the proxy's business, unless the URL itself names a forbidden one."""
        with contextlib.suppress(ValueError):  # a name
            _guard(_literal(host), self._settings)


@functools.lru_cache(maxsize=1_024)
def _name(raw: bytes) -> str:
    return raw.decode("latin-1").lower()


async def _body(
    response: aiohttp.ClientResponse, accepts: Callable[[str], bool] | None, limit: int, *, cut: bool
) -> bytes:
    if response.status == 101:
        raise FetchError("protocol", "the server switched protocols without being asked")
    if 200 <= response.status < 300:
        if accepts is not None and not accepts(_media_type(response)):
            return b""
        return await _read(response, limit, cut=cut)
    try:
        return await _read(response, limit, cut=cut)
    except (FetchError, aiohttp.ClientError, TimeoutError):
        return b""


async def _read(response: aiohttp.ClientResponse, limit: int, *, cut: bool) -> bytes:
    if not cut and (response.content_length or 0) > limit:
        raise FetchError("too_large", f"the body is larger than {limit} bytes")
    body = Body(_codings(response), limit_bytes=limit)
    try:
        while data := await response.content.readany():
            body.feed(data)
    except FetchError as error:
        if cut and error.kind == "too_large":
            return body.so_far()
        raise
    return body.finish()


def _codings(response: aiohttp.ClientResponse) -> str:
    """What the body is wrapped in, outermost last: content codings, transfer codings (RFC 9112 section 7).

    Chunks have been taken off already.
    """
    transfer = ",".join(response.headers.getall("Transfer-Encoding", ())).split(",")
    others = [coding for coding in transfer if coding.strip().lower() != "chunked"]
    return ",".join((*response.headers.getall("Content-Encoding", ()), *others))


def _media_type(response: aiohttp.ClientResponse) -> str:
    """The type itself, without parameters; the first of a list."""
    header = response.headers.get("Content-Type", "")
    return header.partition(";")[0].partition(",")[0].strip().lower()


def _request_headers(settings: FetchSettings) -> CIMultiDict[str]:
    headers = CIMultiDict(
        {"User-Agent": settings.user_agent, "Accept": _ACCEPT, "Accept-Encoding": ACCEPT_ENCODING}
    )
    for name, _ in settings.headers:
        headers.popall(name, None)
    headers.extend(settings.headers)
    return headers


def _connector(settings: FetchSettings) -> aiohttp.TCPConnector:
    connector = aiohttp.TCPConnector(
        limit=settings.connections,
        limit_per_host=settings.per_host_connections,
        keepalive_timeout=settings.keepalive_timeout_s,
        ttl_dns_cache=_DNS_CACHE_S,
        ssl=settings.verify_tls,
        socket_factory=None if settings.proxy else functools.partial(_guarded_socket, settings),
    )
    # behind a proxy the start of a tunnel looks like an idle connection, and must not be closed
    max_idle = None if settings.proxy else settings.connections or None
    connector._factory = cast(
        "functools.partial[ResponseHandler]",
        functools.partial(_Connection, asyncio.get_running_loop(), {}, max_idle),
    )
    return connector


class _Connection(ResponseHandler):
    """aiohttp's connection, made to treat sloppy servers as browsers do.

    - Bytes after a complete response are dropped with the connection, instead of failing the response or,
      worse, answering the next request.
    - A body that a reset or a broken chunk cuts off is not taken for a whole one, nor waited for.
    - The head is bounded as a whole.
    - Only a connection that was used before may have died of old age: aiohttp sends the request once more
      whenever a connection is dropped, which would ask a server that crashes on a page twice each time.
    - The number of idle connections is bounded: the oldest one goes.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, idle: dict[_Connection, None], max_idle: int | None
    ) -> None:
        super().__init__(loop)
        self._idle = idle
        self._max_idle = max_idle
        self._requests = 0
        self._in_head = False
        self._head_bytes = 0

    def set_response_params(self, **params: Any) -> None:
        """A request is about to be sent."""
        self._idle.pop(self, None)
        self._requests += 1
        self._in_head = True
        self._head_bytes = 0
        super().set_response_params(**params)

    def feed_data(self, data: Any, size: int = 0) -> None:
        """A head has been parsed: of an interim response, or of the one that counts."""
        status: int = data[0].code
        self._in_head = 100 <= status < 200 and status != 101
        super().feed_data(data, size)

    def data_received(self, data: bytes) -> None:
        """Bytes have come; if there are none, parsing goes on after a pause."""
        if not data:
            super().data_received(data)
        at = 0
        while at < len(data) and self.exception() is None:
            if self._in_head:
                end = _HEAD_END.search(data, at)
                head = data[at : end.end() if end else None]
                at += len(head)
                self._head_received(head)
            elif self._complete:
                self._end()
                return
            else:
                super().data_received(data[at:])
                break
        self._settle()

    def connection_lost(self, exc: BaseException | None) -> None:
        """The connection is gone; `exc` is None if it was closed in an orderly way."""
        self._idle.pop(self, None)
        if self._requests == 1 and not self.is_eof():
            self.set_exception(_dropped(exc))
        if exc is not None:
            self._cut_off(exc)
        super().connection_lost(exc)

    def close(self) -> None:
        """Close the connection, which may be in the middle of a body."""
        self._cut_off(None)
        super().close()

    def abort(self) -> None:
        """Close it at once."""
        self._cut_off(None)
        super().abort()

    @property
    def _complete(self) -> bool:
        return self._payload is None or self._payload.is_eof()

    def _cut_off(self, error: BaseException | None) -> None:
        if self._payload is not None and not self._payload.is_eof():
            self._payload.set_exception(_dropped(error))

    def _head_received(self, head: bytes) -> None:
        self._head_bytes += len(head)
        if self._head_bytes > MAX_HEAD_BYTES:
            self.set_exception(FetchError("protocol", f"more than {MAX_HEAD_BYTES} bytes before the body"))
            self._end()
        else:
            super().data_received(head)

    def _settle(self) -> None:
        if self._in_head or self._payload is None:
            return
        if self._payload.is_eof():
            self._idle[self] = None
            if self._max_idle is not None and len(self._idle) > self._max_idle:
                next(iter(self._idle))._end()
        elif (error := self.exception()) is not None:
            words = getattr(error, "message", None) or str(error)
            self._payload.set_exception(FetchError("protocol", _one_line(words)))

    def _end(self) -> None:
        self._idle.pop(self, None)
        self.force_close()
        if self.transport is not None:
            self.transport.close()


_HEAD_END: Final = re.compile(rb"\r?\n\r?\n")


def _dropped(error: BaseException | None) -> FetchError:
    if isinstance(error, ssl.SSLError):
        return FetchError("tls", _tls_detail(error))
    words = _words(error) if isinstance(error, OSError) else "the connection was closed"
    return FetchError("reset", f"{words} before the response was complete")


class _CookieJar(aiohttp.CookieJar):
    """aiohttp's jar, with cookies sent back as they came (RFC 6265 section 5.4), never quoted or escaped."""

    def _build_morsel(self, cookie: Morsel[str]) -> Morsel[str]:
        morsel: Morsel[str] = Morsel()
        # set() would refuse names that servers do use
        morsel.__setstate__(  # type: ignore[attr-defined]
            {"key": cookie.key, "value": cookie.value, "coded_value": cookie.coded_value}
        )
        return morsel

    @staticmethod
    def _is_domain_match(domain: str, hostname: str) -> bool:
        """Never for more than the site: a public suffix is nobody's (RFC 6265 section 5.3 step 5)."""
        site = registrable_domain(hostname)
        within = domain == site or domain.endswith("." + site)
        return within and aiohttp.CookieJar._is_domain_match(domain, hostname)


class _BlockedError(OSError):
    """An address that the settings forbid; raised instead of making a socket for it."""


def _guarded_socket(
    settings: FetchSettings, address_info: tuple[int, int, int, str, tuple[Any, ...]]
) -> socket.socket:
    """Make the socket for an address that is about to be connected to: the last moment to refuse it."""
    family, kind, protocol, _, address = address_info
    _guard(address[0], settings)
    return socket.socket(family, kind, protocol)


def _guard(address: str, settings: FetchSettings) -> None:
    reason = forbidden(address, loopback=settings.allow_loopback, private=settings.allow_private)
    if reason is not None:
        raise _BlockedError(errno.EACCES, f"{address} is a {reason} address")


_PRIVATE: Final = tuple(
    ipaddress.ip_network(network)
    for network in ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "fc00::/7")
)
_METADATA: Final = frozenset(
    ipaddress.ip_address(address)  # of cloud machines: secrets, inside or outside of private networks
    for address in ("169.254.169.254", "fd00:ec2::254", "100.100.100.200", "168.63.129.16", "192.0.0.192")
)
_GLOBAL_UNICAST: Final = ipaddress.IPv6Network("2000::/3")  # RFC 4291 section 2.4
_NAT64: Final = ipaddress.IPv6Network("64:ff9b::/96")  # RFC 6052 section 2.1
_IPV4_COMPATIBLE: Final = ipaddress.IPv6Network("::/96")  # RFC 4291 section 2.5.5.1


def forbidden(address: str, *, loopback: bool = False, private: bool = False) -> str | None:
    """What kind of address that no crawler should be sent to `address` is; None if it may be fetched from.

    `loopback` and `private` allow those two kinds. IPv4 inside IPv6 (mapped, compatible, 6to4, NAT64) counts
    as that IPv4 address. Raises ValueError if it is not an IP address.
    """
    ip = _innermost(ipaddress.ip_address(address))
    if ip in _METADATA:
        return "cloud metadata"
    if ip.is_loopback:
        return None if loopback else "loopback"
    if any(ip in network for network in _PRIVATE):
        return None if private else "private"
    if ip.is_link_local:
        return "link-local"
    if ip.is_multicast:
        return "multicast"
    if ip.is_global and (ip.version == 4 or ip in _GLOBAL_UNICAST):
        return None
    return "reserved"


def address_kind(url: str) -> str | None:
    """The kind, as in `forbidden`, of the address that a normalized URL names; None for any other name."""
    host = host_key(url)
    name = host.rpartition("]")[0].lstrip("[") or host.partition(":")[0]
    try:
        return forbidden(_literal(name))
    except ValueError:
        return None


def _literal(host: str) -> str:
    """The address that a name stands for without being looked up (RFC 6761 section 6.3), or `host` itself."""
    return "127.0.0.1" if host == "localhost" or host.endswith(".localhost") else host


def _innermost(
    ip: ipaddress.IPv4Address | ipaddress.IPv6Address,
) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    if isinstance(ip, ipaddress.IPv4Address):
        return ip
    inner = ip.ipv4_mapped or ip.sixtofour
    if inner is None and (ip in _NAT64 or (ip in _IPV4_COMPATIBLE and int(ip) > 1)):
        inner = ipaddress.IPv4Address(int(ip) & 0xFFFF_FFFF)
    return inner or ip


def _explain(error: Exception, settings: FetchSettings) -> tuple[FailureKind, str]:
    """Kind and detail of a Failure. The detail names what happened, not where, so that it can be grouped."""
    match error:
        case FetchError():
            return error.kind, error.detail
        case aiohttp.ConnectionTimeoutError():
            return "timeout", f"no connection within {settings.connect_timeout_s:g} s"
        case aiohttp.SocketTimeoutError():
            return "timeout", f"nothing received for {settings.read_timeout_s:g} s"
        case aiohttp.ClientConnectorError():
            return _explain_connect(error)
        case _BlockedError():
            return "blocked", str(error.strerror)
        case aiohttp.ClientOSError() | aiohttp.ServerDisconnectedError():
            dropped = _dropped(error.__cause__)
            return dropped.kind, dropped.detail
        case TimeoutError():
            return "timeout", f"not complete within {settings.total_timeout_s:g} s"
        case aiohttp.ClientHttpProxyError():
            return "refused", f"the proxy answered {error.status}"
        case aiohttp.ClientResponseError():
            return "protocol", _one_line(error.message)
        case aiohttp.ClientPayloadError():
            return "truncated", "the body ends early"
        case UnicodeError():
            return "dns", "the host name cannot be encoded"
        case aiohttp.InvalidURL() | aiohttp.NonHttpUrlClientError() | ValueError():
            return "blocked", f"not a URL that can be fetched: {_one_line(str(error))}"
        case _:
            return "protocol", _one_line(f"{type(error).__name__}: {error}")


def _explain_connect(error: aiohttp.ClientConnectorError) -> tuple[FailureKind, str]:
    cause = error.os_error
    proxy = "proxy: " if isinstance(error, aiohttp.ClientProxyConnectionError) else ""
    words = proxy + _words(cause)
    if isinstance(cause, _BlockedError):
        return "blocked", words
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return "dns", words
    if isinstance(cause, ssl.SSLError):
        return "tls", _tls_detail(cause)
    if cause.errno == errno.ETIMEDOUT:
        return "timeout", words
    if isinstance(cause, ConnectionResetError | BrokenPipeError | ConnectionAbortedError):
        return "reset", words
    return "refused", words


def _words(error: OSError) -> str:
    """The system's words for it, without the address that some event loops add."""
    if isinstance(error, _BlockedError) or not error.errno or error.errno < 0:
        return error.strerror or _one_line(str(error)) or type(error).__name__
    return os.strerror(error.errno)


def _tls_detail(error: ssl.SSLError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"certificate not accepted: {error.verify_message}"
    return (error.reason or "unknown TLS error").replace("_", " ").lower()


def _one_line(text: str) -> str:
    """The library's words without the offending bytes that it quotes below or behind them."""
    words = re.split(r"\n\n|:? b['\"]", text, maxsplit=1)[0]
    return " ".join(words.split())[:200].rstrip(":")
