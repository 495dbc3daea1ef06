"""What goes into Redis and comes out of it: the forms that lua/lib.lua calls LINK, RECORD and HOST."""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter, itemgetter
from typing import Any

import msgspec
from msgspec.structs import astuple

from shoal import caution
from shoal.caution import WELL, Caution
from shoal.frontier.base import check_link
from shoal.frontier.host_keys import HostKey
from shoal.frontier.snapshot import HostState, PageState
from shoal.model import HostOrder, HostRecord, Lease, Limits, Link, Outcome, PageRecord, State, Survey, Visit
from shoal.urls import fingerprint

NEVER = -1e18  # a host from which nothing has been fetched


class StoredLink(msgspec.Struct, array_like=True):
    """A LINK of lib.lua."""

    place: str
    depth: int
    attempts: int
    losses: int
    added_at: float
    key: str | None = ""
    more: str | None = None
    reason: str = ""
    error: str = ""
    status: int = 0
    seen: str | None = None

    def visit(self) -> Visit | None:
        return msgspec.json.decode(self.seen, type=Visit) if self.seen else None

    def link(self, host: str, priority: int) -> Link:
        more = msgspec.json.decode(self.more) if self.more else {}
        return Link(
            url=_url(host, self.place),
            priority=priority,
            depth=self.depth,
            key=self.key or "",
            via=tuple(more.get("via", ())),
            cookie=more.get("cookie", False),
            meta=more.get("meta"),
        )


class StoredPlace(msgspec.Struct, array_like=True):
    """A LINK with its host and priority, and the worker if it is leased."""

    host: str
    priority: int
    link: StoredLink
    worker: str = ""


class StoredRecord(msgspec.Struct, array_like=True):
    """A RECORD of lib.lua."""

    host: str
    priority: int
    link: StoredLink
    ended_at: float
    reason: str
    error: str
    status: int


class StoredHost(msgspec.Struct, array_like=True):
    """A HOST of lib.lua."""

    queued: int
    leased: int
    done: int
    known: int
    crawl_delay_s: float
    started_at: float
    paused_until: float
    latency_s: float
    head: int
    due_at: float
    turn: int
    held: int
    caution: Caution = WELL
    set_delay_s: float = -1.0
    error_rate: float = 0.0

    def set_delay(self) -> float | None:
        """What somebody has set, if so."""
        return self.set_delay_s if self.set_delay_s >= 0 else None

    def delay_s(self, limits: Limits) -> float:
        """As somebody has set it or as configured, or as robots.txt asks for."""
        wanted_s = self.set_delay_s if self.set_delay_s >= 0 else limits.delay_s
        return max(wanted_s, self.crawl_delay_s)


def _short(url: str, host: str) -> str:
    """A URL without what its host says; whole, if that is not all that is in front of the path."""
    if url.startswith(f"http://{host}"):
        rest = url[7 + len(host) :]
    elif url.startswith(f"https://{host}"):
        rest = "s" + url[8 + len(host) :]
    else:
        rest = ""
    return rest if rest.startswith(("/", "s/")) else url


def _url(host: str, place: str) -> str:
    if place.startswith("/"):
        return f"http://{host}{place}"
    return f"https://{host}{place[1:]}" if place.startswith("s/") else place


def place_of(url: str, key: str, host_key: HostKey) -> tuple[str, str, str, str]:
    """How scripts are told of a URL: fingerprint, host, short URL, key."""
    host = host_key(url)
    return str(fingerprint(url, key)), host, _short(url, host), key


def pack_link(link: Link, host_key: HostKey) -> tuple[object, ...]:
    """A new link for `add` in lib.lua."""
    check_link(link)
    mark, host, short, key = place_of(link.url, link.key, host_key)
    packed: tuple[object, ...] = (mark, host, link.priority, link.depth, link.delay_s, short)
    if key or link.via or link.meta:
        more = {"via": link.via, "cookie": link.cookie, "meta": link.meta}
        packed = (*packed, key, msgspec.json.encode(more).decode())
    return packed


def pack_found_link(link: Link, host_key: HostKey) -> tuple[object, ...]:
    """As `pack_link`, with what traps say of it."""
    packed = pack_link(link, host_key)
    if not (link.trap or link.quotas):
        return packed
    quotas = [(quota.rule, str(quota.shape), quota.most) for quota in link.quotas]
    return (*packed, *(None,) * (8 - len(packed)), link.trap, quotas)


def pack_outcome(outcome: Outcome) -> tuple[object, ...]:
    """An outcome for commit.lua."""
    asked_s = outcome.crawl_delay_s
    return (
        outcome.lease.token,
        outcome.state,
        outcome.reason,
        outcome.error,
        outcome.status,
        outcome.retry_s,
        outcome.age_s,
        outcome.elapsed_s,
        outcome.size_bytes,
        -1 if asked_s is None else asked_s,
        outcome.sign,
        outcome.pause_s,
        outcome.rows_more,
        "" if outcome.visit is None else _pack_visit(outcome.visit),
    )


def pack_survey(survey: Survey) -> tuple[bytes, bytes]:
    """Its field and value."""
    return b"%d" % survey.fingerprint, msgspec.msgpack.encode(survey)


def _pack_visit(visit: Visit) -> str:
    return msgspec.json.encode(visit).decode()


def read_lease(token: int, host: bytes, priority: int, packed: bytes) -> Lease:
    """A lease as lease.lua gives it."""
    found = msgspec.msgpack.decode(packed, type=StoredLink)
    link = found.link(host.decode(), priority)
    return Lease(
        token=token,
        fingerprint=fingerprint(link.url, link.key),
        link=link,
        host=host.decode(),
        attempt=found.attempts + 1,
        losses=found.losses,
        visit=found.visit(),
    )


def read_record(state: State, packed: bytes) -> PageRecord:
    """A RECORD."""
    record = msgspec.msgpack.decode(packed, type=StoredRecord)
    return PageRecord(
        url=_url(record.host, record.link.place),
        state=state,
        priority=record.priority,
        depth=record.link.depth,
        attempts=record.link.attempts,
        losses=record.link.losses,
        host=record.host,
        reason=record.reason,
        error=record.error,
        status=record.status,
        added_at=record.link.added_at,
        finished_at=record.ended_at,
        visit=record.link.visit(),
    )


def stored_record(url: str, host: str, state: State, priority: int, link: StoredLink) -> PageRecord:
    """What a LINK says of a page that is queued or leased."""
    return PageRecord(
        url=url,
        state=state,
        host=host,
        priority=priority,
        depth=link.depth,
        attempts=link.attempts,
        losses=link.losses,
        reason=link.reason,
        error=link.error,
        status=link.status,
        added_at=link.added_at,
        visit=link.visit(),
    )


def read_host(name: str, packed: bytes, limits: Limits, now: float) -> HostRecord:
    """A HOST."""
    host = msgspec.msgpack.decode(packed, type=StoredHost)
    known, delay_s = host.caution, host.delay_s(limits)
    alone = not host.known or delay_s > 0
    return HostRecord(
        host=name,
        queued=host.queued,
        leased=host.leased,
        done=host.done,
        delay_s=_present_delay_s(host, limits),
        due_at=host.due_at if host.due_at > now else None,
        paused_until=host.paused_until if host.paused_until > now else None,
        latency_s=host.latency_s,
        at_once=1 if alone else caution.at_once(known, host.latency_s, limits),
        failures=known.failures,
        given_up=caution.is_given_up(known, host.paused_until, now, limits),
        set_delay_s=host.set_delay(),
        error_rate=host.error_rate,
    )


def _present_delay_s(host: StoredHost, limits: Limits) -> float:
    return max(host.delay_s(limits), caution.delay_s(host.caution, limits))


def host_order(by: HostOrder, limits: Limits, now: float) -> Callable[[tuple[bytes, bytes]], Any]:
    """What hosts are ordered by, of name and HOST: as `read_host` would say, but quickly."""
    decode = msgspec.msgpack.Decoder(StoredHost).decode
    match by:
        case "host":
            return itemgetter(0)
        case "delay_s":
            return lambda item: _present_delay_s(decode(item[1]), limits)
        case "failures":
            return lambda item: decode(item[1]).caution.failures
        case "paused_until":
            return lambda item: max(decode(item[1]).paused_until, now)
        case _:
            value = attrgetter(by)
            return lambda item: value(decode(item[1]))


def read_place(packed: bytes) -> StoredPlace:
    """A member of delayed, or a value of leases."""
    return msgspec.msgpack.decode(packed, type=StoredPlace)


# --- moving to another back end ---------------------------------------------------------------


def host_state(name: str, packed: bytes) -> HostState:
    """A HOST, for `dump`."""
    host = msgspec.msgpack.decode(packed, type=StoredHost)
    return HostState(
        host=name,
        done=host.done,
        known=bool(host.known),
        crawl_delay_s=host.crawl_delay_s,
        started_at=host.started_at if host.started_at > NEVER else None,
        paused_until=host.paused_until,
        latency_s=host.latency_s,
        caution=None if host.caution == WELL else host.caution,
        set_delay_s=host.set_delay(),
        error_rate=host.error_rate,
    )


def pack_host_state(state: HostState) -> tuple[object, ...]:
    """A host for load.lua."""
    return (
        state.host,
        state.done,
        int(state.known),
        state.crawl_delay_s,
        NEVER if state.started_at is None else state.started_at,
        state.paused_until,
        state.latency_s,
        () if state.caution is None else astuple(state.caution),
        -1 if state.set_delay_s is None else state.set_delay_s,
        state.error_rate,
    )


def queued_state(place: StoredPlace, not_before: float | None = None, state: State = "queued") -> PageState:
    """A page that waits, or will once its lease has ended, for `dump`."""
    link = place.link.link(place.host, place.priority)
    return PageState(
        fingerprint=fingerprint(link.url, link.key),
        state=state,
        link=link,
        fresh=not (place.worker or place.link.attempts or place.link.losses),
        attempts=place.link.attempts,
        losses=place.link.losses,
        not_before=not_before,
        added_at=place.link.added_at,
        reason=place.link.reason,
        error=place.link.error,
        status=place.link.status,
        visit=place.link.visit(),
    )


def ended_state(state: State, packed: bytes) -> PageState:
    """A page that has ended and of which there is a record, for `dump`."""
    record = msgspec.msgpack.decode(packed, type=StoredRecord)
    link = record.link.link(record.host, record.priority)
    return PageState(
        fingerprint=fingerprint(link.url, link.key),
        state=state,
        link=link,
        fresh=False,
        attempts=record.link.attempts,
        losses=record.link.losses,
        added_at=record.link.added_at,
        finished_at=record.ended_at,
        status=record.status,
        reason=record.reason,
        error=record.error,
        visit=record.link.visit(),
    )


def pack_page_state(page: PageState, host_key: HostKey) -> tuple[object, ...]:
    """A page for load.lua."""
    if page.link is None or (page.state == "done" and page.visit is None):
        return (str(page.fingerprint),)
    _, host, _, _, _, short, *more = pack_link(page.link, host_key)
    stored = [short, page.link.depth, page.attempts, page.losses, int(page.added_at), *more]
    if page.visit or (page.state == "queued" and page.reason):
        stored.extend(["", ""][len(more) :])
        stored.extend([page.reason, page.error, page.status])
    if page.visit:
        stored.append(_pack_visit(page.visit))
    return (
        str(page.fingerprint),
        page.state,
        host,
        page.link.priority,
        stored,
        int(page.fresh),
        page.not_before or 0,
        page.finished_at or 0,
        page.reason,
        page.error,
        page.status,
    )
