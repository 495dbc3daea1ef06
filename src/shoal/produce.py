"""Feed a crawl from outside, as fast as it lets one."""

from __future__ import annotations

import asyncio
import logging
import os
import select
import socket
import time
from codecs import BOM_UTF8
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import IO, TypeVar

from msgspec.structs import replace

from shoal.access import Access
from shoal.crawl import Crawl
from shoal.errors import ConfigError, FrontierUnavailable
from shoal.fetch import Fetcher
from shoal.frontier import Frontier
from shoal.intake import read_link, spelling_of
from shoal.model import Failure, Link, Response
from shoal.moving import check_here
from shoal.policy import location
from shoal.sitemap import MAX_BYTES, parse
from shoal.threads import HandlerThreads
from shoal.urls import normalize
from shoal.worker import fetch_settings, pauses

BATCH = 1_000
LINGER_S = 0.2  # a link waits this long for others, so that one step serves many
HOLD_S = 60.0  # a producer that dies keeps the crawl from ending this long
RETRY_S = 0.2
READ_BYTES = 65_536
MOST_LINE_BYTES = 1_000_000  # what is longer is taken for several lines, and none of them for a link
MAX_REDIRECTS = 5

T = TypeVar("T")
log = logging.getLogger("shoal.produce")


class Counts:
    """What became of the links."""

    def __init__(self) -> None:
        self.new = 0
        self.known = 0
        self.rejected = 0

    def __repr__(self) -> str:
        return f"<Counts {self.new} new, {self.known} known, {self.rejected} rejected>"


@contextmanager
def adding(
    frontier: Frontier, call: Callable[[Callable[[], bool]], bool] = lambda step: step()
) -> Iterator[Callable[[], None]]:
    """For those who add links in batches: yields what is to be called before each.

    It waits until there is room; the crawl cannot be called finished for HOLD_S from then on, or until the
    context is left. call: calls the frontier, and may try again.
    """
    name = f"{socket.gethostname()}:{os.getpid()}:{time.monotonic_ns()}"

    def wait_for_room() -> None:
        while not call(partial(frontier.open_producer, name, HOLD_S)):
            time.sleep(RETRY_S)

    try:
        yield wait_for_room
    finally:
        with suppress(FrontierUnavailable):  # then it ends by time
            frontier.close_producer(name)


def batch_size(frontier: Frontier, most: int) -> int:
    """How many links to add at once, at most: no more than may be queued."""
    return min(most, frontier.limits.max_queued or most)


class Producer:
    """Adds links from texts, files and sitemaps.

    While it adds, the crawl cannot be called finished; it waits while `max_queued` links are queued.
    """

    def __init__(self, frontier: Frontier, *, priority: int = 0, max_queued: int | None = None) -> None:
        """max_queued: sets the limit of the crawl; None leaves it as it is. Raises ConfigError."""
        check_here(frontier)
        self._frontier = frontier
        self._priority = priority
        self._spelling = spelling_of(frontier.describe())
        self.counts = Counts()
        self.rejects_file: str | None = None
        if max_queued is not None:
            frontier.configure(replace(frontier.limits, max_queued=max_queued))

    def add(self, links: Iterable[Link | None]) -> None:
        """Add them all, in batches; None says that there is none just now."""
        with adding(self._frontier, _patiently) as wait_for_room:
            wait_for_room()
            for batch in _batches(links, batch_size(self._frontier, BATCH)):
                wait_for_room()
                new = _patiently(partial(self._frontier.add, batch))
                self.counts.new += new
                self.counts.known += len(batch) - new

    def add_file(self, name: str) -> None:
        """Add the URLs of a file, one a line; "-" is standard input. Raises ConfigError if it cannot be read.

        Lines that begin with "#" say nothing. Those that are no links go to NAME.rejects ("stdin.rejects"),
        with the reason.
        """
        try:
            file = os.fdopen(os.dup(0) if name == "-" else os.open(name, os.O_RDONLY), "rb", buffering=0)
        except OSError as error:
            raise ConfigError(f"cannot read {name}: {error.strerror}") from error
        with file, _Rejects("stdin.rejects" if name == "-" else f"{name}.rejects") as rejects:
            self.add(self._from_lines(_lines(file, name), rejects))
        self.rejects_file = rejects.name if self.counts.rejected else None

    def add_sitemap(self, url: str, crawl: Crawl | None = None) -> None:
        """Add the URLs of a sitemap and of those that it lists.

        crawl: with whose settings, credentials and login they are fetched.
        Raises ConfigError if one cannot be read, LoginFailed.
        """
        made = crawl or Crawl("sitemap")
        made.change(sitemaps=(*made.settings.sitemaps, url))
        with asyncio.Runner() as runner:
            threads = HandlerThreads(1)
            fetcher, access = runner.run(_access(made, threads))
            try:
                self.add(self._sitemap_links(url, runner, access))
            finally:
                runner.run(fetcher.close())
                threads.shutdown()

    def _sitemap_links(self, url: str, runner: asyncio.Runner, access: Access) -> Iterator[Link | None]:
        left, seen = [url], {url}
        while left:
            fetching = runner.get_loop().create_task(_fetch(access, left.pop(0)))
            while not runner.run(_is_done(fetching)):
                yield None
            answer = fetching.result()
            if isinstance(answer, Failure) or answer.status != 200:
                why = answer.detail if isinstance(answer, Failure) else f"HTTP {answer.status}"
                raise ConfigError(f"cannot read the sitemap {url}: {why}")
            found = parse(answer.body, answer.url)
            if not found.links and not found.children:
                log.warning("%s lists no pages: is it a sitemap?", answer.url)
            children = [child for child in found.children if child not in seen]
            left += children
            seen.update(children)
            for entry in found.links:
                spelled = normalize(entry.url, None, self._spelling)
                if spelled is not None:
                    yield Link(url=spelled, priority=self._priority)

    def _from_lines(self, lines: Iterable[bytes | None], rejects: _Rejects) -> Iterator[Link | None]:
        for line in lines:
            if line is None:
                yield None
                continue
            if not line.strip() or line.startswith(b"#"):
                continue
            try:
                yield read_link(line, self._spelling, self._priority)
            except ValueError as error:
                self.counts.rejected += 1
                rejects.write(line, str(error))


def _batches(links: Iterable[Link | None], size: int) -> Iterator[list[Link]]:
    """Up to `size` at once; what is there is not kept waiting for more. Without any, now and then none."""
    batch: list[Link] = []
    yielded_at = time.monotonic()
    for link in links:
        if link is not None:
            batch.append(link)
        idle = time.monotonic() - yielded_at > HOLD_S / 4
        if len(batch) == size or idle or (link is None and batch):
            yield batch
            batch, yielded_at = [], time.monotonic()
    yield batch


def _lines(file: IO[bytes], name: str) -> Iterator[bytes | None]:
    """The lines of a file that may still be written to; None if there is nothing more just now.

    A byte order mark before the first one is left out.
    """
    rest = b""
    mark = BOM_UTF8
    while True:
        if not select.select([file], [], [], LINGER_S)[0]:
            yield None
            continue
        try:
            read = file.read(READ_BYTES)
        except OSError as error:
            raise ConfigError(f"cannot read {name}: {error.strerror}") from error
        *lines, rest = (rest + read).split(b"\n")
        for line in lines:
            yield line.removeprefix(mark)
            mark = b""
        if not read or len(rest) > MOST_LINE_BYTES:
            yield rest.removeprefix(mark)
            rest, mark = b"", b""
        if not read:
            return


def _patiently(do: Callable[[], T]) -> T:
    """Do it; wait out any trouble of the frontier."""
    for pause_s in pauses():
        try:
            return do()
        except FrontierUnavailable as error:
            log.error("%s; trying again", error)
            time.sleep(pause_s)
    raise AssertionError("there is always another pause")


async def _is_done(task: asyncio.Task[T]) -> bool:
    """Whether it is, after waiting for a while."""
    done, _ = await asyncio.wait({task}, timeout=LINGER_S)
    return bool(done)


async def _access(crawl: Crawl, threads: HandlerThreads) -> tuple[Fetcher, Access]:
    fetcher = Fetcher(fetch_settings(crawl))
    return fetcher, Access(crawl, fetcher, threads)


async def _fetch(access: Access, url: str) -> Response | Failure:
    """The answer at the end of a few redirects."""
    for _ in range(MAX_REDIRECTS):
        answer = await access.fetch(url, max_body_bytes=MAX_BYTES, cut=True, again=True)
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
        """Raises ConfigError if it cannot be written."""
        try:
            if self._file is None:
                self._file = Path(self.name).open("wb")  # noqa: SIM115 - closed by __exit__
            self._file.write(b"%b\t%b\n" % (line.strip(), reason.encode()))
        except OSError as error:
            raise ConfigError(f"cannot write {self.name}: {error.strerror}") from error

    def __enter__(self) -> _Rejects:
        return self

    def __exit__(self, *error: object) -> None:
        if self._file is not None:
            self._file.close()
