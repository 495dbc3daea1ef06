"""Requests that no page has given: those of `start()`, and what the spider adds from the side.

They are added by a thread with a connection of its own. Until all are, the crawl is not finished.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import TypeVar

from shoal.errors import FrontierUnavailable
from shoal.frontier import Frontier
from shoal.model import Link
from shoal.worker import pauses

BATCH = 1_000
HOLD_S = 60.0  # a process that dies keeps the crawl from ending this long
RETRY_S = 0.2  # how often to ask whether there is room
LINGER_S = 0.01  # a link waits this long for others, so that one step serves many
STARTED = "scrapy: start"
"""The frontier keeps with the positions of stores that all requests of `start()` were added."""

T = TypeVar("T")


class Inflow:
    """Belongs to the event loop."""

    def __init__(self, frontier: Frontier, name: str) -> None:
        """frontier: used by nobody else. name: of the producer."""
        self._frontier, self._name = frontier, name
        self._links: list[Link] = []
        self._held = False
        self._closing = False
        self._flows = 0
        self._news = asyncio.Event()
        self._taken = asyncio.Event()
        self._flow: asyncio.Task[None] | None = None
        self._thread = ThreadPoolExecutor(1, "shoal-inflow")

    @property
    def busy(self) -> bool:
        """Whether the crawl is kept open for links to come."""
        return self._flow is not None

    async def hold(self) -> bool:
        """Keep the crawl open until `let_go`.

        Returns whether all requests of `start()` were added before, by whatever process.
        """
        self._held = True
        self._begin()
        await asyncio.sleep(0)  # the flow asks first
        return await self._ask(partial(self._frontier.position, STARTED)) is not None

    def let_go(self) -> None:
        """The opposite of `hold`."""
        self._held = False
        self._news.set()

    async def mark_started(self) -> None:
        """All requests of `start()` are there."""
        await self._until_no_more_than(0)
        if not self._links:
            await self._ask(partial(self._frontier.commit, (), positions=[(STARTED, 1)]))

    def add(self, link: Link) -> None:
        """Soon."""
        self._links.append(link)
        self._news.set()
        self._begin()

    async def room(self) -> None:
        """Wait until not too many are waiting to be added."""
        await self._until_no_more_than(2 * BATCH)

    async def flushed(self) -> None:
        """Wait until all are added and nothing holds the crawl open."""
        if self._flow is not None:
            await self._flow

    async def close(self) -> None:
        """Add what is there, and let go of the frontier."""
        self._closing = True
        self._taken.set()
        self.let_go()
        await self.flushed()
        await self._ask(self._frontier.close)
        self._thread.shutdown()

    def _begin(self) -> None:
        if self._flow is None:
            self._flows += 1
            self._flow = asyncio.create_task(self._run(f"{self._name}.{self._flows}"))

    async def _run(self, producer: str) -> None:
        while self._links or self._held:
            has_room = await self._ask(partial(self._frontier.open_producer, producer, HOLD_S))
            batch = self._links[:BATCH]
            if batch and (has_room or self._closing):
                await self._ask(partial(self._frontier.add, batch))
                del self._links[: len(batch)]
                self._taken.set()
            else:
                await self._pause(RETRY_S if batch else HOLD_S / 4)
        self._flow = None  # from here on, whoever adds begins anew
        await self._ask(partial(self._frontier.close_producer, producer))

    async def _until_no_more_than(self, most: int) -> None:
        while len(self._links) > most and not self._closing:
            self._taken.clear()
            await self._taken.wait()

    async def _pause(self, seconds: float) -> None:
        self._news.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._news.wait()
                await asyncio.sleep(LINGER_S)

    async def _ask(self, ask: Callable[[], T]) -> T:
        """Do it in the thread; wait out any trouble of the frontier, unless all is to end."""
        loop = asyncio.get_running_loop()
        for pause_s in pauses():
            try:
                return await loop.run_in_executor(self._thread, ask)
            except FrontierUnavailable:
                if self._closing:
                    raise
                await asyncio.sleep(pause_s)
        raise AssertionError("there is always another pause")
