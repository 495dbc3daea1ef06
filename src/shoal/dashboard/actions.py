"""What people may do from the dashboard. Each action does it and says in a sentence what it did."""

from __future__ import annotations

from typing import Annotated, TypeAlias

from msgspec import Meta, Struct
from msgspec.structs import asdict, replace

from shoal import words
from shoal.errors import ConfigError
from shoal.frontier import Frontier
from shoal.intake import read_link, spelling_of
from shoal.moving import check_here
from shoal.progress import clock, count

MOST_REJECTED = 20
FOREVER_S = 100 * 365 * 86_400.0

Text: TypeAlias = Annotated[str, Meta(min_length=1, max_length=10_000)]
Priority: TypeAlias = Annotated[int, Meta(ge=0, le=9)]
Whole: TypeAlias = Annotated[int, Meta(ge=1, le=10**12)]
Count: TypeAlias = Annotated[int, Meta(ge=0, le=10**12)]
Seconds: TypeAlias = Annotated[float, Meta(ge=0, le=FOREVER_S)]


class Action(Struct, frozen=True, tag_field="do", tag=str.lower, forbid_unknown_fields=True):
    """The base of all actions; "do" names one in JSON."""

    def on(self, frontier: Frontier) -> str:
        """Do it. Raises ShoalError."""
        raise NotImplementedError


class Pause(Action, frozen=True):
    """Let workers finish what they fetch, and start nothing more."""

    def on(self, frontier: Frontier) -> str:
        frontier.pause()
        return "Paused: workers finish what they fetch, and start nothing more."


class Resume(Action, frozen=True):
    """End the pause."""

    def on(self, frontier: Frontier) -> str:
        check_here(frontier)
        frontier.resume()
        return "The crawl goes on, as far as workers are running."


class Rest(Action, frozen=True):
    """Pause one host; 0 ends its pause."""

    host: Text
    seconds: Seconds

    def on(self, frontier: Frontier) -> str:
        _known(frontier, self.host)
        frontier.pause_host(self.host, self.seconds)
        return f"{self.host} rests for {clock(self.seconds)}." if self.seconds else f"{self.host} goes on."


class Delay(Action, frozen=True):
    """Set the delay of one host; null: that of the limits."""

    host: Text
    delay_s: Seconds | None

    def on(self, frontier: Frontier) -> str:
        _known(frontier, self.host)
        frontier.set_delay(self.host, self.delay_s)
        if self.delay_s is None:
            return f"{self.host} has the delay of the limits again."
        return f"{self.host} is asked every {self.delay_s:g} s at most, less often if robots.txt says so."


def _known(frontier: Frontier, host: str) -> None:
    if not frontier.hosts_named([host]):
        raise ConfigError(f"the crawl knows no host {host}")


class Redrive(Action, frozen=True):
    """Queue dead letters again: of a URL, a host, a reason, or all."""

    url: Text | None = None
    host: Text | None = None
    reason: str | None = None
    everything: bool = False

    def on(self, frontier: Frontier) -> str:
        if not (self.url or self.host or self.reason is not None or self.everything):
            raise ConfigError("which dead letters?")
        again = frontier.redrive(url=self.url, host=self.host, reason=self.reason)
        return f"{count(again, 'dead letter')} queued again."


class Add(Action, frozen=True):
    """Add URLs, one a line (or JSON, as `shoal add` reads it)."""

    urls: Annotated[list[Annotated[str, Meta(max_length=100_000)]], Meta(max_length=10_000)]
    priority: Priority = 0

    def on(self, frontier: Frontier) -> str:
        spelling, links, rejected = spelling_of(frontier.describe()), [], []
        for line in filter(None, map(str.strip, self.urls)):
            try:
                links.append(read_link(line.encode(errors="replace"), spelling, self.priority))
            except ValueError as error:
                rejected.append(f"{line[:200]}: {error}")
        if not links and not rejected:
            raise ConfigError("which URLs? Write one a line")
        stats, limit = frontier.stats(), frontier.limits.max_queued
        if limit is not None and stats.queued + stats.overflow >= limit:
            raise ConfigError(f"the queue is full: {limit:,} URLs are queued already (max_queued)")
        new = frontier.add(links)
        said = f"{count(new, 'URL')} added, {len(links) - new:,} known before."
        if rejected:
            said += f" {count(len(rejected), 'line')} rejected: {'; '.join(rejected[:MOST_REJECTED])}"
        return said


class Prioritize(Action, frozen=True):
    """Change the priority of a queued URL."""

    url: Text
    priority: Priority

    def on(self, frontier: Frontier) -> str:
        url = words.spelled(frontier, self.url)
        if not frontier.set_priority(url, self.priority):
            raise ConfigError(f"not queued: {url}")
        return f"{url} has priority {self.priority} now."


class Forget(Action, frozen=True):
    """Un-see a URL."""

    url: Text

    def on(self, frontier: Frontier) -> str:
        url = words.spelled(frontier, self.url)
        if not frontier.forget(url):
            raise ConfigError(f"not known, or being fetched just now: {url}")
        return f"Forgotten: {url}"


class Limit(Action, frozen=True):
    """Change the limits of the crawl; what is not given stays."""

    max_pages: Whole | None
    max_pages_per_host: Whole | None
    max_depth: Count | None
    max_queued: Whole | None
    per_host: Whole
    delay_s: Seconds
    host_give_up: Count
    adapt: bool

    def on(self, frontier: Frontier) -> str:
        frontier.configure(replace(frontier.limits, **asdict(self)))
        return "The limits are in force."


AnyAction: TypeAlias = Pause | Resume | Rest | Delay | Redrive | Add | Prioritize | Forget | Limit
