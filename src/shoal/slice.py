"""One bounded run of a worker, for a job queue: a ticket in, counts out.

A thread keeps its `Bench` from one slice to the next: the event loop, connections to sites with their
cookies, robots.txt files, the frontier with what it knows to be seen, the store.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from math import inf
from typing import Protocol, TypeVar

from shoal.access import Access
from shoal.errors import FrontierUnavailable
from shoal.fetch import Fetcher
from shoal.frontier.tickets import Pace, Ticket
from shoal.liveness import worker_name
from shoal.local import Job, loop_factory, opened_stores
from shoal.meter import Meter
from shoal.model import Lease, Outcome
from shoal.threads import HandlerThreads
from shoal.tickets import Desk, Send
from shoal.visit import Visitor
from shoal.worker import Visits, Worker, fetch_settings, load_of

LOOK_S = 0.1  # how often a slice looks whether it has to end
PATIENCE_S = 5.0  # without work; then the process is free for other jobs
AGAIN_S = 1.0  # between two tries while the frontier cannot be reached

T = TypeVar("T")
log = logging.getLogger("shoal.slice")


class Dresses(Protocol):
    """Wraps the visitor that fetches, or replaces it. Called inside the event loop."""

    def __call__(self, visitor: Visitor, threads: HandlerThreads) -> Visits:
        """The visitor to use."""


class Tally:
    """Visits, and counts how they end."""

    def __init__(self, visitor: Visits) -> None:
        self._visitor = visitor
        self.ends: Counter[str] = Counter()

    async def visit(self, lease: Lease) -> Outcome:
        outcome = await self._visitor.visit(lease)
        self.ends[outcome.state] += 1
        return outcome


class Bench:
    """Where the slices of one thread are worked off, one after the other."""

    def __init__(
        self, job: Job, pace: Pace, send: Send, dress: Dresses = lambda visitor, threads: visitor
    ) -> None:
        """Nothing is opened yet."""
        self._job, self._pace, self._send, self._dress = job, pace, send, dress
        self.meter = Meter()
        """What all slices have done."""
        self._opened = ExitStack()
        self._runner: asyncio.Runner | None = None
        self._desk: Desk | None = None

    def run(
        self,
        ticket: Ticket,
        *,
        draining: Callable[[], bool],
        slice_s: float = inf,
        grace_s: float | None = None,
    ) -> dict[str, int] | None:
        """Work until the time is over or there is nothing to do; None if the ticket is worth nothing.

        draining: whether to end soon, and not to be followed.
        slice_s: lease no longer than this, and than the pace says.
        grace_s: what has begun by then may take so long, by default as long as when draining.
        Returns how many pages ended in which state. After any other end all leases are given back.
        """
        owner = worker_name(f"{ticket.slot}.{ticket.generation}")
        if self._desk is None:
            self._desk = Desk(self._opened.enter_context(self._job.open_frontier()), self._pace, self._send)
        if not patiently(partial(self._desk.claim, ticket, owner), self._pace.slice_s):
            return None
        try:
            ends = self._work(ticket, owner, draining, slice_s, grace_s)
        except BaseException:
            self._give_up(ticket)
            raise
        patiently(partial(self._desk.end, ticket, owner, again=not draining()), self._pace.running_s)
        return ends

    def _work(
        self,
        ticket: Ticket,
        owner: str,
        draining: Callable[[], bool],
        slice_s: float,
        grace_s: float | None,
    ) -> dict[str, int]:
        assert self._desk is not None
        if self._runner is None:
            self._open()
        assert self._runner is not None
        tally = Tally(self._visitor)
        worker = Worker(
            self._job.crawl,
            self._frontier,
            self._stores,
            name=owner,
            patience_s=PATIENCE_S,
            load=self._load,
        )
        ends = _Ends(
            draining=draining,
            slice_s=min(slice_s, self._pace.slice_s),
            drain_s=self._pace.drain_s,
            grace_s=self._pace.drain_s if grace_s is None else grace_s,
        )

        def beat() -> bool:
            assert self._desk is not None
            return self._desk.beat(ticket, owner, tally.ends.total())

        self._runner.run(_run(worker, tally, ends, beat, self._pace.beat_s))
        return dict(tally.ends)

    def _open(self) -> None:
        try:
            self._frontier = self._opened.enter_context(self._job.open_frontier())
            self._stores = self._opened.enter_context(opened_stores(self._job, self._frontier))
            runner = self._opened.enter_context(asyncio.Runner(loop_factory=loop_factory()))
            self._visitor = runner.run(self._make_visitor(runner))
        except BaseException:
            self.close()
            raise
        self._runner = runner

    async def _make_visitor(self, runner: asyncio.Runner) -> Visits:
        threads = HandlerThreads(self._job.crawl.settings.concurrency)
        fetcher = Fetcher(fetch_settings(self._job.crawl))
        self._opened.callback(threads.shutdown)
        self._opened.callback(lambda: runner.run(fetcher.close()))
        self._load = load_of(self._job.crawl, self.meter)
        access = Access(self._job.crawl, fetcher, threads)
        return self._dress(Visitor(self._job.crawl, access, threads, self._load), threads)

    def _give_up(self, ticket: Ticket) -> None:
        """Whatever is open may be in the middle of something: leave it alone, and open all anew next time."""
        if self._runner is not None:
            self._frontier.wake()  # its thread would hold up the end of the process
        self._opened, self._runner, self._desk = ExitStack(), None, None
        try:
            with self._job.open_frontier() as frontier:
                Desk(frontier, self._pace, self._send).fail(ticket, lost=False)
        except Exception as error:
            log.error("%s; what was being fetched will be fetched again", error)

    def close(self) -> None:
        """Close everything; the next slice opens it again."""
        self._opened.close()
        self._opened, self._runner, self._desk = ExitStack(), None, None


class _Ends:
    """When a slice has to lease no more, and when to give back what is not done by then."""

    def __init__(
        self, *, draining: Callable[[], bool], slice_s: float, drain_s: float, grace_s: float
    ) -> None:
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


async def _run(worker: Worker, visitor: Visits, ends: _Ends, beat: Callable[[], bool], beat_s: float) -> None:
    """Let the worker work, beat, and see to its end."""
    work = asyncio.create_task(worker.work(visitor))
    beating = asyncio.create_task(_beat(worker, beat, beat_s))
    while not work.done():
        if ends.stop():
            worker.stop()
        elif ends.leave():
            worker.leave()
        await asyncio.wait([work], timeout=LOOK_S)
    beating.cancel()
    await asyncio.gather(beating, return_exceptions=True)
    await work


async def _beat(worker: Worker, beat: Callable[[], bool], seconds: float) -> None:
    loop = asyncio.get_running_loop()
    held = True
    while held:
        await asyncio.sleep(seconds)
        try:
            held = await loop.run_in_executor(None, beat)
        except FrontierUnavailable as error:
            log.warning("%s", error)
    log.error("this slice was taken for dead, so it ends")
    worker.stop()


def patiently(ask: Callable[[], T], seconds: float) -> T:
    """Ask until the frontier can be reached, at most for so long."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            return ask()
        except FrontierUnavailable as error:
            if time.monotonic() > deadline:
                raise
            log.warning("%s; trying again every %g s", error, AGAIN_S)
            time.sleep(AGAIN_S)
