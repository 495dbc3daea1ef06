"""How a crawl gets at pages: fetched with the credentials of their host, logged in, or out of a cache."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from msgspec.structs import replace

from shoal.auth import HostHeaders
from shoal.cache import Cache, key_of
from shoal.crawl import Crawl
from shoal.errors import ConfigError
from shoal.fetch import Fetcher
from shoal.headers import Headers
from shoal.login import Login
from shoal.model import Failure, Link, Response
from shoal.parse import Page
from shoal.session import AsyncSession
from shoal.threads import HandlerThreads

PATIENCE_S = 30.0  # a login waits no longer before it tries a request again


class Access:
    """Gets the pages of one crawl. Made inside the event loop; `threads` runs a plain login."""

    def __init__(self, crawl: Crawl, fetcher: Fetcher, threads: HandlerThreads) -> None:
        """Raises ConfigError for credentials that cannot be sent and a cache that cannot be used."""
        settings = crawl.settings
        self._crawl = crawl
        self._fetcher = fetcher
        self._host_headers = host_headers(crawl)
        self._cache = cache(crawl)
        self._login = None
        if crawl.login_handler is not None:
            self._login = Login(crawl.login_handler, self._login_session(), threads)
        self._who: Headers = (
            ("User-Agent", settings.user_agent),
            *settings.headers,
            *((("login", crawl.name),) if self._login else ()),
        )

    @property
    def login(self) -> int:
        """The number of the login that a page will be fetched with, to be told to `logged_out`."""
        return self._login.number if self._login else 0

    def logged_out(self, url: str, login: int) -> None:
        """The page, fetched with that login, was for strangers: log in before the next request."""
        if self._login is not None:
            self._login.over(login)
        if self._cache is not None:
            self._cache.forget(self._key(url))

    async def fetch(
        self,
        url: str,
        *,
        headers: Headers = (),
        accepts: Callable[[str], bool] | None = None,
        max_body_bytes: int | None = None,
        cut: bool = False,
        again: bool = False,
    ) -> Response | Failure:
        """As `Fetcher.fetch`. Raises LoginFailed if the crawl cannot log in.

        `again`: the site itself is wanted, whatever the cache has, which gets the new answer. `headers` may
        only be conditions, and come with `again` alone: a cached answer may be none of what they are about.
        """
        if self._cache is None:
            return await self._ask(url, accepts, max_body_bytes, cut, headers)
        key = self._key(url, max_body_bytes, cut)
        if not again:
            limit = self._crawl.settings.max_body_bytes if max_body_bytes is None else max_body_bytes
            kept = self._cache.get(key, url, accepts=accepts, limit=limit)
            if kept is not None:
                return kept
        return await self._keep(self._cache, key, url, accepts, max_body_bytes, cut, headers)

    async def page(self, url: str, link: Link) -> Page:
        """The page that a URL leads to, redirects followed, whatever its status; nothing is tried again.

        Raises Unanswered if there is none, LoginFailed, and ConfigError for what is no URL.
        """

        async def send(
            url: str, *, method: str = "GET", headers: Headers = (), content: bytes | None = None
        ) -> Response | Failure:
            return await self.fetch(url)  # a GET is all that `get` asks for

        retries = replace(self._crawl.retries(), max_attempts=1)
        return await AsyncSession(send, retries, self._crawl.spelling(), link).get(url)

    async def _keep(
        self,
        cache: Cache,
        key: str,
        url: str,
        accepts: Callable[[str], bool] | None,
        max_body_bytes: int | None,
        cut: bool,
        headers: Headers,
    ) -> Response | Failure:
        """From the site, and into the cache."""
        kind, read = None, True

        def ask(media_type: str) -> bool:
            nonlocal kind, read
            kind, read = media_type, accepts is None or accepts(media_type)
            return read

        answer = await self._ask(url, ask, max_body_bytes, cut, headers)
        if isinstance(answer, Response):
            cache.put(key, answer, kind=kind, read=read)
        return answer

    def _key(self, url: str, max_body_bytes: int | None = None, cut: bool = False) -> str:
        return key_of(url, self._who + self._own_headers(url), max_body_bytes, cut)

    async def _ask(
        self,
        url: str,
        accepts: Callable[[str], bool] | None,
        max_body_bytes: int | None,
        cut: bool,
        headers: Headers,
    ) -> Response | Failure:
        if self._login is not None:
            await self._login.ready()
        own = self._own_headers(url)
        return await self._fetcher.fetch(
            url, accepts=accepts, max_body_bytes=max_body_bytes, cut=cut, headers=(*own, *headers)
        )

    def _own_headers(self, url: str) -> Headers:
        return self._host_headers.of(url) if self._host_headers else ()

    async def _send(
        self, url: str, *, method: str = "GET", headers: Headers = (), content: bytes | None = None
    ) -> Response | Failure:
        """A request past the cache and the login, which may be what sends it."""
        return await self._fetcher.fetch(
            url, method=method, headers=self._own_headers(url) + headers, content=content
        )

    def _login_session(self) -> AsyncSession:
        retries = replace(self._crawl.retries(), cap_s=PATIENCE_S, max_retry_after_s=PATIENCE_S)
        return AsyncSession(self._send, retries, self._crawl.spelling())


def host_headers(crawl: Crawl) -> HostHeaders | None:
    """What requests to some hosts carry. Raises ConfigError for what cannot be sent."""
    settings = crawl.settings
    if not settings.auth and not settings.host_headers:
        return None
    return HostHeaders(settings.auth, settings.host_headers, os.environ)


def cache(crawl: Crawl) -> Cache | None:
    """The cache of the crawl's settings. Raises ConfigError if it cannot be used."""
    folder = crawl.settings.cache
    return None if folder is None else Cache(Path(folder).expanduser())


def check(crawl: Crawl) -> None:
    """Raise ConfigError if the crawl cannot get at pages as it says."""
    host_headers(crawl)
    cache(crawl)
    if crawl.login_handler is not None and not crawl.settings.cookies:
        raise ConfigError("a crawl with a login needs cookies: leave cookies=False out")
