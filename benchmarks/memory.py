"""Memory of a shoal process at 5,000, 20,000 and 100,000 known URLs: it should stay flat.

The site is a tree in which every page links to ten new ones, so that after N fetches 10 N URLs are
known. It is served from this process; only shoal's own process is weighed.
"""

from __future__ import annotations

import statistics
import subprocess
import tempfile
import time
from pathlib import Path

import psutil
from aiohttp import web

from benchmarks.measure import SHOAL
from benchmarks.report import machine, publish, table
from shoal.shop.server import Server

FANOUT = 10
KNOWN = (5_000, 20_000, 100_000)
FILLER = "<p>Nothing to see here, but it has to be read all the same.</p>\n" * 100


class Tree(Server):
    """The endless tree of pages; `served` counts the pages that were asked for."""

    def __init__(self) -> None:
        self.served = 0
        app = web.Application()
        app.router.add_get("/robots.txt", self._robots)
        app.router.add_get("/{number:.*}", self._page)
        super().__init__(app)

    async def _robots(self, request: web.Request) -> web.Response:
        return web.Response(text="")

    async def _page(self, request: web.Request) -> web.Response:
        self.served += 1
        number = int(request.match_info["number"] or 0)
        children = range(number * FANOUT + 1, number * FANOUT + FANOUT + 1)
        links = "".join(f'<a href="/{child}">page {child}</a>\n' for child in children)
        text = f"<!doctype html><title>{number}</title><h1>Page {number}</h1>{FILLER}{links}"
        return web.Response(text=text, content_type="text/html")


def watch(site: Tree, work: Path) -> list[tuple[int, float]]:
    """Crawl until the last of KNOWN is reached; returns (known URLs, resident MB) over time."""
    command = [
        *(SHOAL, "crawl", site.url, "--per-host", 16, "--max-pages", KNOWN[-1] // FANOUT + 100),
        *("-o", work / "items.jsonl", "--state", work / "state.shoal", "--quiet"),
    ]
    samples = []
    with subprocess.Popen([*map(str, command)], stdout=subprocess.DEVNULL) as process:
        inside = psutil.Process(process.pid)
        while process.poll() is None:
            samples.append((site.served * FANOUT, inside.memory_info().rss / 2**20))
            time.sleep(0.02)
    if process.returncode:
        raise SystemExit(f"exit code {process.returncode}: {process.args}")
    return samples


def resident(samples: list[tuple[int, float]], known: int) -> float:
    """Return the median of the samples taken when about `known` URLs were known."""
    return statistics.median(mb for count, mb in samples if 0.95 * known <= count <= 1.05 * known)


def main() -> None:
    """Publish the result."""
    with Tree() as site, tempfile.TemporaryDirectory() as folder:
        samples = watch(site, Path(folder))
    sizes = [resident(samples, known) for known in KNOWN]
    rows = [
        [f"{known:,}", f"{size:.1f}", f"{size / sizes[0]:.2f}"]
        for known, size in zip(KNOWN, sizes, strict=True)
    ]
    publish("memory", table(["known URLs", "resident MB", "times the first"], rows) + "\n" + machine())


if __name__ == "__main__":
    main()
