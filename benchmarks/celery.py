"""One crawl by `celery worker --concurrency=2`, and by `shoal worker --processes 2`.

Run it with: python -m benchmarks.celery.

Besides, on a smaller site because they take so long, crawlers with a message for each URL
(peers/celery_peer.py). Frontier and broker are one Redis. The rate is that of the server's log, from the
first fetch to the last; CPU is that of all processes of a worker, from its start to its end.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

from celery import Celery
from redis.client import Redis
from tests.services import RedisServer

from benchmarks.measure import ROOT, SHOAL, Site, serving
from benchmarks.report import machine, table, versions
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
APP = """\
import shoal.celery
from celery import Celery
from scraper import crawl

app = Celery("app", broker={broker!r})
site = shoal.celery.attach(app, crawl, frontier={frontier!r}, store={store!r})
"""


PEERS = Path(__file__).parent / "peers"
BENCH_PYTHON = ROOT / ".venv-bench" / "bin" / "python"


class Turn(NamedTuple):
    """What one crawl cost."""

    pages_per_s: float
    cpu_ms: float
    """For one page."""


class Place(NamedTuple):
    """Where one crawl is run."""

    work: Path
    redis: str
    """URL of an empty Redis, without the database."""
    site: Site


Ended = Callable[[Place], bool]


def take_turn(start: Callable[[Place], subprocess.Popen[bytes]], site: Site, ended: Ended) -> Turn:
    """Crawl the site from an empty frontier; every page must come out once, and right."""
    with tempfile.TemporaryDirectory() as folder, RedisServer() as redis:
        place = Place(Path(folder), redis.url.removesuffix("/0"), site)
        site.reset()
        process = start(place)
        try:
            while not ended(place):
                time.sleep(0.2)
            process.terminate()
            _, _, usage = os.wait4(process.pid, 0)
            process.returncode = 0
        finally:
            if process.returncode is None:
                process.kill()
                process.wait()
        rows = place.work / "items.jsonl"
        with rows.open("ab") as all_rows:
            for each in place.work.glob("items.jsonl.*"):
                all_rows.write(each.read_bytes())
        report = site.check(rows)
    if any(report[name] for name in ("missing", "wrong", "duplicated", "pages_fetched_again")):
        raise SystemExit(f"the crawl is not right, so its speed says nothing: {report}")
    return Turn(report["fetches_per_s"], 1000 * (usage.ru_utime + usage.ru_stime) / site.pages)


def is_finished(place: Place) -> bool:
    """Whether shoal says so."""
    with open_frontier(f"{place.redis}/1", crawl="site") as frontier:
        stats = frontier.stats()
    return stats.done > 0 and stats.finished


def is_all_done(place: Place) -> bool:
    """Whether the peer has done as many pages as there are: it cannot tell when it is finished."""
    with Redis.from_url(f"{place.redis}/1") as client:
        return int(client.get("done") or 0) >= place.site.pages


def write_scraper(place: Place) -> str:
    """Write the crawl down; returns the URL of its frontier."""
    (place.work / "scraper.py").write_text(CRAWL.format(start=place.site.start))
    return f"{place.redis}/1"


def celery_worker(place: Place) -> subprocess.Popen[bytes]:
    """Return the worker, which finds the seeds itself."""
    names = {"broker": f"{place.redis}/0", "store": str(place.work / "items.jsonl")}
    (place.work / "app.py").write_text(APP.format(frontier=write_scraper(place), **names))
    return subprocess.Popen(celery_command("app", 2), cwd=place.work)


def shoal_worker(place: Place) -> subprocess.Popen[bytes]:
    """Return shoal's own worker."""
    frontier = ["--frontier", write_scraper(place)]
    command = [SHOAL, "worker", "scraper.py", "--processes", "2", "-o", "items.jsonl", *frontier]
    return subprocess.Popen(command, cwd=place.work, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def message_per_url(place: Place, python: str | Path, reader: str) -> subprocess.Popen[bytes]:
    """Return the peer's worker, with its first message on the way."""
    environment = os.environ | {
        "BROKER": f"{place.redis}/0",
        "SEEN": f"{place.redis}/1",
        "ROWS": str(place.work / "items.jsonl"),
        "PYTHONPATH": str(PEERS),
        "READER": reader,
    }
    with Redis.from_url(f"{place.redis}/1") as client:
        client.sadd("seen", place.site.start)
    with Celery(broker=f"{place.redis}/0") as app:
        app.send_task("crawl", args=[place.site.start])
    command = celery_command("celery_peer", 4, python)
    return subprocess.Popen(command, cwd=place.work, env=environment)


def celery_command(app: str, concurrency: int, python: str | Path = sys.executable) -> list[object]:
    """Return how a worker is started."""
    return [python, "-m", "celery", "-A", app, "worker", f"--concurrency={concurrency}", "-l", "warning"]


WORKERS = {"celery worker": celery_worker, "shoal worker": shoal_worker}
PEERS_AT_WORK = {
    "a message per URL, lxml": partial(message_per_url, python=BENCH_PYTHON, reader="lxml"),
    "a message per URL, shoal's parser": partial(message_per_url, python=sys.executable, reader="lean"),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pages", type=int, default=20_000)
    parser.add_argument("--peer-pages", type=int, default=2_000)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    turns: dict[str, list[Turn]] = {name: [] for name in [*WORKERS, *PEERS_AT_WORK]}
    for _ in range(given.rounds):
        with serving(given.pages) as site:
            for name, start in WORKERS.items():
                turns[name].append(take_turn(start, site, is_finished))
        with serving(given.peer_pages) as site:
            for name, start_peer in PEERS_AT_WORK.items():
                turns[name].append(take_turn(start_peer, site, is_all_done))
    best_ms = statistics.median(turn.cpu_ms for turn in turns["celery worker"])
    rows = []
    for name, taken in turns.items():
        cpu_ms = statistics.median(turn.cpu_ms for turn in taken)
        rate = statistics.median(turn.pages_per_s for turn in taken)
        rows.append([name, f"{rate:,.0f}", f"{cpu_ms:.2f}", f"{cpu_ms / best_ms:.1f}"])
    head = ["", "pages/s", "CPU ms/page", "CPU, celery worker = 1"]
    print(machine(), versions("celery", "kombu", "redis"), table(head, rows), sep="\n")


if __name__ == "__main__":
    main()
