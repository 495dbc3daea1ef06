"""What must hold whatever has happened, said once, and asserted after every model and fault test."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from itertools import pairwise
from math import inf

from shoal.frontier import Frontier
from shoal.model import Grant, Limits, Outcome

STATES = ("queued", "overflow", "leased", "done", "dead", "skipped")


def assert_nothing_lost(frontier: Frontier, known: Collection[tuple[str, str]], now: float | None = None):
    """Each known (url, key) is found, in one state, and every counter is what the single pages add up to."""
    stats = frontier.stats(now=now)
    pages = [frontier.why(url, key) for url, key in known]
    assert None not in pages, f"lost: {[one for one, page in zip(known, pages, strict=True) if page is None]}"
    assert stats.seen == len(pages)
    states = Counter(page.state for page in pages)
    assert {state: getattr(stats, state) for state in STATES} == {state: states[state] for state in STATES}
    queued = [page for page in pages if page.state == "queued"]
    assert stats.retrying == sum(page.attempts > 0 for page in queued)
    assert stats.delayed <= sum(page.not_before is not None for page in queued)
    priorities = Counter(page.priority for page in queued)
    assert stats.by_priority == tuple(priorities[priority] for priority in range(10))
    assert_lists_agree(frontier, pages)


def assert_lists_agree(frontier, pages):
    """Each list for people shows the pages that it is about, and no other."""

    def counted(state, of):
        return Counter(getattr(page, of) for page in pages if page.state == state)

    assert Counter(page.url for page in frontier.dead()) == counted("dead", "url")
    assert Counter(page.url for page in frontier.skipped()) == counted("skipped", "url")
    for state in ("dead", "skipped"):
        assert frontier.tally(state) == counted(state, "reason")
        for reason in counted(state, "reason"):
            hosts = Counter(page.host for page in pages if (page.state, page.reason) == (state, reason))
            assert frontier.tally(state, reason=reason) == hosts
    workers = {each.name: each.leases for each in frontier.workers() if each.leases}
    assert workers == counted("leased", "worker")
    hosts = frontier.hosts(limit=1_000_000)
    for state in ("queued", "leased", "done"):
        assert Counter({each.host: getattr(each, state) for each in hosts}) == counted(state, "host")


def assert_items_once(frontier: Frontier, expected: Iterable[tuple[str, int]]):
    """Each expected row (the url and the index of an item) is kept, none of them twice, and no other."""
    kept = Counter((item["url"], item["index"]) for item in frontier.items())
    assert kept == Counter(set(expected))
    assert frontier.stats().items == kept.total()


def assert_gaps(starts: Iterable[tuple[str, float]], delay_s: float):
    """Two fetches of a host start at least its delay apart; `starts` are (host, time)."""
    for (host, before), (next_host, after) in pairwise(sorted(starts)):
        assert host != next_host or after - before >= delay_s, f"{host} again after {after - before:.3f} s"


@dataclass
class Held:
    fingerprint: int
    host: str
    deadline: float


class Observer:
    """Sees all workers of a crawl and refuses what must never happen, without knowing any queue."""

    def __init__(self) -> None:
        self.held: dict[int, Held] = {}
        self.last_token = 0
        self._started: dict[str, float] = {}
        self._crawl_delay_s: dict[str, float] = {}
        self.set_delays: dict[str, float | None] = {}

    def granted(self, grant: Grant, deadline: float, limits: Limits, now: float) -> None:
        """A page is held once, and no host is asked too often or too much."""
        self.ended([token for token, held in self.held.items() if held.deadline < now], now)
        for lease in grant.leases:
            assert lease.token > self.last_token
            self.last_token = lease.token
            assert lease.fingerprint not in {held.fingerprint for held in self.held.values()}
            set_s = self.set_delays.get(lease.host)
            wanted_s = limits.delay_s if set_s is None else set_s
            delay_s = max(wanted_s, self._crawl_delay_s.get(lease.host, 0.0))
            at_once = sum(held.host == lease.host for held in self.held.values())
            assert at_once < (1 if delay_s else limits.per_host)
            assert now - self._started.get(lease.host, -inf) >= delay_s
            self.held[lease.token] = Held(lease.fingerprint, lease.host, deadline)

    def extended(self, tokens: Iterable[int], deadline: float) -> None:
        for token in tokens:
            self.held[token].deadline = deadline

    def ended(self, tokens: Iterable[int], now: float) -> None:
        """Without a commit: the page may have been fetched until now."""
        for token in list(tokens):
            self._start(self.held.pop(token).host, now)

    def committed(self, outcomes: Iterable[Outcome], now: float) -> None:
        for outcome in outcomes:
            host = self.held.pop(outcome.lease.token).host
            self._start(host, now - outcome.age_s)
            if outcome.crawl_delay_s is not None:
                self._crawl_delay_s[host] = outcome.crawl_delay_s

    def _start(self, host: str, at: float) -> None:
        self._started[host] = max(at, self._started.get(host, -inf))
