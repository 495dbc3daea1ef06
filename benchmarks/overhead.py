"""What it costs to be watched: metrics that are scraped, logs and history, beside the same code without them.

    python -m benchmarks.overhead [--redis]

They take turns on the same site, so that whatever else the machine does hits all; medians count.
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import sys
import tempfile
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path

from tests.services import RedisServer

from benchmarks.measure import SHOAL, Cost, Site, crawl, median, serving, shoal_command
from benchmarks.report import table

SCRAPE_S = 1.0  # Prometheus does it every 15 seconds

KINDS = {
    "nothing is counted": [sys.executable, "-m", "benchmarks.unwatched"],
    "as it comes: counters and history": [SHOAL],
    "scraped every second, log as JSON": [SHOAL],
}
BARE, _, WATCHED = KINDS


@contextmanager
def scraping(log: Path) -> Iterator[list[int]]:
    """Scrape every second what the log says is there; yields the sizes of what came."""
    ended, sizes = threading.Event(), list[int]()

    def scrape() -> None:
        while not ended.wait(SCRAPE_S):
            if found := re.search(r'"metrics": "([^"]+)"', log.read_text()):
                with suppress(OSError), urllib.request.urlopen(found[1], timeout=5) as answer:
                    sizes.append(len(answer.read()))

    thread = threading.Thread(target=scrape)
    thread.start()
    try:
        yield sizes
    finally:
        ended.set()
        thread.join()


def take_turn(kind: str, site: Site, on_redis: bool) -> tuple[Cost, float]:
    """Crawl the whole site; returns the cost, and the CPU milliseconds of Redis for a page."""
    with tempfile.TemporaryDirectory() as folder, RedisServer() if on_redis else nullcontext() as redis:
        work = Path(folder)
        log = work / "log"
        log.touch()
        command = [*KINDS[kind], *shoal_command(site.start, work)[1:]]
        if kind == WATCHED:
            command[command.index("--quiet") :] = ["--log-json", "--metrics-port", "0"]
        if redis is not None:
            at = command.index("--state")
            command[at : at + 2] = ["--frontier", redis.url]
        shell = 'exec "$@" 2>>"$0"'
        with scraping(log) as sizes:
            cost = crawl(["sh", "-c", shell, log, *command], site)
        redis_s = 0.0
        if redis is not None:
            with redis.client() as client:
                times = client.info("cpu")
            redis_s = float(times["used_cpu_user"]) + float(times["used_cpu_sys"])
        report = site.check(work / "items.jsonl")
    if report["missing"] or report["wrong"] or report["pages_fetched_again"]:
        raise SystemExit(f"the crawl is not right, so its speed says nothing: {report}")
    redis_ms = 1000 * redis_s / site.pages
    print(
        f"{kind}: {cost.cpu_ms_per_page:.3f} ms/page, {cost.pages_per_s:.0f} pages/s,"
        f" Redis {redis_ms:.3f} ms/page, {len(sizes)} scrapes, others {cost.others_cores:.2f}",
        flush=True,
    )
    return cost, redis_ms


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--pages", type=int, default=20_000)
    parser.add_argument("--redis", action="store_true", help="with the frontier on Redis")
    given = parser.parse_args()
    costs: dict[str, list[Cost]] = {kind: [] for kind in KINDS}
    redis: dict[str, list[float]] = {kind: [] for kind in KINDS}
    with serving(given.pages) as site:
        for number in range(given.rounds):
            for kind in [*KINDS] if number % 2 else [*KINDS][::-1]:
                cost, redis_ms = take_turn(kind, site, given.redis)
                costs[kind].append(cost)
                redis[kind].append(redis_ms)
    print(
        table(
            ["", "CPU ms per page", "more", "pages/s", "pages/s more", "Redis, CPU ms per page"],
            [_row(name, costs, redis) for name in costs],
        )
    )


def _row(name: str, costs: dict[str, list[Cost]], redis: dict[str, list[float]]) -> list[str]:
    """The median of each round's ratio says how much more: rounds differ more than kinds do."""
    pairs = [*zip(costs[name], costs[BARE], strict=True)]
    more = statistics.median(ours.cpu_s / theirs.cpu_s for ours, theirs in pairs) - 1
    faster = statistics.median(ours.pages_per_s / theirs.pages_per_s for ours, theirs in pairs) - 1
    return [
        name,
        f"{median(costs[name], 'cpu_ms_per_page'):.3f}",
        f"{more:+.1%}",
        f"{median(costs[name], 'pages_per_s'):,.0f}",
        f"{faster:+.1%}",
        f"{statistics.median(redis[name]):.3f}",
    ]


if __name__ == "__main__":
    os.environ.pop("PYTHONPATH", None)
    main()
