"""Slices for a job queue, in this process: what ends them, and what they leave behind."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from math import inf
from pathlib import Path

import psutil
import pytest
from tests.servers import ScriptedServer, page

import shoal
from shoal.errors import FrontierError
from shoal.frontier.tickets import Pace, Ticket
from shoal.liveness import worker_name
from shoal.local import Job, prepare
from shoal.model import Outcome
from shoal.store.base import Committed, Position, Store
from shoal.ticketed import TicketBench
from shoal.tickets import Desk

PACE = Pace(slice_s=1.0, drain_s=1.0, beat_s=0.05)


class Queue:
    """A job queue with one worker: it carries tickets, and runs a slice for each when it is told to."""

    def __init__(self, crawl: shoal.Crawl, folder: Path) -> None:
        self.job = Job(crawl, f"sqlite:{folder}/state.shoal")
        prepare(self.job)
        self.tickets: list[Ticket] = []
        self.bench = TicketBench(self.job, PACE, self.tickets.append)
        self.desk = Desk(self.job.open_frontier(), PACE, self.tickets.append)

    def tick(self) -> int:
        """As a node does now and then; returns how many tickets there are."""
        self.desk.tick(worker_name(), 1)
        return len(self.tickets)

    def slice(self, slice_s: float = inf) -> dict[str, int] | None:
        """Run the next one, no longer than so long."""
        return self.bench.run(self.tickets.pop(0), draining=lambda: False, slice_s=slice_s)

    def close(self) -> None:
        self.bench.close()
        self.desk.frontier.close()


def test_a_page_that_takes_longer_than_a_slice_ends(tmp_path: Path) -> None:
    """Its handler is not waited for; it is tried again, and becomes a dead letter that says why."""
    crawl = shoal.Crawl("slow", obey_robots=False, retries=1, retry_delay_s=0.001)
    called: list[str] = []

    @crawl.page()
    def slow(page: shoal.Page) -> None:
        called.append(page.url)
        time.sleep(2.5)

    with ScriptedServer({"/": page()}) as server, closing(Queue(crawl, tmp_path)) as queue:
        crawl.change(seeds=[server.url()])
        queue.desk.add(crawl.seeds())
        while queue.tick():
            queue.slice()
        [letter] = queue.desk.frontier.dead()
    assert (letter.reason, letter.error, letter.attempts) == (
        "longer than a slice",
        "not done within 1.5 s",
        2,
    )
    assert len(called) == 2


def test_a_login_that_fails_pauses_the_crawl(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """It is not tried again by slice after slice; when the crawl is resumed it is."""
    password = "wrong"
    crawl = shoal.Crawl("members", obey_robots=False)

    @crawl.login
    def login(session: shoal.Session) -> None:
        if session.get(f"{server.url('/login')}?{password}").status != 200:
            raise shoal.LoggedOut("the password is wrong")

    routes = {"/login?wrong": page(b"", "403 Forbidden"), "/login?right": page(), "/": page()}
    with ScriptedServer(routes) as server, closing(Queue(crawl, tmp_path)) as queue:
        crawl.change(seeds=[server.url()])
        queue.desk.add(crawl.seeds())
        assert queue.slice() == {}
        assert queue.tick() == 0
        assert server.count("/login?wrong") == 1
        assert queue.desk.frontier.stats().leased == 0
        [told] = [record.getMessage() for record in caplog.records if record.levelname == "CRITICAL"]
        assert told.startswith("the login failed: the password is wrong [test_slices.py:")
        assert told.endswith("the crawl 'members' is paused: `shoal resume` lets it go on")
        password = "right"
        queue.desk.frontier.resume()
        queue.tick()
        assert queue.slice() == {"done": 1}


class Broken(Store):
    """Says with the first row that nothing can go on."""

    name = place = "broken"

    def __init__(self, crawl: str) -> None:
        """Like any."""

    @contextmanager
    def open(self, *, committed: Committed, fresh: bool) -> Iterator[Position]:
        yield "broken", 0

    @contextmanager
    def write(self, outcomes: Sequence[Outcome], *, committed: Committed) -> Iterator[Position]:
        if any(outcome.items for outcome in outcomes):
            raise FrontierError("it is damaged")
        yield "broken", 0

    def close(self) -> None:
        """There is nothing to close."""


def test_slices_that_fail_leave_nothing_open(tmp_path: Path) -> None:
    """However many there are: no file, no connection, no thread."""
    crawl = shoal.Crawl("broken", obey_robots=False, stores=[Broken])
    crawl.page()(lambda page: {"url": page.url})
    process = psutil.Process()

    def new_threads() -> set[threading.Thread]:
        return {*threading.enumerate()} - threads

    def fail() -> int:
        queue.tick()
        with pytest.raises(FrontierError, match="it is damaged"):
            queue.slice()
        queue.bench.close()
        for _ in range(500):  # threads and connections end in their own time
            if not new_threads() and process.num_fds() <= most:
                break
            time.sleep(0.01)
        assert new_threads() == set()
        return process.num_fds()

    with ScriptedServer({"/": page()}) as server, closing(Queue(crawl, tmp_path)) as queue:
        threads, most = {*threading.enumerate()}, inf
        crawl.change(seeds=[server.url()])
        queue.desk.add(crawl.seeds())
        most = fail()
        assert max(fail() for _ in range(4)) <= most


def test_a_slice_calls_for_the_next_one_if_there_is_work_soon(tmp_path: Path) -> None:
    """At its end the host was asked a moment ago; nobody has to wait for the next tick."""
    crawl = shoal.Crawl("delayed", obey_robots=False, delay_s=0.4)
    with ScriptedServer({"/": page(), "/x": page()}) as server, closing(Queue(crawl, tmp_path)) as queue:
        crawl.change(seeds=[server.url(), server.url("/x")])
        queue.desk.add(crawl.seeds())
        assert queue.slice(0.2) == {"done": 1}
        assert len(queue.tickets) == 1
        assert queue.slice(0.2) == {"done": 1}
        assert queue.tickets == []
