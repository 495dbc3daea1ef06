"""What it costs to be watched: metrics that are scraped, logs and history, beside the same code without them.

    python -m benchmarks.overhead

Two crawls of the same site run at the same time, each with its Redis on a core of its own, and then once
more with the cores swapped; many short rounds of that, without what it takes to start. So whatever the
machine does hits both alike, and a few percent can be seen.
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import psutil
from tests.services import RedisServer

from benchmarks.measure import SHOAL, Site, ended, serving, shoal_command
from benchmarks.report import machine, publish, table, versions

STARTS = 5
SCRAPE_S = 5.0  # Prometheus does it every 15 seconds, or less often


class Kind(NamedTuple):
    """A way to run shoal."""

    program: Sequence[object]
    options: Sequence[object] = ("--quiet",)


ITSELF = "the same without them, to see the error"
BARE = Kind([sys.executable, "-m", "benchmarks.unwatched"])
KINDS = {
    "as it comes: counters and history": Kind([SHOAL]),
    "scraped every 5 seconds, log as JSON": Kind([SHOAL], ["--log-json", "--metrics-port", "0"]),
    ITSELF: BARE,
}


class Used(NamedTuple):
    """What a crawl has cost."""

    cpu_s: float
    """User + system time of the crawler."""
    redis_s: float
    """The same of its Redis."""
    seconds: float


NOTHING = Used(0.0, 0.0, 0.0)


class Running:
    """A crawl that is going on, on one core."""

    def __init__(
        self, opened: ExitStack, kind: Kind, site: Site, core: int, *, on_redis: bool, whole: bool = True
    ) -> None:
        """whole: crawl the site, not its first page alone."""
        self._site, self._whole = site, whole
        self._work = Path(opened.enter_context(tempfile.TemporaryDirectory()))
        self._redis = opened.enter_context(RedisServer()) if on_redis else None
        if self._redis is not None:
            psutil.Process(int(self._redis_info("server")["process_id"])).cpu_affinity([core])
        frontier = self._redis.url if self._redis is not None else None
        _program, *arguments, _quiet = shoal_command(site.start, self._work, frontier)
        arguments = [*kind.program, *arguments, *kind.options, *([] if whole else ["--max-pages", 1])]
        self.log = self._work / "log"
        command = ["taskset", "-c", str(core), *map(str, arguments)]
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=log)
        self._began = time.monotonic()
        self.used: Used | None = None

    def ended(self) -> bool:
        """Whether it is over; then it is known what it `used`."""
        if self.used is None and (cpu_s := ended(self._process)) is not None:
            self.used = Used(cpu_s, self._redis_s(), time.monotonic() - self._began)
        return self.used is not None

    def check(self) -> None:
        """Raise SystemExit if the crawl went wrong, so that its cost says nothing."""
        report = self._site.check(self._work / "items.jsonl")  # of rows: pages are fetched by both
        if report["duplicated"] or report["wrong"] or (self._whole and report["missing"]):
            raise SystemExit(f"the crawl is not right: {report}\n{self.log.read_text()}")

    def _redis_s(self) -> float:
        times = self._redis_info("cpu") if self._redis is not None else {}
        return times.get("used_cpu_user", 0.0) + times.get("used_cpu_sys", 0.0)

    def _redis_info(self, section: str) -> dict[str, float]:
        assert self._redis is not None
        with self._redis.client() as client:
            return dict(client.info(section))


@contextmanager
def scraping(logs: Sequence[Path]) -> Iterator[None]:
    """Scrape what the logs say is there."""
    over = threading.Event()

    def scrape() -> None:
        while not over.wait(SCRAPE_S):
            for log in logs:
                if found := re.search(r'"metrics": "([^"]+)"', log.read_text()):
                    with suppress(OSError), urllib.request.urlopen(found[1], timeout=5) as answer:
                        answer.read()

    thread = threading.Thread(target=scrape)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def side_by_side(kinds: Sequence[Kind], site: Site, *, on_redis: bool, whole: bool = True) -> list[Used]:
    """What crawls cost that run at the same time, the first on core 0, the second on core 1."""
    with ExitStack() as opened:
        site.reset()
        crawls = [
            Running(opened, kind, site, core, on_redis=on_redis, whole=whole)
            for core, kind in enumerate(kinds)
        ]
        opened.enter_context(scraping([crawl.log for crawl in crawls]))
        running = crawls
        while running := [crawl for crawl in running if not crawl.ended()]:
            time.sleep(0.01)
        for crawl in crawls:
            crawl.check()
        return [crawl.used for crawl in crawls if crawl.used is not None]


def start_of(kind: Kind, site: Site, *, on_redis: bool) -> Used:
    """What it costs to start, twice, and to fetch one page."""
    starts = [side_by_side([kind, kind], site, on_redis=on_redis, whole=False) for _ in range(STARTS)]
    return Used(*map(statistics.median, zip(*(_sum(*each) for each in starts), strict=True)))


class Round(NamedTuple):
    """What a kind and the bare one have cost beside each other, on both cores, once they had started."""

    ours: Used
    bare: Used

    @property
    def more(self) -> float:
        """CPU time of the crawler and of Redis, as a share of the bare one's."""
        return (self.ours.cpu_s + self.ours.redis_s) / (self.bare.cpu_s + self.bare.redis_s) - 1

    @property
    def fewer(self) -> float:
        """How much fewer pages came per second."""
        return 1 - self.bare.seconds / self.ours.seconds


def take_turn(name: str, site: Site, starts: Mapping[str, Used], *, on_redis: bool) -> Round:
    """Run a kind beside the bare one, both ways round."""
    kind = KINDS[name]
    bare, ours = side_by_side([BARE, kind], site, on_redis=on_redis)
    ours_too, bare_too = side_by_side([kind, BARE], site, on_redis=on_redis)
    found = Round(_sum(ours, ours_too, less=starts[name]), _sum(bare, bare_too, less=starts[ITSELF]))
    print(
        f"{name}: {_ms(found.ours.cpu_s, site):.3f} ms/page beside {_ms(found.bare.cpu_s, site):.3f},"
        f" {found.more:+.1%} CPU, {-found.fewer:+.1%} pages/s",
        flush=True,
    )
    return found


def _sum(one: Used, other: Used, less: Used = NOTHING) -> Used:
    return Used(*(a + b - c for a, b, c in zip(one, other, less, strict=True)))


def _ms(seconds: float, site: Site) -> float:
    return 1000 * seconds / (2 * site.pages)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--pages", type=int, default=5_000)
    given = parser.parse_args()
    rows = []
    with serving(given.pages) as site:
        for place, on_redis in (("state file", False), ("Redis", True)):
            rounds = measure(site, given.rounds, on_redis=on_redis)
            rows += [_row(f"{place}: {name}", rounds[name], site) for name in KINDS]
    heads = ["frontier", "CPU ms per page", "of Redis", "without", "more", "middle half", "fewer pages/s"]
    used = f"{given.rounds} rounds of {given.pages:,} pages. {machine()}Versions: {versions('shoal')}.\n"
    publish("overhead", f"{table(heads, rows)}\n{used}")


def measure(site: Site, number: int, *, on_redis: bool) -> dict[str, list[Round]]:
    """So many rounds of each kind, in turns."""
    starts = {name: start_of(kind, site, on_redis=on_redis) for name, kind in KINDS.items()}
    rounds: dict[str, list[Round]] = {name: [] for name in KINDS}
    for _ in range(number):
        for name in KINDS:
            rounds[name].append(take_turn(name, site, starts, on_redis=on_redis))
    return rounds


def _row(name: str, rounds: Sequence[Round], site: Site) -> list[str]:
    median = statistics.median
    more = sorted(each.more for each in rounds)
    quarter = len(more) // 4
    return [
        name,
        f"{median(_ms(each.ours.cpu_s, site) for each in rounds):.3f}",
        f"{median(_ms(each.ours.redis_s, site) for each in rounds):.3f}",
        f"{median(_ms(each.bare.cpu_s, site) for each in rounds):.3f}",
        f"{median(more):+.1%}",
        f"{more[quarter]:+.1%} to {more[-1 - quarter]:+.1%}",
        f"{median(each.fewer for each in rounds):+.1%}",
    ]


if __name__ == "__main__":
    os.environ.pop("PYTHONPATH", None)
    main()
