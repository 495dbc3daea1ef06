"""Going from page to page as one visitor does: requests, forms, redirects. What `@crawl.login` is given."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Coroutine, Mapping
from typing import Any, Protocol, TypeVar
from urllib.parse import urlencode

import msgspec

from shoal.crawl import check_url
from shoal.errors import ShoalError
from shoal.headers import Headers
from shoal.model import Failure, Link, Response
from shoal.parse import Form, Page
from shoal.policy import Redirect, Retries, Retry, judge
from shoal.urls import DEFAULT, Spelling, normalize, origin

MOST_REDIRECTS = 10
_FORM = (("Content-Type", "application/x-www-form-urlencoded"),)
_JSON = (("Content-Type", "application/json"),)

T = TypeVar("T")


class Unanswered(ShoalError):  # noqa: N818 - named for the state
    """A page was not to be had."""


class Sends(Protocol):
    """Sends one request; what comes back is not judged, redirects are not followed."""

    async def __call__(
        self, url: str, *, method: str = "GET", headers: Headers = (), content: bytes | None = None
    ) -> Response | Failure:
        """The URL is a normalized one."""


class AsyncSession:
    """Requests that share the cookies and the credentials of the crawl.

    Redirects are followed. What fails for the moment (503, timeout) is tried again as pages are. A page is
    returned whatever its status; if there is none, ShoalError is raised.
    """

    def __init__(
        self, send: Sends, retries: Retries, spelling: Spelling = DEFAULT, link: Link | None = None
    ) -> None:
        """link: what its pages say of themselves (depth, meta)."""
        self._send = send
        self._retries = retries
        self._spelling = spelling
        self._link = link

    async def get(self, url: str) -> Page:
        """The page at a URL."""
        return await self._go("GET", check_url(url))

    async def post(self, url: str, data: Mapping[str, str] | None = None, *, json: object = None) -> Page:
        """The page that answers to form data, or to a value sent as JSON."""
        if json is not None:
            return await self._go("POST", check_url(url), msgspec.json.encode(json), _JSON)
        return await self._go("POST", check_url(url), urlencode(data or {}).encode(), _FORM)

    async def submit(self, form: Form, fields: Mapping[str, str] | None = None) -> Page:
        """The page that answers to a form of a page (`page.form()`), with these of its fields filled in."""
        filled = form.filled(fields or {})
        referrer = (("Referer", form.page_url),) if origin(form.page_url) == origin(form.url) else ()
        if form.method == "post":
            return await self._go("POST", form.url, urlencode(filled).encode(), _FORM + referrer)
        path = form.url.partition("?")[0]
        return await self._go("GET", normalize(f"{path}?{urlencode(filled)}") or path, None, referrer)

    async def _go(self, method: str, url: str, body: bytes | None = None, headers: Headers = ()) -> Page:
        for _ in range(MOST_REDIRECTS + 1):
            answer, target = await self._ask(method, url, body, headers)
            if target is None:
                return Page(answer, self._link, self._spelling)
            if answer.status not in (307, 308):
                method, body, headers = "GET", None, ()
            elif body is not None and origin(target) != origin(url):
                raise Unanswered(f"{url} would have what was sent to it sent to another site, {target}")
            url = target
        raise Unanswered(f"{url}: too many redirects")

    async def _ask(
        self, method: str, url: str, body: bytes | None, headers: Headers
    ) -> tuple[Response, str | None]:
        """The answer, and where it redirects to."""
        for attempt in range(1, self._retries.max_attempts + 1):
            answer = await self._send(url, method=method, headers=headers, content=body)
            verdict = judge(answer, attempt, retries=self._retries, now=time.time(), draw=random.random())
            if not isinstance(verdict, Retry):
                break
            await asyncio.sleep(verdict.delay_s)
        if isinstance(answer, Failure):
            raise Unanswered(f"{url}: {answer.kind}: {answer.detail}")
        if not isinstance(verdict, Redirect):
            return answer, None
        target = normalize(verdict.location, url, self._spelling)
        if target is None:
            raise Unanswered(f"{url}: redirect to an invalid URL")
        return answer, target


class Session:
    """An `AsyncSession` for plain functions, which run in a thread: its methods return when they are done."""

    def __init__(self, session: AsyncSession, loop: asyncio.AbstractEventLoop) -> None:
        self._session = session
        self._loop = loop

    def get(self, url: str) -> Page:
        """The page at a URL."""
        return self._wait(self._session.get(url))

    def post(self, url: str, data: Mapping[str, str] | None = None, *, json: object = None) -> Page:
        """The page that answers to form data, or to a value sent as JSON."""
        return self._wait(self._session.post(url, data, json=json))

    def submit(self, form: Form, fields: Mapping[str, str] | None = None) -> Page:
        """The page that answers to a form of a page (`page.form()`), with these of its fields filled in."""
        return self._wait(self._session.submit(form, fields))

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()
