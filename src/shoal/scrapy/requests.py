"""From a request of Scrapy's to a link of the frontier, and back.

A link says what most requests are: a URL to get, and how deep it is. All the rest is "scrapy" in its meta.
What other programs put into meta becomes the meta of the request.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping
from inspect import getmembers, ismethod
from typing import Any

import msgspec
from scrapy import Request, Spider
from scrapy.utils.request import RequestFingerprinter, RequestFingerprinterProtocol

from shoal.model import Lease, Link
from shoal.scrapy.values import NotStorable, item_class, pack, unpack
from shoal.urls import Spelling, digest, normalize

STORED = "scrapy"
"""The key in a link's meta."""

PRIORITIES = (-99, -9, -1, 0, 1, 2, 3, 10, 100)
"""From each of these on, a priority of Scrapy's is one step higher: 0 is 4, 1 is 5, -1 is 3."""

RETRY_TIMES = "retry_times"
_LATIN = "latin-1"  # header bytes as text, one to one


class Stored(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """What a link does not say of a request."""

    url: str | None = None
    """As it is to be fetched, if it is spelled otherwise than the link."""
    method: str = "GET"
    headers: dict[str, list[str]] = {}
    body: bytes = b""
    cookies: Any = None
    meta: dict[str, Any] = {}
    cb_kwargs: dict[str, Any] = {}
    callback: str | None = None
    """The name of a method of the spider; None: `parse`."""
    errback: str | None = None
    priority: int = 0
    dont_filter: bool = False
    encoding: str = "utf-8"
    flags: list[str] = []
    kind: str | None = None
    """Its class, if it is none of the plain ones: "MODULE:NAME"."""
    more: dict[str, Any] = {}
    """What only its class has."""


PLAIN = Stored()


class Codec:
    """Translates the requests of one spider."""

    def __init__(
        self,
        spider: Spider,
        spelling: Spelling,
        priorities: tuple[int, ...] = PRIORITIES,
        fingerprinter: RequestFingerprinterProtocol | None = None,
    ) -> None:
        """fingerprinter: tells requests with the same URL apart, if it is another one than Scrapy's."""
        self._spider = spider
        self._spelling = spelling
        self._priorities = priorities
        is_own = fingerprinter is not None and type(fingerprinter) is not RequestFingerprinter
        self._fingerprint = fingerprinter.fingerprint if is_own and fingerprinter else None
        self._names: dict[Any, str] = {}

    def link(self, request: Request, again: str = "") -> Link:
        """The link of a request. again: sets it apart from all others with the same identity.

        Raises NotStorable, with one line for people.
        """
        try:
            return self._link(request, again)
        except NotStorable as error:
            raise NotStorable(f"{request} cannot be kept in the frontier: {error}") from None

    def _link(self, request: Request, again: str) -> Link:
        url = normalize(request.url, None, self._spelling)
        if url is None:
            raise NotStorable("not an http(s) URL")
        stored = self._stored(request, url)
        key = self._key(request)
        return Link(
            url=url,
            priority=bisect_right(self._priorities, request.priority),
            depth=self._depth(request),
            key=f"{key} {again}".strip() if again else key,
            meta=None if stored == PLAIN else {STORED: stored},
        )

    def _key(self, request: Request) -> str:
        """What sets requests with the same URL apart; that of a plain one is empty."""
        if self._fingerprint is not None:
            return self._fingerprint(request).hex()
        if request.method == "GET" and not request.body:
            return ""
        return f"{request.method} {digest(request.body) & 0xFFFF_FFFF_FFFF_FFFF:016x}"

    def _depth(self, request: Request) -> int:
        depth = request.meta.get("depth", 0)
        return depth if isinstance(depth, int) and depth > 0 else 0

    def _stored(self, request: Request, url: str) -> Stored:
        kind = type(request)
        meta = {name: value for name, value in request.meta.items() if name != "depth"}
        return Stored(
            url=None if request.url == url else request.url,
            method=request.method,
            headers=_headers(request),
            body=request.body,
            cookies=pack(request.cookies, "cookies") or None,
            meta=pack(meta, "meta") if meta else {},
            cb_kwargs=pack(request.cb_kwargs, "cb_kwargs") if request.cb_kwargs else {},
            callback=self._name("callback", request.callback),
            errback=self._name("errback", request.errback),
            priority=request.priority,
            dont_filter=request.dont_filter,
            encoding=request.encoding,
            flags=[str(flag) for flag in request.flags],
            kind=None if kind is Request else f"{kind.__module__}:{kind.__qualname__}",
            more={} if kind is Request else _more(request),
        )

    def _name(self, what: str, function: Callable[..., Any] | None) -> str | None:
        """The name of a method of the spider."""
        if function is None:
            return None
        own: Any = getattr(function, "__func__", None)
        name = self._names.get(own)
        if name is None or getattr(function, "__self__", None) is not self._spider:
            name = self._names[own] = self._find(what, function)
        return name

    def _find(self, what: str, function: Any) -> str:
        """Under which name the spider has it: a decorator may have hidden the one that it was given."""
        name = getattr(function, "__name__", "")
        if getattr(self._spider, name, None) == function:  # the same method of the same object
            return str(name)
        for name, method in getmembers(self._spider, ismethod):
            if method == function:
                return name
        shown = getattr(function, "__qualname__", repr(function))
        raise NotStorable(f"its {what} {shown} is no method of the spider {self._spider.name}")

    # --- and back ---------------------------------------------------------------------------

    def request(self, lease: Lease) -> Request:
        """The request of a link. Raises NotStorable if it cannot be made, as after a change of the spider."""
        link, stored, meta = lease.link, PLAIN, {}
        if link.meta is not None:
            others = {name: value for name, value in link.meta.items() if name != STORED}
            stored = _read(link.meta.get(STORED, {}))
            meta = others | unpack(stored.meta)
        if link.depth:
            meta["depth"] = link.depth
        if lease.attempt > 1:
            meta[RETRY_TIMES] = meta.get(RETRY_TIMES, 0) + lease.attempt - 1
        kind: Any = Request
        if stored.kind is not None:
            kind = item_class(stored.kind, lambda found: issubclass(found, Request))
        return self._made(kind, link, stored, meta)

    def _made(self, kind: Any, link: Link, stored: Stored, meta: dict[str, Any]) -> Request:
        request: Request = kind(
            stored.url or link.url,
            callback=self._method(stored.callback),
            errback=self._method(stored.errback),
            method=stored.method,
            headers={
                name.encode(_LATIN): [value.encode(_LATIN) for value in values]
                for name, values in stored.headers.items()
            },
            body=stored.body,
            cookies=unpack(stored.cookies),
            meta=meta,
            encoding=stored.encoding,
            priority=stored.priority,
            dont_filter=stored.dont_filter,
            flags=stored.flags,
            cb_kwargs=unpack(stored.cb_kwargs),
            **unpack(stored.more),
        )
        return request

    def _method(self, name: str | None) -> Callable[..., Any] | None:
        if name is None:
            return None
        method = getattr(self._spider, name, None)
        if name.startswith("__") or not ismethod(method):
            raise NotStorable(f"the spider {self._spider.name} has no method {name}")
        return method


def is_plain_retry(request: Request, other: Request) -> bool:
    """Whether `other`, which is to replace `request`, is the same once more."""
    return (
        other.meta.get(RETRY_TIMES) == request.meta.get(RETRY_TIMES, 0) + 1
        and _without_count(other.meta) == _without_count(request.meta)
        and all(getattr(other, name) == getattr(request, name) for name in _SAME)
    )


_SAME = ("url", "method", "body", "headers", "cookies", "cb_kwargs", "callback", "errback")


def _without_count(meta: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in meta.items() if name != RETRY_TIMES}


def _headers(request: Request) -> dict[str, list[str]]:
    return {
        name.decode(_LATIN): [value.decode(_LATIN) for value in values]
        for name, values in dict.items(request.headers)
    }


def _more(request: Request) -> dict[str, Any]:
    names = set(type(request).attributes) - set(Request.attributes)
    return {name: pack(getattr(request, name), name) for name in sorted(names)}


def _read(given: Any) -> Stored:
    """What a link's meta says; it may come from anybody who can write to the frontier."""
    try:
        return given if isinstance(given, Stored) else msgspec.convert(given, Stored)
    except msgspec.ValidationError as error:
        raise NotStorable(f"what is kept of it does not make a request: {error}") from error
