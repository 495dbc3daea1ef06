"""The state of a crawl outside of any back end: what `shoal migrate` carries from one to another."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, NamedTuple, TypeVar

from msgspec import Struct

from shoal.caution import Caution
from shoal.model import Limits, Link, Minute, State, Survey, Visit

Value = TypeVar("Value")


class CrawlState(Struct, frozen=True):
    """The crawl as a whole."""

    description: Mapping[str, Any]
    limits: Limits
    paused: bool
    positions: Mapping[str, int]
    items: int
    size_bytes: int
    fetches: int
    losses: int
    retries: int = 0
    elapsed_s: float = 0.0
    history: tuple[Minute, ...] = ()
    token: int = 0
    """The last one given: those of stores go on growing."""


class HostState(Struct, frozen=True):
    """One host. How many of its links are queued follows from the pages."""

    host: str
    done: int
    known: bool
    crawl_delay_s: float
    started_at: float | None
    paused_until: float
    latency_s: float
    caution: Caution | None = None
    """None: it is well."""
    cuts: Mapping[str, int] = {}
    """How many of its links each trap rule has cut."""
    shapes: Mapping[int, int] = {}
    """How many links of each shape it has had."""
    set_delay_s: float | None = None
    error_rate: float = 0.0


class PageState(Struct, frozen=True):
    """One URL. A leased one is carried as queued: its lease ends with the move."""

    fingerprint: int
    state: State
    link: Link | None = None
    """None if the back end keeps no more of it than that it is done."""
    fresh: bool = True
    attempts: int = 0
    losses: int = 0
    not_before: float | None = None
    added_at: float = 0.0
    finished_at: float | None = None
    status: int = 0
    reason: str = ""
    error: str = ""
    visit: Visit | None = None


class Snapshot(NamedTuple):
    """All of it, in the order in which it is loaded."""

    crawl: CrawlState
    names: Iterable[tuple[str, str]] = ()
    """Names of hosts and their host keys, if politeness is by address."""
    hosts: Iterable[HostState] = ()
    pages: Iterable[PageState] = ()
    contents: Iterable[tuple[int, str]] = ()
    """Digests of contents, and which URL had each first."""
    surveys: Iterable[Survey] = ()
    """What a report is to know of pages."""


def chunked(values: Iterable[Value], size: int) -> Iterator[list[Value]]:
    """Lists of up to `size` values."""
    left = iter(values)
    while chunk := list(islice(left, size)):
        yield chunk
