"""The values that travel the path of a page, in the order in which they appear on it.

    Link -> (frontier) -> Lease -> (fetch) -> Response | Failure -> (handlers) -> Outcome -> (frontier)

All of them are frozen. Times are seconds; a field in seconds ends in `_s`, in bytes in `_bytes`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias

from msgspec import Struct

PRIORITIES = range(10)
"""Priorities: 0..9, the higher the sooner, on every back end."""

State: TypeAlias = Literal["queued", "leased", "done", "dead", "skipped"]
"""Where a known URL stands. A queued one whose time has not come yet is also called delayed."""

Item: TypeAlias = Mapping[str, object]
"""One extracted row: names to values that JSON, or `shoal.store.encode`, can write."""


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
    """The URLs whose redirects led here, first one first; they count against the redirect limit."""
    cookie: bool = False
    """Whether one of these redirects set a cookie: then coming back to a URL of them is no loop."""
    meta: Mapping[str, object] | None = None
    """The user's own data (what JSON can hold); handlers find it as `page.meta`."""
    delay_s: float = 0.0
    """Not to be fetched earlier than this many seconds after it was added."""


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


class Failure(Struct, frozen=True):
    """A fetch that brought no response. Expected, so it is a value and not an exception."""

    kind: FailureKind
    detail: str
    """One line for people: what happened, with the library's own words."""
    elapsed_s: float = 0.0
    pause_s: float = 0.0
    """The server asked for its host to be left alone this long."""


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
    pause_s: float = 0.0
    """The server asked for its host to be left alone this long (Retry-After)."""
    links: tuple[Link, ...] = ()
    items: tuple[Item, ...] = ()


class Limits(Struct, frozen=True):
    """What the frontier itself enforces, whoever leases. None means no limit."""

    max_pages: int | None = None
    max_pages_per_host: int | None = None
    max_depth: int | None = None
    max_queued: int | None = None
    """`add` waits while this many are queued; links found by pages are never refused."""
    max_losses: int = 5
    """A page whose worker died this often while holding it becomes a dead letter (a poison page)."""
    per_host: int = 8
    """Fetches of one host at once; a host with a delay gets one at a time."""
    delay_s: float = 0.0
    """Least time between the starts of two fetches of a host; robots.txt can only raise it."""


class Stats(Struct, frozen=True):
    """Counters of one crawl: they change in the same step as the state they count."""

    queued: int = 0
    """All that wait, delayed ones included."""
    delayed: int = 0
    """Queued, but not before a time to come."""
    retrying: int = 0
    """Queued, with at least one attempt that failed."""
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
    losses: int = 0
    """Leases that ran out or whose worker died."""
    oldest_s: float = 0.0
    """How long ago the oldest queued link was found, to the minute."""
    producers: int = 0
    paused: bool = False
    finished: bool = False

    @property
    def seen(self) -> int:
        """All URLs known."""
        return self.queued + self.leased + self.done + self.dead + self.skipped


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


class HostRecord(Struct, frozen=True):
    """What the frontier knows of one host."""

    host: str
    queued: int
    leased: int
    done: int
    delay_s: float
    due_at: float | None
    """When it may be fetched from again, if it has to wait."""
    paused_until: float | None
    latency_s: float
    """A moving average of `elapsed_s`."""


class Beat(Struct, frozen=True):
    """What a worker says of itself, again and again."""

    name: str
    concurrency: int
    since: float
    """When it started (seconds since 1970)."""
    pages_per_s: float


class WorkerRecord(Struct, frozen=True):
    """What the frontier knows of one worker."""

    name: str
    leases: int
    alive: bool
    """It was heard of lately. One that holds leases without being alive will lose them."""
    concurrency: int = 0
    since: float | None = None
    pages_per_s: float = 0.0
