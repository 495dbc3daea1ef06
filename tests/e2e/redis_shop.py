"""A crawl on Redis as people run it: `shoal worker` in a folder, other commands and programs beside it."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import redis
from tests.e2e.shell import PATIENCE_S, Shell
from tests.names import pid_of
from tests.waiting import until

from shoal.frontier import Frontier, open_frontier

NAME = "shop"
INBOX, REJECTS = f"shoal:{{{NAME}}}:inbox", f"shoal:{{{NAME}}}:rejects"

SCRAPER = """\
    import shoal

    crawl = shoal.Crawl("{name}", seeds=["{url}"], {settings})

    @crawl.page()
    def page(page):
        yield {{"url": page.url, "meta": page.meta}}
        yield from page.links()
    """


class Shop:
    """One crawl on one Redis."""

    def __init__(self, shoal: Shell, url: str, client: redis.Redis) -> None:
        self.shoal, self.url, self.client = shoal, url, client
        self.place = ("--frontier", url)

    def scraper(self, url: str, file: str = "shop.py", **settings: object) -> None:
        """Write the scraper."""
        given = ", ".join(f"{name}={value!r}" for name, value in settings.items())
        self.shoal.write(file, SCRAPER.format(name=NAME, url=url, settings=given))

    def command(self, *options: object, file: str = "shop.py") -> list[object]:
        """What starts a worker."""
        return ["worker", file, *self.place, "-o", "rows.jsonl", *options]

    def drain(self, *options: object, code: int = 0) -> Any:
        """A worker that works until the crawl is finished."""
        return self.shoal(*self.command("--drain", *options), code=code)

    @contextmanager
    def working(self, *options: object, file: str = "shop.py") -> Iterator[subprocess.Popen[str]]:
        """A worker that goes on for ever, until the context ends."""
        process = self.shoal.start(*self.command(*options, file=file))
        try:
            until(lambda: process.poll() is not None or self.begun(process.pid))
            assert process.poll() is None, process.communicate()
            yield process
        finally:
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=PATIENCE_S)

    def begun(self, pid: int) -> bool:
        """Whether this worker has announced itself."""
        names: Any = self.client.hkeys(f"shoal:{{{NAME}}}:workers")
        return pid in map(pid_of, names)

    def status(self) -> dict[str, Any]:
        return self.shoal.status(*self.place)

    def stats(self) -> Any:
        """The counters, without a process."""
        with self.frontier() as frontier:
            return frontier.stats()

    def frontier(self) -> Frontier:
        return open_frontier(self.url, crawl=NAME)

    def rows(self) -> list[str]:
        """The URLs of all rows."""
        return [json.loads(line)["url"] for line in self.shoal.read("rows.jsonl").splitlines()]
