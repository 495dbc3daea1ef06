"""One turn of a crawler whose workers have to be ended from outside, with its queue on a Redis of its own."""

from __future__ import annotations

import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from tests.services import RedisServer

from benchmarks.measure import SHOAL, Site
from benchmarks.report import table
from shoal.frontier import open_frontier

CRAWL = """\
import shoal

crawl = shoal.Crawl(
    "site", seeds=[{start!r}], scope="any", obey_robots=False, sort_query=True, per_host=16, concurrency=64
)


@crawl.page()
async def product(page):
    yield {{
        "id": page.css("article.product::attr(data-id)").get(),
        "title": page.css("article.product h1::text").get(),
        "price": page.css("[itemprop=price]::attr(content)").get(),
    }}
    for link in page.links():
        yield link
"""


class Turn(NamedTuple):
    """What one crawl cost."""

    pages_per_s: float
    """By the server's log, from the first fetch to the last."""
    cpu_ms: float
    """Of the crawler's processes, from their start to their end, for one page."""
    redis_ms: float
    """CPU of Redis, for one page."""


class Place(NamedTuple):
    """Where one crawl is run."""

    work: Path
    redis: str
    """URL of an empty Redis, without the database."""
    site: Site

    @property
    def frontier(self) -> str:
        """The URL of shoal's frontier."""
        return f"{self.redis}/1"

    @property
    def rows(self) -> Path:
        """The file in which the rows are to be; files named rows.1 and so on count as well."""
        return self.work / "items.jsonl"


Processes = list[subprocess.Popen[bytes]]
Start = Callable[[Place], Processes]
Question = Callable[[Place], bool]


def take_turn(
    start: Start,
    site: Site,
    ended: Question,
    collect: Callable[[Place], None] = lambda place: None,
    doubled: int = 0,
) -> Turn:
    """Crawl the site from an empty frontier; every page must come out once, and right.

    collect: what is to be done, when all has ended, to have the rows in the place's file.
    doubled: so many pages may come out twice.
    """
    with tempfile.TemporaryDirectory() as folder, RedisServer() as redis:
        place = Place(Path(folder), redis.url.removesuffix("/0"), site)
        site.reset()
        busy = _busy_s(redis)
        processes = start(place)
        try:
            while not ended(place):
                time.sleep(0.2)
            busy = _busy_s(redis) - busy
            cpu_s = sum(map(_end, processes))
        finally:
            for process in processes:
                if process.returncode is None:
                    process.kill()
                    process.wait()
        collect(place)
        with place.rows.open("ab") as rows:
            for each in place.work.glob(f"{place.rows.name}.*"):
                rows.write(each.read_bytes())
        report = site.check(place.rows)
    faults = report["missing"] + report["wrong"]
    if faults or max(report["duplicated"], report["pages_fetched_again"]) > doubled:
        raise SystemExit(f"the crawl is not right, so its speed says nothing: {report}")
    return Turn(report["fetches_per_s"], 1000 * cpu_s / site.pages, 1000 * busy / site.pages)


def _busy_s(redis: RedisServer) -> float:
    with redis.client() as client:
        times = client.info("cpu")
    return float(times["used_cpu_user"]) + float(times["used_cpu_sys"])


def _end(process: subprocess.Popen[bytes]) -> float:
    """Ask it to end; returns the CPU seconds that it and its children have used."""
    process.terminate()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return usage.ru_utime + usage.ru_stime


def is_finished(place: Place) -> bool:
    """Whether shoal says so."""
    with open_frontier(place.frontier, crawl="site") as frontier:
        stats = frontier.stats()
    return stats.done > 0 and stats.finished


def write_scraper(place: Place) -> None:
    """Write shoal's crawl down, as scraper.py."""
    (place.work / "scraper.py").write_text(CRAWL.format(start=place.site.start))


def shoal_worker(place: Place, store: str = "items.jsonl", processes: int = 2) -> Processes:
    """Start shoal's own workers."""
    write_scraper(place)
    command = [SHOAL, "worker", "scraper.py", "--processes", str(processes), "-o", store]
    where = ["--frontier", place.frontier]
    quiet = subprocess.DEVNULL
    return [subprocess.Popen([*command, *where], cwd=place.work, stdout=quiet, stderr=quiet)]


def compared(turns: dict[str, list[Turn]], unit: str) -> str:
    """The medians in a table; the CPU of `unit` is 1."""
    one_ms = statistics.median(turn.cpu_ms for turn in turns[unit])
    rows = [_row(name, taken, one_ms) for name, taken in turns.items()]
    return table(["", "pages/s", "CPU ms per page", f"times {unit}", "Redis, CPU ms per page"], rows)


def _row(name: str, taken: Sequence[Turn], one_ms: float) -> list[str]:
    rate, cpu_ms, redis_ms = (
        statistics.median(getattr(turn, field) for turn in taken) for field in Turn._fields
    )
    return [name, f"{rate:,.0f}", f"{cpu_ms:.2f}", f"{cpu_ms / one_ms:.1f}", f"{redis_ms:.2f}"]
