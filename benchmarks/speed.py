"""Whole crawls, side by side: shoal, its rivals, and what there would be without a crawler.

    python -m benchmarks.speed                # all of it, as `make bench` does
    python -m benchmarks.speed --rounds 1 --pages 2000 --only shoal --only limit

The crawlers take turns, so that whatever else the machine does hits all of them. What is told of one beside
another is the median of what it was in each round.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from redis.client import Redis

from benchmarks.celery import is_all_done, message_per_url
from benchmarks.measure import PEERS_PYTHON, Processes, Site, serving, shoal_command
from benchmarks.report import machine, nginx_version, peer_versions, publish, redis_version, table, versions
from benchmarks.turns import Place, Question, Start, Turn, middle, take_turn

PEERS = Path(__file__).parent / "peers"
EMBEDDED, ONE, TWO = "shoal", "shoal on Redis, 1 process", "shoal on Redis, 2 processes"
FETCH, PARSE = "limit: fetch", "limit: fetch and parse"
SCRAPY, LEAN, STRIPPED = "Scrapy", "Scrapy, lean", "Crawlee, stripped"
ROUNDS, PAGES = 5, 20_000
PAGE_BITS = 8 * 30 * 1024
DAY_S = 86_400
SLOW_PAGES, SLOW_HOSTS = 2_500, 2
"""As many pages for each host as on the whole site: so a page has as many different links."""


class Crawler(NamedTuple):
    """One that takes part."""

    start: Start
    is_slow: bool = False
    """Whether it gets the smaller site."""
    is_over: Question = lambda place: False
    """When to end it, if it does not end by itself."""
    doubled: int = 0
    """So many pages may come out twice."""
    has_redis: bool = False
    """Whether it uses Redis."""


def command(line: Callable[[Place], Sequence[object]]) -> Start:
    """Start one process that ends by itself."""

    def start(place: Place) -> Processes:
        words = [*map(str, line(place))]
        return [subprocess.Popen(words, cwd=place.work, stdout=subprocess.DEVNULL)]

    return start


def on_redis(processes: int) -> Callable[[Place], list[object]]:
    """As `shoal_command`, with the frontier on Redis."""

    def line(place: Place) -> list[object]:
        return [*shoal_command(place.site.start, place.work, place.frontier), "--processes", processes]

    return line


def peer(script: str, mode: str) -> Callable[[Place], list[object]]:
    """One of the scripts in peers/."""
    return lambda place: [PEERS_PYTHON, PEERS / script, mode, place.site.start, place.rows]


def limit(mode: str) -> Callable[[Place], list[object]]:
    """See peers/limits.py."""
    program = PEERS / "limits.py"
    return lambda place: [sys.executable, program, mode, place.site.directory / "truth.jsonl", place.rows]


def scrapy_redis(place: Place) -> Processes:
    """Two processes of it, with their first URL in the queue."""
    with Redis.from_url(place.frontier) as client:
        client.lpush("peer:start_urls", place.site.start)
    line = [PEERS_PYTHON, PEERS / "scrapy_peer.py", "redis", place.site.start]
    environment = os.environ | {"REDIS_URL": place.frontier}
    return [
        subprocess.Popen([*map(str, line), f"{place.rows}.{number}"], cwd=place.work, env=environment)
        for number in range(2)
    ]


def is_all_fetched(place: Place) -> bool:
    """Whether the server has been asked for as many pages as there are: scrapy-redis never ends."""
    return place.site.fetched() >= place.site.pages


CRAWLERS: Mapping[str, Crawler] = {
    EMBEDDED: Crawler(command(lambda place: shoal_command(place.site.start, place.work))),
    ONE: Crawler(command(on_redis(1)), has_redis=True),
    TWO: Crawler(command(on_redis(2)), has_redis=True),
    FETCH: Crawler(command(limit("fetch"))),
    PARSE: Crawler(command(limit("parse"))),
    SCRAPY: Crawler(command(peer("scrapy_peer.py", "memory")), is_slow=True, doubled=1),
    LEAN: Crawler(command(peer("scrapy_peer.py", "lean")), is_slow=True, doubled=1),
    "scrapy-redis, 2 processes": Crawler(scrapy_redis, True, is_all_fetched, doubled=1, has_redis=True),
    "Crawlee": Crawler(command(peer("crawlee_peer.py", "usual")), is_slow=True),
    STRIPPED: Crawler(command(peer("crawlee_peer.py", "stripped")), is_slow=True),
    "Celery, a message per URL": Crawler(
        partial(message_per_url, python=PEERS_PYTHON, reader="lxml"), True, is_all_done, has_redis=True
    ),
}


def compare(rounds: int, pages: int, slow_pages: int, names: Sequence[str]) -> dict[str, list[Turn]]:
    """Let them take turns: the quick ones on a site of `pages`, the slow ones on one of `slow_pages`."""
    turns: dict[str, list[Turn]] = {name: [] for name in names}
    for _ in range(rounds):
        for is_slow, site in ((False, serving(pages)), (True, serving(slow_pages, SLOW_HOSTS))):
            with site as served:
                for name in names:
                    if CRAWLERS[name].is_slow == is_slow:
                        turns[name].append(_take(name, served))
    return turns


def _take(name: str, site: Site) -> Turn:
    crawler = CRAWLERS[name]
    turn = take_turn(crawler.start, site, crawler.is_over, doubled=crawler.doubled)
    print(
        f"{name}: {turn.cpu_ms:.3f} ms/page, {turn.pages_per_s:,.0f} pages/s, other load"
        f" {turn.others_cores:.2f}",
        flush=True,
    )
    return turn


def crawlers_table(turns: Mapping[str, Sequence[Turn]]) -> str:
    """All that took part, beside shoal."""
    head = [
        *("crawler", "pages", "CPU ms per page", "times shoal", "in each round", "pages/s"),
        *("Redis, CPU ms per page", "start-up, CPU s", "peak MB", "other load"),
    ]
    return table(head, [_row(name, taken, turns[EMBEDDED]) for name, taken in turns.items()])


def _row(name: str, taken: Sequence[Turn], shoal: Sequence[Turn]) -> list[str]:
    times = _times(taken, shoal, "cpu_ms")
    return [
        name,
        f"{taken[0].pages:,}",
        f"{middle(taken, 'cpu_ms'):.2f}",
        f"{statistics.median(times):.2f}",
        ", ".join(f"{each:.2f}" for each in times),
        f"{middle(taken, 'pages_per_s'):,.0f}",
        f"{middle(taken, 'redis_ms'):.3f}" if CRAWLERS[name].has_redis else "",
        f"{middle(taken, 'start_s'):.2f}",
        f"{middle(taken, 'peak_mb'):.0f}",
        f"{middle(taken, 'others_cores'):.2f}",
    ]


def in_short(turns: Mapping[str, Sequence[Turn]]) -> str:
    """What shoal is to be held to."""
    shoal, one, two = (turns[name] for name in (EMBEDDED, ONE, TWO))
    figures = {
        "pages per CPU second": [1000 / each.cpu_ms for each in shoal],
        **{f"times {name}": _times(turns[name], shoal, "cpu_ms") for name in (SCRAPY, LEAN, STRIPPED)},
        "of its client and parser alone": _times(turns[PARSE], shoal, "cpu_ms"),
        "pages/s of 2 processes, times those of 1": _times(two, one, "pages_per_s"),
        "CPU of Redis, times that of these 2": [each.redis_ms / each.cpu_ms for each in two],
    }
    rows = [[name, _short(statistics.median(each)), *map(_short, each)] for name, each in figures.items()]
    return table(["shoal", "median", *(f"round {number + 1}" for number in range(len(shoal)))], rows)


def a_day(turns: Mapping[str, Sequence[Turn]]) -> str:
    """How many pages a day: measured with one and two processes, and reckoned from their CPU for more."""
    cpu_ms, redis_ms = (middle(turns[TWO], field) for field in ("cpu_ms", "redis_ms"))
    rates = {
        "one process, SQLite": middle(turns[EMBEDDED], "pages_per_s"),
        "two processes, Redis and the web server beside them": middle(turns[TWO], "pages_per_s"),
        **{f"{cores} cores, reckoned": 1000 * cores / (cpu_ms + redis_ms) for cores in (2, 4, 16)},
        "as many as one Redis serves, reckoned": 1000 / redis_ms,
    }
    rows = [
        [name, f"{rate:,.0f}", f"{rate * DAY_S / 1e6:,.0f}", f"{rate * PAGE_BITS / 1e6:,.0f}"]
        for name, rate in rates.items()
    ]
    return table(["crawl", "pages/s", "million pages a day", "Mbit/s of pages"], rows)


def _times(taken: Sequence[Turn], by: Sequence[Turn], field: str) -> list[float]:
    """What it was in each round, in terms of another one."""
    return [getattr(each, field) / getattr(unit, field) for each, unit in zip(taken, by, strict=True)]


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def main(
    rounds: int = ROUNDS,
    pages: int = PAGES,
    slow_pages: int = SLOW_PAGES,
    names: Sequence[str] = tuple(CRAWLERS),
) -> None:
    """Publish the comparison, if all have taken part."""
    turns = compare(rounds, pages, slow_pages, names)
    if set(turns) < set(CRAWLERS):
        print(crawlers_table(turns))
        return
    used = versions("shoal", "aiohttp", "turbohtml", "upa-url", "uvloop", "msgspec", "redis")
    publish("a-day", a_day(turns))
    publish(
        "speed",
        f"{in_short(turns)}\n{crawlers_table(turns)}\n{rounds} rounds. {machine()}"
        f"Versions: {used}; {peer_versions()}; {nginx_version()}, {redis_version()}.\n",
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--pages", type=int, default=PAGES, help="size of the site")
    parser.add_argument("--slow-pages", type=int, default=SLOW_PAGES, help="size of the site for slow ones")
    parser.add_argument(
        "--only", action="append", choices=[*CRAWLERS], help="not all; shoal is always with them"
    )
    given = parser.parse_args()
    main(given.rounds, given.pages, given.slow_pages, [*dict.fromkeys([EMBEDDED, *(given.only or CRAWLERS)])])
