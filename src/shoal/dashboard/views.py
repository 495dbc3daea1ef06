"""What each view shows, as values that become JSON. Text is as it was found: the page puts it in as text."""

from __future__ import annotations

import time
from collections import Counter
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from shoal import words
from shoal.dashboard.desk import Desk, Pulse, Sample
from shoal.errors import ConfigError
from shoal.frontier import Frontier
from shoal.frontier.history import MINUTE_S
from shoal.model import SITEMAP, HostOrder, HostRecord, Item, Limits, Minute, PageRecord
from shoal.worker import TEND_S

MOST_REASONS = 200
MOST_HOSTS = 200
MOST_PAGES = 100
MOST_ROWS = 50
TO_BE_SHOWN = Annotated[int, Meta(ge=1, le=1_000)]


class Overview(Struct, frozen=True):
    """The moment, and what led to it."""

    pulse: Pulse
    left_s: float | None
    """When the crawl will be finished if it goes on like this and finds nothing new; None: not to be told."""
    beat_s: float
    """How long a worker counts as alive after it was heard of."""


def overview(pulse: Pulse) -> Overview:
    """What the overview shows of it."""
    stats = pulse.stats
    waiting = stats.queued + stats.overflow + stats.leased
    idle = stats.finished or stats.paused or not pulse.pages_per_s
    return Overview(pulse, None if idle else waiting / pulse.pages_per_s, 3 * TEND_S)


class History(Struct, frozen=True):
    """Throughput and errors over time."""

    now: float
    minutes: list[Minute]
    samples: list[Sample]


async def history(desk: Desk, minutes: int) -> History:
    """So many of the last minutes, and the samples of the last ten."""
    now = time.time()
    _, found = await desk.cached(
        ("history", minutes), lambda frontier: frontier.history(now - minutes * MINUTE_S)
    )
    return History(now, found, list(desk.samples))


class HostsAsked(Struct, frozen=True):
    """Which hosts are to be shown."""

    by: HostOrder = "queued"
    ascending: bool = False
    having: str = ""
    limit: TO_BE_SHOWN = 100


class HostRow(Struct, frozen=True):
    """A host, and why it waits."""

    record: HostRecord
    why: str


class Hosts(Struct, frozen=True):
    """Hosts in an order that is `age_s` old; what is said of each is new."""

    now: float
    age_s: float
    known: int
    hosts: list[HostRow]


async def hosts(desk: Desk, asked: HostsAsked) -> Hosts:
    """The first ones in the order asked for."""

    def names(frontier: Frontier) -> list[str]:
        found = frontier.hosts(limit=asked.limit, by=asked.by, ascending=asked.ascending, having=asked.having)
        return [host.host for host in found]

    age_s, first = await desk.cached(("hosts", asked.by, asked.ascending, asked.having, asked.limit), names)
    records, stats = await desk.quick.ask(lambda frontier: (frontier.hosts_named(first), frontier.stats()))
    return Hosts(time.time(), age_s, stats.hosts, [HostRow(record, _why(record)) for record in records])


def _why(host: HostRecord) -> str:
    """Why it waits, or may have to."""
    failures = f"{host.failures} failures in a row" if host.failures > 1 else "a failure"
    if host.given_up:
        return f"given up after {failures}"
    if host.paused_until is not None:
        return failures if host.failures else "paused by hand, or because it asked for it"
    return failures if host.failures else ""


class Group(Struct, frozen=True):
    """So many pages."""

    name: str
    pages: int


class Ended(Struct, frozen=True):
    """Dead letters or skipped pages: by reason, those of a reason by host, and some of them."""

    total: int
    reasons: list[Group]
    hosts: list[Group]
    pages: list[PageRecord]
    cut: list[Group] = []
    """Links that trap rules have cut, by rule: they are not all remembered as pages."""


class EndedAsked(Struct, frozen=True):
    """Which of them."""

    reason: str | None = None
    host: str | None = None


async def ended(desk: Desk, state: Literal["dead", "skipped"], asked: EndedAsked) -> Ended:
    """Those asked for."""

    def counts(frontier: Frontier) -> tuple[int, list[Group], list[Group]]:
        stats = frontier.stats()
        reasons = frontier.tally(state, limit=MOST_REASONS)
        named = {} if asked.reason is None else frontier.tally(state, reason=asked.reason, limit=MOST_HOSTS)
        return getattr(stats, state), _groups(reasons), _groups(named)

    def pages(frontier: Frontier) -> list[PageRecord]:
        listed = frontier.dead if state == "dead" else frontier.skipped
        return listed(host=asked.host, reason=asked.reason, limit=MOST_PAGES)

    total, reasons, named = await desk.quick.ask(counts)
    _, found = await desk.cached((state, asked.reason, asked.host), pages)
    cut = (await desk.cached("cuts", _cuts))[1] if state == "skipped" else []
    return Ended(total, reasons, named, found, cut)


def _groups(counts: dict[str, int]) -> list[Group]:
    return [Group(name, pages) for name, pages in counts.items()]


def _cuts(frontier: Frontier) -> list[Group]:
    counts: Counter[str] = Counter()
    for (rule, _), links in frontier.cuts().items():
        counts[rule] += links
    return _groups(dict(counts.most_common()))


class Found(Struct, frozen=True):
    """What is known of a URL."""

    url: str
    record: PageRecord | None
    said: str
    """For people, if it was never seen."""


def page(frontier: Frontier, url: str) -> Found:
    """As `shoal why` says it. Raises ConfigError if this is no URL."""
    if not url.strip():
        raise ConfigError("which URL?")
    spelled = words.spelled(frontier, url.strip())
    record = frontier.why(spelled) or frontier.why(spelled, SITEMAP)
    return Found(spelled, record, "" if record else words.never_seen(frontier, spelled, as_json=False))


class Settings(Struct, frozen=True):
    """What the controls show."""

    limits: Limits
    paused: bool
    description: dict[str, Any]


def settings(frontier: Frontier) -> Settings:
    """The limits in force, and what the crawl is."""
    return Settings(frontier.limits, frontier.stats().paused, dict(frontier.describe()))


class Items(Struct, frozen=True):
    """The latest rows, or why there are none."""

    rows: list[Item]
    said: str


def items(frontier: Frontier) -> Items:
    """The rows that the frontier keeps."""
    rows = frontier.last_items(MOST_ROWS)
    output = frontier.describe().get("output")
    if rows or frontier.keeps_items:
        return Items(rows, "" if rows else "There are no rows yet.")
    where = f" ({words.shown(str(output))})" if output else ""
    return Items([], f"The rows are in a store{where}: name it with --store when the dashboard is started.")
