"""One bounded run of a worker.

Who runs slices keeps a `Bench` from one to the next: the event loop, connections to sites with their
cookies, robots.txt files, the frontier with what it knows to be seen, the store.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack, suppress
from typing import NamedTuple, Protocol, TypeVar

from shoal.access import Access
from shoal.crawl import Crawl
from shoal.errors import FrontierUnavailable
from shoal.fetch import Fetcher
from shoal.frontier import Frontier
from shoal.guard import TooSlow, within
from shoal.local import Job, keep_revisits, loop_factory, opened_stores
from shoal.meter import Meter
from shoal.model import Lease, Outcome
from shoal.policy import Retries
from shoal.threads import HandlerThreads
from shoal.visit import Attempt, Visitor
from shoal.worker import Visits, Worker, fetch_settings, load_of, pauses

LOOK_S = 0.1  # how often a slice looks whether it has to end
PATIENCE_S = 5.0  # without work; then the process is free for other jobs
LEAST_TIMEOUT_S = 1.0
TOO_SLOW = "longer than a slice"

T = TypeVar("T")
log = logging.getLogger("shoal.slice")


class Dresses(Protocol):
    """Wraps the visitor that fetches, or replaces it. Called inside the event loop."""

    def __call__(self, visitor: Visitor, threads: HandlerThreads) -> Visits:
        """The visitor to use."""


class Beats(NamedTuple):
    """What a slice says again and again, from a thread of its own."""

    beat: Callable[[int], bool]
    """Is told how many pages have ended so far, and tells whether the slice may go on."""
    every_s: float


class Tally:
    """Visits, no longer than a slice lasts, and counts how they end."""

    def __init__(self, visitor: Visits, longest_s: float, retries: Retries) -> None:
        """longest_s: a visit that takes longer has failed, as its page would be given back for ever."""
        self._visitor = visitor
        self._longest_s = longest_s
        self._retries = retries
        self.ends: Counter[str] = Counter()

    async def visit(self, lease: Lease) -> Outcome:
        try:
            outcome = await within(self._longest_s, self._visitor.visit(lease))
        except TooSlow as error:
            outcome = Attempt(lease).again(TOO_SLOW, self._retries, str(error))
        self.ends[outcome.state] += 1
        return outcome


class Bench:
    """Where slices are worked off, one after the other. What it has opened stays open for the next one."""

    def __init__(
        self,
        job: Job,
        dress: Dresses = lambda visitor, threads: visitor,
        *,
        worker: str = "",
        meter: Meter | None = None,
    ) -> None:
        """Nothing is opened yet. worker: the owner of its leases, if it is not named after this process."""
        self._job, self._dress, self._worker = job, dress, worker
        self.meter = meter or Meter()
        """What all slices have done."""
        self._opened = ExitStack()
        self._runner: asyncio.Runner | None = None

    def open(self) -> Frontier:
        """Open what is not open; returns the frontier, which nobody else may use while `work` is going on.

        Raises ConfigError, FrontierError, StoreError, and the two Unavailable ones.
        """
        if self._runner is None:
            try:
                self._open()
            except BaseException:
                self.close()
                raise
        return self._frontier

    def work(
        self,
        owner: str,
        ends: Ends,
        beat: Beats | None = None,
        *,
        patience_s: float = PATIENCE_S,
        lease_s: float | None = None,
    ) -> dict[str, int]:
        """Work until the time is over or there is nothing to do; returns how many pages ended in which state.

        owner: of the leases. patience_s: without work. lease_s: as for `Worker`.
        Raises FrontierError, StoreError or LoginFailed if it cannot go on; leases are given back even then.
        """
        self.open()
        assert self._runner is not None
        tally = Tally(self._visitor, ends.longest_s, self._job.crawl.retries())
        worker = Worker(
            self._job.crawl,
            self._frontier,
            self._stores,
            name=owner,
            patience_s=patience_s,
            lease_s=lease_s,
            load=self._load,
        )
        self._runner.run(_run(worker, tally, ends, beat))
        return dict(tally.ends)

    def _open(self) -> None:
        self._frontier = self._opened.enter_context(self._job.open_frontier())
        keep_revisits(self._job, self._frontier.describe())
        self._stores = self._opened.enter_context(
            opened_stores(self._job, self._frontier, worker=self._worker)
        )
        runner = self._opened.enter_context(asyncio.Runner(loop_factory=loop_factory()))
        self._visitor = runner.run(self._make_visitor(runner))
        self._runner = runner

    async def _make_visitor(self, runner: asyncio.Runner) -> Visits:
        threads = HandlerThreads(self._job.crawl.settings.concurrency)
        fetcher = Fetcher(fetch_settings(self._job.crawl))
        self._opened.callback(threads.shutdown)
        self._opened.callback(lambda: runner.run(fetcher.close()))
        self._load = load_of(self._job.crawl, self.meter)
        access = Access(self._job.crawl, fetcher, threads)
        return self._dress(Visitor(self._job.crawl, access, threads, self._load), threads)

    def abandon(self) -> None:
        """Whatever is open may be in the middle of something: leave it alone, and open all anew next time."""
        if self._runner is not None:
            self._frontier.wake()  # its thread would hold up the end of the process
        self._opened, self._runner = ExitStack(), None

    def close(self) -> None:
        """Close everything; the next slice opens it again."""
        opened, self._opened, self._runner = self._opened, ExitStack(), None
        opened.close()


def longest_s(slice_s: float, grace_s: float) -> float:
    """A visit that takes longer, from the start of a slice on, could not be finished in any other."""
    return slice_s + grace_s / 2


class Ends:
    """When a slice has to lease no more, and when to give back what is not done by then."""

    def __init__(
        self,
        *,
        slice_s: float,
        grace_s: float,
        draining: Callable[[], bool] = lambda: False,
        drain_s: float = 0.0,
    ) -> None:
        """slice_s: lease no longer than this. grace_s: what has begun by then may take so long.

        draining: whether to end soon; drain_s: what has begun by then may take so long.
        """
        self.longest_s = longest_s(slice_s, grace_s)
        self._draining = draining
        self._leave_at = time.monotonic() + slice_s
        self._stop_at = self._leave_at + grace_s
        self._drain_s: float | None = drain_s

    def leave(self) -> bool:
        now = time.monotonic()
        if self._drain_s is not None and self._draining():
            self._leave_at, self._stop_at = now, min(now + self._drain_s, self._stop_at)
            self._drain_s = None
        return now >= self._leave_at

    def stop(self) -> bool:
        return time.monotonic() >= self._stop_at


def shorten_timeout(crawl: Crawl, slice_s: float) -> None:
    """A page that takes longer than a slice would be given back again and again, for ever."""
    longest_s = max(LEAST_TIMEOUT_S, slice_s)
    if crawl.settings.total_timeout_s > longest_s:
        crawl.change(total_timeout_s=longest_s)


async def _run(worker: Worker, tally: Tally, ends: Ends, beats: Beats | None) -> None:
    """Let the worker work, beat, and see to its end."""
    work = asyncio.create_task(worker.work(tally))
    over = asyncio.Event()
    beating = asyncio.create_task(_beat(worker, tally, beats, over)) if beats else work
    while not work.done():
        if ends.stop():
            worker.stop()
        elif ends.leave():
            worker.leave()
        await asyncio.wait([work], timeout=LOOK_S)
    over.set()
    await asyncio.gather(beating, return_exceptions=True)
    await work


async def _beat(worker: Worker, tally: Tally, beats: Beats, over: asyncio.Event) -> None:
    """Beat until the slice is over; it never ends in the middle of a beat."""
    loop = asyncio.get_running_loop()
    while True:
        with suppress(TimeoutError):
            async with asyncio.timeout(beats.every_s):
                await over.wait()
            return
        try:
            if not await loop.run_in_executor(None, beats.beat, tally.ends.total()):
                break
        except FrontierUnavailable as error:
            log.warning("%s", error)
    log.error("this slice was taken for dead, so it ends")
    worker.stop()


def patiently(ask: Callable[[], T], seconds: float) -> T:
    """Ask until the frontier can be reached, at most for so long."""
    deadline = time.monotonic() + seconds
    for pause_s in pauses():
        try:
            return ask()
        except FrontierUnavailable as error:
            if time.monotonic() > deadline:
                raise
            log.warning("%s; trying again", error)
            time.sleep(pause_s)
    raise AssertionError("there is always another pause")
