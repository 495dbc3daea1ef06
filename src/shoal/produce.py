"""Feed a crawl from outside, as fast as it lets one."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import IO

from msgspec.structs import replace

from shoal.crawl import Crawl
from shoal.errors import ConfigError
from shoal.fetch import Fetcher
from shoal.frontier import Frontier
from shoal.frontier.snapshot import chunked
from shoal.intake import read_link, spelling_of
from shoal.model import Failure, Link, Response
from shoal.policy import location
from shoal.sitemap import parse
from shoal.urls import normalize
from shoal.worker import fetch_settings

BATCH = 1_000
HOLD_S = 60.0  # a producer that dies keeps the crawl from ending this long
RETRY_S = 0.2
MAX_SITEMAP_BYTES = 52_428_800  # uncompressed, says sitemaps.org
MAX_REDIRECTS = 5


class Counts:
    """What became of the links."""

    def __init__(self) -> None:
        self.new = 0
        self.known = 0
        self.rejected = 0


class Producer:
    """Adds links from texts, files and sitemaps.

    While it adds, the crawl cannot be called finished; it waits while `max_queued` links are queued.
    """

    def __init__(self, frontier: Frontier, *, priority: int = 0, max_queued: int | None = None) -> None:
        """max_queued: sets the limit of the crawl; None leaves it as it is."""
        self._frontier = frontier
        self._priority = priority
        self._spelling = spelling_of(frontier.describe())
        self._name = f"{socket.gethostname()}:{os.getpid()}:{time.monotonic_ns()}"
        self.counts = Counts()
        self.rejects_file: str | None = None
        if max_queued is not None:
            frontier.configure(replace(frontier.limits, max_queued=max_queued))

    def add(self, links: Iterable[Link]) -> None:
        """Add them all, in batches."""
        try:
            for batch in chunked(links, BATCH):
                while not self._frontier.open_producer(self._name, HOLD_S):
                    time.sleep(RETRY_S)
                new = self._frontier.add(batch)
                self.counts.new += new
                self.counts.known += len(batch) - new
        finally:
            self._frontier.close_producer(self._name)

    def add_file(self, name: str) -> None:
        """Add the URLs of a file, one a line; "-" is standard input. Raises ConfigError if it cannot be read.

        Lines that are no links go to NAME.rejects ("stdin.rejects"), with the reason.
        """
        with ExitStack() as opened:
            try:
                lines: IO[bytes] = (
                    sys.stdin.buffer if name == "-" else opened.enter_context(Path(name).open("rb"))
                )
            except OSError as error:
                raise ConfigError(f"cannot read {name}: {error.strerror}") from error
            rejects = opened.enter_context(_Rejects("stdin.rejects" if name == "-" else f"{name}.rejects"))
            self.add(self._from_lines(lines, rejects))
            self.rejects_file = rejects.name if self.counts.rejected else None

    def add_sitemap(self, url: str) -> None:
        """Add the URLs of a sitemap and of those that it lists. Raises ConfigError if one cannot be read."""
        with asyncio.Runner() as runner:
            fetcher = runner.run(_fetcher(url))
            try:
                self.add(self._sitemap_links(url, lambda each: runner.run(_fetch(fetcher, each))))
            finally:
                runner.run(fetcher.close())

    def _sitemap_links(self, url: str, fetch: Callable[[str], Response | Failure]) -> Iterator[Link]:
        left, seen = [url], {url}
        while left:
            answer = fetch(left.pop(0))
            if isinstance(answer, Failure) or answer.status != 200:
                why = answer.detail if isinstance(answer, Failure) else f"HTTP {answer.status}"
                raise ConfigError(f"cannot read the sitemap {url}: {why}")
            found = parse(answer.body, answer.url)
            children = [child for child in found.children if child not in seen]
            left += children
            seen.update(children)
            for entry in found.links:
                spelled = normalize(entry.url, None, self._spelling)
                if spelled is not None:
                    yield Link(url=spelled, priority=self._priority)

    def _from_lines(self, lines: Iterable[bytes], rejects: _Rejects) -> Iterator[Link]:
        for line in lines:
            if not line.strip():
                continue
            try:
                yield read_link(line, self._spelling, self._priority)
            except ValueError as error:
                self.counts.rejected += 1
                rejects.write(line, str(error))


async def _fetcher(url: str) -> Fetcher:
    return Fetcher(fetch_settings(Crawl("sitemap", seeds=[url], max_body_bytes=MAX_SITEMAP_BYTES)))


async def _fetch(fetcher: Fetcher, url: str) -> Response | Failure:
    """The answer at the end of a few redirects."""
    for _ in range(MAX_REDIRECTS):
        answer = await fetcher.fetch(url)
        if isinstance(answer, Failure) or answer.status not in {301, 302, 303, 307, 308}:
            return answer
        target = normalize(location(answer), url)
        if target is None:
            return Failure("protocol", "redirect to an invalid URL")
        url = target
    return Failure("protocol", "too many redirects")


class _Rejects:
    """A file that is made when there is something to write to it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._file: IO[bytes] | None = None

    def write(self, line: bytes, reason: str) -> None:
        if self._file is None:
            self._file = Path(self.name).open("wb")  # noqa: SIM115 - closed by __exit__
        self._file.write(b"%b\t%b\n" % (line.strip(), reason.encode()))

    def __enter__(self) -> _Rejects:
        return self

    def __exit__(self, *error: object) -> None:
        if self._file is not None:
            self._file.close()
