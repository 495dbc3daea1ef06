"""The values that travel the path of a page, in the order in which they appear on it.

    Link -> (frontier) -> Lease -> (fetch) -> Response | Failure -> (handlers) -> Outcome -> (frontier)

All of them are frozen. Times are seconds; a field in seconds ends in `_s`, in bytes in `_bytes`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Literal, TypeAlias

from msgspec import Struct

PRIORITIES = range(10)
MOST_DELAY_S = 100 * 365.25 * 86_400.0  # of a link or a retry
"""Priorities: 0..9, the higher the sooner, on every back end."""

State: TypeAlias = Literal["queued", "overflow", "leased", "done", "dead", "skipped"]
"""Where a known URL stands. A queued one whose time has not come yet is also called delayed; one in the
overflow waits until there is room in the queue."""

Item: TypeAlias = Mapping[str, object]
"""One extracted row: names to values that JSON, or `shoal.store.encode`, can write."""


class Quota(Struct, frozen=True):
    """How many links of one kind a host may have; the frontier counts them for all workers together."""

    rule: str
    """Cuts the links beyond."""
    shape: int
    """The identity of the kind (signed 64 bits)."""
    most: int


SITEMAP = "sitemap"
"""The key of a link that is read as a sitemap or a feed: it lists pages and is none itself."""

SEEN_FIELDS = ("first_seen", "last_seen", "last_changed")
"""Fields that rows have besides their own if their pages are to be revisited."""


class Link(Struct, frozen=True):
    """A URL found, on its way into the frontier."""

    url: str
    """Normalized (`shoal.urls.normalize`): the spelling that is fetched."""
    priority: int = 0
    depth: int = 0
    """Links followed since the seed; a redirect does not count."""
    key: str = ""
    """Sets this link apart from others with the same URL; normally the URL alone is the identity."""
    via: tuple[str, ...] = ()
    """The URLs whose redirects led here, first one first; they count against the redirect limit. Those of a
    sitemap may be sitemaps that list it as well."""
    cookie: bool = False
    """Whether one of these redirects set a cookie: then coming back to a URL of them is no loop."""
    meta: Mapping[str, object] | None = None
    """The user's own data (what JSON can hold); handlers find it as `page.meta`."""
    delay_s: float = 0.0
    """Not to be fetched earlier than this many seconds after it was added."""
    trap: str = ""
    """The rule that cuts it (`shoal.traps`): it becomes known, but is skipped."""
    quotas: tuple[Quota, ...] = ()
    """What it counts towards; a full one cuts it."""


class Visit(Struct, frozen=True, array_like=True):
    """What the last visit found of a page that is to be revisited; it is small, for each of them has one."""

    first_seen: float
    """When it was fetched first, in seconds since 1970."""
    last_seen: float
    """When it was there last."""
    last_changed: float
    """When it was seen to be other than before; `first_seen` if it never was."""
    etag: str = ""
    """The validators (RFC 9110 section 8.8) for a conditional request, as they came; empty: none."""
    last_modified: str = ""
    digest: int = 0
    """Of its content (signed 64 bits); 0: not known."""
    rows_digest: int = 0
    rows: int = 0
    """How many rows it gave."""

    def fields(self) -> dict[str, datetime]:
        """What rows say of it: SEEN_FIELDS, to the second."""
        times = self.first_seen, self.last_seen, self.last_changed
        return {
            name: datetime.fromtimestamp(int(at), UTC) for name, at in zip(SEEN_FIELDS, times, strict=True)
        }


class Survey(Struct, frozen=True, array_like=True):
    """What is kept of a page that has ended, for a report on the crawl, if it asks for that."""

    fingerprint: int
    """The identity of the page (signed 64 bits)."""
    url: str
    status: int
    """The HTTP status, 0 if there was no response."""
    elapsed_s: float
    size_bytes: int
    target: str = ""
    """Where it redirects to."""
    links: tuple[int, ...] = ()
    """The identities of the pages in scope to which it links, or redirects."""


class Lease(Struct, frozen=True):
    """The exclusive, timed right to fetch one link."""

    token: int
    """Fences the lease: unique in its crawl and growing, so it is also the generation of what is stored."""
    fingerprint: int
    """The identity of the page (signed 64 bits)."""
    link: Link
    host: str
    """The host key: the politeness group that the link belongs to."""
    attempt: int
    """1 on the first try: one more than the attempts that were committed."""
    losses: int = 0
    """How often a lease of this page was lost, as when its worker was killed."""
    visit: Visit | None = None
    """What its last visit found, if this is another one."""


class Grant(Struct, frozen=True):
    """The answer to `Frontier.lease`."""

    leases: tuple[Lease, ...]
    """What may start right now, best first."""
    again_s: float | None
    """When to ask again if nothing else happens: by then, at the latest, time alone may have brought work
    (a delay or a lease ran out) or the end; 0 if more may start now. None: never by time alone."""
    finished: bool
    """Nothing is leased, nothing may be leased any more, and no producer is open."""


FailureKind: TypeAlias = Literal[
    "blocked",  # an address that the rules forbid; nothing was sent
    "dns",
    "refused",
    "reset",
    "tls",
    "timeout",
    "truncated",  # the body ended early
    "protocol",  # not HTTP, or broken HTTP
    "decoding",  # the content coding is broken or unknown
    "too_large",
    "robots",  # robots.txt could not be read, so nothing else may be
]


Sign: TypeAlias = Literal["", "fine", "busy", "failing"]
"""What an attempt tells about its host: nothing, that it answers, that it is asked too often, that it does
not answer or is in trouble. See `shoal.caution`."""


class Failure(Struct, frozen=True):
    """A fetch that brought no response. Expected, so it is a value and not an exception."""

    kind: FailureKind
    detail: str
    """One line for people: what happened, with the library's own words."""
    elapsed_s: float = 0.0
    busy: bool = False
    """The server said that its host is asked too often."""
    pause_s: float = 0.0
    """The server asked for its host to be left alone this long."""


class Capture(Struct, frozen=True):
    """A request and its response as they went over the line, for an archive."""

    at: float
    """When the request was sent, in seconds since 1970."""
    request: bytes
    """Its head, without headers that may hold a secret."""
    head: bytes
    """Status line and headers of the response, with the empty line."""
    body: bytes
    """As received: content codings are on it, transfer codings are off."""


class Response(Struct, frozen=True):
    """What a server answered: one hop, content codings removed, redirects not followed."""

    url: str
    status: int
    headers: tuple[tuple[str, str], ...]
    """Names in lower case, in the order received; bytes outside ASCII are latin-1 code points."""
    body: bytes
    elapsed_s: float = 0.0
    """From the request until the last byte."""
    replayed: bool = False
    """It comes from a cache: nobody was asked, so no host has to be left alone for it."""
    capture: Capture | None = None
    """If it is to be archived, and was read to its end."""

    def header(self, name: str) -> str | None:
        """The first header of that name (in lower case), or None."""
        return next((value for key, value in self.headers if key == name), None)


class Outcome(Struct, frozen=True):
    """How one lease ended: applied by `Frontier.commit` in one step, together with its links."""

    lease: Lease
    state: State
    """"done", "dead" or "skipped"; "queued" asks for another attempt after `retry_s`."""
    reason: str = ""
    """Why it is dead, skipped or tried again, in a few words that can be grouped ("HTTP 503", "timeout")."""
    error: str = ""
    """The details: the message, or the traceback of a handler."""
    retry_s: float = 0.0
    status: int = 0
    """The HTTP status, 0 if there was no response."""
    size_bytes: int = 0
    elapsed_s: float = 0.0
    age_s: float = 0.0
    """How long ago the request was sent, when `commit` is called: the host's clock starts there. Long before
    the lease, if its host was not asked at all."""
    crawl_delay_s: float | None = None
    """What robots.txt asks for between two fetches of this host, if it was read."""
    sign: Sign = ""
    """What this attempt tells about its host."""
    pause_s: float = 0.0
    """The server asked for its host to be left alone this long (Retry-After)."""
    links: tuple[Link, ...] = ()
    items: tuple[Item, ...] = ()
    digest: int | None = None
    """The identity of the content, if pages with the same one are to be told apart from it (`duplicates`)."""
    visit: Visit | None = None
    """What this visit found, if the page is to be revisited. None leaves what is known of it as it is."""
    unchanged: bool = False
    """The page is as its last visit found it: its rows stay, and were only seen again."""
    survey: Survey | None = None
    """What a report is to know of the page. None leaves what is known of it as it is."""
    capture: Capture | None = None
    """What is to be archived of it."""

    @property
    def keeps_rows(self) -> bool:
        """Whether the rows of earlier visits stay: nothing has changed, or nothing came of this visit."""
        failed = self.visit is None and self.state != "done"
        return self.unchanged or (failed and self.lease.visit is not None)

    def rows(self) -> Sequence[Item]:
        """What a store is to write: the items, with what they say of their visits; none if rows stay."""
        if self.keeps_rows:
            return ()
        return self.items if self.visit is None else [{**item, **self.visit.fields()} for item in self.items]

    @property
    def rows_more(self) -> int:
        """How many more rows the page has than after its last visit."""
        if self.keeps_rows:
            return 0
        return len(self.items) - (self.lease.visit.rows if self.lease.visit else 0)


Politeness: TypeAlias = Literal["host", "domain", "address"]
"""What politeness is about: host and port, the registrable domain with all that is below it, or the IP
address with all names that lead to it."""


class Limits(Struct, frozen=True):
    """What the frontier itself enforces, whoever leases. None means no limit."""

    max_pages: int | None = None
    max_pages_per_host: int | None = None
    max_depth: int | None = None
    max_queued: int | None = None
    """Links found by pages go to the overflow, and producers wait, while this many are queued."""
    max_losses: int = 5
    """A page whose worker died this often while holding it becomes a dead letter (a poison page)."""
    per_host: int = 8
    """Fetches of one host at once; a host with a delay gets one at a time."""
    delay_s: float = 0.0
    """Least time between the starts of two fetches of a host; robots.txt can only raise it."""
    adapt: bool = True
    """Ask less of hosts that are slow, busy or failing: fewer fetches at once, and further apart."""
    host_pause_s: float = 5.0
    """The first pause of a host that is busy or down; it doubles each time."""
    host_give_up: int = 8
    """After so many troubles in a row all queued links of a host become dead letters; 0: never."""
    politeness: Politeness = "host"
    """What the host keys are; it cannot be changed once links have been added."""


class Stats(Struct, frozen=True):
    """Counters of one crawl: they change in the same step as the state they count."""

    queued: int = 0
    """All that wait, delayed ones included."""
    delayed: int = 0
    """Queued, but not before a time to come."""
    retrying: int = 0
    """Queued, with at least one attempt that failed."""
    overflow: int = 0
    """Found while `max_queued` were queued: they return when there is room."""
    leased: int = 0
    done: int = 0
    dead: int = 0
    skipped: int = 0
    by_priority: tuple[int, ...] = (0,) * 10
    """Queued, by priority 0..9."""
    hosts: int = 0
    ready_hosts: int = 0
    """Hosts that would give a lease now."""
    items: int = 0
    size_bytes: int = 0
    fetches: int = 0
    """Attempts that came to an end, failed ones included."""
    retries: int = 0
    """Attempts that failed and were followed by another one, or will be."""
    losses: int = 0
    """Leases that ran out or whose worker died."""
    elapsed_s: float = 0.0
    """That all fetches took together, to the millisecond."""
    oldest_s: float = 0.0
    """How long ago the oldest queued link was found, up to a minute less."""
    producers: int = 0
    paused: bool = False
    finished: bool = False

    @property
    def seen(self) -> int:
        """All URLs known."""
        return self.queued + self.overflow + self.leased + self.done + self.dead + self.skipped


class Minute(Struct, frozen=True):
    """What happened in one minute of a crawl: by how much its counters grew, as in `Stats`."""

    at: float
    """When it began, in seconds since 1970."""
    done: int = 0
    dead: int = 0
    skipped: int = 0
    fetches: int = 0
    retries: int = 0
    losses: int = 0
    found: int = 0
    """URLs that became known."""
    items: int = 0
    size_bytes: int = 0
    elapsed_s: float = 0.0


class PageRecord(Struct, frozen=True):
    """What the frontier knows of one URL (`why`, `dead`). A back end may keep less of pages that are done."""

    url: str
    state: State
    priority: int = 0
    depth: int = 0
    attempts: int = 0
    losses: int = 0
    host: str = ""
    reason: str = ""
    error: str = ""
    status: int = 0
    parent: str = ""
    """The page that it was found on first; empty for a seed."""
    added_at: float | None = None
    finished_at: float | None = None
    not_before: float | None = None
    worker: str = ""
    """Who holds the lease, if it is leased."""
    deadline: float | None = None
    visit: Visit | None = None
    """What its last visit found, if it is to be revisited."""


class HostRecord(Struct, frozen=True):
    """What the frontier knows of one host."""

    host: str
    queued: int
    leased: int
    done: int
    delay_s: float
    """Between the starts of two fetches, for the time being."""
    due_at: float | None
    """When it may be fetched from again, if it has to wait."""
    paused_until: float | None
    latency_s: float
    """A moving average of `elapsed_s`."""
    at_once: int
    """How many of its links may be fetched at once, for the time being."""
    failures: int
    """Troubles in a row; 0 if the last attempt was fine."""
    given_up: bool
    """Its links become dead letters, until its pause is over."""
    set_delay_s: float | None = None
    """What somebody has set (`set_delay`); None: it has the delay of `Limits`."""
    error_rate: float = 0.0
    """The share of its attempts that failed: a moving average over the last ten or so."""


HostOrder: TypeAlias = Literal[
    "host", "queued", "leased", "done", "delay_s", "paused_until", "latency_s", "error_rate", "failures"
]
"""What `Frontier.hosts` can be ordered by: a field of HostRecord."""


class Beat(Struct, frozen=True):
    """What a worker says of itself, again and again."""

    name: str
    concurrency: int
    since: float
    """When it started (seconds since 1970)."""
    pages_per_s: float
    bytes_in_flight: int = 0
    """In bodies that are read, handled or wait to be stored."""
    lag_s: float = 0.0
    """How late the event loop was at worst since the last beat: what blocks it blocks all fetches."""
    settle_s: float = 0.0
    """How long storing and committing a batch of pages takes, on average."""
    trouble: str = ""
    """Why nothing can be stored or committed for the time being."""


class WorkerRecord(Struct, frozen=True):
    """What the frontier knows of one worker."""

    name: str
    leases: int
    alive: bool
    """It was heard of lately. One that holds leases without being alive will lose them."""
    until: float | None = None
    """When it is no longer taken for alive, unless it is heard of again."""
    concurrency: int = 0
    since: float | None = None
    pages_per_s: float = 0.0
    bytes_in_flight: int = 0
    lag_s: float = 0.0
    settle_s: float = 0.0
    trouble: str = ""
