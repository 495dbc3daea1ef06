"""Every misbehaviour of a server, all at once, under a Celery worker."""

from __future__ import annotations

from typing import Any

import psutil
import pytest
from tests.celery.conftest import Running
from tests.hostile.hosts import Hosts
from tests.hostile.misbehaviours import LIMITS, TWO_CRAWLS
from tests.site import Site
from tests.waiting import until

CODE = """\
import shoal

for name, settings in {crawls!r}.items():
    crawl = shoal.Crawl(name, **settings)
    crawl.page()(shoal.crawl.summarize)
    shoal.celery.attach(app, crawl, frontier=PLACE["frontier"], store=name + ".jsonl", pace=PACE)
"""
GOOD_PAGES = 200


@pytest.mark.faults
@pytest.mark.timeout(300)
@pytest.mark.parametrize("place", ["redis", "sqlite"])
def test_all_misbehaviours_at_once(new_project: Any, broker: str, place: str, tmp_path: Any) -> None:
    """Each has its outcome, good pages are done, and the worker goes on as if nothing had been."""
    more = {} if place == "redis" else {"frontier": f"sqlite:{tmp_path}/state.shoal"}
    with Hosts() as hosts, Site(GOOD_PAGES, hosts=10) as site:
        crawls = {
            str(obey): {
                **LIMITS,
                "seeds": [*map(hosts.url, names), *site.urls[:10]],
                "concurrency": 100,
                "obey_robots": obey,
            }
            for obey, names in TWO_CRAWLS.items()
        }
        project = new_project(CODE.format(crawls=crawls), broker=broker, **more)
        worker = project.worker("-c", "2").ready()
        children = worker.children()
        project.finish(100)
        for office in project.offices:
            frontier = office.desk().frontier
            assert hosts.wrong(frontier, TWO_CRAWLS[office.name == "True"]) == {}
            assert {frontier.why(url).state for url in site.urls} == {"done"}
        until(lambda: connections_to(worker, "127.66.") == 0, 10, "the end of all connections to bad servers")
        assert worker.children() == children
        assert worker.stop() == 0
    assert "Traceback" not in worker.said()


def connections_to(worker: Running, addresses: str) -> int:
    """How many all its processes have."""
    found = [each for pid in worker.children() for each in psutil.Process(pid).net_connections("inet")]
    return sum(each.raddr[0].startswith(addresses) for each in found if each.raddr)
