"""One request and its response, on aiohttp's connections but without its session.

The pool, names, TLS, proxies, the parser and the cookies are aiohttp's. Its `ClientSession` above them is
made for every use of HTTP, and costs twice as much as all of the rest: here a request is written in one go.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final, NamedTuple

import aiohttp
from aiohttp.client_reqrep import ClientRequest
from aiohttp.connector import Connection
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.streams import StreamReader
from multidict import CIMultiDictProxy
from yarl import URL

from shoal.decode import FetchError
from shoal.fetch.trouble import brief
from shoal.headers import Headers, is_sendable, replaced
from shoal.urls import host_key, origin, path_query

MAX_HEADER_BYTES: Final = 65_536
"""The longest single header; real sites go beyond the usual 8 KB."""

_MAX_HEADERS: Final = 1_000
_MAX_ORIGINS: Final = 4_096
_SAFE: Final = frozenset({"GET", "HEAD"})  # may be sent twice


class Answer(NamedTuple):
    """A response whose head has come."""

    status: int
    headers: CIMultiDictProxy[str]
    raw_headers: tuple[tuple[bytes, bytes], ...]
    content: StreamReader
    """The body as it comes: content codings are still on."""
    connection: Connection
    version: aiohttp.HttpVersion
    reason: str
    request: bytes
    """As it was sent."""

    def release(self) -> None:
        """Done with it: the connection is free again, or closed if there is something left to read."""
        self.connection.release()


class Exchange:
    """Sends requests and gets their heads, with one pool of connections and one cookie jar.

    Made inside a running event loop, used in that loop, and closed there.
    """

    def __init__(
        self,
        connector: aiohttp.BaseConnector,
        headers: Headers,
        *,
        jar: aiohttp.CookieJar | None,
        connect_timeout_s: float,
        read_timeout_s: float,
        proxy: str | None,
    ) -> None:
        """headers: sent with each request, as they are. jar: None if no cookies are kept."""
        self._connector = connector
        self._headers = headers
        self._lines = _lines(headers)
        self._jar = jar
        self._has_cookies = False
        self._timeout = aiohttp.ClientTimeout(connect=connect_timeout_s)
        self._read_timeout_s = read_timeout_s
        self._proxy = None if proxy is None else URL(proxy)
        self._place = lru_cache(_MAX_ORIGINS)(self._place_of)

    async def close(self) -> None:
        """Close all connections."""
        await self._connector.close()

    async def ask(self, method: str, url: str, headers: Headers = (), content: bytes | None = None) -> Answer:
        """Send a request for a normalized URL and wait for the head of its response.

        `headers` replace those of the exchange with the same name. Raises what aiohttp does, FetchError for
        what is not HTTP, and ValueError for headers that are not sendable.
        """
        place = self._place(origin(url))
        sent_before = False
        while True:
            try:
                connection = await self._connect(place)
                return await self._send(connection, method, url, headers, content)
            except aiohttp.ClientConnectorError:
                raise
            except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError):
                # a server may close an idle connection at any time (RFC 9112 section 9.3.1)
                if sent_before or method not in _SAFE:
                    raise
            sent_before = True

    def _place_of(self, origin: str) -> ClientRequest:
        """Where to connect to, in the form that the pool wants."""
        return ClientRequest("GET", URL(f"{origin}/", encoded=True), proxy=self._proxy)

    async def _connect(self, place: ClientRequest) -> Connection:
        if self._connector.closed:
            raise aiohttp.ClientConnectionError("closed")
        try:
            return await self._connector.connect(place, traces=[], timeout=self._timeout)
        except TimeoutError as error:
            raise aiohttp.ConnectionTimeoutError from error

    async def _send(
        self, connection: Connection, method: str, url: str, headers: Headers, content: bytes | None
    ) -> Answer:
        protocol, transport = connection.protocol, connection.transport
        try:
            if protocol is None or transport is None or transport.is_closing():
                raise aiohttp.ClientConnectionResetError
            protocol.set_response_params(
                skip_payload=method == "HEAD",
                read_until_eof=True,
                auto_decompress=False,
                read_timeout=self._read_timeout_s,
                max_line_size=MAX_HEADER_BYTES,
                max_field_size=MAX_HEADER_BYTES,
                max_headers=_MAX_HEADERS,
            )
            request = self._request(method, url, headers, content)
            transport.write(request)
            protocol.start_timeout()
            while True:
                message, body = await protocol.read()
                if message.code == 101 or not 100 <= message.code < 200:
                    break
        except HttpProcessingError as error:
            connection.close()
            raise FetchError("protocol", brief(error.message)) from error
        except BaseException:
            connection.close()
            raise
        self._keep_cookies(message.headers, url)
        return Answer(
            message.code,
            message.headers,
            message.raw_headers,
            body,
            connection,
            message.version,
            message.reason,
            request,
        )

    def _request(self, method: str, url: str, headers: Headers, content: bytes | None) -> bytes:
        """The bytes to send (RFC 9112 section 2.1)."""
        target, authority = path_query(url), host_key(url)
        if self._proxy is not None and url.startswith("http:"):
            target = url
            headers = (*headers, *_proxy_headers(self._place(origin(url))))
        if self._has_cookies:
            headers = self._with_cookies(headers, url)
        if content is not None:
            headers = (*headers, ("Content-Length", str(len(content))))
        if not headers:  # as with most
            return f"{method} {target} HTTP/1.1\r\nHost: {authority}\r\n{self._lines}\r\n".encode()
        if not all(is_sendable(name, value) for name, value in headers):
            raise ValueError("a header cannot be sent")
        lines = _lines(replaced((("Host", authority), *self._headers), headers))
        return f"{method} {target} HTTP/1.1\r\n{lines}\r\n".encode() + (content or b"")

    def _keep_cookies(self, headers: CIMultiDictProxy[str], url: str) -> None:
        if self._jar is not None and "Set-Cookie" in headers:
            self._jar.update_cookies_from_headers(headers.getall("Set-Cookie"), URL(url, encoded=True))
            self._has_cookies = True

    def _with_cookies(self, headers: Headers, url: str) -> Headers:
        """Those of the jar behind those sent anyway, of which they replace any of the same name."""
        assert self._jar is not None
        kept = self._jar.filter_cookies(URL(url, encoded=True))
        if not kept:
            return headers
        given = [value for name, value in (*self._headers, *headers) if name.lower() == "cookie"]
        pairs = [pair.strip() for pair in ";".join(given[-1:]).split(";")]
        pairs = [pair for pair in pairs if pair and pair.partition("=")[0] not in kept]
        pairs += sorted(f"{each.key}={each.coded_value}" for each in kept.values())
        return replaced(headers, (("Cookie", "; ".join(pairs)),))


def _lines(headers: Headers) -> str:
    return "".join([f"{name}: {value}\r\n" for name, value in headers])


def _proxy_headers(place: ClientRequest) -> Headers:
    """What the pool has found out that the proxy wants."""
    credentials = place.headers.get("Proxy-Authorization")
    return () if credentials is None else (("Proxy-Authorization", credentials),)
