# ruff: noqa: A005 - imported as tests.site, so it hides nothing
"""A web site on loopback whose right crawl can be worked out: a page's links are a function of its number.

    with Site(pages=100, extras=["/flaky/2/x", "/status/410"]) as site:
        crawl(site.url)
    assert site.fetches() == Counter(site.urls)

Page 0 is `/`, page N is `/p/N`; every page is reached from `/` by links, each spelled in several ways.
A site changes by its attributes: `editions` of pages, pages that are `gone` or `failing`, others `added`.
With `validators` pages have an ETag or a Last-Modified, and the answer may be that they have not changed.

What crawlers trip over is linked from `/` if it is named in `extras`:

    /go/N          redirects to page N              /status/CODE    answers CODE
    /chain/N       N redirects in a row, to `/`     /flaky/N/NAME   503 for the first N times, then a page
    /circle        redirects to itself              /limit/S/NAME   429 with `Retry-After: S` once
    /trap/N        a page that links to /trap/N+1   /slow/S         a page that takes S seconds
    /private/NAME  closed by robots.txt             /reset          the connection is torn down
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from hashlib import sha256
from html import escape
from random import Random
from typing import Literal

from aiohttp import web
from msgspec import Struct

from shoal.shop.server import Server

FANOUT = 4
ROBOTS = "User-agent: *\nDisallow: /private/\n"


class Fetch(Struct, frozen=True):
    """One request that the site received."""

    url: str
    at: float
    """When its headers were read (`time.monotonic`)."""
    headers: dict[str, str]
    port: int = 0
    """Of the client: the same for all requests on one connection."""


class Site(Server):
    """The site, served by a thread of its own while the context is open.

    pages are spread over `hosts` addresses, 127.0.0.1 and up; latency_s is added to every answer, and
    more_bytes to every page.
    """

    def __init__(
        self,
        pages: int = 100,
        *,
        hosts: int = 1,
        latency_s: float = 0.0,
        extras: Iterable[str] = (),
        robots: str = ROBOTS,
        validators: Literal["etag", "last-modified"] | None = None,
        more_bytes: int = 0,
    ) -> None:
        self.pages, self.latency_s, self.extras, self.robots = pages, latency_s, tuple(extras), robots
        self.log: list[Fetch] = []
        """All requests, robots.txt included, in order of arrival."""
        self.validators, self.more_bytes = validators, more_bytes
        self.editions: Counter[int] = Counter()
        """How often each page was changed."""
        self.gone: set[int] = set()
        self.failing: set[int] = set()
        self.added = 0
        """So many pages are there besides, linked from `/`."""
        self.sent_bytes = 0
        """In all answers, heads included."""
        app = web.Application(middlewares=[self._record])
        app.router.add_routes([web.get(path, getattr(self, "_" + name)) for name, path in _ROUTES.items()])
        app.on_response_prepare.append(self._count)
        super().__init__(app, tuple(f"127.0.0.{1 + host}" for host in range(hosts)))

    # --- the truth ----------------------------------------------------------------------------

    def page_url(self, number: int) -> str:
        """Return the normalized URL of a page."""
        address = self._addresses[number % len(self._addresses)]
        return f"http://{address}:{self.port}" + (f"/p/{number}" if number else "/")

    @property
    def urls(self) -> list[str]:
        """The normalized URLs of all pages, extras left out."""
        return [self.page_url(number) for number in range(self.pages)]

    def rows(self) -> dict[str, dict[str, str]]:
        """Return what `article::attr(data-id)`, `h1` and `[itemprop=price]::attr(content)` give, by URL."""
        return {self.page_url(number): self._row(number) for number in range(self.pages)}

    def _row(self, number: int) -> dict[str, str]:
        edition = self.editions[number]
        return row(number) | ({"title": f"Page {number}, edition {edition}"} if edition else {})

    def fetches(self) -> Counter[str]:
        """Count the requests of each URL, robots.txt left out."""
        return Counter(fetch.url for fetch in self.log if not fetch.url.endswith("/robots.txt"))

    # --- pages --------------------------------------------------------------------------------

    def links(self, number: int) -> list[int]:
        """Return the pages that a page links to: its children in a tree that holds all, and some others."""
        children = range(number * FANOUT + 1, min(number * FANOUT + FANOUT + 1, self.pages))
        return [*children, *Random(number).choices(range(self.pages), k=6)]

    def _html(self, number: int) -> str:
        rng, this = Random(-number - 1), self._row(number)
        hrefs = [self._spell(target, number, rng) for target in self.links(number)]
        if number == 0:
            hrefs += [*self.extras, *map(self.page_url, range(self.pages, self.pages + self.added))]
        anchors = " ".join(f'<a href="{escape(href)}">{href}</a>' for href in hrefs)
        return _document(
            f'<article class="product" data-id="{this["id"]}"><h1>{this["title"]}</h1>'
            f'<span itemprop="price" content="{this["price"]}"></span></article>{anchors}'
            + "x"
            * self.more_bytes
        )

    def _spell(self, target: int, base: int, rng: Random) -> str:
        """Write a link from page `base` to page `target`, in one of several ways."""
        url = self.page_url(target)
        if (target - base) % len(self._addresses) or rng.random() < 0.2:
            return url.replace("http:", rng.choice(("http:", "HTTP:")))
        path = f"/p/{target}" if target else "/"
        return rng.choice((path, path + "#top", "/./p/.." + path))

    # --- answers ------------------------------------------------------------------------------

    @web.middleware
    async def _record(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        headers = {name.lower(): value for name, value in request.headers.items()}
        port = request.transport.get_extra_info("peername")[1] if request.transport else 0
        self.log.append(Fetch(f"http://{request.host}{request.path_qs}", time.monotonic(), headers, port))
        await asyncio.sleep(self.latency_s)
        return await handler(request)

    def _visits(self, request: web.Request) -> int:
        """How often this URL has been asked for, this time included."""
        url = f"http://{request.host}{request.path_qs}"
        return sum(fetch.url == url for fetch in self.log)

    async def _page(self, request: web.Request) -> web.Response:
        number = int(request.match_info.get("n", "0"))
        if number in self.failing:
            raise web.HTTPServiceUnavailable
        if number in self.gone:
            raise web.HTTPGone if number % 2 else web.HTTPNotFound
        if (
            number >= self.pages + self.added
            or self.page_url(number) != f"http://{request.host}{request.path}"
        ):
            raise web.HTTPNotFound
        return self._validated(_answer(self._html(number)), request, number)

    _start = _page

    def _validated(self, answer: web.Response, request: web.Request, number: int) -> web.Response:
        """The page, or that it has not changed."""
        if self.validators == "etag":
            mark = f'"{sha256(answer.body if isinstance(answer.body, bytes) else b"").hexdigest()[:16]}"'
            name, condition = "ETag", "If-None-Match"
        elif self.validators == "last-modified":
            mark = f"Mon, 06 Jul 2026 10:00:{self.editions[number]:02} GMT"
            name, condition = "Last-Modified", "If-Modified-Since"
        else:
            return answer
        if request.headers.get(condition) == mark:
            answer = web.Response(status=304)
        answer.headers[name] = mark
        return answer

    async def _count(self, request: web.Request, answer: web.StreamResponse) -> None:
        head = sum(len(name) + len(value) + 4 for name, value in answer.headers.items())
        body = answer.body if isinstance(answer, web.Response) else b""
        self.sent_bytes += 20 + head + (len(body) if isinstance(body, bytes) else 0)

    async def _robots(self, request: web.Request) -> web.Response:
        return web.Response(text=self.robots)

    async def _go(self, request: web.Request) -> web.Response:
        return _redirect(self.page_url(int(request.match_info["n"])))

    async def _chain(self, request: web.Request) -> web.Response:
        left = int(request.match_info["n"]) - 1
        return _redirect(f"/chain/{left}" if left else "/")

    async def _circle(self, request: web.Request) -> web.Response:
        return _redirect("/circle")

    async def _trap(self, request: web.Request) -> web.Response:
        return _answer(_document(f'<a href="/trap/{int(request.match_info["n"]) + 1}">on</a>'))

    async def _private(self, request: web.Request) -> web.Response:
        return _answer(_document("<h1>Private</h1>"))

    async def _status(self, request: web.Request) -> web.Response:
        return web.Response(status=int(request.match_info["code"]), text="as you wish")

    async def _flaky(self, request: web.Request) -> web.Response:
        if self._visits(request) <= int(request.match_info["n"]):
            return web.Response(status=503)
        return _answer(_document("<h1>Up again</h1>"))

    async def _limit(self, request: web.Request) -> web.Response:
        if self._visits(request) == 1:
            return web.Response(status=429, headers={"Retry-After": request.match_info["s"]})
        return _answer(_document("<h1>Welcome back</h1>"))

    async def _slow(self, request: web.Request) -> web.Response:
        await asyncio.sleep(float(request.match_info["s"]))
        return _answer(_document("<h1>At last</h1>"))

    async def _reset(self, request: web.Request) -> web.Response:
        if request.transport is not None:
            request.transport.abort()
        return web.Response()


_ROUTES = {
    "start": "/",
    "page": r"/p/{n:\d+}",
    "robots": "/robots.txt",
    "go": r"/go/{n:\d+}",
    "chain": r"/chain/{n:\d+}",
    "circle": "/circle",
    "trap": r"/trap/{n:\d+}",
    "private": "/private/{name}",
    "status": r"/status/{code:\d+}",
    "flaky": r"/flaky/{n:\d+}/{name}",
    "limit": r"/limit/{s:\d+}/{name}",
    "slow": r"/slow/{s:[\d.]+}",
    "reset": "/reset",
}


def row(number: int) -> dict[str, str]:
    """Return what page `number` shows."""
    return {"id": f"P{number}", "title": f"Page {number}", "price": f"{number * 7919 % 10000 / 100:.2f}"}


def _document(body: str) -> str:
    return f'<!doctype html><html lang="en"><head><title>Site</title></head><body>{body}</body></html>'


def _answer(text: str) -> web.Response:
    return web.Response(text=text, content_type="text/html")


def _redirect(location: str) -> web.Response:
    return web.Response(status=302, headers={"Location": location})
