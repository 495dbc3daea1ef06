"""Scrapy's scheduler on the frontier: a worker leases requests, and Scrapy's engine visits them.

A request is leased until its callback is done; then it is committed, in one step with all the requests and
items that came of it. Which ones these are, and when it is done, is seen by looking into Scrapy's engine.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from functools import partial
from inspect import Parameter, signature
from itertools import count
from typing import Any, Self

from scrapy import Request, Spider, signals
from scrapy.core.scheduler import BaseScheduler
from scrapy.crawler import Crawler
from scrapy.exceptions import IgnoreRequest
from scrapy.http import Response as Answer
from scrapy.spidermiddlewares.httperror import HttpErrorMiddleware
from scrapy.utils.defer import deferred_from_coro
from twisted.internet.defer import Deferred
from twisted.python.failure import Failure as Raised

from shoal.errors import ShoalError
from shoal.liveness import worker_name
from shoal.load import Load
from shoal.local import Job, opened_stores, prepare
from shoal.model import Lease, Outcome
from shoal.policy import Dead
from shoal.scrapy.inflow import Inflow
from shoal.scrapy.options import job_of, priorities_of
from shoal.scrapy.pipeline import StorePipeline
from shoal.scrapy.requests import Codec
from shoal.scrapy.values import NotStorable
from shoal.scrapy.visit import NOT_KEPT, Visit, current
from shoal.visit import Attempt
from shoal.worker import Worker

NUMBERS = count(1)
"""Tell apart the spiders of one process."""

log = logging.getLogger("shoal.scrapy")


class Scheduler(BaseScheduler):
    """The queue is the frontier, which all processes of the crawl share."""

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        """Made by Scrapy."""
        return cls(crawler)

    def __init__(self, crawler: Crawler) -> None:
        """Nothing is opened yet."""
        assert crawler.spider is not None
        self._crawler, self._spider = crawler, crawler.spider
        self._engine: Any = crawler.engine  # its private parts have no types
        self._name = worker_name(f"{self._spider.name}.{next(NUMBERS)}")
        self._waiting: deque[Visit] = deque()
        self._visits: dict[Request, Visit] = {}
        self._opened = AsyncExitStack()
        self._working: asyncio.Task[None] | None = None
        self._worker: Worker | None = None
        self._seen_starts: dict[tuple[str, str], int] = {}
        self._from_the_side = count(1)
        self._over = False
        self._closing = False

    # --- what Scrapy calls ------------------------------------------------------------------

    def open(self, spider: Spider) -> Deferred[None]:
        """Raises ShoalError if there is no working with these settings, this frontier or this store."""
        return deferred_from_coro(self._open())

    def close(self, reason: str) -> Deferred[None]:
        """Give back what has not begun. Nothing that others need is removed."""
        return deferred_from_coro(self._close())

    def has_pending_requests(self) -> bool:
        """Until the crawl is finished, for all processes: what others have leased may bring more."""
        return not self._over

    def enqueue_request(self, request: Request) -> bool:
        """False for a request that cannot be kept, and one that came before from the same page or start."""
        visit = current.get()
        try:
            if visit is not None and not visit.ended.done():
                kept = visit.found(request)
            else:
                kept = self._add(request)
        except NotStorable as error:
            log.error("%s", error, extra={"spider": self._spider})
            self._count("shoal/not_kept")
            return False
        self._count("scheduler/enqueued/shoal" if kept else "dupefilter/filtered")
        return kept

    def next_request(self) -> Request | None:
        """One that was leased, if there is one just now."""
        while self._waiting:
            visit = self._waiting.popleft()
            if not visit.ended.done():
                self._visits[visit.request] = visit
                self._count("scheduler/dequeued/shoal")
                return visit.request
        return None

    def _count(self, name: str) -> None:
        if self._crawler.stats is not None:
            self._crawler.stats.inc_value(name)

    # --- a lease on its way through Scrapy ----------------------------------------------------

    async def visit(self, lease: Lease) -> Outcome:
        """Let Scrapy's engine have it; what the worker calls."""
        try:
            visit = Visit(lease, self._codec.request(lease), self._codec)
        except NotStorable as error:
            log.error("%s: %s", lease.link.url, error, extra={"spider": self._spider})
            return Attempt(lease).end(Dead(NOT_KEPT), str(error))
        self._waiting.append(visit)
        self._wake_engine()
        return await visit.ended

    def _downloaded(self, result: Any, request: Request) -> Any:
        """In place of the engine's own: it handles what came of a request, with callback and items."""
        visit = self._visits.get(request)
        if visit is None:
            return self._handle(result, request)
        visit.downloaded(result)
        size_bytes = len(result.body) if isinstance(result, Answer) else 0
        self._load.hold(size_bytes)
        token = current.set(visit)
        try:
            handled = self._handle(result, request)
        finally:
            current.reset(token)
        return handled.addBoth(self._ended, visit, size_bytes)

    def _ended(self, nothing: Any, visit: Visit, size_bytes: int) -> Any:
        self._load.drop(size_bytes)
        del self._visits[visit.request]
        result = visit.result
        visit.end(ignored=isinstance(result, Answer) and _is_ignored(self._engine, result))
        return nothing

    def _answered(self, request: Request, response: Answer) -> None:
        visit = self._visits.get(request)
        if visit is not None:
            visit.answered(response)

    def _raised(self, failure: Raised, response: Answer | Raised) -> None:
        visit = self._visit_of(response)
        if visit is not None and failure.value is not None:
            visit.raised(failure.value)

    def _visit_of(self, response: Answer | Raised | None) -> Visit | None:
        request = getattr(response, "request", None)
        return current.get() if request is None else self._visits.get(request)

    def _output(self, output: Any, response: Answer | Raised) -> Any:
        """In place of the scraper's own, where it hands over items and requests in another context."""
        token = current.set(self._visit_of(response))
        try:
            return self._process(output, response)
        finally:
            current.reset(token)

    # --- requests that no page has given ------------------------------------------------------

    async def _starting(self, start: AsyncIterator[Any]) -> AsyncIterator[Any]:
        """In place of the engine's own: the requests of `start()`, unless they were all added before."""
        started = await self._inflow.hold()
        self._working = asyncio.create_task(self._work())
        try:
            if not started:
                async for each in start:
                    yield each
                    await self._inflow.room()
                await self._inflow.mark_started()
        finally:
            self._inflow.let_go()

    def _add(self, request: Request) -> bool:
        is_start = bool(request.meta.get("is_start_request"))
        again = (
            f"again {self._name}.{next(self._from_the_side)}" if request.dont_filter and not is_start else ""
        )
        link = self._codec.link(request, again)
        if is_start:
            place = link.url, link.key
            times = self._seen_starts[place] = self._seen_starts.get(place, 0) + 1
            if times > 1 and not request.dont_filter:
                return False
            if times > 1:  # the same in all processes
                link = self._codec.link(request, f"again {times}")
        self._inflow.add(link)
        if self._over and not self._closing:
            self._over = False
            self._working = asyncio.create_task(self._resume())
        return True

    # --- beginning, working, ending -----------------------------------------------------------

    async def _open(self) -> None:
        settings, loop = self._crawler.settings, asyncio.get_running_loop()
        middlewares = self._engine.scraper.itemproc.middlewares
        stores = any(isinstance(each, StorePipeline) for each in middlewares)
        self._job = job_of(settings, self._spider.name, stores=stores)
        self._codec = Codec(
            self._spider,
            self._job.crawl.spelling(),
            priorities_of(settings),
            self._crawler.request_fingerprinter,
        )
        self._load = _Load(self._job, self._engine)
        stats = await loop.run_in_executor(None, partial(prepare, self._job))
        if stats.finished and stats.seen and self._job.drain:
            log.info(
                "the crawl '%s' is finished: SHOAL_FRESH=1 starts it again",
                self._job.crawl.name,
                extra={"spider": self._spider},
            )
        self._frontier = self._opened.enter_context(self._job.open_frontier())
        self._stores = self._opened.enter_context(opened_stores(self._job, self._frontier, worker=self._name))
        self._inflow = Inflow(self._job.open_frontier(), self._name)
        self._opened.push_async_callback(self._inflow.close)
        self._look_into_engine()

    def _look_into_engine(self) -> None:
        """Scrapy tells nobody when a callback is done, nor whose requests these are: see for ourselves."""
        engine, scraper = self._engine, self._engine.scraper
        self._handle = engine._handle_downloader_output
        engine._handle_downloader_output = self._downloaded
        if not hasattr(scraper, "_process_spidermw_output_async"):  # Scrapy 2.13
            self._process = scraper._process_spidermw_output
            scraper._process_spidermw_output = self._output
        engine._start = self._starting(engine._start)
        self._crawler.signals.connect(self._answered, signals.response_downloaded)
        self._crawler.signals.connect(self._raised, signals.spider_error)

    async def _work(self) -> None:
        try:
            while True:
                self._worker = Worker(
                    self._job.crawl,
                    self._frontier,
                    self._stores,
                    name=self._name,
                    drain=self._job.drain,
                    load=self._load,
                )
                await self._worker.work(self)
                if self._closing or not self._inflow.busy:
                    break
                await self._inflow.flushed()  # there is more to do
        except ShoalError as error:
            log.critical("%s", error, extra={"spider": self._spider})
        self._over = True
        self._wake_engine()

    async def _resume(self) -> None:
        await self._inflow.flushed()
        await self._work()

    async def _close(self) -> None:
        self._closing = True
        for visit in self._waiting:
            visit.ended.cancel()
        if self._worker is not None:
            self._worker.stop()
        if self._working is not None:
            await self._working
        try:
            await self._opened.aclose()
        except ShoalError as error:
            log.error("%s; requests may be missing", error, extra={"spider": self._spider})

    def _wake_engine(self) -> None:
        if self._engine._slot is not None:
            self._engine._slot.nextcall.schedule()


class _Load(Load):
    """No more is leased than Scrapy's engine would begin with."""

    def __init__(self, job: Job, engine: Any) -> None:
        settings = job.crawl.settings
        super().__init__(settings.concurrency, settings.max_bytes_in_flight)
        self._engine = engine

    def room(self, fetching: int, finished: Any) -> int:
        if self._engine.paused or self._engine.needs_backout():
            return 0
        return super().room(fetching, finished)


def _is_ignored(engine: Any, response: Answer) -> bool:
    """Whether a response gets to no callback for its status, as the middleware for that says."""
    if 200 <= response.status < 300:
        return False
    for middleware in engine.scraper.spidermw.middlewares:
        if isinstance(middleware, HttpErrorMiddleware):
            judge: Any = middleware.process_spider_input
            spider = signature(judge).parameters.get("spider")
            must_have_it = spider is not None and spider.default is Parameter.empty  # in Scrapy 2.13
            try:
                judge(response, *([engine.spider] if must_have_it else []))
            except IgnoreRequest:
                return True
    return False
