"""What there is to say of a crawl: gathered from its frontier, for `shoal report`.

What is held in memory grows with the dead letters, the redirects and the hosts of a crawl, not with its
pages. Which pages link where, how long answers took and what redirects is known of crawls that were asked to
keep surveys (`Settings.survey`), the rest of every crawl.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from msgspec import Struct

from shoal.frontier import Frontier
from shoal.model import HostRecord, Minute, PageRecord, Stats, Survey
from shoal.urls import fingerprint

SHOWN_PAGES = 50
"""So many of the pages that link somewhere are named; all are counted."""
MOST_REDIRECTS = 100_000
"""So many are followed; further ones are counted."""
MOST_SLOW = 20
MOST_HOSTS = 100
LATENCIES_S = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Upper ends of the classes in which answers are counted by the time that they took."""
NO_LINK = frozenset({"lease lost", "internal error", "item cannot be stored", "too large"})
"""Reasons of dead letters that say nothing about the links that lead there."""


class LinkedFrom(Struct, frozen=True):
    """Which pages link somewhere."""

    count: int = 0
    pages: tuple[str, ...] = ()
    """The first ones of them, in alphabetical order."""


class Broken(Struct, frozen=True):
    """A link that leads nowhere."""

    url: str
    reason: str
    error: str
    status: int
    attempts: int
    linked_from: LinkedFrom
    through: tuple[str, ...] = ()
    """Redirects that end here; pages that link to those link here."""
    found_on: str = ""
    """The page on which it was found first, if that is known."""


class Hop(Struct, frozen=True):
    """One redirect."""

    url: str
    status: int


class Chain(Struct, frozen=True):
    """Redirects in a row, from one that no other leads to."""

    hops: tuple[Hop, ...]
    target: str
    """Where the last one points."""
    end: str
    """What is there: an HTTP status, a reason, or what else became of it; empty if that is not known."""
    linked_from: LinkedFrom

    @property
    def url(self) -> str:
        """Where they begin."""
        return self.hops[0].url


class Slow(Struct, frozen=True):
    """A page that took long."""

    url: str
    status: int
    elapsed_s: float
    size_bytes: int


class HostFacts(Struct, frozen=True):
    """One host."""

    host: str
    done: int
    dead: int
    latency_s: float


class Skips(Struct, frozen=True):
    """What one rule has kept from being fetched or read."""

    rule: str
    pages: int
    hosts: tuple[tuple[str, int], ...]
    """Those with the most, and how many."""


class Findings(Struct, frozen=True):
    """All of it."""

    crawl: str
    at: float
    """When it was looked at, in seconds since 1970."""
    seeds: tuple[str, ...]
    stats: Stats
    surveyed: int
    """Of so many pages it is known how they answered and to which they link."""
    broken: tuple[Broken, ...]
    """Those with the most pages that link there first."""
    reasons: tuple[tuple[str, int, str], ...]
    """Of dead letters: how many there are, and the URL of one."""
    redirects: tuple[Chain, ...]
    redirected: int
    """Redirects in all."""
    statuses: tuple[tuple[int, int], ...]
    """HTTP statuses (0: no answer), and how many pages had it."""
    latencies: tuple[int, ...]
    """Answers by the time that they took: one class for each of LATENCIES_S, and one above."""
    slowest: tuple[Slow, ...]
    hosts: tuple[HostFacts, ...]
    """Those with the most pages first."""
    skipped: tuple[Skips, ...]
    history: tuple[Minute, ...]

    @property
    def linking_pages(self) -> int:
        """How many links are broken, each counted on each page that has it."""
        return sum(each.linked_from.count for each in self.broken)


def gather(frontier: Frontier, *, at: float) -> Findings:
    """Look at a crawl, finished or not; twice at its surveys. at: the time, in seconds since 1970."""
    dead, stats = frontier.dead(), frontier.stats()
    first = _First(dead)
    for survey in frontier.surveys():
        first.look(survey)
    second = _Second(first)
    for survey in frontier.surveys():
        second.look(survey)
    return Findings(
        crawl=frontier.crawl,
        at=at,
        seeds=_seeds(frontier.describe()),
        stats=stats,
        surveyed=first.count,
        broken=tuple(sorted(second.broken(), key=lambda each: (-each.linked_from.count, each.url))),
        reasons=_reasons(dead),
        redirects=tuple(sorted(second.chains(), key=lambda each: (-each.linked_from.count, each.url))),
        redirected=first.redirected,
        statuses=tuple(sorted(first.statuses.items())),
        latencies=tuple(first.latencies),
        slowest=tuple(
            Slow(url, status, elapsed_s, size_bytes)
            for elapsed_s, url, status, size_bytes in sorted(first.slowest, reverse=True)
        ),
        hosts=_hosts(frontier.hosts(limit=max(1, stats.hosts)), dead),
        skipped=_skips(skips(frontier)),
        history=tuple(frontier.history(0.0)),
    )


def is_broken(record: PageRecord) -> bool:
    """Whether a dead letter is a link that leads nowhere: not if there was a page, but its handler failed."""
    return not 200 <= record.status < 300 and record.reason not in NO_LINK


def skips(
    frontier: Frontier, *, host: str | None = None, reason: str | None = None
) -> list[tuple[str, str, int]]:
    """How many pages each rule has kept from being fetched or read: (rule, host, pages), the most first."""
    counts = Counter((record.reason, record.host) for record in frontier.skipped(host=host, reason=reason))
    cuts = frontier.cuts()  # of these not all may be listed
    counts.update({each: cuts[each] - counts[each] for each in cuts if counts[each]})
    ordered = sorted(counts.items(), key=lambda each: (-each[1], each[0]))
    return [(rule, name, number) for (rule, name), number in ordered]


# --- the surveys ----------------------------------------------------------------------------


class _Redirect(Struct, frozen=True):
    url: str
    status: int
    target: str
    to: int | None
    """The identity of the target; None if it is not followed."""


class _First:
    """What a first look at all surveys gives: all but who links where."""

    def __init__(self, dead: Iterable[PageRecord]) -> None:
        self.broken = {record.url: record for record in dead if is_broken(record)}
        self.marks = {url: {fingerprint(url)} for url in self.broken}
        """Their identities: that of a link with a key is not that of its URL."""
        self.count = 0
        self.redirected = 0
        self.statuses: Counter[int] = Counter()
        self.latencies = [0] * (len(LATENCIES_S) + 1)
        self.slowest: list[tuple[float, str, int, int]] = []
        self.redirects: dict[int, _Redirect] = {}

    def look(self, survey: Survey) -> None:
        self.count += 1
        self.statuses[survey.status] += 1
        self.latencies[bisect_left(LATENCIES_S, survey.elapsed_s)] += 1
        heapq.heappush(self.slowest, (survey.elapsed_s, survey.url, survey.status, survey.size_bytes))
        if len(self.slowest) > MOST_SLOW:
            heapq.heappop(self.slowest)
        if survey.url in self.marks:
            self.marks[survey.url].add(survey.fingerprint)
        if survey.target:
            self.redirected += 1
            if len(self.redirects) < MOST_REDIRECTS:
                to = survey.links[0] if survey.links else None
                self.redirects[survey.fingerprint] = _Redirect(survey.url, survey.status, survey.target, to)


class _Second:
    """What a second look gives: who links to what is broken or redirects, now that these are known."""

    def __init__(self, first: _First) -> None:
        self._first = first
        self._before: dict[int, list[int]] = {}
        for mark, redirect in first.redirects.items():
            if redirect.to is not None:
                self._before.setdefault(redirect.to, []).append(mark)
        self.through = {url: self._leading_to(marks) for url, marks in first.marks.items()}
        self._wanted: dict[int, list[str | int]] = {mark: [mark] for mark in first.redirects}
        for url, marks in first.marks.items():
            for mark in marks.union(self.through[url]):
                self._wanted.setdefault(mark, []).append(url)
        self._pages: defaultdict[str | int, _Pages] = defaultdict(_Pages)
        self._ends = {redirect.to for redirect in first.redirects.values()}
        self._answers: dict[int, int] = {}

    def _leading_to(self, marks: Iterable[int]) -> set[int]:
        """The redirects that end at one of these, one after the other."""
        found: set[int] = set()
        ahead = list(marks)
        while ahead:
            new = [mark for mark in self._before.get(ahead.pop(), ()) if mark not in found]
            found.update(new)
            ahead.extend(new)
        return found

    def look(self, survey: Survey) -> None:
        if survey.fingerprint in self._ends:
            self._answers[survey.fingerprint] = survey.status
        if survey.target:
            return
        found = self._wanted.keys() & survey.links
        for each in {each for mark in found for each in self._wanted[mark]}:
            self._pages[each].add(survey.url)

    def broken(self) -> Iterator[Broken]:
        for url, record in self._first.broken.items():
            yield Broken(
                url=url,
                reason=record.reason,
                error=record.error,
                status=record.status,
                attempts=record.attempts,
                linked_from=self._pages[url].linked_from(),
                through=tuple(sorted(self._first.redirects[mark].url for mark in self.through[url])),
                found_on=record.parent,
            )

    def chains(self) -> Iterator[Chain]:
        """From each redirect that pages link to, or to which no other leads."""
        for mark in self._first.redirects:
            if mark in self._pages or mark not in self._before:
                yield self._chain(mark)

    def _chain(self, start: int) -> Chain:
        redirects, chain = self._first.redirects, [start]
        while (to := redirects[chain[-1]].to) in redirects and to not in chain:
            chain.append(to)
        last = redirects[chain[-1]]
        hops = tuple(Hop(redirects[mark].url, redirects[mark].status) for mark in chain)
        end = "loop" if last.to in chain else self._end(last)
        return Chain(hops, last.target, end, self._pages[start].linked_from())

    def _end(self, last: _Redirect) -> str:
        if last.to is None:
            return "not followed"
        if last.target in self._first.broken:
            return self._first.broken[last.target].reason
        status = self._answers.get(last.to)
        return "" if status is None else f"HTTP {status}" if status else "no answer"


class _Pages:
    """Counts pages and keeps the first few of them."""

    def __init__(self) -> None:
        self._count = 0
        self._first: list[str] = []

    def add(self, url: str) -> None:
        self._count += 1
        self._first.append(url)
        if len(self._first) > 2 * SHOWN_PAGES:
            self._first = heapq.nsmallest(SHOWN_PAGES, self._first)

    def linked_from(self) -> LinkedFrom:
        return LinkedFrom(self._count, tuple(heapq.nsmallest(SHOWN_PAGES, self._first)))


# --- the rest -------------------------------------------------------------------------------


def _seeds(description: Mapping[str, Any]) -> tuple[str, ...]:
    settings = description.get("settings", {})
    return (*settings.get("seeds", ()), *settings.get("sitemaps", ()))


def _reasons(dead: Iterable[PageRecord]) -> tuple[tuple[str, int, str], ...]:
    counts: Counter[str] = Counter()
    examples: dict[str, str] = {}
    for record in dead:
        counts[record.reason] += 1
        examples.setdefault(record.reason, record.url)
    return tuple((reason, number, examples[reason]) for reason, number in counts.most_common())


def _hosts(records: Iterable[HostRecord], dead: Iterable[PageRecord]) -> tuple[HostFacts, ...]:
    lost = Counter(record.host for record in dead)
    facts = (HostFacts(each.host, each.done, lost[each.host], each.latency_s) for each in records)
    return tuple(heapq.nsmallest(MOST_HOSTS, facts, key=lambda each: (-each.done - each.dead, each.host)))


def _skips(counts: Iterable[tuple[str, str, int]]) -> tuple[Skips, ...]:
    by_rule: dict[str, list[tuple[str, int]]] = {}
    for rule, host, pages in counts:
        by_rule.setdefault(rule, []).append((host, pages))
    sums = {rule: sum(pages for _, pages in hosts) for rule, hosts in by_rule.items()}
    return tuple(
        Skips(rule, sums[rule], tuple(by_rule[rule][:3]))
        for rule in sorted(by_rule, key=lambda rule: (-sums[rule], rule))
    )
