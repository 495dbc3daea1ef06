"""Crawls in this process, small and impatient, that leave nothing behind."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import uvloop
from tests.hostile.misbehaviours import LIMITS

import shoal
from shoal.frontier import Frontier, open_frontier
from shoal.worker import Worker


@contextmanager
def crawled(
    seeds: list[str], folder: Path, *, within_s: float = 30.0, **settings: object
) -> Iterator[Frontier]:
    """The frontier of a crawl that has come to its end. Fails if it does not, or leaves anything behind."""
    crawl = shoal.Crawl("hostile", seeds=seeds, **{**LIMITS, **settings})
    before = _belongings()
    with open_frontier(f"sqlite:{folder / 'state.shoal'}", crawl="hostile") as frontier:
        frontier.configure(crawl.limits())
        frontier.add(crawl.seeds())
        uvloop.run(_work(Worker(crawl, frontier, None, name="tester"), within_s))
        yield frontier
    assert _belongings() == before


async def _work(worker: Worker, within_s: float) -> None:
    async with asyncio.timeout(within_s):
        await worker.run()
    for _ in range(100):  # connections close in their own time
        left = asyncio.all_tasks() - {asyncio.current_task()}
        if not left:
            return
        await asyncio.sleep(0.01)
    raise AssertionError(f"tasks are left: {left}")


def _belongings() -> tuple[int, int]:
    """Connections and threads."""
    connections = [each for each in psutil.Process().net_connections("inet") if each.status != "LISTEN"]
    return len(connections), threading.active_count()
