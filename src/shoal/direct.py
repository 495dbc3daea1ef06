"""One page, fetched and read at once and without a frontier: for tests and the shell."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from shoal import handle
from shoal.crawl import Crawl, check_url
from shoal.errors import ShoalError
from shoal.fetch import Fetcher
from shoal.model import Failure, Item, Link, Response
from shoal.parse import Page
from shoal.policy import Read, Redirect, judge
from shoal.urls import normalize
from shoal.worker import fetch_settings

MOST_REDIRECTS = 10

T = TypeVar("T")


def scrape(crawl: Crawl, link: Link) -> list[Item]:
    """The items of a page; redirects are followed, its links and robots.txt are not looked at.

    Raises ShoalError if there is no page, ConfigError for what is no URL, and whatever the handler raises.
    """
    return run(_scrape(crawl, link))


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run it to its end, even in a thread that has an event loop running, such as a notebook's."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, work).result()


async def _scrape(crawl: Crawl, link: Link) -> list[Item]:
    async with Fetcher(fetch_settings(crawl)) as fetcher:
        answer = await _fetch(crawl, fetcher, check_url(link.url))
    page = Page(answer, link, crawl.spelling())
    results = await handle.run(crawl.handler(page.url), page, _in_thread)
    return list(handle.Sorter(crawl).sort(results, page)[0])


async def _fetch(crawl: Crawl, fetcher: Fetcher, url: str) -> Response:
    for _ in range(MOST_REDIRECTS + 1):
        answer = await fetcher.fetch(url)
        if isinstance(answer, Failure):
            raise ShoalError(f"{url}: {answer.kind}: {answer.detail}")
        verdict = judge(answer, 1, retries=crawl.retries(), now=time.time(), draw=random.random())
        if isinstance(verdict, Read):
            return answer
        if not isinstance(verdict, Redirect):
            raise ShoalError(f"{url}: {verdict.reason}")
        url = normalize(verdict.location, url, crawl.spelling()) or ""
    raise ShoalError(f"{url}: too many redirects")


async def _in_thread(work: Callable[[], list[object]]) -> list[object]:
    return await asyncio.to_thread(work)
