"""Several processes on one state file, one of which is killed."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from random import Random

import pytest
from tests.faults.crawling import KINDS, Crawling, Running
from tests.site import Site

pytestmark = pytest.mark.faults


@pytest.fixture
def site() -> Iterator[Site]:
    """A site that keeps two processes busy for a while."""
    with Site(pages=160, hosts=4, latency_s=0.15) as served:
        yield served


@pytest.fixture
def crawling(new_crawling: Callable[..., Crawling], site: Site, kind: str, processes: int) -> Crawling:
    """A crawl, and no process that could do all of it alone."""
    return new_crawling(site, kind, "--processes", processes, "--concurrency", 8)


def wait_for_two(crawling: Crawling, run: Running) -> set[int]:
    """Two processes hold leases, and something has been done; returns their pids."""
    assert crawling.until(lambda: crawling.done() > 10 and len(crawling.at_work()) == 2, run)
    return crawling.at_work()


@pytest.mark.parametrize("processes", [2])
@pytest.mark.parametrize("kind", KINDS)
def test_a_killed_worker_is_replaced(crawling, rng: Random):
    """Its parent says so, starts another one, and the crawl comes to its end."""
    run = crawling.start()
    workers = wait_for_two(crawling, run)
    victim = rng.choice(sorted(workers))
    os.kill(victim, signal.SIGKILL)
    assert crawling.until(lambda: crawling.at_work() - workers, run)
    assert run.wait() == 0
    assert f"worker {victim} died" in run.said()
    crawling.assert_finished()


@pytest.mark.parametrize("processes", [2])
@pytest.mark.parametrize("kind", KINDS)
def test_the_workers_of_a_killed_parent_end_by_themselves(crawling):
    """They give back what they have not fetched, and leave nothing that would have to be noticed."""
    run = crawling.start()
    wait_for_two(crawling, run)
    run.kill(whole=False)
    killed_at = time.monotonic()
    while run.members():
        assert time.monotonic() - killed_at < 10
        time.sleep(0.05)
    print(f"ended after {time.monotonic() - killed_at:.2f} s")
    assert crawling.at_work() == set()
    crawling.assert_sound()
    crawling.finish()


def test_the_other_of_two_commands_does_the_work_of_a_killed_one(new_crawling, site):
    """It notices within the time of a lease, whatever the rows are written to."""
    crawls = [new_crawling(site, kind, "--concurrency", 8) for kind in KINDS]
    runs = [(crawling, crawling.start(), crawling.start()) for crawling in crawls]
    for crawling, victim, _ in runs:
        wait_for_two(crawling, victim)
        victim.kill(whole=True)
    killed_at = time.monotonic()
    for crawling, _, other in runs:
        assert other.wait(60) == 0
        crawling.assert_finished()
    print(f"finished {time.monotonic() - killed_at:.1f} s after the kills")


@pytest.mark.parametrize("processes", [1])
@pytest.mark.parametrize("kind", KINDS)
def test_two_commands_may_start_at_once(crawling):
    """Nobody is there first, and each page is done by one of them."""
    runs = crawling.start(), crawling.start()
    assert [run.wait() for run in runs] == [0, 0]
    crawling.assert_finished()
