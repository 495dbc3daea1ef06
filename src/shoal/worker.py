"""The worker: the path of a page on one screen.

    lease -> fetch -> parse -> store.write -> commit

An event loop fetches and reads many pages at once. The frontier and the store are used in batches, by
one thread of their own: a turn stores and commits what is finished, then leases what there is room for.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from itertools import count
from math import inf
from typing import Protocol, TypeVar

from msgspec.structs import replace

from shoal.access import Access
from shoal.addresses import KINDS, kind_of_host
from shoal.crawl import Crawl
from shoal.due import revisit_due
from shoal.errors import FrontierUnavailable, ShoalError, StoreUnavailable
from shoal.fetch import Fetcher, FetchSettings
from shoal.frontier import Frontier
from shoal.liveness import reap_dead
from shoal.load import Load
from shoal.meter import Meter
from shoal.model import Beat, Grant, Lease, Outcome
from shoal.moving import check_here
from shoal.scope import host_name
from shoal.settle import say_lost, settle
from shoal.store.base import Store
from shoal.threads import HandlerThreads
from shoal.visit import Visitor

LEASE_S = 60.0
TEND_S = 5.0  # leases are extended, and the worker says that it is alive
LINGER_S = 0.01  # a finished page waits this long for others, so that one transaction serves many
GRACE_S = 1.0  # what a stopped worker has begun may take this long
SUSPECT_LOSSES = 2  # a page lost so often may be what kills its workers: it is visited alone
SAY_S = 60.0  # between two words about the same trouble
TROUBLE_S = 2.0  # at most, between two tries while the frontier or the store cannot be written

T = TypeVar("T")
log = logging.getLogger("shoal.worker")


class Visits(Protocol):
    """Knows how to deal with a page: see `shoal.visit.Visitor`."""

    async def visit(self, lease: Lease) -> Outcome:
        """Raises ShoalError if no page can be visited any more, nothing else; it may be cancelled."""


class Worker:
    """Works for one crawl until it is finished, or until `stop`."""

    def __init__(
        self,
        crawl: Crawl,
        frontier: Frontier,
        stores: Sequence[Store],
        *,
        name: str,
        drain: bool = True,
        patience_s: float = inf,
        lease_s: float | None = None,
        load: Load | None = None,
    ) -> None:
        """drain: return when the crawl is finished; otherwise wait for more work.

        patience_s: return after so long without work. lease_s: how long leases last if nobody extends them,
        by default LEASE_S. load: what the visitor given to `work` tells.
        """
        self._crawl = crawl
        self._frontier = frontier
        self._stores = stores
        self._name = name
        self._drain = drain
        self._patience_s = patience_s
        self._lease_s = LEASE_S if lease_s is None else lease_s
        self._load = load or load_of(crawl)
        self._busy_at = time.monotonic()
        self._fetching: dict[int, asyncio.Task[None]] = {}
        self._finished: list[tuple[float, Outcome]] = []  # when the visit ended, how
        self._suspect = 0  # the token of a page that is not to take others with it
        self._alone = asyncio.Event()
        self._news = asyncio.Event()
        self._stopping = asyncio.Event()
        self._leaving = False
        self._failure: Exception | None = None
        self._since = time.time()
        self._tended_at = time.monotonic() - TEND_S
        self._visited = 0  # since then
        rules = crawl.traps()
        self._sift = None if rules is None else partial(rules.marked, year=time.gmtime().tm_year)
        self._lookups = frontier.lookups if crawl.settings.politeness == "address" else None
        self._lost: frozenset[int] = frozenset()  # leases, in times of trouble
        self._thread = ThreadPoolExecutor(1, "shoal-frontier")

    async def run(self) -> None:
        """Work. Raises FrontierError, StoreError or LoginFailed if it cannot go on."""
        handlers = HandlerThreads(self._crawl.settings.concurrency)
        async with Fetcher(fetch_settings(self._crawl)) as fetcher:
            try:
                access = Access(self._crawl, fetcher, handlers)
                await self.work(Visitor(self._crawl, access, handlers, self._load))
            finally:
                handlers.shutdown()

    async def work(self, visitor: Visits) -> None:
        """As `run`, with a visitor that others may use as well."""
        self._visit_page = self._load.meter.timed(visitor.visit)
        watching = asyncio.create_task(self._load.watch())
        try:
            while not self._stopping.is_set():
                grant = await self._turn()
                for lease in grant.leases:
                    self._fetching[lease.token] = asyncio.create_task(self._visit(lease))
                if self._fetching.keys() == {self._suspect} and not self._finished:
                    self._alone.set()
                if self._is_over(grant):
                    break
                await self._idle(grant.again_s)
        finally:
            watching.cancel()
            await self._wind_up()
            self._thread.shutdown()
        if self._failure is not None:
            raise self._failure

    def leave(self) -> None:
        """Lease no more, and return when all that has begun is done. Call it in the loop."""
        self._leaving = True
        self._tell()

    def stop(self) -> None:
        """Lease no more, finish what can be finished in GRACE_S, give the rest back. Call it in the loop."""
        self._stopping.set()
        self._tell()

    async def _visit(self, lease: Lease) -> None:
        if lease.token == self._suspect:
            await self._alone.wait()
        try:
            outcome = await self._visit_page(lease)
            if self._lookups is not None:  # so that the commit need not wait for them
                await self._lookups.warm({host_name(link.url) for link in outcome.links})
        except Exception as error:
            self._failure = error
            self.stop()
            return  # the page is given back with all others
        self._finished.append((time.monotonic(), outcome))
        del self._fetching[lease.token]  # after that, so that the frontier's thread never misses it
        self._visited += 1
        self._tell()

    async def _turn(self) -> Grant:
        """Store and commit what is finished, then lease what there is room for; wait out any trouble."""
        trouble = Trouble()
        for pause_s in pauses():
            finished = self._finished[: self._load.batch()]
            try:
                grant, lost = await self._in_thread(partial(self._settle_and_lease, finished))
            except (FrontierUnavailable, StoreUnavailable) as error:
                trouble.say(error)
                await self._in_thread(partial(self._hold_on, str(error)))
                await self._pause(pause_s, self._stopping)
                if self._stopping.is_set():
                    break
            else:
                trouble.over()
                self._cancel(lost)
                return grant
        return Grant(leases=(), again_s=None, finished=False)

    def _hold_on(self, trouble: str) -> None:
        """Nothing is leased while there is trouble, and nothing is to be lost of what is held."""
        now = time.monotonic()
        if now - self._tended_at >= TEND_S:
            with suppress(FrontierUnavailable):
                self._lost |= self._tend(now, trouble)

    def _cancel(self, lost: frozenset[int]) -> None:
        """The fetches of leases that were lost."""
        for token in (lost | self._lost) & self._fetching.keys():
            self._fetching.pop(token).cancel()
        self._lost = frozenset()

    def _settle_and_lease(self, finished: list[tuple[float, Outcome]]) -> tuple[Grant, frozenset[int]]:
        now = time.monotonic()
        settle(
            self._frontier,
            self._stores,
            [replace(outcome, age_s=outcome.age_s + now - ended_at) for ended_at, outcome in finished],
            self._load.meter,
            self._sift,
        )
        del self._finished[: len(finished)]  # whatever goes wrong from here on, these are committed
        self._load.settled(len(finished), time.monotonic() - now)
        lost = self._tend(now) if now - self._tended_at >= TEND_S else frozenset()
        return self._lease(), lost

    def _lease(self) -> Grant:
        """For the room there is. If a suspect is given, it is kept and the others are given back."""
        grant = self._frontier.lease(self._room(), self._lease_s, worker=self._name)
        suspect = next((lease for lease in grant.leases if lease.losses >= SUSPECT_LOSSES), None)
        if suspect is None:
            return grant
        self._suspect = suspect.token
        self._alone.clear()
        self._frontier.release([lease.token for lease in grant.leases if lease is not suspect])
        return replace(grant, leases=(suspect,))

    def _tend(self, now: float, trouble: str = "") -> frozenset[int]:
        """Extend the leases and say that we are alive; returns the tokens of those that were lost."""
        rate = self._visited / (now - self._tended_at)
        self._tended_at, self._visited = now, 0
        finished = [outcome for _, outcome in self._finished]
        beat = Beat(
            name=self._name,
            concurrency=self._crawl.settings.concurrency,
            since=self._since,
            pages_per_s=rate,
            bytes_in_flight=self._load.bytes_in_flight(finished),
            lag_s=self._load.take_lag_s(),
            settle_s=self._load.settle_s,
            trouble=trouble,
        )
        self._load.meter.beat = beat
        self._frontier.beat(beat, 3 * TEND_S)
        reap_dead(self._frontier)
        if not self._drain:
            revisit_due(self._frontier, self._crawl)
        if not self._fetching and not finished:
            check_here(self._frontier)
        held = [*self._fetching, *(outcome.lease.token for outcome in finished)]
        lost = self._frontier.extend(held, self._lease_s)
        say_lost(len(lost - {outcome.lease.token for outcome in finished}), self._load.meter)
        return lost

    def _is_over(self, grant: Grant) -> bool:
        if self._fetching or self._finished:
            self._busy_at = time.monotonic()
            return False
        waited_s = time.monotonic() - self._busy_at
        return self._leaving or waited_s >= self._patience_s or (grant.finished and self._drain)

    def _room(self) -> int:
        if self._leaving or self._stopping.is_set() or self._suspect in self._fetching:
            return 0
        return self._load.room(len(self._fetching), [outcome for _, outcome in self._finished])

    async def _idle(self, again_s: float | None) -> None:
        """Until a page is finished, time may have brought work, or somebody else has."""
        if not self._finished:
            if self._room() == 0:
                await self._pause(TEND_S, self._news)
            else:
                seconds = min(TEND_S, self._patience_s, TEND_S if again_s is None else again_s)
                await self._in_thread(partial(self._frontier.wait, seconds))
        self._news.clear()
        if self._finished and not self._stopping.is_set():
            await asyncio.sleep(LINGER_S)

    async def _pause(self, seconds: float, event: asyncio.Event) -> None:
        """Until the event, at most `seconds`."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await event.wait()

    def _tell(self) -> None:
        self._news.set()
        self._frontier.wake()

    async def _wind_up(self) -> None:
        """End what has begun: in time, or by giving it back."""
        self._stopping.set()
        if tasks := list(self._fetching.values()):
            await asyncio.wait(tasks, timeout=GRACE_S)
        unfinished = list(self._fetching)
        for task in list(self._fetching.values()):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        finished = self._finished[:]
        try:
            try:
                await self._in_thread(partial(self._settle_and_lease, finished))
            finally:
                unfinished += [outcome.lease.token for _, outcome in self._finished]
                await self._in_thread(partial(self._say_goodbye, unfinished))
        except ShoalError as error:
            log.error("%s; what was being fetched will be fetched again", error)

    def _say_goodbye(self, unfinished: list[int]) -> None:
        self._frontier.release(unfinished)
        self._frontier.beat(Beat(self._name, 0, self._since, 0.0), -1.0)

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)


class Trouble:
    """Tells of trouble once, again every SAY_S, and when it is over."""

    def __init__(self) -> None:
        self._since = 0.0
        self._said = ("", 0.0)

    def say(self, error: Exception) -> None:
        now = time.monotonic()
        self._since = self._since or now
        text, said_at = self._said
        if text != str(error) or now - said_at >= SAY_S:
            log.error("%s; the crawl pauses, nothing is lost, trying again every %g s", error, TROUBLE_S)
            self._said = str(error), now

    def over(self) -> None:
        if self._since:
            log.info("the crawl goes on, after %.0f s", time.monotonic() - self._since)


def pauses() -> Iterator[float]:
    """Between two tries: longer and longer, and not the same for all workers."""
    for tries in count():
        yield min(TROUBLE_S, 0.1 * 2 ** min(tries, 10)) * random.uniform(0.5, 1.0)


def load_of(crawl: Crawl, meter: Meter | None = None) -> Load:
    """The load that a worker of this crawl may take; its meter, by default a new one, goes on counting."""
    return Load(crawl.settings.concurrency, crawl.settings.max_bytes_in_flight, meter)


def fetch_settings(crawl: Crawl) -> FetchSettings:
    """How to fetch for this crawl. A seed that is no public address opens those of its kind to the crawl."""
    settings = crawl.settings
    opened = {kind for url in crawl.start_urls() if (kind := kind_of_host(url))}
    return FetchSettings(
        user_agent=settings.user_agent,
        headers=settings.headers,
        connect_timeout_s=settings.connect_timeout_s,
        read_timeout_s=settings.read_timeout_s,
        total_timeout_s=settings.total_timeout_s,
        max_body_bytes=settings.max_body_bytes,
        proxy=settings.proxy,
        verify_tls=settings.verify_tls,
        cookies=settings.cookies,
        allow=KINDS if settings.allow_private else frozenset(opened),
        connections=settings.concurrency,
        capture=settings.archive is not None,
    )
