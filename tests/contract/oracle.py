"""The reference frontier: what every verb means, said in dicts as plainly as it can be said.

The contract leaves some choices open: which of several hosts comes next, the order of links that came
back. So the oracle does not predict a lease; `follow` checks that the given one is permitted.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from math import inf, nextafter

from msgspec.structs import replace

from shoal import caution
from shoal.caution import WELL, Caution
from shoal.frontier.base import AT_ONCE
from shoal.model import Grant, Lease, Limits, Link, Minute, Outcome, PageRecord, Stats, Survey, Visit
from shoal.urls import fingerprint, host_key

STATES = ("queued", "overflow", "leased", "done", "dead", "skipped")
LOST = "(lost)"
"""Stands for the reason of a page that was lost too often; the wording is the back end's."""


@dataclass(eq=False)
class Page:
    link: Link
    host: str
    parent: str
    added_at: float
    not_before: float | None
    loose: bool
    """Was delayed: it has no certain place among those that were never leased."""
    moved: bool = False
    """To another priority: it has no certain place among its equals."""
    state: str = "queued"
    fresh: bool = True
    """Never leased."""
    attempts: int = 0
    losses: int = 0
    token: int = 0
    worker: str = ""
    deadline: float | None = None
    reason: str = ""
    error: str = ""
    status: int = 0
    finished_at: float | None = None
    items: tuple = ()
    visit: Visit | None = None
    survey: Survey | None = None

    def is_due(self, now):
        return self.not_before is None or self.not_before <= now

    def record(self):
        known = {name: getattr(self, name) for name in PageRecord.__struct_fields__ if hasattr(self, name)}
        return PageRecord(url=self.link.url, priority=self.link.priority, depth=self.link.depth, **known)


@dataclass
class Host:
    known: bool = False
    """It has answered."""
    started_at: float = -inf
    paused_until: float = -inf
    crawl_delay_s: float = 0.0
    latency_s: float = 0.0
    caution: Caution = WELL
    set_delay_s: float | None = None
    error_rate: float = 0.0


class Oracle:
    """One crawl in memory."""

    def __init__(self):
        self.token = 0
        self.purge()

    def purge(self):
        self.pages: dict[tuple[str, str], Page] = {}
        self.hosts: dict[str, Host] = defaultdict(Host)
        self.positions: dict[str, int] = {}
        self.producers: dict[str, float] = {}
        self.limits = Limits()
        self.paused = False
        self.cuts: Counter[tuple[str, str]] = Counter()
        self.shapes: Counter[tuple[str, int]] = Counter()
        self.contents: dict[int, str] = {}
        self.minutes: dict[float, Counter[str]] = defaultdict(Counter)
        self.fetches = self.losses = self.size_bytes = self.retries = self.elapsed_s = 0

    def happened(self, now, **gains):
        """To be found in `history`."""
        self.minutes[now // 60 * 60].update(gains)

    def history(self):
        minutes = {at: gains for at, gains in self.minutes.items() if gains.total()}
        return [Minute(at, **minutes[at]) for at in sorted(minutes)]

    def having(self, state, host=None):
        return [page for page in self.pages.values() if page.state == state and host in (None, page.host)]

    def count(self, state, host=None):
        return len(self.having(state, host))

    def items(self):
        return sum(len(page.items) for page in self.pages.values())

    def held(self):
        return {page.token: page for page in self.having("leased")}

    # --- what may start ---------------------------------------------------------------------

    def delay_s(self, host):
        set_s = self.hosts[host].set_delay_s
        return max(self.limits.delay_s if set_s is None else set_s, self.hosts[host].crawl_delay_s)

    def present_delay_s(self, name):
        return max(self.delay_s(name), caution.delay_s(self.hosts[name].caution, self.limits))

    def due_at(self, name):
        host, delay_s = self.hosts[name], self.present_delay_s(name)
        return max(host.paused_until, host.started_at + delay_s if delay_s else -inf)

    def at_once(self, name):
        host = self.hosts[name]
        alone = not host.known or self.delay_s(name) > 0
        return 1 if alone else caution.at_once(host.caution, host.latency_s, self.limits)

    def has_room(self, name):
        leased, used = self.count("leased", name), self.count("leased", name) + self.count("done", name)
        most = self.limits.max_pages_per_host
        return leased < self.at_once(name) and (most is None or used < most)

    def is_given_up(self, name, now):
        host = self.hosts[name]
        return caution.is_given_up(host.caution, host.paused_until, now, self.limits)

    def ready_hosts(self, now):
        having_due = {page.host for page in self.having("queued") if page.is_due(now)}
        return [host for host in having_due if self.has_room(host) and self.due_at(host) <= now]

    def heads(self, host, now):
        """The links of a ready host one of which must be its next."""
        due = [page for page in self.having("queued", host) if page.is_due(now)]
        top = max(page.link.priority for page in due)
        equals = [page for page in due if page.link.priority == top]
        moved, others = [p for p in equals if p.moved], [p for p in equals if not p.moved]
        first = next((page for page in others if not page.loose), None)
        if caution.is_down(self.hosts[host].caution):
            moved += [page for page in equals if not page.attempts]
        return moved + ([p for p in others if not p.fresh] or [p for p in others if p.loose or p is first])

    def permitted(self, now):
        """The links one of which must be leased next."""
        used, most = self.count("leased") + self.count("done"), self.limits.max_pages
        if self.paused or (most is not None and used >= most):
            return []
        heads = [page for host in self.ready_hosts(now) for page in self.heads(host, now)]
        top = max((page.link.priority for page in heads), default=None)
        return [page for page in heads if page.link.priority == top]

    def moments(self, now):
        """When, from now on, time alone changes something."""
        times = {page.deadline for page in self.having("leased")} | {*self.producers.values()}
        times |= {page.not_before or -inf for page in self.having("queued")} | {*map(self.due_at, self.hosts)}
        return sorted(moment for moment in times if now <= moment)

    def opening(self, now):
        """When time alone may bring work or the end: a lease runs out, or a link may start; None: never."""
        if self.permitted(now):
            return now
        deadlines = {page.deadline for page in self.having("leased")}
        for moment in self.moments(now):
            just_after = nextafter(moment, inf)
            if moment in deadlines or self.permitted(just_after) or self.finished(just_after):
                return moment
        return None

    def check_again(self, again_s, now):
        opening = None if self.finished(now) else self.opening(now)
        if opening is None:
            assert again_s is None or self.paused, f"asks again after {again_s} for nothing"
        else:
            assert again_s is not None, f"never asks again, while at {opening} something happens"
            assert now + again_s in {opening, *self.moments(now)}, (
                f"nothing changes {again_s} from {now}, {self.moments(now)}"
            )
            assert now + again_s <= opening, f"asks again after {again_s}, too late for {opening - now}"

    def open_producers(self, now):
        return [name for name, until in self.producers.items() if now < until]

    def finished(self, now):
        most = inf if self.limits.max_pages is None else self.limits.max_pages
        per_host = inf if self.limits.max_pages_per_host is None else self.limits.max_pages_per_host
        waiting = self.having("queued") + self.having("overflow")
        left = [page for page in waiting if self.count("done", page.host) < per_host]
        ended = self.count("done") >= most or not left
        return ended and not self.having("leased") and not self.open_producers(now)

    # --- what a worker needs -------------------------------------------------------------

    def add(self, links, *, now, parent=""):
        before = len(self.pages)
        for link in links:
            too_deep = self.limits.max_depth is not None and link.depth > self.limits.max_depth
            if (link.url, link.key) not in self.pages and not too_deep:
                self.add_new(link, host_key(link.url), parent, now)
        return len(self.pages) - before

    def add_new(self, link, host, parent, now):
        self.hosts[host]  # from now on it is counted
        rule, delayed = link.trap or self.full_quota(host, link.quotas), link.delay_s > 0
        bare = replace(link, delay_s=0.0, trap="", quotas=())
        page = Page(bare, host, parent, now, now + link.delay_s if delayed else None, loose=delayed)
        if rule:
            self.cuts[rule, host] += 1
            page.state, page.reason, page.finished_at, page.not_before = "skipped", rule, now, None
        elif parent and not delayed and self.overflows(page, now):
            page.state = "overflow"
        self.pages[link.url, link.key] = page
        self.happened(now, found=1, skipped=page.state == "skipped")

    def full_quota(self, host, quotas):
        for quota in quotas:
            if self.shapes[host, quota.shape] >= quota.most:
                return quota.rule
        self.shapes.update((host, quota.shape) for quota in quotas)
        return ""

    def head(self, host, now):
        """The highest priority of what is queued and due."""
        return max((p.link.priority for p in self.having("queued", host) if p.is_due(now)), default=-1)

    def space(self):
        return inf if self.limits.max_queued is None else self.limits.max_queued - self.count("queued")

    def overflows(self, page, now):
        others = [each.link.priority for each in self.having("overflow", page.host)]
        wanted = self.space() <= 0 or page.link.priority in others
        return wanted and self.head(page.host, now) >= page.link.priority

    def return_links(self, host, now):
        """If something in the overflow is better than all that is left."""
        pages = self.having("overflow", host)
        best = max((page.link.priority for page in pages), default=-1)
        if best > self.head(host, now):
            most = min(max(1, self.space()), AT_ONCE)
            for page in [page for page in pages if page.link.priority == best][:most]:
                page.state = "queued"

    def claim(self, contents):
        return [self.contents.setdefault(digest, url) for digest, url in contents]

    def follow(self, grant: Grant, limit, seconds, *, worker, now):
        """Check that `grant` is a permitted answer to `lease`, and give the same leases."""
        self.take_back(now)
        self.bury_given_up(now)
        assert len(grant.leases) <= limit
        for lease in grant.leases:
            page = self.pages[lease.link.url, lease.link.key]
            permitted = self.permitted(now)
            assert page in permitted, f"{lease} was given instead of one of {permitted}"
            assert lease == self.give(page, lease.token, seconds, worker, now)
        assert len(grant.leases) == limit or not self.permitted(now), f"left out: {self.permitted(now)}"
        assert grant.finished == self.finished(now)
        self.check_again(grant.again_s, now)

    def give(self, page, token, seconds, worker, now):
        assert token > self.token, "tokens grow"
        self.token = page.token = token
        page.state, page.fresh = "leased", False
        if self.hosts[page.host].caution != WELL:
            self.start(page.host, now)
        page.worker, page.deadline, page.not_before = worker, now + seconds, None
        self.return_links(page.host, now)
        identity, attempt = fingerprint(page.link.url, page.link.key), page.attempts + 1
        return Lease(token, identity, page.link, page.host, attempt, page.losses, page.visit)

    def take_back(self, now):
        self.lose([page for page in self.having("leased") if page.deadline < now], now)

    def bury_given_up(self, now):
        most = self.limits.max_pages_per_host
        for name in self.hosts:
            full = most is not None and self.count("done", name) >= most
            while not full and self.is_given_up(name, now) and self.head(name, now) >= 0:
                self.bury_queue(name, now)
                self.return_links(name, now)

    def bury_queue(self, name, now):
        for page in self.having("queued", name):
            if page.is_due(now):
                page.state, page.finished_at, page.not_before = "dead", now, None
                page.reason = caution.GIVEN_UP
                self.happened(now, dead=1)
                page.error = caution.given_up_after(self.hosts[name].caution.failures)

    def lose(self, pages, now):
        for page in pages:
            page.losses, self.losses = page.losses + 1, self.losses + 1
            self.happened(now, losses=1, dead=page.losses >= self.limits.max_losses)
            self.end_unfinished(page, now)
            if page.losses >= self.limits.max_losses:
                page.state, page.finished_at, page.reason = "dead", now, LOST
        return len(pages)

    def end_unfinished(self, page, now):
        page.state, page.worker, page.deadline = "queued", "", None
        self.start(page.host, now)

    def start(self, host, at):
        self.hosts[host].started_at = max(self.hosts[host].started_at, at)

    def commit(self, outcomes, *, positions=(), now):
        lost = frozenset(outcome.lease.token for outcome in outcomes) - self.held().keys()
        if not lost:
            pages = [self.held()[outcome.lease.token] for outcome in outcomes]
            items = self.items()
            for page, outcome in zip(pages, outcomes, strict=True):
                self.finish(page, outcome, now)
            for page, outcome in zip(pages, outcomes, strict=True):
                self.add(outcome.links, now=now, parent=page.link.url)
            self.happened(now, items=max(0, self.items() - items))
            self.positions.update(positions)
        return lost

    def finish(self, page, outcome: Outcome, now):
        again = outcome.state == "queued"
        page.state, page.worker, page.deadline = outcome.state, "", None
        page.items = page.items if outcome.keeps_rows else outcome.items
        page.visit = outcome.visit or page.visit
        page.survey = outcome.survey or page.survey
        page.reason, page.error, page.status = outcome.reason, outcome.error, outcome.status
        page.not_before = now + outcome.retry_s if again and outcome.retry_s else None
        page.finished_at, page.attempts = None if again else now, page.attempts + 1
        self.learn(page.host, outcome, now)
        self.fetches, self.size_bytes = self.fetches + 1, self.size_bytes + outcome.size_bytes
        self.retries, self.elapsed_s = self.retries + again, self.elapsed_s + outcome.elapsed_s
        gains = {"retries" if again else outcome.state: 1, "fetches": 1}
        self.happened(now, **gains, size_bytes=outcome.size_bytes, elapsed_s=outcome.elapsed_s)

    def learn(self, name, outcome, now):
        host, began, pause_s = self.hosts[name], now - outcome.age_s, outcome.pause_s
        self.start(name, began)
        failed = outcome.state in ("queued", "dead")
        host.error_rate = caution.error_rate(host.error_rate, failed=failed)
        if outcome.sign != "failing":
            host.known = True
            if outcome.elapsed_s:
                before = host.latency_s
                host.latency_s = 0.8 * before + 0.2 * outcome.elapsed_s if before else outcome.elapsed_s
        if outcome.crawl_delay_s is not None:
            host.crawl_delay_s = outcome.crawl_delay_s
        before = host.caution
        host.caution = caution.learn(
            before, outcome.sign, began, now, self.limits, again=outcome.lease.attempt > 1
        )
        if host.caution is not before and host.caution.failures:
            pause_s = caution.pause_s(host.caution, outcome.sign, pause_s, self.limits)
        if pause_s:
            host.paused_until = max(host.paused_until, now + pause_s)

    def extend(self, tokens, seconds, *, now):
        for token in self.held().keys() & tokens:
            self.held()[token].deadline = now + seconds
        return frozenset(tokens) - self.held().keys()

    def release(self, tokens, *, now):
        for page in [page for token, page in self.held().items() if token in tokens]:
            self.end_unfinished(page, now)

    def reap(self, worker, *, now):
        return self.lose([page for page in self.having("leased") if page.worker == worker], now)

    def pause_host(self, host, seconds, *, now):
        until = max(self.hosts[host].paused_until, now + seconds)
        self.hosts[host].paused_until = until if seconds else -inf

    def stats(self, *, now):
        queued = self.having("queued")
        by_priority = Counter(page.link.priority for page in queued)
        return Stats(
            **{state: self.count(state) for state in STATES},
            delayed=sum(not page.is_due(now) for page in queued),
            retrying=sum(page.attempts > 0 for page in queued),
            by_priority=tuple(by_priority[priority] for priority in range(10)),
            hosts=len(self.hosts),
            ready_hosts=len(self.ready_hosts(now)),
            items=self.items(),
            size_bytes=self.size_bytes,
            fetches=self.fetches,
            retries=self.retries,
            losses=self.losses,
            elapsed_s=self.elapsed_s,
            oldest_s=max((now - page.added_at // 60 * 60 for page in queued), default=0.0),
            producers=len(self.open_producers(now)),
            paused=self.paused,
            finished=self.finished(now),
        )

    # --- the crawl and its people -----------------------------------------------------------

    def open_producer(self, name, seconds, *, now):
        self.producers[name] = now + seconds
        return self.space() > self.count("overflow")

    def revisit(self, seconds, *, now):
        ended = [page for page in self.pages.values() if page.finished_at is not None]
        pages = [page for page in ended if page.visit and page.finished_at <= now - seconds]
        for page in pages:
            self.begin_again(page)
            page.added_at = now
        return len(pages)

    def begin_again(self, page):
        page.state, page.finished_at, page.reason, page.error = "queued", None, "", ""
        page.attempts = page.losses = page.status = 0

    def redrive(self, *, now, url=None, host=None, reason=None):
        pages = [page for page in self.having("dead", host) if reason in (None, page.reason)]
        pages = [page for page in pages if url in (None, page.link.url)]
        for page in pages:
            self.begin_again(page)
            if self.is_given_up(page.host, now):
                self.hosts[page.host].caution, self.hosts[page.host].paused_until = WELL, -inf
        return len(pages)

    def set_delay(self, host, delay_s):
        self.hosts[host].set_delay_s = delay_s

    def forget(self, url, key="", *, now):
        page = self.pages.get((url, key))
        if page is None or page.state == "leased":
            return False
        del self.pages[url, key]
        self.return_links(page.host, now)
        return True

    def set_priority(self, url, priority, key="", *, now):
        page = self.pages.get((url, key))
        if page is None or page.state not in ("queued", "overflow"):
            return False
        page.link, page.moved, page.state = replace(page.link, priority=priority), True, "queued"
        self.return_links(page.host, now)
        return True
