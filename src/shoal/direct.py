"""One page, fetched and read at once and without a frontier: for tests and the shell.

Redirects are followed; robots.txt, scope and delays are not looked at.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from msgspec import Struct

from shoal import guard, handle
from shoal.access import Access
from shoal.crawl import Crawl
from shoal.fetch import Fetcher
from shoal.model import Item, Link
from shoal.parse import Page
from shoal.session import Unanswered
from shoal.threads import HandlerThreads
from shoal.visit import traceback_of
from shoal.worker import fetch_settings

T = TypeVar("T")


class Trial(Struct, frozen=True):
    """What came of a page."""

    page: Page
    items: tuple[Item, ...] = ()
    links: tuple[Link, ...] = ()
    """Those in scope."""
    error: str = ""
    """The traceback, from the user's own code on, if its handler has raised."""


def scrape(crawl: Crawl, link: Link) -> list[Item]:
    """The items of a page; its links are not looked at.

    Raises Unanswered if there is no page, ConfigError for what is no URL, and whatever the handler raises.
    """
    return list(run(_scrape(crawl, link))[0])


def try_out(crawl: Crawl, link: Link) -> Trial:
    """All that the handler of a page gives. Raises Unanswered, and ConfigError for what is no URL."""
    return run(_try_out(crawl, link))


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run it to its end, even in a thread that has an event loop running, such as a notebook's."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, work).result()


async def _scrape(crawl: Crawl, link: Link) -> tuple[tuple[Item, ...], tuple[Link, ...]]:
    async with opened(crawl) as (access, threads):
        return await _read(crawl, await _page(access, link), threads)


async def _try_out(crawl: Crawl, link: Link) -> Trial:
    async with opened(crawl) as (access, threads):
        page = await _page(access, link)
        try:
            items, links = await _read(crawl, page, threads)
        except Exception as error:
            return Trial(page, error=traceback_of(guard.raised(error)))
    return Trial(page, items, links)


async def _page(access: Access, link: Link) -> Page:
    page = await access.page(link.url, link)
    if not 200 <= page.status < 300:
        raise Unanswered(f"{page.url}: HTTP {page.status}")
    return page


async def _read(
    crawl: Crawl, page: Page, threads: HandlerThreads
) -> tuple[tuple[Item, ...], tuple[Link, ...]]:
    handler, timeout_s = crawl.handler(page.url), crawl.settings.handler_timeout_s
    results = await handle.run(handler, page, threads.run, timeout_s)
    return handle.Sorter(crawl).sort(results, page)


@asynccontextmanager
async def opened(crawl: Crawl) -> AsyncIterator[tuple[Access, HandlerThreads]]:
    """Access to pages with the settings of a crawl, and threads for what is the user's."""
    threads = HandlerThreads(1)
    async with Fetcher(fetch_settings(crawl)) as fetcher:
        try:
            yield Access(crawl, fetcher, threads), threads
        finally:
            threads.shutdown()
