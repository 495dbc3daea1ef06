"""Feed a frontier from outside of a crawl, as fast as it lets one."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Iterable
from itertools import islice

from shoal.frontier import Frontier
from shoal.model import Link

BATCH = 1_000
HOLD_S = 60.0  # a producer that dies keeps the crawl from ending this long
RETRY_S = 0.2


def produce(
    frontier: Frontier, links: Iterable[Link], *, waiting: Callable[[], None] = lambda: None
) -> tuple[int, int]:
    """Add all links; returns how many there were, and how many of them were new.

    While it goes on the crawl cannot be called finished. It waits while `max_queued` links are queued,
    and tells so by calling `waiting`.
    """
    name = f"{socket.gethostname()}:{os.getpid()}:{time.monotonic_ns()}"
    total = new = 0
    try:
        left = iter(links)
        while batch := list(islice(left, BATCH)):
            while not frontier.open_producer(name, HOLD_S):
                waiting()
                time.sleep(RETRY_S)
            total += len(batch)
            new += frontier.add(batch)
    finally:
        frontier.close_producer(name)
    return total, new
