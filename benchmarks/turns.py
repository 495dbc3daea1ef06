"""One turn of a crawler on a site, in an empty folder and with a Redis of its own."""

from __future__ import annotations

import statistics
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from tests.services import RedisServer

from benchmarks.measure import SHOAL, Processes, Site, follow
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

    pages: int
    pages_per_s: float
    """By the server's log, from the first fetch to the last."""
    cpu_ms: float
    """Of the crawler's processes, from their first request to their end, for one page."""
    redis_ms: float
    """CPU of Redis, for one page."""
    start_s: float
    """CPU seconds of the crawler's processes before that."""
    peak_mb: float
    others_cores: float


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


Start = Callable[[Place], Processes]
Question = Callable[[Place], bool]


def take_turn(
    start: Start,
    site: Site,
    ended: Question = lambda place: False,
    collect: Callable[[Place], None] = lambda place: None,
    doubled: int = 0,
) -> Turn:
    """Crawl the site from an empty frontier; every page must come out once, and right.

    ended: when to tell the processes to end, if they do not by themselves.
    collect: what is to be done, when all has ended, to have the rows in the place's file.
    doubled: so many pages may come out twice.
    """
    with tempfile.TemporaryDirectory() as folder, RedisServer(appendonly=True) as redis:
        place = Place(Path(folder), redis.url.removesuffix("/0"), site)
        busy = _busy_s(redis)
        cost = follow(lambda: start(place), site, lambda: ended(place))
        busy = _busy_s(redis) - busy
        collect(place)
        _join(place)
        report = site.check(place.rows)
    faults = sum(report.get(key, 0) for key in ("missing", "wrong", "unknown", "broken", "never_fetched"))
    if faults or max(report.get("duplicated", 0), report["pages_fetched_again"]) > doubled:
        raise SystemExit(f"the crawl is not right, so its speed says nothing: {report}")
    return Turn(
        pages=site.pages,
        pages_per_s=report["fetches_per_s"],
        cpu_ms=1000 * (cost.cpu_s - cost.start_cpu_s) / site.pages,
        redis_ms=1000 * busy / site.pages,
        start_s=cost.start_cpu_s,
        peak_mb=cost.peak_mb,
        others_cores=cost.others_cores,
    )


def _join(place: Place) -> None:
    """Put the rows that several processes have written into one file, if there are any."""
    for part in place.work.glob(f"{place.rows.name}.*"):
        with place.rows.open("ab") as rows:
            rows.write(part.read_bytes())


def _busy_s(redis: RedisServer) -> float:
    with redis.client() as client:
        times = client.info("cpu")
    return float(times["used_cpu_user"]) + float(times["used_cpu_sys"])


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
    one_ms = middle(turns[unit], "cpu_ms")
    rows = [_row(name, taken, one_ms) for name, taken in turns.items()]
    return table(["", "pages/s", "CPU ms per page", f"times {unit}", "Redis, CPU ms per page"], rows)


def middle(taken: Sequence[Turn], field: str) -> float:
    """The median of a field."""
    return statistics.median(getattr(turn, field) for turn in taken)


def _row(name: str, taken: Sequence[Turn], one_ms: float) -> list[str]:
    rate, cpu_ms, redis_ms = (middle(taken, field) for field in ("pages_per_s", "cpu_ms", "redis_ms"))
    return [name, f"{rate:,.0f}", f"{cpu_ms:.2f}", f"{cpu_ms / one_ms:.1f}", f"{redis_ms:.2f}"]
