"""Anything is killed at any moment: no URL is lost, no row doubled, and the crawl ends by itself."""

from __future__ import annotations

import json
import os
import secrets
import signal
import time
from collections import Counter
from random import Random

import pytest
from tests.celery.rabbit import RabbitServer
from tests.services import RedisServer
from tests.site import Site
from tests.waiting import until

from shoal.errors import FrontierUnavailable
from shoal.frontier import open_frontier

ROUNDS = int(os.environ.get("FAULT_ROUNDS", "2"))
PROCESSES = 2

pytestmark = [pytest.mark.faults, pytest.mark.timeout(200 * ROUNDS + 200)]


@pytest.fixture
def rng():
    """Chance, from a seed that is shown when the test fails; FAULT_SEED repeats it."""
    seed = int(os.environ.get("FAULT_SEED", secrets.randbits(32)))
    print(f"FAULT_SEED={seed}")
    return Random(seed)


@pytest.fixture(scope="module")
def site():
    """A site that takes some seconds."""
    with Site(pages=400, latency_s=0.05) as site:
        yield site


@pytest.fixture(scope="module", params=["redis", "rabbitmq"])
def broker(request):
    """A broker that keeps what it has when it is killed."""
    with RabbitServer() if request.param == "rabbitmq" else RedisServer(appendonly=True) as server:
        yield server


@pytest.fixture(scope="module")
def frontier():
    """A Redis for the frontier alone, with an AOF."""
    with RedisServer(appendonly=True) as server:
        yield server


class Crawl:
    """One crawl of the site by one worker at a time, which is told what goes wrong."""

    def __init__(self, project, broker, frontier, rng):
        self.project, self.broker, self.frontier, self.rng = project, broker, frontier, rng
        self.most = 0
        self.worker = project.worker("-c", str(PROCESSES)).ready()

    def look(self):
        """The counters, and how many tickets are out; None while the frontier is down."""
        try:
            with open_frontier(self.project.frontier, crawl="scrape") as frontier:
                stats = frontier.stats()
            slots = len(self.project.slots())
        except FrontierUnavailable:
            return None
        self.most = max(self.most, slots)
        return stats, slots

    def done(self):
        found = self.look()
        return found[0].done if found else 0

    def finished(self):
        found = self.look()
        return bool(found) and found[0].finished and found[1] == 0

    # --- faults ---------------------------------------------------------------------------

    def child(self):
        """One process of the pool."""
        os.kill(self.rng.choice(self.worker.children()), signal.SIGKILL)

    def parent(self):
        """The worker itself; its children die with it. Then another one is started."""
        self.worker.process.kill()
        self.worker.process.wait()
        self.worker = self.project.worker("-c", str(PROCESSES))

    def shutdown(self):
        """A warm shutdown in the middle, and a start."""
        assert self.worker.stop(seconds=60) == 0
        self.worker = self.project.worker("-c", str(PROCESSES))

    def broken_broker(self):
        """The broker, which comes back a second later."""
        self._restart(self.broker)

    def broken_frontier(self):
        """The frontier's Redis, which comes back a second later."""
        self._restart(self.frontier)

    def _restart(self, server):
        server.kill()
        time.sleep(1.0)
        server.start()


@pytest.mark.parametrize("fault", ["child", "parent", "shutdown", "broken_broker", "broken_frontier"])
def test_nothing_is_lost_and_nothing_doubled(new_project, broker, frontier, site, rng, tmp_path, fault):
    """One row for each page; never more tickets than processes, and none in the end."""
    for number in range(ROUNDS):
        site.log.clear()
        folder = tmp_path / str(number)
        folder.mkdir()
        project = new_project(
            url=broker.url,
            frontier=f"{frontier.url}?prefix={fault}{secrets.token_hex(4)}",
            store=str(folder / "rows.jsonl"),
        )
        assert project.module.scrape.delay(site.url).new
        crawl = Crawl(project, broker, frontier, rng)
        progress = rng.randrange(5, 300)
        until(lambda crawl=crawl, least=progress: crawl.done() >= least, 90, "some progress")
        getattr(crawl, fault)()
        until(crawl.finished, 120, "the end of the crawl")
        assert crawl.worker.process.poll() is None, crawl.worker.said()
        assert "Unrecoverable error" not in crawl.worker.said()
        crawl.worker.stop(signal.SIGKILL)
        assert crawl.most <= PROCESSES
        assert_all_once(site, project, folder / "rows.jsonl")


def assert_all_once(site, project, rows):
    """Every page is done and has one row."""
    with open_frontier(project.frontier, crawl="scrape") as frontier:
        stats = frontier.stats()
    assert (stats.done, stats.dead, stats.skipped, stats.queued) == (site.pages, 0, 0, 0)
    ids = [json.loads(line)["id"] for line in rows.read_text().splitlines()]
    assert Counter(ids) == Counter(row["id"] for row in site.rows().values())
    assert site.fetches().keys() == set(site.urls)
