"""A slice for a job queue: a ticket in, counts out."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from math import inf

from shoal.errors import LoginFailed, ShoalError, StoreError
from shoal.frontier.tickets import Pace, Ticket
from shoal.liveness import worker_name
from shoal.local import Job
from shoal.meter import Meter
from shoal.slice import Beats, Bench, Dresses, Ends, patiently, shorten_timeout
from shoal.tickets import Desk, Send

log = logging.getLogger("shoal.ticketed")


class TicketBench:
    """Where the tickets of one thread are worked off, one after the other."""

    def __init__(
        self,
        job: Job,
        pace: Pace,
        send: Send,
        dress: Dresses = lambda visitor, threads: visitor,
        *,
        meter: Meter | None = None,
    ) -> None:
        """Nothing is opened yet."""
        self._job, self._pace, self._send = job, pace, send
        self._bench = Bench(job, dress, meter=meter)
        self._store_failed = False  # in the last slice: this one has opened it anew
        self._desk: Desk | None = None  # with a frontier of its own: it beats while the bench works

    @property
    def meter(self) -> Meter:
        """What all slices have done."""
        return self._bench.meter

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
        slice_s = min(slice_s, self._pace.slice_s)
        shorten_timeout(self._job.crawl, slice_s)
        owner = worker_name(f"{ticket.slot}.{ticket.generation}")
        if self._desk is None:
            self._desk = Desk(self._job.open_frontier(), self._pace, self._send)
        desk = self._desk
        if not patiently(partial(desk.claim, ticket, owner), self._pace.slice_s):
            return None
        ends = Ends(
            draining=draining,
            slice_s=slice_s,
            drain_s=self._pace.drain_s,
            grace_s=self._pace.drain_s if grace_s is None else grace_s,
        )
        try:
            done = self._bench.work(owner, ends, Beats(partial(desk.beat, ticket, owner), self._pace.beat_s))
        except (LoginFailed, StoreError) as error:
            if isinstance(error, LoginFailed) or self._store_failed:
                self._pause(desk, error)
            self._store_failed = isinstance(error, StoreError)
            with suppress(ShoalError):
                self._bench.close()  # the next slice is to log in anew, and to open the store
            done = {}
        except BaseException as error:
            self._give_up(ticket, in_order=isinstance(error, ShoalError))
            raise
        else:
            self._store_failed = False
        patiently(partial(desk.end, ticket, owner, again=not draining()), self._pace.running_s)
        return done

    def _pause(self, desk: Desk, error: ShoalError) -> None:
        """The next slice would fail, too, and the ones after it; of a login, until the account is locked."""
        log.critical(
            "%s; the crawl '%s' is paused: `shoal resume` lets it go on", error, self._job.crawl.name
        )
        patiently(desk.frontier.pause, self._pace.running_s)

    def _give_up(self, ticket: Ticket, *, in_order: bool) -> None:
        """in_order: the worker has wound up. Otherwise what is open may be in the middle of something."""
        if in_order:
            with suppress(ShoalError):
                self.close()
        self._bench.abandon()
        self._desk = None
        try:
            with self._job.open_frontier() as frontier:
                Desk(frontier, self._pace, self._send).fail(ticket, lost=False)
        except Exception as error:
            log.error("%s; what was being fetched will be fetched again", error)

    def close(self) -> None:
        """Close everything; the next slice opens it again."""
        self._bench.close()
        if self._desk is not None:
            self._desk.frontier.close()
            self._desk = None
