"""What goes into Redis and comes out of it: the forms that lua/lib.lua calls LINK, RECORD and HOST."""

from __future__ import annotations

from typing import Annotated

import msgspec

from shoal.frontier.base import check_priority
from shoal.model import HostRecord, Lease, Limits, Link, Outcome, PageRecord, State
from shoal.urls import DEFAULT, Spelling, fingerprint, host_key, normalize


def inbox_link(entry: bytes, spelling: Spelling = DEFAULT) -> Link:
    """A link that any program pushed: a URL, or a JSON object with url, priority, depth, meta.

    Raises ValueError with the reason why it is none.
    """
    text = entry.strip()
    if not text.startswith(b"{"):
        text = msgspec.json.encode({"url": text.decode()})
    given = msgspec.json.decode(text, type=_Pushed)
    url = normalize(given.url, None, spelling)
    if url is None:
        raise ValueError("not an http(s) URL")
    return Link(url=url, priority=given.priority, depth=given.depth, meta=given.meta)


class _Pushed(msgspec.Struct, forbid_unknown_fields=True):
    url: str
    priority: Annotated[int, msgspec.Meta(ge=0, le=9)] = 0
    depth: Annotated[int, msgspec.Meta(ge=0)] = 0
    meta: dict[str, object] | None = None


class StoredLink(msgspec.Struct, array_like=True):
    """A LINK of lib.lua."""

    place: str
    depth: int
    attempts: int
    losses: int
    added_at: float
    key: str | None = ""
    more: str | None = None

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


def place_of(url: str, key: str) -> tuple[str, str, str, str]:
    """How scripts are told of a URL: fingerprint, host, short URL, key."""
    host = host_key(url)
    return str(fingerprint(url, key)), host, _short(url, host), key


def pack_link(link: Link) -> tuple[object, ...]:
    """A new link for `add` in lib.lua."""
    check_priority(link.priority, link.url)
    mark, host, short, key = place_of(link.url, link.key)
    packed = (mark, host, link.priority, link.depth, link.delay_s, short)
    if not (key or link.via or link.meta):
        return packed
    more = {"via": link.via, "cookie": link.cookie, "meta": link.meta}
    return (*packed, key, msgspec.json.encode(more).decode())


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
        outcome.pause_s,
        len(outcome.items),
    )


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
    )


def read_host(name: str, packed: bytes, limits: Limits, now: float) -> HostRecord:
    """A HOST."""
    host = msgspec.msgpack.decode(packed, type=StoredHost)
    return HostRecord(
        host=name,
        queued=host.queued,
        leased=host.leased,
        done=host.done,
        delay_s=max(limits.delay_s, host.crawl_delay_s),
        due_at=host.due_at if host.due_at > now else None,
        paused_until=host.paused_until if host.paused_until > now else None,
        latency_s=host.latency_s,
    )
