"""The shared frontier: Redis 6.2 or later, or Valkey, without modules; any number of workers and machines.

Every verb is one Lua script (lua/*.lua; lua/lib.lua describes the keys), so it happens at once or not at
all, by Redis's own clock. All keys of a crawl share one hash tag: `shoal:{NAME}:...`.

What Redis keeps of a page is small: a queued one costs little more than its URL, and of a page that is
done nothing is left but its fingerprint in the seen set, unless it is to be revisited.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from heapq import nlargest, nsmallest
from itertools import chain, product
from math import inf
from typing import Any, Literal, TypeVar

import msgspec
from msgspec.structs import astuple, replace

from shoal.errors import ConfigError, FrontierError, FrontierUnavailable
from shoal.frontier.base import Frontier, Sift, check_priority, worker_records
from shoal.frontier.history import MINUTES, in_ms, pack_minute, read_minute, window
from shoal.frontier.host_keys import ByAddress, HostKey
from shoal.frontier.redis_server import Bell, Server, escaped
from shoal.frontier.redis_values import (
    StoredLink,
    StoredPlace,
    ended_state,
    host_order,
    host_state,
    pack_found_link,
    pack_host_state,
    pack_link,
    pack_outcome,
    pack_page_state,
    pack_survey,
    place_of,
    queued_state,
    read_host,
    read_lease,
    read_place,
    read_record,
    stored_record,
)
from shoal.frontier.seen import SeenCache
from shoal.frontier.snapshot import CrawlState, HostState, PageState, Snapshot, chunked
from shoal.intake import read_link, spelling_of
from shoal.lookup import Lookups
from shoal.model import (
    PRIORITIES,
    Beat,
    Grant,
    HostOrder,
    HostRecord,
    Item,
    Lease,
    Limits,
    Link,
    Minute,
    Outcome,
    PageRecord,
    State,
    Stats,
    Survey,
    WorkerRecord,
)
from shoal.place import shown
from shoal.scope import HOST_KEYS
from shoal.urls import fingerprint, without_credentials

SCHEMA_VERSION = 1
HOSTS_CHUNK = 5_000  # the same for what is passed over in Redis at less cost
CHUNK = 200  # of a list that is worked through in steps: each blocks Redis for 2 or 3 ms
FULL_S = 1.0  # how often to ask whether Redis has memory again
MOST_REJECT_BYTES = 1_000
SEEN_CAPACITY = 131_072

Key = TypeVar("Key")
log = logging.getLogger("shoal.frontier")

ENDED: tuple[State, ...] = ("dead", "skipped", "done")
_WAITING: dict[str, State] = {"o": "overflow", "q": "queued"}  # which way links go
_COUNTERS = (
    "queued",
    "delayed",
    "retrying",
    "overflow",
    "leased",
    "done",
    "dead",
    "skipped",
    "hosts",
    "items",
    "size_bytes",
    "fetches",
    "retries",
    "losses",
)
_MOVED = ("items", "size_bytes", "fetches", "retries", "losses")


class RedisFrontier(Frontier):
    """See `shoal.frontier.base.Frontier`.

    Of a page that is done, and is not to be revisited, `why` knows the state and no more.
    """

    remembers_done = False

    def __init__(self, url: str, crawl: str, *, create: bool = True) -> None:
        """Raises ConfigError (no such crawl, bad URL), FrontierError, FrontierUnavailable."""
        self.crawl = crawl
        self._server = Server(url, trouble=self._distrust)
        self._redis = self._server.client
        self._bell = Bell(url)
        self._base = f"{self._server.prefix}:{{{crawl}}}"
        self._seen = SeenCache(SEEN_CAPACITY)
        self._epoch = "0"
        self._worker = ""
        self._held: set[int] = set()  # tokens that were given to us and have not come to their end
        self._in_doubt = False  # whether Redis may hold other leases for us than these
        self._full = False
        self._positions: dict[str, int] = {}  # as they were read last
        self._host_key: HostKey | None = None  # not looked up yet
        self.lookups = Lookups()
        self._by_address = ByAddress(self._recall_hosts, self._introduce_hosts, self.lookups)
        try:
            self._server.check()
            self._check_crawl(create)
        except BaseException:
            self.close()
            raise

    def _check_crawl(self, create: bool) -> None:
        if not create and self._get("version") is None:
            known = ", ".join(f"'{name}'" for name in self._server.names()) or "none"
            raise ConfigError(f"{shown(self._server.url)} has no crawl '{self.crawl}': it has {known}")
        with self._server.translated():
            self._redis.hsetnx(self._key("crawl"), "version", SCHEMA_VERSION)
        version = int(self._get("version") or 0)
        if version > SCHEMA_VERSION:
            raise FrontierError(
                f"the crawl '{self.crawl}' was written by a newer shoal (format {version}): upgrade shoal"
            )

    # --- what a worker needs -------------------------------------------------------------

    def add(self, links: Iterable[Link], *, now: float | None = None) -> int:
        links = list(links)
        host_key = self._key_of_new(links)
        packed = [pack_found_link(link, host_key) for link in links]
        return sum(int(self._call("add", chunk, [], now=now)) for chunk in _chunks(packed))

    def lease(self, limit: int, seconds: float, *, worker: str, now: float | None = None) -> Grant:
        self._worker = worker
        held = sorted(self._held) if self._in_doubt else False
        self._in_doubt = True  # until we know all that was given to us
        leases: list[Lease] = []
        drained = False  # or tried to
        while True:
            most = min(limit - len(leases), CHUNK)
            given, again, finished, epoch, inbox = self._call("lease", most, seconds, worker, held, now=now)
            leases += [read_lease(*given[at : at + 4]) for at in range(0, len(given), 4)]
            held = False
            if inbox and not drained:
                drained = True
                if not self._is_nearly_full():
                    self._drain_inbox(now)
            elif len(given) < 4 * most or len(leases) == limit:
                break
        self._held.update(lease.token for lease in leases)
        self._in_doubt = False
        self._keep_up(epoch.decode())
        again_s = float(again) if again else None
        if again_s == 0 and drained and self._full:
            again_s = FULL_S  # what is in the inbox has to wait
        return Grant(leases=tuple(leases), again_s=again_s, finished=bool(finished))

    def commit(
        self,
        outcomes: Sequence[Outcome],
        *,
        positions: Sequence[tuple[str, int]] = (),
        sift: Sift | None = None,
        now: float | None = None,
    ) -> frozenset[int]:
        packed = [pack_outcome(outcome) for outcome in outcomes]
        surveys = [pack_survey(outcome.survey) for outcome in outcomes if outcome.survey is not None]
        while True:
            found: dict[tuple[int, int], Link] = {}  # one that is too deep may come again less deep
            for link in self._seen.unknown(link for outcome in outcomes for link in outcome.links):
                found.setdefault((fingerprint(link.url, link.key), link.depth), link)
            host_key = self._key_of_new(found.values())
            new = [pack_found_link(sift(link) if sift else link, host_key) for link in found.values()]
            answer, *rest = self._send_commit(packed, new, surveys, positions, now)
            if answer == b"epoch":
                self._keep_up(rest[0].decode())
                continue
            if answer == b"moved":
                self._distrust()
                raise FrontierUnavailable(f"{shown(self._server.url)} went back to an earlier moment")
            if answer == b"lost":
                lost = frozenset(map(int, rest))
                self._held -= lost
                return lost
            self._held.difference_update(outcome.lease.token for outcome in outcomes)
            deepest, dropped = int(rest[0]) if rest[0] != b"" else None, set(map(int, rest[1:]))
            self._seen.learn(
                link
                for (mark, depth), link in found.items()
                if (deepest is None or depth <= deepest) and mark not in dropped
            )
            return frozenset()

    def _send_commit(
        self,
        outcomes: list[Any],
        links: list[Any],
        surveys: list[tuple[bytes, bytes]],
        positions: Sequence[tuple[str, int]],
        now: float | None,
    ) -> Any:
        """In one step; but a great many links are sent ahead in parts, while the leases are held."""
        moved = [(store, length, self._positions.get(store, "")) for store, length in positions]
        *ahead, last = list(chunked(links, CHUNK)) or [[]]
        for part in ahead:
            answer = self._call("commit", outcomes, part, moved, self._epoch, False, now=now)
            if answer[0] != b"ok":
                return answer
        more = tuple(chain.from_iterable(surveys))
        return self._call("commit", outcomes, last, moved, self._epoch, True, more=more, now=now)

    def _keep_up(self, epoch: str) -> None:
        """Trust the seen cache no longer than nothing was forgotten."""
        if epoch != self._epoch:
            self._seen.clear()
            self._by_address.forget()
            self._epoch = epoch

    def _distrust(self) -> None:
        """An answer is missing, or Redis has gone back to an earlier moment: what it told may not hold."""
        self._seen.clear()
        self._by_address.forget()
        self._in_doubt = True
        self._bell.reset()

    def revisit(self, seconds: float, *, now: float | None = None) -> int:
        return int(self._call("revisit", seconds, now=now))

    def extend(self, tokens: Collection[int], seconds: float, *, now: float | None = None) -> frozenset[int]:
        lost = frozenset(map(int, self._call("extend", list(tokens), seconds, now=now)))
        self._held -= lost
        return lost

    def release(self, tokens: Collection[int], *, now: float | None = None) -> None:
        self._call("release", list(tokens), now=now)
        self._held.difference_update(tokens)

    def reap(self, worker: str, *, now: float | None = None) -> int:
        return int(self._call("reap", worker, now=now))

    def pause_host(self, host: str, seconds: float, *, now: float | None = None) -> None:
        self._call("pause_host", host, seconds, now=now)

    def set_delay(self, host: str, delay_s: float | None) -> None:
        self._call("set_delay", host, -1 if delay_s is None else delay_s)

    def stats(self, *, now: float | None = None) -> Stats:
        fields, ready_hosts, producers, finished, oldest_s = self._call("stats", now=now)
        crawl = {name.decode(): value for name, value in zip(fields[::2], fields[1::2], strict=True)}

        def number(name: str) -> int:
            return int(crawl.get(name, 0))

        return Stats(
            **{name: number(name) for name in _COUNTERS},
            by_priority=tuple(number(f"priority_{priority}") for priority in range(10)),
            ready_hosts=ready_hosts,
            elapsed_s=number("elapsed_ms") / 1000,
            oldest_s=float(oldest_s),
            producers=producers,
            paused=bool(number("paused")),
            finished=bool(finished),
        )

    def close(self) -> None:
        self._bell.close()
        self._server.close()
        self.lookups.close()

    def wait(self, seconds: float) -> None:
        self._bell.wait(self._key(f"wake:{self._worker}"), self._key("inbox"), seconds)

    def wake(self) -> None:
        self._bell.ring()

    # --- the open door --------------------------------------------------------------------

    def _drain_inbox(self, now: float | None) -> None:
        """Take what other programs have pushed, or a part of it. Another worker may do the same just now."""
        with self._server.translated():
            entries = self._redis.lrange(self._key("inbox"), -CHUNK, -1)[::-1]
        spelling = spelling_of(self.describe())
        links, rejects = [], []
        for number, entry in enumerate(entries):
            try:
                links.append(read_link(entry, spelling))
            except ValueError as error:
                text = entry[:MOST_REJECT_BYTES].decode(errors="backslashreplace")
                rejects.append((number, f"{error}: {without_credentials(text)}"))
        host_key = self._key_of_new(links)
        self._call("add", [pack_link(link, host_key) for link in links], rejects, more=entries, now=now)

    def _is_nearly_full(self) -> bool:
        """Whether nothing new may come in from outside, for want of memory. Links of pages always may."""
        full = self._server.is_nearly_full()
        if full and not self._full:
            log.warning("%s is nearly full: nothing is added until there is room", shown(self._server.url))
        self._full = full
        return full

    # --- the crawl ------------------------------------------------------------------------

    @property
    def limits(self) -> Limits:
        packed = self._get("limits")
        return msgspec.msgpack.decode(packed, type=Limits) if packed else Limits()

    def _key_of_new(self, links: Iterable[Link]) -> HostKey:
        """What gives these links, which may be new, their host keys."""
        host_key = self._key_of_hosts(())
        if host_key == self._by_address.of:
            self._by_address.meet(link.url for link in links)
        return host_key

    def _key_of_hosts(self, urls: Iterable[str]) -> HostKey:
        """What gives a URL its host key. Looked up once: it stays as it is while the crawl has links."""
        if self._host_key is None:
            self._host_key = self._key_by(self.limits)
        if self._host_key == self._by_address.of:
            self._by_address.recall(urls)
        return self._host_key

    def _key_by(self, limits: Limits) -> HostKey:
        return HOST_KEYS.get(limits.politeness, self._by_address.of)

    def _recall_hosts(self, names: Set[str]) -> Mapping[str, str]:
        asked = list(names)
        with self._server.translated():
            known = self._redis.hmget(self._key("names"), asked)
        return {name: key.decode() for name, key in zip(asked, known, strict=True) if key is not None}

    def _introduce_hosts(self, keys: Mapping[str, str]) -> Mapping[str, str]:
        with self._server.translated(), self._redis.pipeline(transaction=False) as at_once:
            for name, key in keys.items():
                at_once.hsetnx(self._key("names"), name, key)
            at_once.execute()
        return self._recall_hosts(keys.keys())

    def configure(self, limits: Limits) -> None:
        self._host_key = self._key_by(limits)
        if limits == self.limits and not self._get("unsettled"):
            return
        given = {name: value for name, value in msgspec.structs.asdict(limits).items() if value is not None}
        self._call("configure", given, [], False)
        for hosts in _chunks(list(self._all_hosts())):
            self._call("configure", False, hosts, False)
        self._call("configure", False, [], True)

    def describe(self, description: Mapping[str, object] | None = None) -> Mapping[str, object]:
        if description is not None:
            with self._server.translated():
                self._redis.hset(self._key("crawl"), "description", msgspec.json.encode(description))
        return msgspec.json.decode(self._get("description") or b"{}", type=dict[str, object])

    def position(self, store: str) -> int | None:
        with self._server.translated():
            length = self._redis.hget(self._key("positions"), store)
        if length is None:
            self._positions.pop(store, None)
            return None
        self._positions[store] = int(length)
        return self._positions[store]

    def open_producer(self, name: str, seconds: float, *, now: float | None = None) -> bool:
        return bool(self._call("open_producer", name, seconds, now=now)) and not self._is_nearly_full()

    def close_producer(self, name: str) -> None:
        self._call("close_producer", name)

    def pause(self) -> None:
        self._call("pause", 1)

    def resume(self) -> None:
        self._call("pause", 0)

    def purge(self) -> None:
        """Not in one step: it goes through the keys. Tokens go on growing, so old leases stay refused."""
        crawl = self._key("crawl")
        self._positions.clear()
        self._host_key = None
        self._by_address.forget()
        with self._server.translated():
            self._redis.hset(crawl, "paused", 1)
            self._redis.unlink(self._key("leases"), self._key("deadlines"))
            for key in self._redis.scan_iter(f"{escaped(self._base)}:*", count=1000):
                if key != crawl.encode():
                    self._redis.unlink(key)
            epoch, token = self._redis.hmget(crawl, "epoch", "token")
            fields = {"version": SCHEMA_VERSION, "epoch": int(epoch or 0) + 1, "token": int(token or 0)}
            with self._redis.pipeline() as at_once:
                at_once.delete(crawl).hset(crawl, mapping=fields).execute()

    # --- for people -----------------------------------------------------------------------

    def why(self, url: str, key: str = "") -> PageRecord | None:
        found = self._find(url, key)
        if (
            found is not None and found.state == "done" and not found.visit
        ):  # or queued; looking takes a while
            return self._find_queued(url, key) or self._find(url, key)
        return found

    def _find(self, url: str, key: str) -> PageRecord | None:
        """What is known of it; "done" if only its queue can say whether it is queued."""
        place = place_of(url, key, self._key_of_hosts([url]))
        reply = self._call("find", *place)
        if not reply:
            return None
        state, *known = reply
        if state == b"seen":
            return PageRecord(url=url, state="done", host=place[1])
        if state == b"leased":
            priority, link, worker, deadline = known
            stored = msgspec.msgpack.decode(link, type=StoredLink)
            record = stored_record(url, place[1], "leased", priority, stored)
            return replace(record, worker=worker.decode(), deadline=float(deadline))
        return read_record(state.decode(), *known)

    def _find_queued(self, url: str, key: str) -> PageRecord | None:
        """Look through the queues of its host, part by part."""
        _, host, short, _ = place_of(url, key, self._key_of_hosts([url]))
        for priority, (kind, state) in product(self._waiting(host), _WAITING.items()):
            for packed in self._from_tail(self._key(f"{kind}:{priority}:{host}")):
                if short.encode() in packed:
                    link = msgspec.msgpack.decode(packed, type=StoredLink)
                    if (link.place, link.key or "") == (short, key):
                        return stored_record(url, host, state, priority, link)
        with self._server.translated():
            match = f"*{escaped(short)}*"
            for packed, due_at in self._redis.zscan_iter(self._key("delayed"), match=match, count=1000):
                place = read_place(packed)
                if (place.host, place.link.place, place.link.key or "") == (host, short, key):
                    record = stored_record(url, host, "queued", place.priority, place.link)
                    return replace(record, not_before=due_at)
        return None

    def _waiting(self, host: str) -> list[int]:
        """The priorities of the links that wait in lists of the host, the highest one first."""
        priorities = PRIORITIES[::-1]
        with self._server.translated(), self._redis.pipeline(transaction=False) as at_once:
            for priority, kind in product(priorities, _WAITING):
                at_once.llen(self._key(f"{kind}:{priority}:{host}"))
            lengths = chunked(at_once.execute(), len(_WAITING))
        return [priority for priority, both in zip(priorities, lengths, strict=True) if any(both)]

    def _from_tail(self, queue: str) -> Iterator[bytes]:
        """All of a list, the last one first: leases, which take from its other end, do not move them."""
        end = -1
        with self._server.translated():
            while part := self._redis.lrange(queue, end - CHUNK + 1, end):
                yield from reversed(part)
                if len(part) < CHUNK:
                    break
                end -= CHUNK

    def dead(
        self, *, host: str | None = None, reason: str | None = None, limit: int | None = None
    ) -> list[PageRecord]:
        return [record for _, record in self._ended("dead", None, host, reason, limit)]

    def skipped(
        self, *, host: str | None = None, reason: str | None = None, limit: int | None = None
    ) -> list[PageRecord]:
        return [record for _, record in self._ended("skipped", None, host, reason, limit)]

    def cuts(self) -> dict[tuple[str, str], int]:
        counts: dict[tuple[str, str], int] = {}
        with self._server.translated():
            for field, count in self._redis.hscan_iter(self._key("cuts"), count=1000):
                rule, _, host = field.decode().partition("\n")
                counts[rule, host] = int(count)
        return counts

    def surveys(self) -> Iterator[Survey]:
        with self._server.translated():
            for _, packed in self._redis.hscan_iter(self._key("surveys"), count=CHUNK):
                yield msgspec.msgpack.decode(packed, type=Survey)

    def history(self, since: float, *, now: float | None = None) -> list[Minute]:
        with self._server.translated():
            told = window(since, self._redis.time()[0] if now is None else now)
            slots = [minute % MINUTES for minute in told]
            packed = self._redis.hmget(self._key("history"), slots) if slots else []
        minutes = [msgspec.msgpack.decode(each) for each in packed if each is not None]
        return [read_minute(*each) for each in minutes if each[0] in told]

    def claim(self, contents: Sequence[tuple[int, str]]) -> list[str]:
        return [
            url.decode() for url in self._call("claim", *(str(part) for each in contents for part in each))
        ]

    def redrive(
        self,
        *,
        url: str | None = None,
        host: str | None = None,
        reason: str | None = None,
        now: float | None = None,
    ) -> int:
        found = [identity for identity, _ in self._ended("dead", url, host, reason, None)]
        return sum(int(self._call("redrive", chunk, now=now)) for chunk in _chunks(found))

    def forget(self, url: str, key: str = "") -> bool:
        return bool(self._call("forget", *place_of(url, key, self._key_of_hosts([url]))))

    def set_priority(self, url: str, priority: int, key: str = "") -> bool:
        check_priority(priority, url)
        place = place_of(url, key, self._key_of_hosts([url]))
        return bool(self._call("set_priority", *place, priority))

    def tally(
        self, state: Literal["dead", "skipped"], *, reason: str | None = None, limit: int | None = None
    ) -> dict[str, int]:
        key = self._key(f"{state}:reasons" if reason is None else f"{state}:of:{reason}")
        with self._server.translated():
            found = self._redis.zrevrange(key, 0, -1 if limit is None else limit - 1, withscores=True)
        return {name.decode(): int(pages) for name, pages in found}

    def hosts(
        self, *, limit: int = 20, by: HostOrder = "latency_s", ascending: bool = False, having: str = ""
    ) -> list[HostRecord]:
        limits, now = self.limits, self._now()
        match = f"*{escaped(having)}*" if having else None
        order = host_order(by, limits, now)
        with self._server.translated():
            packed = self._redis.hscan_iter(self._key("hosts"), match=match, count=HOSTS_CHUNK)
            first = (nsmallest if ascending else nlargest)(limit, packed, key=order)
        return [read_host(name.decode(), value, limits, now) for name, value in first]

    def hosts_named(self, names: Sequence[str]) -> list[HostRecord]:
        if not names:
            return []
        limits, now = self.limits, self._now()
        with self._server.translated():
            packed = self._redis.hmget(self._key("hosts"), names)
        return [
            read_host(name, value, limits, now) for name, value in zip(names, packed, strict=True) if value
        ]

    def _now(self) -> float:
        with self._server.translated():
            return float(self._redis.time()[0])

    def beat(self, worker: Beat, seconds: float, *, now: float | None = None) -> None:
        self._call("beat", seconds, *astuple(worker), now=now)

    def workers(self, *, now: float | None = None) -> list[WorkerRecord]:
        beats, leases = self._call("workers", now=now)
        held = {name.decode(): int(count) for name, count in zip(leases[::2], leases[1::2], strict=True)}
        heard = [msgspec.msgpack.decode(packed) for packed in beats]
        return worker_records([(until, Beat(*beat)) for until, *beat in heard], held)

    def items(self) -> Iterator[Item]:
        """None: items never go through Redis."""
        return iter(())

    def last_items(self, limit: int) -> list[Item]:
        return []

    # --- moving to another back end -----------------------------------------------------------

    def dump(self) -> Snapshot:
        self._empty_inbox()
        with self._server.translated():
            positions = self._redis.hgetall(self._key("positions"))
        stats = self.stats()
        crawl = CrawlState(
            description=self.describe(),
            limits=self.limits,
            paused=stats.paused,
            positions={name.decode(): int(length) for name, length in positions.items()},
            items=stats.items,
            size_bytes=stats.size_bytes,
            fetches=stats.fetches,
            losses=stats.losses,
            token=int(self._get("token") or 0),
            retries=stats.retries,
            elapsed_s=stats.elapsed_s,
            history=tuple(self.history(-inf)),
        )
        return Snapshot(
            crawl,
            names=self._dump_pairs("names", bytes.decode),
            hosts=self._dump_hosts(),
            pages=self._dump_pages(),
            contents=self._dump_pairs("contents", int),
            surveys=self.surveys(),
        )

    def _empty_inbox(self) -> None:
        """Take in what others have pushed, unless there is no room for it."""
        while not self._is_nearly_full():
            with self._server.translated():
                if not self._redis.exists(self._key("inbox")):
                    return
            self._drain_inbox(None)

    def _dump_pairs(self, name: str, read: Callable[[bytes], Key]) -> Iterator[tuple[Key, str]]:
        """A hash; what is in it may come twice."""
        with self._server.translated():
            for field, value in self._redis.hscan_iter(self._key(name), count=1000):
                yield read(field), value.decode()

    def _dump_hosts(self) -> Iterator[HostState]:
        cuts: defaultdict[str, dict[str, int]] = defaultdict(dict)  # no more than there are rules, for each
        for (rule, host), count in self.cuts().items():
            cuts[host][rule] = count
        with self._server.translated():
            for field, packed in self._redis.hscan_iter(self._key("hosts"), count=1000):
                name = field.decode()
                found = self._redis.hgetall(self._key(f"shapes:{name}"))
                shapes = {int(shape): int(count) for shape, count in found.items()}
                yield replace(host_state(name, packed), cuts=cuts.get(name, {}), shapes=shapes)

    def _dump_pages(self) -> Iterator[PageState]:
        """What is more than seen first, then the fingerprints of all the others: these are done."""
        told = set()
        for page in self._dump_known():
            told.add(page.fingerprint)
            yield page
        with self._server.translated():
            for bucket in range(int(self._get("splits") or 0) + 1):
                for mark in map(int, self._redis.smembers(self._key(f"seen:{bucket}"))):
                    if mark not in told:
                        yield PageState(fingerprint=mark, state="done")

    def _dump_known(self) -> Iterator[PageState]:
        with self._server.translated():
            for name in self._all_hosts():
                for priority in reversed(
                    PRIORITIES
                ):  # the best first, so that `load` can tell what overflows
                    for kind, state in reversed(_WAITING.items()):
                        for packed in self._redis.lrange(self._key(f"{kind}:{priority}:{name}"), 0, -1):
                            link = msgspec.msgpack.decode(packed, type=StoredLink)
                            yield queued_state(StoredPlace(name, priority, link), state=state)
            for packed, due_at in self._redis.zscan_iter(self._key("delayed"), count=1000):
                yield queued_state(read_place(packed), not_before=due_at)
            for packed in self._redis.hvals(self._key("leases")):
                yield queued_state(read_place(packed))
            for state in ENDED:
                for _, packed in self._redis.hscan_iter(self._key(state), count=1000):
                    yield ended_state(state, packed)

    def load(self, snapshot: Snapshot) -> None:
        crawl, names, hosts, pages, contents, surveys = snapshot
        self.pause()
        self.configure(crawl.limits)
        self.describe(crawl.description)
        counters = {name: getattr(crawl, name) for name in _MOVED}
        counters["elapsed_ms"] = in_ms(crawl.elapsed_s)
        counters["token"] = max(int(self._get("token") or 0), crawl.token)
        with self._server.translated():
            self._redis.hset(self._key("crawl"), mapping=counters)
            if crawl.positions:
                self._redis.hset(self._key("positions"), mapping=dict(crawl.positions))
        for some_names in chunked(names, CHUNK):
            self._introduce_hosts(dict(some_names))
        for some_hosts in chunked(hosts, CHUNK):
            self._call("load", [pack_host_state(state) for state in some_hosts], [])
            self._load_cuts(some_hosts)
        for some_pages in chunked(pages, CHUNK):
            host_key = self._key_of_hosts(page.link.url for page in some_pages if page.link)
            self._call("load", [], [pack_page_state(state, host_key) for state in some_pages])
        for some_contents in chunked(contents, CHUNK):
            self.claim(some_contents)
        for some_surveys in chunked(surveys, CHUNK):
            with self._server.translated():
                self._redis.hset(self._key("surveys"), mapping=dict(map(pack_survey, some_surveys)))
        self._load_history(crawl.history)
        if not crawl.paused:
            self.resume()

    def _load_cuts(self, hosts: Iterable[HostState]) -> None:
        with self._server.translated(), self._redis.pipeline(transaction=False) as at_once:
            for state in hosts:
                for rule, count in state.cuts.items():
                    at_once.hset(self._key("cuts"), f"{rule}\n{state.host}", count)
                if state.shapes:
                    at_once.hset(self._key(f"shapes:{state.host}"), mapping=dict(state.shapes))
            at_once.execute()

    def _load_history(self, minutes: Iterable[Minute]) -> None:
        """Instead of what there is."""
        packed = [pack_minute(each) for each in minutes]
        with self._server.translated(), self._redis.pipeline() as at_once:
            at_once.delete(self._key("history"))
            for each in packed:
                at_once.hset(self._key("history"), each[0] % MINUTES, msgspec.msgpack.encode(each))
            at_once.execute()

    def _ended(
        self, state: State, url: str | None, host: str | None, reason: str | None, limit: int | None
    ) -> Iterator[tuple[str, PageRecord]]:
        """Identity and record of dead or skipped pages, the oldest first."""
        count, start = 0, 0
        while limit is None or count < limit:
            with self._server.translated():
                chunk = self._redis.zrange(self._key(f"{state}:order"), start, start + CHUNK - 1)
                records = self._redis.hmget(self._key(state), chunk) if chunk else []
            if not chunk:
                return
            start += CHUNK
            for identity, packed in zip(chunk, records, strict=True):
                if packed is None:  # redriven meanwhile
                    continue
                record = read_record(state, packed)
                wanted = url in (None, record.url) and host in (None, record.host)
                if wanted and reason in (None, record.reason) and (limit is None or count < limit):
                    count += 1
                    yield identity.decode(), record

    def _all_hosts(self) -> Iterator[str]:
        with self._server.translated():
            for name, _ in self._redis.hscan_iter(self._key("hosts"), count=1000):
                yield name.decode()

    # --- the server -----------------------------------------------------------------------

    def _key(self, name: str) -> str:
        return f"{self._base}:{name}"

    def _get(self, field: str) -> bytes | None:
        with self._server.translated():
            value: bytes | None = self._redis.hget(self._key("crawl"), field)
        return value

    def _call(
        self, verb: str, *arguments: object, more: Sequence[bytes] = (), now: float | None = None
    ) -> Any:
        return self._server.call(verb, self._base, *arguments, more=more, now=now)


def _chunks(values: Sequence[Any]) -> Iterator[Sequence[Any]]:
    for start in range(0, len(values), CHUNK):
        yield values[start : start + CHUNK]
