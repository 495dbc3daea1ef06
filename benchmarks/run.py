"""Shoal beside Scrapy, on the same site, in one run: `make bench`.

The crawlers take turns, so that whatever else the machine does hits all of them; medians count.
Then come `benchmarks.memory` and `benchmarks.profile`.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import psutil

from benchmarks import memory, profile
from benchmarks.measure import PEERS_PYTHON, SHOAL, Cost, Site, crawl, median, serving, shoal_command
from benchmarks.report import machine, publish, table, versions


def scrapy_command(mode: str, start: str, work: Path) -> list[object]:
    """Return the command that does the same with Scrapy."""
    peer = Path(__file__).parent / "peers" / "scrapy_peer.py"
    return [PEERS_PYTHON, peer, mode, start, work / "items.jsonl"]


CRAWLERS: dict[str, Callable[[str, Path], list[object]]] = {
    "shoal": shoal_command,
    "scrapy": partial(scrapy_command, "memory"),
    "scrapy, lean": partial(scrapy_command, "lean"),
}


def take_turn(name: str, site: Site) -> Cost:
    """Crawl the whole site with one of the crawlers; every page must come out, and right."""
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        cost = crawl(CRAWLERS[name](site.start, work), site)
        report = site.check(work / "items.jsonl")
    if report["missing"] or report["wrong"] or (name == "shoal" and report["pages_fetched_again"]):
        raise SystemExit(f"the crawl is not right, so its speed says nothing: {report}")
    print(f"{name}: {cost.cpu_ms_per_page:.2f} ms/page, {cost}", flush=True)
    return cost


def compare(rounds: int, pages: int) -> dict[str, list[Cost]]:
    """Let the crawlers take turns on a site of that size."""
    costs: dict[str, list[Cost]] = {name: [] for name in CRAWLERS}
    with serving(pages) as site:
        for _ in range(rounds):
            for name, taken in costs.items():
                taken.append(take_turn(name, site))
    return costs


def speed(rounds: int, pages: int, large: int) -> None:
    """Publish the comparison, and shoal alone on a larger site."""
    costs = compare(rounds, pages)
    best = median(costs["shoal"], "cpu_ms_per_page")
    with serving(large) as site:
        costs["shoal, large site"] = [take_turn("shoal", site) for _ in range(rounds)]
    head = [
        "crawler",
        "pages",
        "CPU ms per page",
        "all rounds",
        "times shoal",
        "pages/s",
        "peak MB",
        "other load",
    ]
    text = (
        table(head, [_row(name, taken, best) for name, taken in costs.items()])
        + f"\n{rounds} rounds. {machine()}"
        + f"Versions: {versions('shoal', 'aiohttp', 'turbohtml', 'upa-url', 'uvloop', 'msgspec')}; "
        + f"{_scrapy_versions()}; {_nginx_version()}.\n"
        + f"`shoal --help` takes {_help_ms():.0f} ms of CPU.\n"
    )
    publish("speed", text)


def _row(name: str, costs: list[Cost], best: float) -> list[str]:
    each = sorted(cost.cpu_ms_per_page for cost in costs)
    return [
        name,
        f"{costs[0].pages:,}",
        f"{median(costs, 'cpu_ms_per_page'):.2f}",
        ", ".join(f"{value:.2f}" for value in each),
        f"{median(costs, 'cpu_ms_per_page') / best:.1f}",
        f"{median(costs, 'pages_per_s'):.0f}",
        f"{median(costs, 'peak_mb'):.0f}",
        f"{median(costs, 'others_cores'):.2f}",
    ]


def _scrapy_versions() -> str:
    code = (
        "from importlib.metadata import version as v;"
        "print(', '.join(f'{p} {v(p)}' for p in ('Scrapy', 'Twisted', 'lxml', 'uvloop')))"
    )
    return subprocess.check_output([PEERS_PYTHON, "-c", code], text=True).strip()


def _nginx_version() -> str:
    answer = subprocess.run(["nginx", "-v"], capture_output=True, text=True, check=True).stderr
    return answer.strip().removeprefix("nginx version: ")


def _help_ms() -> float:
    """CPU milliseconds of `shoal --help`, the median of 5."""

    def once() -> float:
        before = psutil.Process().cpu_times()
        subprocess.run([SHOAL, "--help"], stdout=subprocess.DEVNULL, check=True)
        after = psutil.Process().cpu_times()
        return after.children_user + after.children_system - before.children_user - before.children_system

    return 1000 * statistics.median(once() for _ in range(5))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--pages", type=int, default=10_000, help="size of the site that all crawl")
    parser.add_argument("--large", type=int, default=20_000, help="size of the site that shoal also crawls")
    args = parser.parse_args()
    speed(args.rounds, args.pages, args.large)
    memory.main()
    profile.main()


if __name__ == "__main__":
    main()
