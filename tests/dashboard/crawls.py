"""Crawls to look at."""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from uuid import uuid4

from tests.site import Site
from tests.waiting import until

from shoal.frontier import Frontier, open_frontier

NAME = "shop"
SCRAPER = """\
    import shoal

    crawl = shoal.Crawl("shop", seeds=["{url}"], scope="any", concurrency=2, retries=0)

    @crawl.page()
    def page(page):
        yield {{"url": page.url, "title": page.title}}
        yield from page.links()
    """
EXTRAS = ("/status/404", "/status/410", "/status/500", "/status/403", "/private/a", "/private/b")


class Crawl:
    """One on Redis that somebody works on."""

    url = ""
    """Of its dashboard."""

    def __init__(self, place: str, frontier: Frontier, site: Site) -> None:
        self.place, self.frontier, self.site = place, frontier, site


@contextmanager
def live_crawl(redis_url: str, folder: Path) -> Iterator[Crawl]:
    """Two workers on a site that keeps them busy for minutes; all of its dead letters are there."""
    place = f"{redis_url}?prefix=dashboard-{uuid4().hex}"
    with ExitStack() as opened:
        site = opened.enter_context(Site(20_000, hosts=3, latency_s=0.1, extras=EXTRAS))
        (folder / "shop.py").write_text(textwrap.dedent(SCRAPER).format(url=site.url))
        for _ in range(2):
            opened.enter_context(_worker(place, folder))
        frontier = opened.enter_context(open_frontier(place, crawl=NAME))
        until(lambda: frontier.stats().dead >= 4 and frontier.stats().skipped >= 2)
        until(lambda: len(frontier.workers()) == 2)
        yield Crawl(place, frontier, site)


@contextmanager
def _worker(place: str, folder: Path) -> Iterator[None]:
    command = [
        sys.executable,
        "-m",
        "shoal",
        "worker",
        "shop.py",
        "--frontier",
        place,
        "-o",
        "rows.jsonl",
        "-q",
    ]
    with tempfile.TemporaryFile("w+") as said:
        process = subprocess.Popen(command, cwd=folder, stderr=said)
        try:
            yield
        finally:
            ended = process.poll()
            process.send_signal(signal.SIGTERM)
            process.wait(30)
            said.seek(0)
            assert ended is None, f"it had ended with {ended}: {said.read()}"
