"""What it takes to look at a crawl, the larger it is: metrics, counters and history, on Redis and on SQLite.

    python -m benchmarks.scrapes           # a minute, up to 100,000 URLs
    python -m benchmarks.scrapes --large   # up to 10,000,000: a quarter of an hour, 5 GB of disk, 2 of memory

Half of the URLs are done, the others are queued. Frontiers of all sizes take turns; medians count, of the
time that who asks has to wait.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from math import inf

from benchmarks.frontier import HOSTS, PLACES, Place, page_url
from benchmarks.report import machine, publish, table, versions
from shoal.exporter import exporting
from shoal.frontier.history import MINUTE_S, MINUTES
from shoal.frontier.snapshot import CrawlState, HostState, PageState, Snapshot
from shoal.meter import Meter
from shoal.metrics import Address, process_families, render
from shoal.model import Limits, Link, Minute
from shoal.urls import fingerprint

ROUNDS = 51

Asks = Mapping[str, Callable[[], object]]


def fill(place: Place, urls: int) -> None:
    """Half of them done, half queued, in as many minutes as a history has."""
    now = time.time()
    minutes = tuple(
        Minute(at=(int(now / MINUTE_S) - ago) * MINUTE_S, done=1 + ago, fetches=1 + ago)
        for ago in reversed(range(MINUTES))
    )
    crawl = CrawlState(
        {}, Limits(), paused=False, positions={}, items=0, size_bytes=0, fetches=0, losses=0, history=minutes
    )
    hosts = (HostState(f"shop-{number}.example.com", 1, True, 0.0, now, 0.0, 0.1) for number in range(HOSTS))
    with place.open() as frontier:
        frontier.load(Snapshot(crawl, hosts=hosts, pages=_pages(urls, now)))


def _pages(urls: int, now: float) -> Iterator[PageState]:
    for number in range(urls):
        url = page_url(number)
        if number % 2:
            yield PageState(fingerprint(url), "done")
        else:
            yield PageState(fingerprint(url), "queued", Link(url, priority=number // 2 % 10), added_at=now)


@contextmanager
def asking(place: Place) -> Iterator[Asks]:
    """All that looks at a crawl."""
    with ExitStack() as opened:
        frontier = opened.enter_context(place.open())
        meters = [Meter()]
        worker = opened.enter_context(
            exporting(Address(0), lambda: render(process_families("bench", meters, place.open)))
        )
        dashboard = opened.enter_context(_dashboard(place.url))
        yield {
            "counters": frontier.stats,
            "history of 3 days": lambda: frontier.history(-inf),
            "`/metrics` of a worker": lambda: _get(worker),
            "`/metrics` of the dashboard": lambda: _get(f"{dashboard}metrics"),
            "overview of the dashboard": lambda: _get(f"{dashboard}api/overview?crawl=bench"),
        }


@contextmanager
def _dashboard(place: str) -> Iterator[str]:
    """A `shoal dashboard`; its URL."""
    command = [sys.executable, "-m", "shoal", "dashboard", "--port", "0", "--frontier", place]
    with subprocess.Popen(command, text=True, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            yield next(word for word in process.stdout.readline().split() if word.startswith("http"))
        finally:
            process.terminate()


def _get(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=60) as answer:
        return bytes(answer.read())


def waits(places: Mapping[int, Place]) -> dict[str, dict[int, float]]:
    """Milliseconds for each thing that is asked, by size."""
    with ExitStack() as opened:
        asked = {size: opened.enter_context(asking(place)) for size, place in places.items()}
        names = next(iter(asked.values())).keys()
        return {name: _median_ms({size: asks[name] for size, asks in asked.items()}) for name in names}


def _median_ms(calls: Mapping[int, Callable[[], object]]) -> dict[int, float]:
    """Of each, while they take turns; the first round is none."""
    taken: dict[int, list[float]] = {size: [] for size in calls}
    for _ in range(1 + ROUNDS):
        for size, call in calls.items():
            began = time.perf_counter()
            call()
            taken[size].append(1000 * (time.perf_counter() - began))
    return {size: statistics.median(each[1:]) for size, each in taken.items()}


def report(sizes: Sequence[int]) -> str:
    """A row for everything that is asked."""
    rows = []
    for name, new_place in PLACES.items():
        with ExitStack() as made:
            places = {size: made.enter_context(new_place()) for size in sizes}
            for size, place in places.items():
                fill(place, size)
                print(f"{name}: {size:,} URLs, {place.size_bytes() / 1e6:,.0f} MB", flush=True)
            for what, took in waits(places).items():
                ratio = f"{took[sizes[-1]] / took[sizes[0]]:.2f}"
                rows.append([f"{name}: {what}", *(f"{took[size]:.2f}" for size in sizes), ratio])
                print(rows[-1], flush=True)
    head = ["what is asked", *(f"ms at {size:,} URLs" for size in sizes), "times"]
    return "\n".join([table(head, rows), machine(), f"Versions: {versions('shoal', 'redis', 'hiredis')}.\n"])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--large", action="store_true", help="up to 10,000,000 URLs")
    publish("scrapes", report([10_000, 10_000_000] if parser.parse_args().large else [10_000, 100_000]))


if __name__ == "__main__":
    main()
