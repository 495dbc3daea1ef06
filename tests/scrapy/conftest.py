"""What the Scrapy tests share: spiders that run in this process, and projects for `scrapy crawl`."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from scrapy import Spider
from scrapy.crawler import Crawler
from scrapy.settings import Settings

from shoal.frontier import Frontier, open_frontier

NUMBERS = count()
PLAIN = {
    "SCHEDULER": "shoal.scrapy.Scheduler",
    "EXTENSIONS": {"scrapy.extensions.telnet.TelnetConsole": None},
    "REMOTE_CONTROL_ENABLED": False,
    "ROBOTSTXT_OBEY": False,
    "RETRY_TIMES": 2,
}


@cache
def event_loop() -> asyncio.AbstractEventLoop:
    """The one that Twisted's reactor runs in, in a thread of its own, as long as the tests do."""
    from twisted.internet import asyncioreactor

    loop = asyncio.new_event_loop()
    asyncioreactor.install(loop)
    from twisted.internet import reactor

    def run() -> None:
        asyncio.set_event_loop(loop)
        reactor.run(installSignalHandlers=False)

    threading.Thread(target=run, name="reactor", daemon=True).start()
    return loop


class Place:
    """A frontier, and the spiders that work on it."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder, self.url, self.prefix = folder, url, ""
        self.rows_file = folder / "rows.jsonl"

    def crawl(
        self, spider: type[Spider], *, seconds: float = 60.0, given: Any = None, **settings: Any
    ) -> Any:
        """Run a spider to its end; returns the crawler, with its stats. given: arguments of the spider."""
        return self.begin(spider, given=given, **settings)(seconds)

    def begin(
        self, spider: type[Spider], *, given: Any = None, **settings: Any
    ) -> Callable[[float], Crawler]:
        """Start a spider; the function that is returned waits for its end."""
        loop = event_loop()
        everything = Settings(PLAIN | {"SHOAL_FRONTIER": self.url} | settings)

        async def run() -> Crawler:
            crawler = Crawler(spider, everything)
            await crawler.crawl(**(given or {})).asFuture(loop)
            return crawler

        return asyncio.run_coroutine_threadsafe(run(), loop).result

    def frontier(self, crawl: str = "test") -> Frontier:
        return open_frontier(self.url, crawl=crawl)

    def stats(self, crawl: str = "test") -> Any:
        with self.frontier(crawl) as frontier:
            return frontier.stats()

    def why(self, url: str, key: str = "") -> Any:
        with self.frontier() as frontier:
            return frontier.why(url, key)

    def dead(self) -> dict[str, str]:
        """The reasons, by URL."""
        with self.frontier() as frontier:
            return {record.url: record.reason for record in frontier.dead()}

    def rows(self) -> list[Any]:
        return [json.loads(line) for line in self.rows_file.read_text().splitlines()]

    @property
    def stored(self) -> dict[str, Any]:
        """Settings for items in `rows`."""
        return {
            "ITEM_PIPELINES": {"shoal.scrapy.StorePipeline": 900},
            "SHOAL_STORE": str(self.rows_file),
        }


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """A frontier in a file."""
    return Place(tmp_path, f"sqlite:{tmp_path / 'crawl.shoal'}")


@pytest.fixture(params=["sqlite", "redis"])
def any_place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """A frontier of each kind, in turn."""
    if request.param == "sqlite":
        return Place(tmp_path, f"sqlite:{tmp_path / 'crawl.shoal'}")
    return request.getfixturevalue("redis_place")


@pytest.fixture
def redis_place(redis_server: Any, tmp_path: Path) -> Place:
    """A frontier on Redis; its keys begin with `prefix`."""
    place = Place(tmp_path, redis_server.url)
    place.prefix = f"scrapy{os.getpid()}x{next(NUMBERS)}"
    place.url += f"?prefix={place.prefix}"
    return place


class Project:
    """A project of Scrapy's in a folder: settings, spiders, and the processes that run them."""

    def __init__(self, folder: Path, spiders: str, settings: dict[str, Any]) -> None:
        self.folder = folder
        lines = [f"{name} = {value!r}" for name, value in settings.items()]
        (folder / "scrapy.cfg").write_text("[settings]\ndefault = project_settings\n")
        (folder / "project_settings.py").write_text("\n".join(['SPIDER_MODULES = ["spiders"]', *lines, ""]))
        (folder / "spiders.py").write_text(spiders)
        self._processes: list[subprocess.Popen[bytes]] = []

    def crawl(self, spider: str, *options: str) -> subprocess.Popen[bytes]:
        """Start `scrapy crawl`; what it logs is in log.N."""
        with (self.folder / f"log.{len(self._processes)}").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "scrapy", "crawl", spider, *options],
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "PYTHONWARNINGS": "default"},
            )
        self._processes.append(process)
        return process

    def said(self, number: int) -> str:
        """What a process has logged."""
        return (self.folder / f"log.{number}").read_text(errors="replace")

    def close(self) -> None:
        for number, process in enumerate(self._processes):
            with suppress(ProcessLookupError):
                process.kill()
            process.wait()
            print(f"--- log.{number}\n{self.said(number)[-8_000:]}")


@pytest.fixture
def new_project(tmp_path: Path) -> Iterator[Callable[..., Project]]:
    """Makes one project."""
    made: list[Project] = []

    def new(spiders: str, **settings: Any) -> Project:
        made.append(Project(tmp_path, spiders, settings))
        return made[-1]

    yield new
    for project in made:
        project.close()
