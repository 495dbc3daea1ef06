"""SIGKILL at random moments of a crawl, which is resumed with the same command each time."""

from __future__ import annotations

import time
from collections.abc import Iterator
from random import Random

import pytest
from tests.faults.crawling import PART_KINDS
from tests.site import Site

pytestmark = [pytest.mark.faults, pytest.mark.timeout(400)]

PAGES = 2_000


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    """A site that is large enough for many kills, and not so quick that a crawl of it is over before them."""
    with Site(PAGES, hosts=8, latency_s=0.05) as served:
        yield served


@pytest.mark.parametrize("kind", ["state", "jsonl", "csv", *PART_KINDS])
@pytest.mark.parametrize("processes", [1, 2])
def test_kills_lose_and_double_nothing(new_crawling, site, rng: Random, rounds, kind, processes):
    """Killed 20 times, now whole, now only its main process: each page is there once, and right."""
    crawling = new_crawling(site, kind, "--processes", processes)
    kills = 0
    for goal in sorted(rng.randrange(PAGES * 19 // 20) for _ in range(rounds)):
        whole = rng.random() < 0.5
        run = crawling.start()
        if crawling.done() >= goal:
            time.sleep(rng.uniform(0, 0.6))  # somewhere in the start
        crawling.until(lambda goal=goal: crawling.done() >= goal, run)
        time.sleep(rng.uniform(0, 0.02))
        kills += run.kill(whole=whole)
        if (whole or processes == 1) and rng.random() < 0.3:
            crawling.assert_sound()
    print(f"{kills} kills")
    assert kills >= rounds / 2
    crawling.finish()
