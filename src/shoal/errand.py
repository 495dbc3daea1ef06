"""Pages that the user's own function fetches: it is given a URL and does what it likes.

From the frontier such a function has its leases, retries, order and politeness; robots.txt is its own
business.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator

from shoal import guard, handle
from shoal.crawl import Crawl
from shoal.model import Item, Lease, Link, Outcome, Response
from shoal.parse import Page
from shoal.threads import HandlerThreads
from shoal.visit import Attempt

log = logging.getLogger("shoal.errand")


class Errands:
    """Runs the function for each page, in a thread unless it is async."""

    def __init__(self, crawl: Crawl, function: Callable[[Lease], object], threads: HandlerThreads) -> None:
        self._timeout_s = crawl.settings.handler_timeout_s
        self._retries = crawl.retries()
        self._spelling = crawl.spelling()
        self._sorter = handle.Sorter(crawl)
        self._function = function
        self._threads = threads

    async def visit(self, lease: Lease) -> Outcome:
        """Raises nothing; when it is cancelled, a function in a thread goes on nevertheless."""
        attempt = Attempt(lease)
        try:
            items, links = self._sort(await guard.guarded(self._results(lease), self._timeout_s), lease)
        except handle.Ended as decision:
            return attempt.decided(decision)
        except guard.TooSlow as error:
            log.warning("%s: the function was %s", lease.link.url, error)
            return attempt.again("function too slow", self._retries, str(error))
        except Exception as error:
            return attempt.raised("function", error, self._retries)
        return attempt.done(items=items, links=links)

    async def _results(self, lease: Lease) -> list[object]:
        result = await self._threads.run(lambda: _unrolled(self._function(lease)))
        if asyncio.iscoroutine(result):
            result = await result
        return list(result) if isinstance(result, list | tuple | set) else [result]

    def _sort(self, results: list[object], lease: Lease) -> tuple[tuple[Item, ...], tuple[Link, ...]]:
        """What is no row and no link was meant for somebody else: a count, "ok"."""
        page = Page(Response(lease.link.url, 0, (), b""), lease.link, self._spelling)
        return self._sorter.sort((each for each in results if not isinstance(each, _SCALARS)), page)


_SCALARS = (str, bytes, int, float, bool)


def _unrolled(result: object) -> object:
    return list(result) if isinstance(result, Iterator) else result
