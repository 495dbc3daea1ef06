"""The rows of a crawl and of its hosts as the SQLite frontier holds them during one transaction.

The decisions about a host (how much room it has, when it is due) are here, apart from any SQL.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from operator import attrgetter
from typing import Any

import msgspec

from shoal import caution
from shoal.caution import WELL, Caution
from shoal.frontier.history import GAINS
from shoal.model import Limits, Outcome, Stats

TOKENS_PER_S = 10_000


@dataclass(slots=True)
class CrawlRow:
    """One row of `crawls` from `paused` on: the fields are the columns, in their order."""

    paused: int
    epoch: int
    token: int
    turn: int
    queued: int
    delayed: int
    retrying: int
    held: int
    overflow: int
    leased: int
    done: int
    dead: int
    skipped: int
    priority_0: int
    priority_1: int
    priority_2: int
    priority_3: int
    priority_4: int
    priority_5: int
    priority_6: int
    priority_7: int
    priority_8: int
    priority_9: int
    hosts: int
    ready_hosts: int
    items: int
    size_bytes: int
    fetches: int
    retries: int
    losses: int
    elapsed_ms: int

    @classmethod
    def empty(cls, *, epoch: int, token: int) -> CrawlRow:
        """A crawl that knows nothing."""
        return cls(**dict.fromkeys(CRAWL_COLUMNS, 0) | {"epoch": epoch, "token": token})

    @property
    def found(self) -> int:
        """How many URLs are known."""
        return self.queued + self.overflow + self.leased + self.done + self.dead + self.skipped

    def gains(self, before: CrawlRow) -> list[int]:
        """By how much each of GAINS has grown; 0 for what has shrunk."""
        return [max(0, now - then) for now, then in zip(_totals(self), _totals(before), strict=True)]

    def next_token(self, now: float) -> int:
        """Tokens grow even if the file went back to an earlier moment: stores know rows by them."""
        self.token = max(self.token + 1, int(now * TOKENS_PER_S))
        return self.token

    def next_turn(self) -> int:
        self.turn += 1
        return self.turn

    def count(self, state: str, by: int) -> None:
        """Move the counter of one state."""
        setattr(self, state, getattr(self, state) + by)

    def count_queued(self, priority: int, by: int, *, delayed: bool, retrying: bool) -> None:
        """Move the counters of one queued page."""
        self.queued += by
        self.delayed += by * delayed
        self.retrying += by * retrying
        self.count(f"priority_{priority}", by)

    def room(self, limits: Limits) -> float:
        """How many leases the crawl as a whole may give now."""
        if self.paused:
            return 0
        return float("inf") if limits.max_pages is None else limits.max_pages - self.done - self.leased

    def exhausted(self, limits: Limits) -> bool:
        """Whether nothing is leased and nothing may be leased any more."""
        at_limit = limits.max_pages is not None and self.done >= limits.max_pages
        return self.leased == 0 and (at_limit or self.queued + self.overflow == self.held)

    def space(self, limits: Limits) -> float:
        """How many more links there is room for in the queue."""
        return float("inf") if limits.max_queued is None else limits.max_queued - self.queued

    def stats(self, *, oldest_s: float, producers: int, finished: bool) -> Stats:
        return Stats(
            queued=self.queued,
            delayed=self.delayed,
            retrying=self.retrying,
            overflow=self.overflow,
            leased=self.leased,
            done=self.done,
            dead=self.dead,
            skipped=self.skipped,
            by_priority=tuple(getattr(self, f"priority_{n}") for n in range(10)),
            hosts=self.hosts,
            ready_hosts=self.ready_hosts,
            items=self.items,
            size_bytes=self.size_bytes,
            fetches=self.fetches,
            retries=self.retries,
            losses=self.losses,
            elapsed_s=self.elapsed_ms / 1000,
            oldest_s=oldest_s,
            producers=producers,
            paused=bool(self.paused),
            finished=finished,
        )


@dataclass(slots=True)
class HostRow:
    """One row of `hosts`: the fields are the columns, in their order."""

    id: int
    host: str
    queued: int = 0
    overflow: int = 0
    leased: int = 0
    done: int = 0
    known: int = 0
    crawl_delay_s: float = 0.0
    started_at: float | None = None
    paused_until: float = 0.0
    latency_s: float = 0.0
    head: int = -1
    due_at: float | None = None
    turn: int = 0
    troubles: str | None = None
    set_delay_s: float | None = None
    error_rate: float = 0.0
    loaded: tuple[Any, ...] = ()
    """The columns as the file has them."""
    counted: tuple[bool, int] = (False, 0)
    """What the crawl's counters hold of it: whether it is ready, how many are held."""

    @property
    def caution(self) -> Caution:
        """What is remembered of its troubles."""
        return WELL if self.troubles is None else msgspec.json.decode(self.troubles, type=Caution)

    @caution.setter
    def caution(self, value: Caution) -> None:
        self.troubles = None if value is WELL else msgspec.json.encode(value).decode()

    def delay_s(self, limits: Limits) -> float:
        """As somebody has set it or as configured, or as robots.txt asks for."""
        wanted_s = limits.delay_s if self.set_delay_s is None else self.set_delay_s
        return max(wanted_s, self.crawl_delay_s)

    def present_delay_s(self, limits: Limits) -> float:
        """The same, longer after trouble."""
        return max(self.delay_s(limits), caution.delay_s(self.caution, limits))

    def at_once(self, limits: Limits) -> int:
        """How many of its links may be leased at once."""
        if not self.known or self.delay_s(limits) > 0:
            return 1
        return caution.at_once(self.caution, self.latency_s, limits)

    def given_up(self, limits: Limits, now: float) -> bool:
        return caution.is_given_up(self.caution, self.paused_until, now, limits)

    def full(self, limits: Limits) -> bool:
        """Whether it has had all the pages that it may have."""
        return limits.max_pages_per_host is not None and self.done >= limits.max_pages_per_host

    def held(self, limits: Limits) -> int:
        """Links that may not be leased under these limits, however long one waits."""
        return self.queued + self.overflow if self.full(limits) else 0

    def room(self, limits: Limits) -> int:
        """How many more of its links may be leased at once."""
        room = self.at_once(limits) - self.leased
        if limits.max_pages_per_host is not None:
            room = min(room, limits.max_pages_per_host - self.done - self.leased)
        return room

    def due(self, limits: Limits, now: float) -> float | None:
        """0: may be leased from now; later: may be then; -1: given up; None: not by time alone."""
        if self.head < 0 or self.full(limits):
            return None
        if self.given_up(limits, now):
            return -1.0
        if self.room(limits) <= 0:
            return None
        at, delay_s = self.paused_until, self.present_delay_s(limits)
        if delay_s > 0 and self.started_at is not None:
            at = max(at, self.started_at + delay_s)
        return at if at > now else 0.0

    def started(self, at: float) -> None:
        self.started_at = at if self.started_at is None else max(self.started_at, at)

    def learn(self, outcome: Outcome, now: float, limits: Limits) -> None:
        """What the end of an attempt tells about the host."""
        began = now - outcome.age_s
        self.error_rate = caution.error_rate(self.error_rate, failed=outcome.state in ("queued", "dead"))
        self.started(began)
        answered = outcome.sign != "failing"
        if answered:
            self.known = 1
        if answered and outcome.elapsed_s > 0:
            self._took(outcome.elapsed_s)
        if outcome.crawl_delay_s is not None:
            self._told(outcome.crawl_delay_s, limits)
        before = self.caution
        after = caution.learn(before, outcome.sign, began, now, limits, again=outcome.lease.attempt > 1)
        pause_s = outcome.pause_s
        if after is not before:
            self.caution = after
            if after.failures:
                pause_s = caution.pause_s(after, outcome.sign, pause_s, limits)
        if pause_s > 0:
            self.paused_until = max(self.paused_until, now + pause_s)

    def revive(self) -> None:
        """Give it another chance."""
        self.caution = WELL
        self.paused_until = 0.0

    def _told(self, crawl_delay_s: float, limits: Limits) -> None:
        """The last one told counts; among several hosts, which may differ, the longest."""
        among = limits.politeness != "host"
        self.crawl_delay_s = max(self.crawl_delay_s, crawl_delay_s) if among else crawl_delay_s

    def _took(self, elapsed_s: float) -> None:
        """Move the average latency."""
        self.latency_s = 0.8 * self.latency_s + 0.2 * elapsed_s if self.latency_s else elapsed_s


CRAWL_COLUMNS = tuple(each.name for each in fields(CrawlRow))
HOST_COLUMNS = tuple(each.name for each in fields(HostRow))[:-2]
crawl_values = attrgetter(*CRAWL_COLUMNS)
_totals = attrgetter(*GAINS)
host_values = attrgetter(*HOST_COLUMNS)
