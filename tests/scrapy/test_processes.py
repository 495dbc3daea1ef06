"""Several `scrapy crawl` on one frontier, some of which are killed: nothing is lost, nothing doubled."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest
from tests.redis_servers import drop_connections
from tests.servers import Reply, Request, ScriptedServer, page
from tests.services import RedisServer
from tests.site import Site

from shoal.frontier import open_frontier

SPIDERS = Path(__file__).with_name("shop_spiders.py").read_text()
BENCHMARK_SITE = Path(__file__).parents[2] / "benchmarks" / "site.py"
MEMBERS = 12
SETTINGS = {
    "SCHEDULER": "shoal.scrapy.Scheduler",
    "ITEM_PIPELINES": {"shoal.scrapy.StorePipeline": 900},
    "TELNETCONSOLE_ENABLED": False,
    "REMOTE_CONTROL_ENABLED": False,
    "ROBOTSTXT_OBEY": False,
    "CONCURRENT_REQUESTS": 16,
    "LOG_LEVEL": "INFO",
}
NUMBERS = count()
OTHER_ROWS = (
    [{"member": f"Member {n}"} for n in range(MEMBERS)]
    + [{"poll": n} for n in range(3)]
    + [{"search": f"word {n}"} for n in range(3)]
    + [{"failed": 404}, {"search": "instead"}]
)


def answer(request: Request) -> Reply:
    """The part of the shop where one has to be logged in."""
    head, _, number = request.target.rpartition("/")
    if request.target == "/login":
        if request.method == "POST":
            form = parse_qs(request.body.decode())
            assert form == {"token": ["t1"], "password": ["secret"]}, form
            return page(b"<h1>Welcome</h1>", "200 OK", "Set-Cookie: session=s1; Path=/")
        fields = b'<input name="token" value="t1"><input name="password">'
        return page(b'<form action="/login" method="post">%b</form>' % fields)
    if head == "/members":
        if "session=s1" not in request.headers.get("cookie", ""):
            return page(b"", "403 Forbidden")
        links = "".join(f"<a href=/members/{n}>{n}</a>" for n in range(int(number) + 1, int(number) + 4))
        links = links if int(number) + 3 < MEMBERS else "<a href=/members/0>0</a>"
        return page(f"<h1>Member {number}</h1>{links}".encode())
    if request.target == "/search":
        return page(f"<h1>{parse_qs(request.body.decode())['q'][0]}</h1>".encode())
    if request.target == "/poll":
        return page(b"<h1>Nothing new</h1>")
    return page(b"<h1>instead</h1>") if request.target == "/instead" else page(b"", "404 Not Found")


class Shop:
    """The project, and the shop that its processes crawl together."""

    def __init__(
        self, new_project: Callable[..., Any], frontier: str, site: str, server: ScriptedServer
    ) -> None:
        self.frontier = frontier
        self.project = new_project(SPIDERS, **SETTINGS, SHOAL_FRONTIER=frontier, SHOAL_STORE="rows.jsonl")
        self._arguments = ("-a", f"site={site}", "-a", f"members={server.url('')}")

    def start(self, *options: str) -> subprocess.Popen[bytes]:
        return self.project.crawl("shop", *self._arguments, *options)

    def wait_for(self, done: int, seconds: float = 60.0) -> None:
        """Until so many pages are done."""
        deadline = time.monotonic() + seconds
        with open_frontier(self.frontier, crawl="shop") as frontier:
            while (stats := frontier.stats()).done < done:
                assert time.monotonic() < deadline, stats
                assert not (stats.finished and stats.seen), stats
                time.sleep(0.02)

    def finish(self, *processes: subprocess.Popen[bytes], seconds: float = 120.0) -> Any:
        """Wait until the processes have ended by themselves; returns the counters."""
        for process in processes:
            assert process.wait(seconds) == 0
        with open_frontier(self.frontier, crawl="shop") as frontier:
            return frontier.stats()

    def rows(self) -> tuple[list[Any], list[Any]]:
        """Those of products, and the others."""
        lines = (self.project.folder / "rows.jsonl").read_text().splitlines()
        rows = [json.loads(line) for line in lines]
        return [row for row in rows if "id" in row], [row for row in rows if "id" not in row]


@pytest.fixture(params=["redis", "sqlite"])
def frontier(request, tmp_path):
    """The URL of one that is empty."""
    if request.param == "sqlite":
        return f"sqlite:{tmp_path / 'crawl.shoal'}"
    server = request.getfixturevalue("redis_server")
    return f"{server.url}?prefix=processes{next(NUMBERS)}x{tmp_path.name}"


def by_name(rows: list[Any]) -> list[Any]:
    """In an order of their own."""
    return sorted(rows, key=str)


@pytest.mark.timeout(180)
def test_three_processes_crawl_what_one_would(new_project, frontier):
    """One is killed and one is closed after some pages; all rows are there once, and the others end."""
    with Site(pages=150, hosts=2, latency_s=0.02) as site, ScriptedServer(answer) as server:
        shop = Shop(new_project, frontier, site.url, server)
        closed = shop.start("-s", "CLOSESPIDER_PAGECOUNT=20")
        shop.wait_for(5)
        killed, lasting = shop.start(), shop.start()
        shop.wait_for(60)
        killed.kill()
        killed.wait()
        stats = shop.finish(closed, lasting)
        products, others = shop.rows()
        again = site.fetches() - Counter(site.urls)
        logins = sum(request.target == "/login" for request in server.requests)
    assert sorted(row["id"] for row in products) == sorted(f"P{n}" for n in range(150))
    assert by_name(others) == by_name(OTHER_ROWS)
    assert (stats.finished, stats.leased, stats.dead) == (True, 0, 0)
    assert stats.done == 150 + len(OTHER_ROWS) + 2  # the login has no rows
    assert set(again) <= set(site.urls)
    assert again.total() <= 16, again  # what the killed one had begun
    assert logins <= 4
    assert "closespider_pagecount" in shop.project.said(0)
    assert "'finish_reason': 'finished'" in shop.project.said(2)


@pytest.fixture
def benchmark_site(tmp_path):
    """2,000 pages on 16 hosts: a function that runs a command of benchmarks/site.py, and the URL."""
    folder, path = tmp_path / "site", os.environ["PATH"] + ":/usr/sbin:/sbin"
    if shutil.which("nginx", path=path) is None:
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)("nginx is missing")
    with socket.create_server(("127.0.0.2", 0)) as free:
        port = free.getsockname()[1]

    def run(command: str, *more: object) -> str:
        words = [sys.executable, BENCHMARK_SITE, command, folder, *map(str, more)]
        done = subprocess.run(words, env=os.environ | {"PATH": path}, stdout=subprocess.PIPE, check=True)
        return done.stdout.decode()

    run("build", "--pages", 2000, "--kb", 8, "--port", port)
    run("serve")
    yield run, f"http://127.0.0.2:{port}/"
    run("stop")


@pytest.mark.faults
@pytest.mark.timeout(600)
def test_three_processes_crawl_the_benchmark_site(new_project, tmp_path, benchmark_site):
    """2,000 pages on 16 hosts; a process is killed, one closed, and Redis loses all its connections."""
    run, url = benchmark_site
    with RedisServer(appendonly=True) as redis, ScriptedServer(answer) as server:
        shop = Shop(new_project, redis.url, url, server)
        closed = shop.start("-s", "CLOSESPIDER_PAGECOUNT=200")
        killed, lasting = shop.start(), shop.start()
        shop.wait_for(600)
        killed.kill()
        killed.wait()
        shop.wait_for(1200)
        with redis.client() as client:
            drop_connections(client)
        stats = shop.finish(closed, lasting, seconds=300)
        products, others = shop.rows()
    items = tmp_path / "items.jsonl"
    items.write_text("".join(json.dumps(row) + "\n" for row in products))
    report = json.loads(run("check", items))
    print(report)
    assert (report["missing"], report["duplicated"], report["wrong"]) == (0, 0, 0)
    assert report["fetches"] <= 2000 + 16  # what the killed one had begun
    assert by_name(others) == by_name(OTHER_ROWS)
    assert (stats.finished, stats.leased, stats.dead) == (True, 0, 0)


@pytest.mark.timeout(120)
def test_ctrl_c_gives_back_what_is_held(new_project, frontier):
    """SIGINT ends a process cleanly; the same command goes on from there."""
    with Site(pages=60, latency_s=0.05) as site, ScriptedServer(answer) as server:
        shop = Shop(new_project, frontier, site.url, server)
        first = shop.start()
        shop.wait_for(10)
        first.send_signal(signal.SIGINT)
        stats = shop.finish(first)
        assert (stats.leased, stats.finished) == (0, False)
        shop.finish(shop.start())
        products, others = shop.rows()
        assert site.fetches() == Counter(site.urls)
    assert len(products) == 60
    assert by_name(others) == by_name(OTHER_ROWS)
