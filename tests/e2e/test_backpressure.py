"""A worker takes no more than it can hold, and a crawl queues no more than it should."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.e2e.shell import Shell
from tests.servers import NOT_FOUND, Reply, Request, ScriptedServer, page

import shoal as shoal_
from shoal.frontier import Frontier, open_frontier
from shoal.model import Beat, Link, Outcome
from shoal.store import open_store
from shoal.store.base import Committed, Position, Store
from shoal.worker import Worker


class _SlowStore(Store):
    """Takes its time, and notes how many leases there are meanwhile."""

    name = "slow"

    def __init__(self, store: Store, frontier: Frontier, page_s: float) -> None:
        self._store, self._frontier, self._page_s = store, frontier, page_s
        self.name = store.name
        self.most_leased = 0
        self.most_at_once = 0

    def open(self, *, committed: Committed, fresh: bool):
        return self._store.open(committed=committed, fresh=fresh)

    @contextmanager
    def write(self, outcomes: Sequence[Outcome], *, committed: Committed) -> Iterator[Position]:
        time.sleep(self._page_s * len(outcomes))
        self.most_leased = max(self.most_leased, self._frontier.stats().leased)
        self.most_at_once = max(self.most_at_once, len(outcomes))
        with self._store.write(outcomes, committed=committed) as position:
            yield position

    def close(self) -> None:
        self._store.close()


class _Watched(Worker):
    """A worker whose load is looked at with every turn."""

    most_bytes = 0
    most_pages = 0

    def _room(self) -> int:
        finished = [outcome for _, outcome in self._finished]
        self.most_bytes = max(self.most_bytes, self._load.bytes_in_flight(finished))
        self.most_pages = max(self.most_pages, len(self._fetching) + len(finished))
        return super()._room()


def _pages(count: int, size_bytes: int = 100) -> ScriptedServer:
    body = b"x" * size_bytes

    def reply(request: Request) -> Reply:
        return NOT_FOUND if request.target == "/robots.txt" else page(body)

    return ScriptedServer(reply)


def _crawl(server: ScriptedServer, **settings: object) -> shoal_.Crawl:
    return shoal_.Crawl("books", seeds=[server.url()], obey_robots=False, **settings)


def _work(crawl: shoal_.Crawl, frontier: Frontier, store: Store | None, urls: Sequence[str]) -> _Watched:
    frontier.configure(crawl.limits())
    frontier.add(map(Link, urls))

    async def run() -> _Watched:
        worker = _Watched(crawl, frontier, () if store is None else [store], name="worker")
        await worker.run()
        return worker

    return asyncio.run(run())


def test_a_slow_store_slows_leasing_down(tmp_path: Path) -> None:
    """No more pages are leased than are fetched at once, and as many again that wait to be stored."""
    with _pages(200) as server, open_frontier(f"sqlite:{tmp_path}/s.shoal", crawl="books") as frontier:
        crawl = _crawl(server, concurrency=8)
        crawl.page()(shoal_.crawl.summarize)
        inner = open_store(f"{tmp_path}/rows.jsonl", crawl="books")
        with inner.open(committed=lambda _: None, fresh=False) as position:
            frontier.commit((), positions=[position])
        with open_frontier(f"sqlite:{tmp_path}/s.shoal", crawl="books") as looking:
            store = _SlowStore(inner, looking, 0.005)
            worker = _work(crawl, frontier, store, [server.url(f"/{n}") for n in range(200)])
            inner.close()
        assert frontier.stats().done == 200
        assert len((tmp_path / "rows.jsonl").read_text().splitlines()) == 200
        assert 8 <= store.most_leased <= 16
        assert worker.most_pages <= 16


def test_a_slow_handler_slows_leasing_down(tmp_path: Path) -> None:
    """Pages wait for their handlers in a number that is bounded."""
    with _pages(60) as server, open_frontier(f"sqlite:{tmp_path}/s.shoal", crawl="books") as frontier:
        crawl = _crawl(server, concurrency=4)
        leased = []

        @crawl.page()
        def slow(page: shoal_.Page) -> None:
            time.sleep(0.01)
            leased.append(1)

        worker = _work(crawl, frontier, None, [server.url(f"/{n}") for n in range(60)])
        assert (frontier.stats().done, len(leased)) == (60, 60)
        assert worker.most_pages <= 8


def test_the_bytes_in_memory_are_bounded(tmp_path: Path) -> None:
    """Of large pages few are taken at once, though many more could be by their number."""
    size_bytes, limit_bytes = 200_000, 1_000_000
    with (
        _pages(60, size_bytes) as server,
        open_frontier(f"sqlite:{tmp_path}/s.shoal", crawl="books") as frontier,
    ):
        crawl = _crawl(server, concurrency=32, per_host=32, max_bytes_in_flight=limit_bytes)
        held = most_held = 0

        @crawl.page()
        async def slow(page: shoal_.Page) -> None:
            nonlocal held, most_held
            held += 1
            most_held = max(held, most_held)
            await asyncio.sleep(0.02)
            held -= 1

        worker = _work(crawl, frontier, None, [server.url(f"/{n}") for n in range(60)])
        assert (frontier.stats().done, frontier.stats().dead) == (60, 0)
        assert 2 <= most_held <= limit_bytes // size_bytes
        assert worker.most_bytes <= limit_bytes


def test_a_worker_tells_how_well_it_keeps_up(tmp_path: Path) -> None:
    """With its beat: a handler that blocks the event loop is noticed, and so is how long storing takes."""
    beats: list[Beat] = []
    with _pages(3) as server, open_frontier(f"sqlite:{tmp_path}/s.shoal", crawl="books") as frontier:
        crawl = _crawl(server)
        tell = frontier.beat

        def beat(told: Beat, seconds: float, *, now: float | None = None) -> None:
            beats.append(told)
            tell(told, seconds, now=now)

        frontier.beat = beat  # type: ignore[method-assign]

        @crawl.page()
        async def blocking(page: shoal_.Page) -> None:
            await asyncio.sleep(0.3)
            time.sleep(2.2)  # noqa: ASYNC251 - this is what is to be noticed

        _work(crawl, frontier, None, [server.url(f"/{n}") for n in range(3)])
    told = max(beats, key=lambda each: each.lag_s)
    assert told.lag_s >= 1.0
    assert any(each.settle_s > 0 for each in beats)


def test_discovery_is_bounded_and_nothing_is_lost(shoal: Shell) -> None:
    """Links beyond `max_queued` wait in the overflow; in the end all pages are done."""

    def reply(request: Request) -> Reply:
        if request.target == "/robots.txt":
            return NOT_FOUND
        first = int(request.target[1:] or 0) * 20
        hrefs = [f"/{n}" for n in range(first + 1, first + 21) if n <= 400]
        return page("".join(f'<a href="{href}">x</a>' for href in hrefs).encode())

    with ScriptedServer(reply) as server:
        shoal("crawl", server.url(), "--max-queued", 10, "--max-pages", 5)
        stats = shoal.status()
        assert stats["queued"] <= 10 + 1
        assert (stats["seen"], stats["overflow"] > 50) == (101, True)
        assert "overflow  " in shoal("status").out
        [waiting] = shoal("why", server.url("/100"), "--json").objects
        assert waiting["state"] == "overflow"
        shoal("crawl", server.url(), "--max-queued", 10, "--max-pages", 1000)
        stats = shoal.status()
        assert (stats["done"], stats["overflow"], stats["finished"]) == (401, 0, True)
        asked = [request.target for request in server.requests if request.target != "/robots.txt"]
        assert len(asked) == len(set(asked)) == 401
