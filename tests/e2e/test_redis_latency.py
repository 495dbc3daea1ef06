"""Idle workers: they cost next to nothing, and are at work within milliseconds."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from contextlib import ExitStack

import psutil
import pytest
from tests.e2e.redis_shop import INBOX, Shop
from tests.site import Site
from tests.waiting import until

from shoal.model import Link

GOAL_S = 0.05
"""From a URL being added to the request at its server, half of the times."""

GOAL_CORES = 0.01
"""What an idle worker may cost."""

NOISE = 5
"""The machine may be busy with other things, so tests allow this many times as much."""


def latencies(site: Site, feed: Callable[[str], object], times: int = 40) -> list[float]:
    """How long each URL takes to be asked for, in seconds."""
    found = []
    for n in range(times):
        url = f"{site.url}?{n}"
        began = time.monotonic()
        feed(url)
        arrived = until(lambda url=url: [fetch.at for fetch in site.log if fetch.url == url])
        found.append(arrived[0] - began)
        time.sleep(0.05)  # until all is idle again
    return found


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("how", ["add", "push"])
def test_an_idle_worker_is_at_work_at_once(shop: Shop, how: str, workers: int):
    """After `add`, and after a bare LPUSH, whether one worker waits or several."""
    with Site(1) as site, shop.frontier() as frontier, ExitStack() as working:
        feeds: dict[str, Callable[[str], object]] = {
            "add": lambda url: frontier.add([Link(url)]),
            "push": lambda url: shop.client.lpush(INBOX, url),
        }
        shop.scraper(site.url)
        for _ in range(workers):
            working.enter_context(shop.working())
        until(lambda: shop.stats().done == 1)
        time.sleep(0.5)
        times = latencies(site, feeds[how])
    median = statistics.median(times)
    print(f"{how}, {workers} workers: median {median * 1000:.1f} ms, worst {max(times) * 1000:.1f} ms")
    assert median < NOISE * GOAL_S


def test_an_idle_worker_costs_next_to_nothing(shop: Shop, site: Site):
    """It blocks until there is work, instead of asking again and again."""
    shop.scraper(site.url)
    with shop.working() as process:
        until(lambda: shop.stats().done == 20)
        time.sleep(1.0)
        worker = psutil.Process(process.pid)
        calls = shop.client.info("stats")["total_commands_processed"]
        before, began = worker.cpu_times(), time.monotonic()
        time.sleep(6.0)
        after, seconds = worker.cpu_times(), time.monotonic() - began
        calls = shop.client.info("stats")["total_commands_processed"] - calls
    cores = (after.user + after.system - before.user - before.system) / seconds
    print(f"an idle worker: {cores * 100:.2f} % of a core, {calls / seconds:.1f} commands/s")
    assert cores < 3 * GOAL_CORES
