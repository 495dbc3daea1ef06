"""What takes bytes from strangers: for each, a function that must come through whatever they are, and soon.

Used by Hypothesis (`test_targets.py`) and by a fuzzer that goes by coverage (`by_coverage.py`).
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable

from msgspec import Struct

from shoal.addresses import kind_of_host
from shoal.decode import Body, FetchError
from shoal.fetch import Fetcher, FetchSettings
from shoal.intake import read_link
from shoal.model import Failure, Link, Response
from shoal.parse import Page
from shoal.policy import Retries, judge, location, retry_after_s
from shoal.robots import Rules, from_answer
from shoal.scope import Scope, registrable_domain
from shoal.sitemap import parse as parse_sitemap
from shoal.urls import (
    Base,
    Spelling,
    fingerprint,
    has_credentials,
    host_key,
    normalize,
    origin,
    path_query,
    without_credentials,
)

HANG_S = 1.0
LIMIT = 1_000_000
URL = "http://h.test/a/b?c"
SPELLING = Spelling(sort_query=True, drop_params=("utm_*",))
SCOPE = Scope.of([URL], "domain", ["*a*"], ["*b*c*"])
RETRIES = Retries()


class Target(Struct, frozen=True):
    """One of them."""

    take: Callable[[bytes], None]
    tokens: tuple[bytes, ...]
    """Of what its language is made."""

    def __call__(self, data: bytes) -> None:
        """Take these bytes. Fails if it is no longer than that many bytes may take."""
        began = time.thread_time()
        self.take(data)
        took_s = time.thread_time() - began
        assert took_s < HANG_S, f"{took_s:.2f} s of CPU"


def _words(data: bytes) -> str:
    """Text of any kind: UTF-8 if it is any, half surrogates included, else one character a byte."""
    try:
        return data.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return data.decode("latin-1")


def _url(data: bytes) -> None:
    text = _words(data)
    for url in (normalize(text), Base(URL, SPELLING, "shift_jis").join(text), normalize("/x", text)):
        assert without_credentials(text) is not None
        if url is None:
            continue
        assert url.isascii()
        assert url.isprintable()
        assert normalize(url) == url
        assert not has_credentials(url)
        assert origin(url) + path_query(url) == url
        assert -(2**63) <= fingerprint(url) < 2**63
        kind_of_host(url)
        registrable_domain(host_key(url))
        SCOPE.reason(url)
    with contextlib.suppress(ValueError):
        read_link(data)


def _robots(data: bytes) -> None:
    rules = from_answer(Response("http://h.test/robots.txt", 200, (), data), "shoal/1.0")
    assert isinstance(rules, Rules)
    for path in ("/", "/a/b?c=d", "/" + "a" * 2_000, path_query(normalize("/" + _words(data), URL) or URL)):
        rules.allows(path)
    assert rules.crawl_delay_s is None or rules.crawl_delay_s >= 0


def _sitemap(data: bytes) -> None:
    found = parse_sitemap(data, "http://h.test/sitemap.xml")
    for url in (*(entry.url for entry in found.links), *found.children):
        assert normalize(url) == url


def _page(content_type: str, body: bytes) -> None:
    page = Page(
        Response(URL, 200, (("content-type", content_type), ("x-robots-tag", "none")), body), Link(URL)
    )
    for link in page.links(iframes=True):
        assert normalize(link.url) == link.url
    page.links("p a::attr(href)", obey_nofollow=True)
    page.css("h1 ::text").getall()
    assert page.text is not None
    assert page.title != ""
    assert page.canonical is None or normalize(page.canonical) == page.canonical
    assert "nofollow" in page.robots_directives


def _html(data: bytes) -> None:
    _page("text/html", data)


def _header(data: bytes) -> None:
    """The first line is the value of all headers, what follows a body."""
    line, _, body = data.partition(b"\n")
    value = line.decode("latin-1")
    seconds = retry_after_s(value, 1e9)
    assert seconds is None or seconds >= 0
    for status in (200, 301, 429, 503):
        names = ("location", "retry-after", "content-type", "x-robots-tag")
        answer = Response(URL, status, tuple((name, value) for name in names), body)
        judge(answer, 1, retries=RETRIES, now=1e9, draw=0.5)
        normalize(location(answer), URL)
    _page(value, body)


def _body(data: bytes) -> None:
    """The first line is the Content-Encoding."""
    coding, _, content = data.partition(b"\n")
    with contextlib.suppress(FetchError):
        body = Body(coding.decode("latin-1"), limit_bytes=LIMIT)
        for at in range(0, len(content), 7):
            body.feed(content[at : at + 7])
        assert len(body.finish()) <= LIMIT


class _Wire:
    """A server that answers with given bytes, and a Fetcher that asks it, in a loop of their own."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._answer = b""
        self._loop.run_until_complete(self._open())

    async def _open(self) -> None:
        server = await asyncio.start_server(self._converse, "127.0.0.1", 0)
        self._url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
        settings = FetchSettings(allow=frozenset({"loopback"}), total_timeout_s=5.0, max_body_bytes=LIMIT)
        self._fetcher = Fetcher(settings)

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(self._answer)
            await writer.drain()
        except (OSError, asyncio.IncompleteReadError):
            pass
        writer.close()

    def fetch(self, answer: bytes) -> Response | Failure:
        """What the Fetcher makes of it."""
        self._answer = answer
        return self._loop.run_until_complete(self._fetcher.fetch(self._url))


_wires: list[_Wire] = []


def _response(data: bytes) -> None:
    if not _wires:
        _wires.append(_Wire())
    outcome = _wires[0].fetch(data)
    if isinstance(outcome, Failure):
        assert outcome.kind != "timeout", outcome
        assert "\n" not in outcome.detail
    else:
        judge(outcome, 1, retries=RETRIES, now=1e9, draw=0.5)
        Page(outcome, Link(URL)).links()


_URL_TOKENS = (
    b"http", b"https", b":", b"/", b"//", b"\\", b"@", b"?", b"#", b"%", b"%2e", b"%00", b"%ff", b".", b"..",
    b"[", b"]", b"::1", b"127.0.0.1", b"0x7f", b"xn--", b"localhost", b"\t", b"\r\n", b" ", b"a", b"h.test",
    b"\xc3\xa4", b"\xed\xa0\x80", b"\xe3\x80\x82", b"\xff", b"\0", b"&", b"=", b"utm_x", b"+", b";", b"*",
    b"|",
    b'{"url":', b'"', b"}", b"data:", b"javascript:",
)  # fmt: skip
_MARKUP_TOKENS = (
    b"<", b">", b"</", b"/>", b"<!", b"<!--", b"-->", b"--!>", b"<![CDATA[", b"]]>", b"<?xml ", b"?>",
    b"'", b'"',
    b"=", b" ", b"&", b"&amp;", b"&#x0;", b"&#1114112;", b"\0", b"\xff\xfe", b"\xef\xbb\xbf", b"\xed\xa0\x80",
)  # fmt: skip
_HTML_TOKENS = (
    *_MARKUP_TOKENS, b"a ", b"href=", b"base ", b"meta ", b"charset=", b"http-equiv=refresh ", b"content=",
    b"0;url=", b"table", b"tr", b"td", b"svg", b"math", b"mi", b"template", b"select", b"option", b"form",
    b"p",
    b"b", b"i", b"nobr", b"frameset", b"frame", b"iframe", b"noscript", b"script", b"style", b"textarea",
    b"title", b"plaintext", b"body", b"html", b"head", b"<a href=x>", b"<div>", b"</p>", b"<b><p>", b"</b>",
)  # fmt: skip
_SITEMAP_TOKENS = (
    *_MARKUP_TOKENS, b"<urlset>", b"</urlset>", b"<url>", b"</url>", b"<loc>", b"</loc>", b"<sitemapindex>",
    b"<sitemap>", b"<rss>", b"<channel>", b"<item>", b"<link>", b"<feed>", b"<entry>", b"<link href=",
    b"http://h.test/", b"<!DOCTYPE x [", b"<!ENTITY a '&b;'>", b"]>", b"&a;", b"<priority>", b"0.5",
    b"<lastmod>",
    b"2026-12-02", b"xmlns:x=", b"x:", b"\x1f\x8b\x08\0", b"encoding='utf-16'",
)  # fmt: skip
_ROBOTS_TOKENS = (
    b"User-agent:", b"Disallow:", b"Allow:", b"Crawl-delay:", b"Sitemap:", b"\n", b"\r", b"\r\n", b" ", b"\t",
    b"*", b"$", b"/", b"#", b"shoal", b"%2F", b"%", b"%zz", b"a", b"?", b"\xef\xbb\xbf", b"\0", b"\xff", b"1",
    b"9" * 40, b".", b":", b"\xe2\x80\xa8",
)  # fmt: skip
_HEADER_TOKENS = (
    b"text/html", b";", b"charset=", b"utf-8", b"utf-7", b"zlib_codec", b'"', b",", b" ", b"\n", b"\r",
    b"0", b"-1",
    b"9" * 400, b"Wed, 02 Dec 2026 04:00:00 GMT", b"+9999", b"noindex", b"bot:", b"/", b"//", b"http://",
    b"\xff",
    b"\xc3\xa4", b"\0", b"\t", b"unavailable_after:", b"<meta charset=", b"<a href=x>",
)  # fmt: skip
_BODY_TOKENS = (
    b"gzip", b"x-gzip", b"deflate", b"br", b"zstd", b"identity", b",", b" ", b"\n", b"\x1f\x8b\x08", b"\0",
    b"\x1f\x8b\x08\0\0\0\0\0\0\xff\x03\0" + bytes(8), b"\x78\x9c", b"\x03\0", b"\x28\xb5\x2f\xfd",
    b"\x20\0\1\0\0",
    b"\x50\x2a\x4d\x18\0\0\0\0", b"\xff", b"\x1b", b"\x06", b"\x3b",
)  # fmt: skip
_RESPONSE_TOKENS = (
    b"HTTP/1.1 200 OK\r\n", b"HTTP/1.0 404 \r\n", b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 204 x\r\n",
    b"Content-Length: ", b"Transfer-Encoding: ", b"chunked", b"Content-Encoding: ", b"gzip", b"Connection: ",
    b"close", b"keep-alive", b"Set-Cookie: ", b"a=b; Domain=h", b"Location: ", b"Content-Type: text/html\r\n",
    b"\r\n", b"\r", b"\n", b" ", b"\t", b":", b";", b"=", b",", b"0", b"1", b"a", b"ff", b"-", b"\0", b"\xff",
    b"9" * 30, b"\r\n\r\n", b"0\r\n\r\n", b"5\r\nhello\r\n", b"<a href=x>", b"Upgrade: h2c\r\n",
    b"Trailer: x\r\n",
)  # fmt: skip

TARGETS = {
    "url": Target(_url, _URL_TOKENS),
    "robots": Target(_robots, _ROBOTS_TOKENS),
    "sitemap": Target(_sitemap, _SITEMAP_TOKENS),
    "header": Target(_header, _HEADER_TOKENS),
    "html": Target(_html, _HTML_TOKENS),
    "body": Target(_body, _BODY_TOKENS),
    "response": Target(_response, _RESPONSE_TOKENS),
}
