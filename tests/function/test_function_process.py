"""A function in one process: what stays open, what it costs, how many are worth starting."""

from __future__ import annotations

import asyncio
import gc
import json
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.function.conftest import assert_all_once
from tests.site import Site
from tests.waiting import until

import shoal
import shoal.function
from shoal.errors import ConfigError, StoreError
from shoal.frontier import open_frontier
from shoal.model import Link
from shoal.slice import Bench


class Context:
    """Of an invocation that has some seconds left."""

    def __init__(self, left_s: float = 20.0) -> None:
        self._left_s = left_s

    def get_remaining_time_in_millis(self) -> int:
        return int(self._left_s * 1000)


@pytest.fixture(params=["sqlite", "redis"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty frontier on both back ends."""
    if request.param == "redis":
        return str(request.getfixturevalue("frontier"))
    return f"sqlite:{tmp_path / 'crawl.shoal'}"


def crawl_of(site: Site, **settings: Any) -> shoal.Crawl:
    """A crawl of all its pages."""
    crawl = shoal.Crawl("site", seeds=[site.url], scope="any", **settings)

    @crawl.page()
    def page(page: shoal.Page) -> Any:
        yield {"id": page.css("article::attr(data-id)").get()}
        yield from page.links()

    return crawl


def test_a_slice_on_each_back_end(place: str, tmp_path: Path) -> None:
    """It crawls the site, and says so."""
    with Site(30) as site:
        work = shoal.function.handler(crawl_of(site), frontier=place, store=str(tmp_path / "rows.jsonl"))
        report = work({}, Context())
        assert report["done"] == site.pages
        assert report["finished"]
        assert_all_once(site, place, tmp_path / "rows.jsonl")


def test_it_may_be_collected_while_a_loop_runs(place: str, tmp_path: Path) -> None:
    """What it has opened is closed: nothing is left over that would warn of itself."""
    threads = threading.active_count()
    with Site(3) as site:
        kept: list[Any] = [
            shoal.function.handler(crawl_of(site), frontier=place, store=str(tmp_path / "rows.jsonl"))
        ]
        kept[0]({}, Context())
        kept.append(kept)

        async def collect() -> None:
            nonlocal kept
            kept = []
            gc.collect()

        asyncio.run(collect())
    until(lambda: threading.active_count() <= threads, what="the end of its threads")


def test_rows_may_stay_in_a_frontier_that_keeps_them(tmp_path: Path, frontier: str) -> None:
    """SQLite does; on Redis a store has to be given, and the first invocation says so."""
    with Site(3) as site:
        work = shoal.function.handler(crawl_of(site), frontier=f"sqlite:{tmp_path / 'crawl.shoal'}")
        assert work({}, Context())["done"] == site.pages
        with open_frontier(f"sqlite:{tmp_path / 'crawl.shoal'}", crawl="site") as opened:
            assert len([*opened.items()]) == site.pages
        with pytest.raises(ConfigError, match="keeps no rows"):
            shoal.function.handler(crawl_of(site), frontier=frontier)({}, Context())


def test_nothing_is_opened_before_the_first_invocation(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """So a snapshot of the process, or a fork, is good in all its copies. Then all is opened once."""
    opened: list[Bench] = []
    monkeypatch.setattr(Bench, "_open", lambda bench, real=Bench._open: (opened.append(bench), real(bench)))
    with Site(3) as site:
        work = shoal.function.handler(crawl_of(site), frontier=f"sqlite:{tmp_path / 'crawl.shoal'}")
        assert not [*tmp_path.iterdir()]
        for _ in range(3):
            work({}, Context())
        assert len(opened) == 1


def test_threads_work_side_by_side(place: str, tmp_path: Path) -> None:
    """Each invocation has its own place; those that are free are used again, by any thread."""
    with Site(60, latency_s=0.05) as site:
        work = shoal.function.handler(crawl_of(site), frontier=place, store=str(tmp_path / "rows.jsonl"))
        reports: list[Any] = []
        for _ in range(2):
            threads = [threading.Thread(target=lambda: reports.append(work({}, Context()))) for _ in range(3)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        assert [report["finished"] for report in reports] == [True] * 6
        assert_all_once(site, place, tmp_path / "rows.jsonl")


def test_a_failure_does_not_outlive_its_cause(place: str, tmp_path: Path) -> None:
    """The invocation raises; the next one opens all anew, and nothing is lost."""
    rows = tmp_path / "rows.jsonl"
    with Site(5) as site:
        work = shoal.function.handler(crawl_of(site), frontier=place, store=str(rows))
        work({}, Context())
        kept = rows.read_bytes()
        rows.write_bytes(b"")
        with pytest.raises(StoreError):
            work({"urls": [f"{site.url}p/1?new"]}, Context())
        rows.write_bytes(kept)
        assert work({}, Context())["done"] == 1
        assert len(rows.read_bytes().splitlines()) == site.pages + 1


def test_it_does_not_wait_longer_than_it_is_told(place: str, tmp_path: Path) -> None:
    """For a host with a long delay; it says in how many seconds to come back."""
    with Site(5) as site:
        work = shoal.function.handler(
            crawl_of(site, delay_s=100.0, obey_robots=False),
            frontier=place,
            store=str(tmp_path / "rows.jsonl"),
            patience_s=0.2,
        )
        report = work({}, Context(300.0))
        assert report["done"] == 1
        assert not report["finished"]
        assert report["start"] == 0
        assert 50 < report["again_s"] <= 100


# --- fan_out ----------------------------------------------------------------------------------


def test_fan_out_over_a_crawl(place: str, tmp_path: Path) -> None:
    """One to begin; then as many as can fetch at once; none when it is finished."""
    with Site(50, hosts=8) as site:
        crawl = crawl_of(site, concurrency=2, per_host=2)
        fan_out: Callable[..., int] = lambda **more: shoal.function.fan_out(crawl, frontier=place, **more)  # noqa: E731
        add = shoal.function.handler(crawl, frontier=place, store=str(tmp_path / "rows.jsonl"), limit_s=0)
        assert (fan_out(), fan_out(most=0)) == (1, 0)
        assert not shoal.function.is_finished(crawl, frontier=place)
        assert add({}, Context())["start"] == fan_out() == 1
        add({"urls": site.urls}, Context())
        assert (fan_out(), fan_out(most=3)) == (8, 3)
        with open_frontier(place, crawl="site") as opened:
            opened.pause()
            assert fan_out() == 0
            opened.resume()
        work = shoal.function.handler(crawl, frontier=place, store=str(tmp_path / "rows.jsonl"))
        assert work({}, Context())["finished"]
        assert fan_out() == 0
        assert shoal.function.is_finished(crawl, frontier=place)


def test_fan_out_takes_back_what_the_dead_held(place: str, tmp_path: Path) -> None:
    """Once their time has run out, which is when their invocation would have ended."""
    with Site(1) as site:
        crawl = crawl_of(site)
        shoal.function.handler(crawl, frontier=place, store=str(tmp_path / "r.jsonl"), limit_s=0)(
            {}, Context()
        )
        with open_frontier(place, crawl="site") as opened:
            assert opened.lease(1, 0.0, worker="function:dead").leases
        assert shoal.function.fan_out(crawl, frontier=place) == 1


def test_fan_out_counts_what_was_pushed(frontier: str, redis_server: Any, tmp_path: Path) -> None:
    """Into the inbox, by other programs."""
    with Site(1) as site:
        crawl = crawl_of(site)
        work = shoal.function.handler(crawl, frontier=frontier, store=str(tmp_path / "rows.jsonl"))
        assert work({}, Context())["finished"]
        with redis_server.client() as client:
            client.lpush(f"{frontier.partition('prefix=')[2]}:{{site}}:inbox", f"{site.url}p/0?pushed")
        assert not shoal.function.is_finished(crawl, frontier=frontier)
        assert shoal.function.fan_out(crawl, frontier=frontier) == 1


def test_fan_out_brings_back_pages_to_be_revisited(place: str, tmp_path: Path) -> None:
    """A crawl that is finished begins again when their time has come."""
    with Site(5) as site:
        crawl = crawl_of(site, revisit_s=0.001)
        work = shoal.function.handler(crawl, frontier=place, store=f"sqlite:{tmp_path / 'rows.db'}")
        assert work({}, Context())["done"] == site.pages
        assert shoal.function.fan_out(crawl, frontier=place) == 1
        assert work({}, Context())["done"] == site.pages


def test_workers_of_other_sandboxes_are_not_taken_for_dead(place: str, tmp_path: Path) -> None:
    """Sandboxes have the same host name and process ids: a slice leaves alone what others hold."""
    with Site(2) as site:
        crawl = crawl_of(site)
        work = shoal.function.handler(
            crawl, frontier=place, store=str(tmp_path / "rows.jsonl"), patience_s=0.1
        )
        with open_frontier(place, crawl="site") as opened:
            opened.add([Link(site.url)])
            (held,) = opened.lease(1, 60.0, worker="function:0123456789abcdef").leases
            assert work({}, Context())["leased"] == 1
            assert not opened.extend([held.token], 60.0)


# --- what it costs -----------------------------------------------------------------------------

MANY = """\
import json, sys
import psutil
import shoal, shoal.function

url, frontier, store = sys.argv[1:]
crawl = shoal.Crawl("site", seeds=[url], scope="any")

@crawl.page()
def page(page):
    yield {"url": page.url}

work = shoal.function.handler(crawl, frontier=frontier, store=store)

class Context:
    def get_remaining_time_in_millis(self):
        return 20_000

process, sizes, threads = psutil.Process(), [], []
for number in range(1, 201):
    report = work({"urls": [f"{url}p/{number}?{each}" for each in range(5)]}, Context())
    assert report["done"] >= 5 and report["finished"], report
    sizes.append(process.memory_info().rss)
    threads.append(process.num_threads() + process.num_fds())
print(json.dumps([sizes, threads]))
"""


@pytest.mark.slow
def test_memory_stays_flat_over_200_invocations(place: str, tmp_path: Path) -> None:
    """In one process, with new URLs in each; and so do its threads and open files."""
    with Site(201) as site:
        sizes, threads = _run(MANY, site.url, place, str(tmp_path / "rows.jsonl"))
    assert max(sizes[150:]) - max(sizes[20:50]) < 4_000_000, sizes[::10]
    assert max(threads[150:]) < max(threads[:50]) + 20, threads[::10]  # one for each would be 100


IMPORT = """\
import json, time
start = time.process_time()
import shoal, shoal.function
crawl = shoal.Crawl("site", seeds=["https://site.example/"])
shoal.function.handler(crawl, frontier="redis://127.0.0.1/0", store="postgresql://127.0.0.1/rows")
print(json.dumps(time.process_time() - start))
"""
KNOWN = """\
import json, time
start = time.process_time()
import aiohttp
print(json.dumps(time.process_time() - start))
"""


def test_a_cold_start_is_quick() -> None:
    """Importing takes little more CPU than aiohttp alone, which is most of it; the best of three counts."""
    ours, known = (min(_run(code) for _ in range(3)) for code in (IMPORT, KNOWN))
    print(f"{ours * 1000:.0f} ms, aiohttp {known * 1000:.0f} ms")
    assert ours < 2.5 * known


def _run(code: str, *arguments: str) -> Any:
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False, timeout=100
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
