"""What URLs cost in a frontier, on Redis and on SQLite: bytes, and the time of a commit and of a lease.

    python -m benchmarks.frontier           # a minute or two, up to 1,000,000 URLs
    python -m benchmarks.frontier --large   # ten times as much

Time is the CPU time of this process, and of Redis where there is one; that of the web server is not counted.
"""

from __future__ import annotations

import argparse
import asyncio
import sqlite3
import statistics
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import uvloop
from tests.services import RedisServer

from benchmarks import pages as sample
from benchmarks.measure import serving
from benchmarks.report import machine, publish, table, versions
from shoal.fetch import Fetcher, FetchSettings
from shoal.frontier import Frontier, open_frontier
from shoal.frontier.snapshot import CrawlState, HostState, PageState, Snapshot
from shoal.model import Limits, Link, Outcome, Response
from shoal.urls import fingerprint

LINKS, NEW = 50, 5
"""On each page of which the commit is measured, and how many of them are new."""

SIZES, LARGE, ROUNDS = (10_000, 100_000, 1_000_000), 10_000_000, 11
AT_ONCE = 5
"""Pages that are leased, and then committed, together."""

BATCH = 1_000
HOSTS = 1_000
BLOCKED = "Redis blocked, at most ms"
BLOCKED_US = 500
"""Redis notes commands that take longer (its SLOWLOG)."""


class Place(ABC):
    """An empty place for a frontier, and its meters."""

    url: str

    def open(self, crawl: str = "bench") -> Frontier:
        return open_frontier(self.url, crawl=crawl)

    @abstractmethod
    def size_bytes(self) -> int:
        """What it holds now."""

    def busy_s(self) -> float:
        """CPU seconds spent so far, by this process and by the server."""
        return time.process_time() + self.server_s()

    def server_s(self) -> float:
        """Those of the server, if there is one."""
        return 0.0

    def blocked_ms(self) -> float:
        """The longest time for which nobody else could be served; forgets it."""
        return 0.0


class RedisPlace(Place):
    """A server of its own, which keeps nothing on disk."""

    def __init__(self, server: RedisServer) -> None:
        self.url = server.url
        self._client: Any = server.client()
        self._client.flushall()
        self._client.config_set("slowlog-log-slower-than", BLOCKED_US)
        self._client.config_set("slowlog-max-len", 10_000)
        self._client.slowlog_reset()

    def size_bytes(self) -> int:
        self._client.slowlog_reset()  # it takes memory, too
        return int(self._client.info("memory")["used_memory"])

    def server_s(self) -> float:
        times = self._client.info("cpu")
        return float(times["used_cpu_user"]) + float(times["used_cpu_sys"])

    def blocked_ms(self) -> float:
        longest = max((float(entry["duration"]) for entry in self._client.slowlog_get(10_000)), default=0.0)
        self._client.slowlog_reset()
        return longest / 1000


class SqlitePlace(Place):
    """A file."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "state.shoal"
        self.url = f"sqlite:{self._path}"

    def size_bytes(self) -> int:
        files = (self._path, self._path.with_name(self._path.name + "-wal"))
        return sum(path.stat().st_size for path in files if path.exists())


@contextmanager
def redis_place() -> Iterator[Place]:
    with RedisServer() as server:
        yield RedisPlace(server)


@contextmanager
def sqlite_place() -> Iterator[Place]:
    with tempfile.TemporaryDirectory() as folder:
        yield SqlitePlace(Path(folder))


PLACES: dict[str, Callable[[], Any]] = {"Redis": redis_place, "SQLite": sqlite_place}


def page_url(number: int) -> str:
    """A URL of usual length."""
    return f"https://shop-{number % HOSTS}.example.com/catalogue/category-{number % 97}/product-{number}.html"


# --- bytes ------------------------------------------------------------------------------------------


class Weight(NamedTuple):
    """What one URL takes."""

    seen_bytes: float
    """Of one that is done."""
    queued_bytes: float
    """Of one that waits, its place among the seen ones included."""
    url_bytes: float
    """How long the URLs are."""


def weigh(place: Place, urls: int) -> Weight:
    """Queue so many, then do them all; hosts and what else is there once are there before."""
    with place.open() as frontier:
        _queue(frontier, 0, BATCH)
        _do_all(frontier)
        empty = place.size_bytes()
        _queue(frontier, BATCH, BATCH + urls)
        queued = place.size_bytes()
        _do_all(frontier)
        done = place.size_bytes()
    length = sum(len(page_url(number)) for number in range(BATCH, BATCH + urls))
    return Weight((done - empty) / urls, (queued - empty) / urls, length / urls)


def _queue(frontier: Frontier, start: int, end: int) -> None:
    for first in range(start, end, BATCH):
        frontier.add([Link(page_url(number)) for number in range(first, first + BATCH)])


def _do_all(frontier: Frontier) -> None:
    while leases := frontier.lease(BATCH, 60, worker="bench").leases:
        frontier.commit([Outcome(lease, "done") for lease in leases])


# --- growth -----------------------------------------------------------------------------------------


class Cost(NamedTuple):
    """What a page, or a verb, costs at some size of the frontier."""

    size: int
    mean_us: float
    server_us: float
    """Of it, in the server."""
    blocked_ms: float
    """The longest time that Redis was blocked meanwhile."""
    times: float = 1.0
    """In terms of the first size."""
    times_whole: float = 1.0
    """The same, if the page is fetched and read as well."""


_Rounds = list[tuple[float, float, float]]
"""Of each round the microseconds for a page, in all and in the server, and those to fetch and read it."""


def growth(places: Mapping[int, Place], rounds: int, pages: int) -> list[Cost]:
    """The cost of leasing and committing a page with LINKS links, at the sizes of these empty places.

    They take turns with so many pages each, so that whatever else the machine does hits all of them.
    """
    taken: dict[int, _Rounds] = {size: [] for size in places}
    blocked_ms = dict.fromkeys(places, 0.0)
    with ExitStack() as opened:
        reader = opened.enter_context(Reader(pages))
        frontiers = {size: opened.enter_context(place.open()) for size, place in places.items()}
        for size, frontier in frontiers.items():
            frontier.configure(Limits(per_host=pages))
            fill(frontier, 0, size)
        for round_ in range(rounds):
            for size, place in places.items():
                numbers = range(round_ * pages, (round_ + 1) * pages)
                place.blocked_ms()
                taken[size].append((*_work(frontiers[size], place, numbers, size), reader.work()))
                blocked_ms[size] = max(blocked_ms[size], place.blocked_ms())
    return [_cost(size, taken[size], blocked_ms[size], next(iter(taken.values()))) for size in places]


def _cost(size: int, taken: _Rounds, blocked_ms: float, first: _Rounds) -> Cost:
    all_us, server_us, _ = (statistics.median(each) for each in zip(*taken, strict=True))
    pairs = [*zip(taken, first, strict=True)]
    times = statistics.median(mine[0] / its[0] for mine, its in pairs)
    times_whole = statistics.median((mine[0] + mine[2]) / (its[0] + its[2]) for mine, its in pairs)
    return Cost(size, all_us, server_us, blocked_ms, times, times_whole)


class Reader:
    """What a crawl does besides: fetches pages of the site, many at once, and reads them."""

    def __init__(self, pages: int) -> None:
        self._urls = [sample.SITE.url(number) for number in range(pages)]

    def __enter__(self) -> Reader:
        with ExitStack() as opened:
            opened.enter_context(serving(sample.SITE.pages))
            self._loop = opened.enter_context(asyncio.Runner(loop_factory=uvloop.new_event_loop))
            self._fetcher = self._loop.run(self._open())
            opened.callback(lambda: self._loop.run(self._fetcher.close()))
            self.work()  # the first time it connects
            self._opened = opened.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        self._opened.close()

    async def _open(self) -> Fetcher:
        return Fetcher(FetchSettings(allow=frozenset({"loopback"})))

    def work(self) -> float:
        """Microseconds for a page."""
        before = time.process_time()
        self._loop.run(self._read_all())
        return (time.process_time() - before) / len(self._urls) * 1e6

    async def _read_all(self) -> None:
        for answer in await asyncio.gather(*map(self._fetcher.fetch, self._urls)):
            assert isinstance(answer, Response), answer
            sample.read(answer)


def fill(frontier: Frontier, start: int, end: int) -> None:
    """Make pages known that are done."""
    marks = (fingerprint(page_url(number)) for number in range(start, end))
    pages = (PageState(fingerprint=mark, state="done") for mark in marks)
    frontier.load(Snapshot(_state(), pages=pages))


def _state(delay_s: float = 0.0) -> CrawlState:
    limits = Limits(per_host=BATCH, delay_s=delay_s)
    return CrawlState({}, limits, paused=False, positions={}, items=0, size_bytes=0, fetches=0, losses=0)


def _work(frontier: Frontier, place: Place, pages: range, size: int) -> tuple[float, float]:
    """Microseconds for each page, in all and in the server, after a warming up."""
    host = f"https://bench-{pages.start}.example.com"
    frontier.add([Link(f"{host}/{number}", priority=9) for number in (-1, *pages)])
    for lease in frontier.lease(1, 600, worker="bench").leases:  # a host gives one until its first commit
        frontier.commit([Outcome(lease, "done")])
    batches = [
        [_links(page, size) for page in pages[first : first + AT_ONCE]]
        for first in range(0, len(pages), AT_ONCE)
    ]
    _do(frontier, batches[0])
    before, server_before = place.busy_s(), place.server_s()
    for batch in batches[1:]:
        _do(frontier, batch)
    done = len(pages) - len(batches[0])
    server_us = (place.server_s() - server_before) / done * 1e6
    return (place.busy_s() - before) / done * 1e6, server_us


def _do(frontier: Frontier, found: list[tuple[Link, ...]]) -> None:
    """Lease as many pages as there are lists of links, and commit them with these."""
    leases = frontier.lease(len(found), 600, worker="bench").leases
    frontier.commit([Outcome(lease, "done", links=links) for lease, links in zip(leases, found, strict=True)])


def _links(page: int, size: int) -> tuple[Link, ...]:
    """Links that this process has never told: some are new to the frontier, the others are known to it."""
    known = [((page * (LINKS - NEW) + at) * 7_919) % size for at in range(LINKS - NEW)]
    new = [10**9 + size * 100 + page * NEW + at for at in range(NEW)]
    return tuple(Link(page_url(number)) for number in (*known, *new))


# --- lease ------------------------------------------------------------------------------------------


def leases(place: Place, waiting: int, times: int) -> Cost:
    """The cost of a lease of one link while so many hosts wait for their delay."""
    with place.open(f"bench-{waiting}") as frontier:
        _let_wait(frontier, waiting)
        frontier.add([Link(f"https://ready-{number}.example.com/") for number in range(times + 20)])
        for _ in range(20):
            frontier.lease(1, 600, worker="bench")
        place.blocked_ms()
        before, server_before = place.busy_s(), place.server_s()
        for _ in range(times):
            assert frontier.lease(1, 600, worker="bench").leases
        server_us = (place.server_s() - server_before) / times * 1e6
        mean_us = (place.busy_s() - before) / times * 1e6
        return Cost(waiting, mean_us, server_us, place.blocked_ms())


def all_due(place: Place, waiting: int) -> float:
    """How long, at most, Redis is blocked (ms) when the delays of so many hosts end at the same moment."""
    with place.open(f"due-{waiting}") as frontier:
        _let_wait(frontier, waiting)
        place.blocked_ms()
        later, got = time.time() + 7_200, 0
        while got < waiting:
            got += len(frontier.lease(32, 600, worker="bench", now=later).leases)
        return place.blocked_ms()


def _let_wait(frontier: Frontier, hosts: int) -> None:
    """So many hosts that have just been fetched from, with a delay of an hour and one more page each."""
    names = [f"wait-{number}.example.com" for number in range(hosts)]
    hosts = (HostState(name, 1, True, 0.0, time.time(), 0.0, 0.1) for name in names)
    pages = (_queued(f"https://{name}/") for name in names)
    frontier.load(Snapshot(_state(delay_s=3_600.0), hosts=hosts, pages=pages))


def _queued(url: str) -> PageState:
    return PageState(fingerprint(url), "queued", Link(url), added_at=time.time())


# --- the report -------------------------------------------------------------------------------------


def main(large: bool = False) -> None:
    """Publish all tables."""
    used = f"{machine()}Versions: {versions('shoal', 'redis', 'hiredis')}; SQLite {sqlite3.sqlite_version}.\n"
    urls = 1_000_000 if large else 100_000
    waits = [10, 1_000, 5_000, *([100_000] if large else [])]
    publish("frontier", f"{_weights(urls)}\n{_leases(waits)}\n{used}")
    publish("growth", f"{_growth([*SIZES, *([LARGE] if large else [])])}\n{used}")


def _weights(urls: int) -> str:
    rows = []
    for name, new_place in PLACES.items():
        with new_place() as place:
            weight = weigh(place, urls)
        print(name, weight, flush=True)
        rows.append([name, *(f"{value:.1f}" for value in (weight.seen_bytes, weight.queued_bytes))])
        length = weight.url_bytes
    head = ["back end", "bytes per URL done", f"per URL queued ({length:.1f} long)"]
    return f"At {urls:,} URLs:\n\n{table(head, rows)}"


def _growth(sizes: Sequence[int]) -> str:
    rows = []
    pages = min(sizes) // (LINKS - NEW) // ROUNDS
    for name, new_place in PLACES.items():
        with ExitStack() as made:
            costs = growth({size: made.enter_context(new_place()) for size in sizes}, ROUNDS, pages)
        rows += [_row(name, cost) for cost in costs]
    head = [
        *("back end", "URLs known", "CPU µs for a page", "times the first", "if it is fetched and read, too"),
        *("of it in Redis, µs", BLOCKED),
    ]
    return table(head, rows)


def _row(name: str, cost: Cost) -> list[str]:
    redis = [f"{cost.server_us:.0f}", f"{cost.blocked_ms:.1f}"] if name == "Redis" else ["", ""]
    times = [f"{cost.times:.2f}", f"{cost.times_whole:.2f}"]
    row = [name, f"{cost.size:,}", f"{cost.mean_us:.0f}", *times, *redis]
    print(row, flush=True)
    return row


def _leases(waits: Sequence[int]) -> str:
    rows = []
    for name, new_place in PLACES.items():
        for waiting in waits:
            with new_place() as place:
                cost = leases(place, waiting, times=1_000)
                due = f"{all_due(place, waiting):.1f}" if name == "Redis" else ""
            rows.append([name, f"{waiting:,}", f"{cost.mean_us:.0f}", due])
            print(rows[-1], flush=True)
    head = ["back end", "hosts waiting", "CPU µs per lease", "Redis blocked when all are due, at most ms"]
    return table(head, rows)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--large", action="store_true", help="up to 10,000,000 URLs and 100,000 hosts")
    main(parser.parse_args().large)
