"""One crawl as the dashboard sees it: its frontier, used by threads of its own, and what was seen lately."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from msgspec import Struct

from shoal.errors import ShoalError
from shoal.frontier import Frontier, open_frontier
from shoal.model import Stats, WorkerRecord

KEPT_S = 600.0  # of samples
CACHE_S = 5.0
KEPT_ANSWER_S = 30.0
MOST_CACHED = 100

T = TypeVar("T")


class Sample(Struct, frozen=True):
    """The counters at one moment."""

    at: float
    fetches: int
    errors: int
    """Attempts that failed: retried, or given up."""


class Pulse(Struct, frozen=True):
    """How the crawl stands now."""

    at: float
    stats: Stats
    workers: list[WorkerRecord]
    pages_per_s: float
    errors_per_s: float
    """Both over the last ten seconds or so."""


class Lane:
    """A frontier in a thread, opened when it is needed and again after trouble."""

    def __init__(self, place: str, crawl: str) -> None:
        self._place = place
        self._crawl = crawl
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="dashboard")
        self._frontier: Frontier | None = None

    async def ask(self, question: Callable[[Frontier], T]) -> T:
        """The answer of the frontier. Raises ShoalError."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._ask, question)

    def _ask(self, question: Callable[[Frontier], T]) -> T:
        try:
            if self._frontier is None:
                self._frontier = open_frontier(self._place, crawl=self._crawl, create=False)
            return question(self._frontier)
        except ShoalError:
            self._let_go()
            raise

    def _let_go(self) -> None:
        if self._frontier is not None:
            self._frontier.close()
            self._frontier = None

    async def close(self) -> None:
        """After what is being asked."""
        await asyncio.get_running_loop().run_in_executor(self._thread, self._let_go)
        self._thread.shutdown()


class Desk:
    """Answers about one crawl. What takes long does not keep what is quick waiting."""

    def __init__(self, place: str, crawl: str) -> None:
        self.crawl = crawl
        self.quick = Lane(place, crawl)
        self.slow = Lane(place, crawl)
        self.samples: deque[Sample] = deque()
        self._cache: dict[Hashable, tuple[float, asyncio.Future[Any]]] = {}
        self._renewing: dict[Hashable, asyncio.Task[None]] = {}

    async def close(self) -> None:
        await asyncio.gather(*self._renewing.values())
        await self.quick.close()
        await self.slow.close()

    async def pulse(self) -> Pulse:
        """How it stands; also kept as a sample."""
        stats, workers = await self.quick.ask(lambda frontier: (frontier.stats(), frontier.workers()))
        now = time.time()
        self._keep(Sample(now, stats.fetches, stats.retries + stats.dead))
        first = next(sample for sample in self.samples if sample.at >= now - 10)
        last, passed_s = self.samples[-1], max(now - first.at, 1e-9)
        return Pulse(
            at=now,
            stats=stats,
            workers=workers,
            pages_per_s=max(0, last.fetches - first.fetches) / passed_s,
            errors_per_s=max(0, last.errors - first.errors) / passed_s,
        )

    def _keep(self, sample: Sample) -> None:
        if self.samples and sample.fetches < self.samples[-1].fetches:
            self.samples.clear()  # the crawl was begun again
        self.samples.append(sample)
        while self.samples[0].at < sample.at - KEPT_S:
            self.samples.popleft()

    async def cached(self, key: Hashable, question: Callable[[Frontier], T]) -> tuple[float, T]:
        """An answer that may be some seconds old, and its age; whoever asks the same waits for the same.

        One that is older than CACHE_S is asked for anew meanwhile, so that only the first one is waited for.
        """
        now = time.monotonic()
        for old in [old for old, (at, _) in self._cache.items() if at < now - KEPT_ANSWER_S]:
            del self._cache[old]
        if key not in self._cache:
            if len(self._cache) >= MOST_CACHED:
                self._cache.clear()
            self._cache[key] = now, asyncio.ensure_future(self.slow.ask(question))
        at, answer = self._cache[key]
        if at < now - CACHE_S and key not in self._renewing:
            self._renewing[key] = asyncio.create_task(self._renew(key, question))
        try:
            return time.monotonic() - at, await asyncio.shield(answer)
        except ShoalError:
            self._cache.pop(key, None)
            raise

    async def _renew(self, key: Hashable, question: Callable[[Frontier], T]) -> None:
        cache, at = self._cache, time.monotonic()
        answer = asyncio.ensure_future(self.slow.ask(question))
        await asyncio.wait([answer])
        cache[key] = at, answer
        del self._renewing[key]

    def forget_cached(self) -> None:
        """Something was changed."""
        self._cache = {}
