"""Scrapy on shoal's frontier, beside Scrapy alone and scrapy-redis: what it costs, and what a kill costs.

    python -m benchmarks.spiders

First one process crawls the site, with each kind of queue. Then three processes share a smaller one; one of
them is killed and another one closed by CLOSESPIDER_PAGECOUNT.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from redis.client import Redis
from tests.services import RedisServer

from benchmarks.measure import PEERS_PYTHON, ROOT, Cost, Site, crawl, median, run_site, serving
from benchmarks.report import machine, publish, table, versions

PEER = ROOT / "benchmarks" / "peers" / "scrapy_peer.py"
IDLE_S = 10
PARTS = "*.jsonl"


@contextlib.contextmanager
def environment(**variables: str) -> Iterator[None]:
    """With these variables set, for the processes that are started."""
    before = dict(os.environ)
    os.environ.update(variables, PYTHONPATH=f"{ROOT / 'src'}")
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


# --- what it costs -------------------------------------------------------------------------------


def alone(mode: str, frontier: Callable[[Path, RedisServer], str], site: Site) -> tuple[Cost, float]:
    """Crawl the site with one process; also returns the CPU milliseconds of Redis for a page."""
    with tempfile.TemporaryDirectory() as folder, RedisServer() as redis:
        work = Path(folder)
        items = work / "items.jsonl"
        with environment(SHOAL_FRONTIER=frontier(work, redis)), redis.client() as client:
            cost = crawl([sys.executable, PEER, mode, site.start, items], site)
            used = client.info("cpu")
        report = site.check(items)
    again = mode == "memory"  # Scrapy fetches its start page again when it finds a link to it
    if report["missing"] or report["wrong"] or report["pages_fetched_again"] > again:
        raise SystemExit(f"the crawl is not right, so its cost says nothing: {report}")
    return cost, 1000 * (used["used_cpu_user"] + used["used_cpu_sys"]) / site.pages


def in_file(work: Path, redis: RedisServer) -> str:
    """The frontier in a file."""
    return f"sqlite:{work / 'crawl.shoal'}"


def on_redis(work: Path, redis: RedisServer) -> str:
    """The frontier on Redis."""
    return redis.url


QUEUES = {
    "Scrapy's own scheduler, in memory": ("memory", in_file),
    "shoal's, SQLite": ("shoal", in_file),
    "shoal's, Redis": ("shoal", on_redis),
    "shoal's, Redis, and StorePipeline": ("shoal-store", on_redis),
}


def costs(rounds: int, pages: int) -> str:
    """The table."""
    taken: dict[str, list[tuple[Cost, float]]] = {name: [] for name in QUEUES}
    with serving(pages) as site:
        for _ in range(rounds):
            for name, (mode, frontier) in QUEUES.items():
                taken[name].append(alone(mode, frontier, site))
                print(name, f"{taken[name][-1][0].cpu_ms_per_page:.2f} ms", flush=True)
    plain = median([cost for cost, _ in taken["Scrapy's own scheduler, in memory"]], "cpu_ms_per_page")
    head = [
        "queue",
        "pages",
        "CPU ms per page",
        "all rounds",
        "overhead",
        "pages/s",
        "Redis, CPU ms per page",
    ]
    return table(head, [_cost_row(name, each, plain) for name, each in taken.items()])


def _cost_row(name: str, taken: list[tuple[Cost, float]], plain: float) -> list[str]:
    each = [cost for cost, _ in taken]
    cpu_ms = median(each, "cpu_ms_per_page")
    return [
        name,
        f"{each[0].pages:,}",
        f"{cpu_ms:.2f}",
        ", ".join(f"{value:.2f}" for value in sorted(cost.cpu_ms_per_page for cost in each)),
        f"{100 * (cpu_ms / plain - 1):+.0f} %",
        f"{median(each, 'pages_per_s'):.0f}",
        f"{min(redis_ms for _, redis_ms in taken):.2f}" if "Redis" in name else "",
    ]


# --- what a kill costs -----------------------------------------------------------------------------


def three(mode: str, python: str | Path, site: Site) -> dict[str, object]:
    """Crawl with three processes, one of which is killed and another one closed; returns the site's check."""
    with tempfile.TemporaryDirectory() as folder, RedisServer() as redis:
        work = Path(folder)
        site.reset()
        with redis.client() as client:
            client.lpush("peer:start_urls", site.start)
        more = {"REDIS_URL": redis.url, "SHOAL_FRONTIER": redis.url, "IDLE_S": str(IDLE_S)}

        def start(number: int, **variables: str) -> subprocess.Popen[bytes]:
            items = work / ("items.jsonl" if "store" in mode else f"part{number}.jsonl")
            with environment(**more, **variables):
                return subprocess.Popen([python, PEER, mode, site.start, items], cwd=work)

        closed = start(0, CLOSE_AFTER=str(site.pages // 10))
        killed, lasting = start(1), start(2)
        fetched(site, site.pages // 3)
        killed.send_signal(signal.SIGKILL)
        ended = [process.wait(600) for process in (closed, lasting)]
        if any(ended):
            raise SystemExit(f"exit codes {ended}")
        with Redis.from_url(redis.url) as client:
            left = int(client.zcard("peer:requests"))
        items = work / "items.jsonl"
        if "store" not in mode:
            items.write_bytes(b"".join(part.read_bytes() for part in sorted(work.glob("part*"))))
        report = json.loads(run_site("check", site.directory, items))
    print(mode, report, f"left in the queue: {left}", flush=True)
    return report


def fetched(site: Site, pages: int) -> None:
    """Wait until the server was asked for so many."""
    log = site.directory / "access.log"
    while log.read_bytes().count(b"\n") < pages:
        time.sleep(0.1)


def losses(rounds: int, pages: int) -> str:
    """The table."""
    rows = []
    with serving(pages) as site:
        for name, mode, python in (
            ("shoal", "shoal-store", sys.executable),
            ("scrapy-redis", "redis", PEERS_PYTHON),
        ):
            reports = [three(mode, python, site) for _ in range(rounds)]
            keys = ("missing", "duplicated", "broken", "never_fetched", "pages_fetched_again")
            rows.append(
                [name, f"{pages:,}", *(", ".join(str(report[key]) for report in reports) for key in keys)]
            )
    head = [
        "3 processes, 1 killed, 1 closed",
        "pages",
        "rows missing",
        "rows doubled",
        "rows cut off",
        "pages never fetched",
        "pages fetched twice",
    ]
    return table(head, rows)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--pages", type=int, default=4_000)
    parser.add_argument("--shared-pages", type=int, default=2_000)
    args = parser.parse_args()
    text = costs(args.rounds, args.pages) + "\n" + losses(args.rounds, args.shared_pages)
    used = versions("shoal", "scrapy", "twisted", "uvloop", "redis")
    publish("spiders", f"{text}\n{args.rounds} rounds. {machine()}Versions: {used}; scrapy-redis 0.9.1.\n")


if __name__ == "__main__":
    main()
