"""Crawls in this process, small and impatient, that leave nothing behind."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import uvloop
from tests.hostile.misbehaviours import LIMITS

import shoal
from shoal.crawl import summarize
from shoal.frontier import Frontier, open_frontier
from shoal.worker import Worker


@contextmanager
def crawled(
    seeds: list[str], folder: Path, *, within_s: float = 60.0, **settings: object
) -> Iterator[Frontier]:
    """The frontier of a crawl that has come to its end. Fails if it does not, or leaves anything behind.

    Each page gives one row.
    """
    crawl = shoal.Crawl("hostile", seeds=seeds, **{**LIMITS, **settings})
    crawl.page()(summarize)
    before = _count()
    with open_frontier(f"sqlite:{folder / 'state.shoal'}", crawl="hostile") as frontier:
        frontier.configure(crawl.limits())
        frontier.add(crawl.seeds())
        uvloop.run(_work(Worker(crawl, frontier, (), name="tester"), within_s))
        yield frontier
    for _ in range(500):  # servers of this process close in their own time
        if _count() <= before:
            return
        time.sleep(0.01)
    raise AssertionError(f"left behind: {_count()}, and before it was {before}; {_connections()}")


async def _work(worker: Worker, within_s: float) -> None:
    async with asyncio.timeout(within_s):
        await worker.run()
    for _ in range(100):  # connections close in their own time
        left = asyncio.all_tasks() - {asyncio.current_task()}
        if not left:
            return
        await asyncio.sleep(0.01)
    raise AssertionError(f"tasks are left: {left}")


def _count() -> Counter[str]:
    return Counter(connections=len(_connections()), threads=threading.active_count())


def _connections() -> list[Any]:
    """Those to servers of this process. Others, as to Redis or of another process's crawl, are not ours."""
    found = psutil.Process().net_connections("inet")
    ours = {each.laddr.port for each in found if each.status == "LISTEN"}
    return [each for each in found if each.raddr and each.raddr.port in ours]
