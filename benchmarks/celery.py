"""One crawl by `celery worker --concurrency=2`, and by `shoal worker --processes 2`.

Run it with: python -m benchmarks.celery.

Frontier and broker are one Redis. The rate is that of the server's log, from the first fetch to the last;
CPU is that of all processes of the workers, from their start to their end.
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
from pathlib import Path
from typing import NamedTuple

from tests.services import RedisServer

from benchmarks.measure import SHOAL, Site, serving
from benchmarks.report import machine, table, versions
from shoal.frontier import open_frontier

ONE_MESSAGE_PER_URL_MS = 39.0
"""CPU of the best crawler on Celery that sends a message for each URL: prefork, requests, lxml."""

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


class Turn(NamedTuple):
    """What one crawl cost."""

    pages_per_s: float
    cpu_ms: float
    """For one page."""


def take_turn(start: Callable[[Path, str], subprocess.Popen[bytes]], site: Site) -> Turn:
    """Crawl the site from an empty frontier; every page must come out once, and right."""
    with tempfile.TemporaryDirectory() as folder, RedisServer() as redis:
        work, place = Path(folder), redis.url.removesuffix("/0")
        (work / "scraper.py").write_text(CRAWL.format(start=site.start))
        names = {"broker": f"{place}/0", "frontier": f"{place}/1", "store": str(work / "items.jsonl")}
        (work / "app.py").write_text(APP.format(**names))
        site.reset()
        process = start(work, f"{place}/1")
        try:
            with open_frontier(f"{place}/1", crawl="site") as frontier:
                while not (frontier.stats().done and frontier.stats().finished):
                    time.sleep(0.2)
            process.terminate()
            _, _, usage = os.wait4(process.pid, 0)
            process.returncode = 0
        finally:
            if process.returncode is None:
                process.kill()
                process.wait()
        report = site.check(work / "items.jsonl")
    if any(report[name] for name in ("missing", "wrong", "duplicated", "pages_fetched_again")):
        raise SystemExit(f"the crawl is not right, so its speed says nothing: {report}")
    return Turn(report["fetches_per_s"], 1000 * (usage.ru_utime + usage.ru_stime) / site.pages)


def celery_worker(work: Path, frontier: str) -> subprocess.Popen[bytes]:
    """Return the worker, which finds the seeds itself."""
    command = [sys.executable, "-m", "celery", "-A", "app", "worker", "--concurrency=2", "-l", "warning"]
    return subprocess.Popen(command, cwd=work)


def shoal_worker(work: Path, frontier: str) -> subprocess.Popen[bytes]:
    """Return shoal's own worker."""
    command = [SHOAL, "worker", "scraper.py", "--processes", "2", "--frontier", frontier, "-o", "items.jsonl"]
    return subprocess.Popen(command, cwd=work, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


WORKERS = {"celery worker": celery_worker, "shoal worker": shoal_worker}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pages", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    turns: dict[str, list[Turn]] = {name: [] for name in WORKERS}
    with serving(given.pages) as site:
        for _ in range(given.rounds):
            for name, start in WORKERS.items():
                turns[name].append(take_turn(start, site))
                print(name, turns[name][-1], flush=True)
    rows = []
    for name, taken in turns.items():
        cpu_ms = statistics.median(turn.cpu_ms for turn in taken)
        rate = statistics.median(turn.pages_per_s for turn in taken)
        rows.append([name, f"{rate:,.0f}", f"{cpu_ms:.2f}", f"{ONE_MESSAGE_PER_URL_MS / cpu_ms:.0f}"])
    head = ["", "pages/s", "CPU ms/page", "times fewer CPU than one message per URL"]
    print(machine(), versions("celery", "kombu", "redis"), table(head, rows), sep="\n")


if __name__ == "__main__":
    main()
