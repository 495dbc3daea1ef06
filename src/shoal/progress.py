"""How a crawl is going, for the person who watches: a live display on a terminal, plain lines elsewhere."""

from __future__ import annotations

import logging
import sys
import time
from collections import deque
from typing import TYPE_CHECKING

from shoal.frontier import Frontier
from shoal.model import HostRecord, Stats

if TYPE_CHECKING:
    from rich.console import RenderableType

WINDOW_S = 10.0  # the rate is that of the last seconds
HOSTS_S, HOSTS_SHARE = 1.0, 0.05  # how often hosts are looked through, and how much of the time at most
MOST_HOSTS = 3
LINE_S = 5.0

log = logging.getLogger("shoal.progress")


class Pace:
    """Pages per second, from the counters seen in the last `WINDOW_S`."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int]] = deque()

    @property
    def begun(self) -> bool:
        """Whether there is something to measure from."""
        return bool(self._seen)

    def per_s(self, now: float, fetches: int) -> float:
        """The rate now that `fetches` are done."""
        self._seen.append((now, fetches))
        while now - self._seen[0][0] > WINDOW_S:
            self._seen.popleft()
        since, before = self._seen[0]
        return (fetches - before) / (now - since) if now > since else 0.0


class Lines:
    """A line every few seconds."""

    def __init__(self) -> None:
        self._began = self._shown = time.monotonic()
        self._pace = Pace()

    def show(self, frontier: Frontier) -> None:
        now = time.monotonic()
        if not self._pace.begun:
            self._pace.per_s(now, frontier.stats().fetches)
        if now - self._shown >= LINE_S:
            self._shown = now
            stats = frontier.stats()
            rate = self._pace.per_s(now, stats.fetches)
            log.info(
                "%s",
                summary(stats, rate, now - self._began),
                extra=counters(stats) | {"pages_per_s": round(rate, 1)},
            )

    def close(self) -> None:
        """Nothing stays on the screen."""


class Live:
    """A display that is redrawn in place."""

    def __init__(self, name: str) -> None:
        from rich.console import Console
        from rich.live import Live as Display

        self._name = name
        self._began = time.monotonic()
        self._pace = Pace()
        self._slow: list[HostRecord] = []
        self._paused: list[HostRecord] = []
        self._hosts_due = 0.0
        self._display = Display(
            console=Console(file=sys.stderr), auto_refresh=False, transient=True, redirect_stdout=False
        )
        self._display.start()
        self._display.console.show_cursor(True)  # it would stay hidden if the process were killed

    def show(self, frontier: Frontier) -> None:
        now = time.monotonic()
        stats = frontier.stats()
        if now >= self._hosts_due:
            self._slow = frontier.hosts(limit=MOST_HOSTS)
            self._paused = frontier.hosts(limit=MOST_HOSTS, by="paused_until")
            self._hosts_due = now + max(HOSTS_S, (time.monotonic() - now) / HOSTS_SHARE)
        rate = self._pace.per_s(now, stats.fetches)
        self._display.update(self._draw(stats, rate, now - self._began), refresh=True)

    def close(self) -> None:
        self._display.stop()

    def _draw(self, stats: Stats, rate: float, elapsed_s: float) -> RenderableType:
        from rich.text import Text

        lines = [
            f"{self._name}{'  (paused)' if stats.paused else ''}   {clock(elapsed_s)}",
            f"  {rate:,.1f} pages/s   {stats.queued:,} queued   {stats.leased:,} leased",
            f"  {stats.done:,} done   {stats.retrying:,} retrying   {stats.dead:,} dead",
            f"  {count(stats.items, 'row')}   {size(stats.size_bytes)}   {stats.skipped:,} skipped",
        ]
        slow = [f"{host.host} {host.latency_s * 1000:,.0f} ms" for host in self._slow if host.latency_s]
        if slow:
            lines.append(f"  slowest: {', '.join(slow)}")
        now = time.time()
        paused = [
            f"{host.host} for {clock(host.paused_until - now)}"
            for host in self._paused
            if host.paused_until is not None and host.paused_until > now
        ]
        if paused:
            lines.append(f"  paused: {', '.join(paused)}")
        return Text("\n".join(lines), overflow="ellipsis", no_wrap=True)


class Silent:
    """Shows nothing."""

    def show(self, frontier: Frontier) -> None:
        """Not even looked at."""

    def close(self) -> None:
        """Nothing to end."""


def progress(name: str, *, quiet: bool, plain: bool) -> Lines | Live | Silent:
    """What suits: nothing if quiet; a live display if stderr is a terminal, unless plain lines are wanted."""
    if quiet:
        return Silent()
    return Live(name) if sys.stderr.isatty() and not plain else Lines()


def summary(stats: Stats, rate: float, elapsed_s: float) -> str:
    """One line about a crawl that is going on."""
    return (
        f"{clock(elapsed_s)} {rate:,.1f} pages/s: {stats.done:,} done, {stats.queued:,} queued,"
        f" {stats.leased:,} leased, {stats.retrying:,} retrying, {stats.dead:,} dead,"
        f" {size(stats.size_bytes)}"
    )


def counters(stats: Stats) -> dict[str, object]:
    """The same for a machine."""
    return {
        "done": stats.done,
        "queued": stats.queued,
        "overflow": stats.overflow,
        "leased": stats.leased,
        "retrying": stats.retrying,
        "dead": stats.dead,
        "skipped": stats.skipped,
        "items": stats.items,
        "size_bytes": stats.size_bytes,
    }


def count(number: int, noun: str) -> str:
    """A number of things: "1 page", "1,000 pages"."""
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def clock(seconds: float) -> str:
    """1:02:03."""
    minutes, rest_s = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest_s:02}"


def size(size_bytes: float) -> str:
    """12.3 MB."""
    for unit in ("B", "kB", "MB", "GB"):
        if size_bytes < 1000:
            return f"{size_bytes:,.0f} B" if unit == "B" else f"{size_bytes:,.1f} {unit}"
        size_bytes /= 1000
    return f"{size_bytes:,.1f} TB"
