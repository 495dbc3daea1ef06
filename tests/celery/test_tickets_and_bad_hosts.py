"""Hosts that limit, refuse or say nothing, under Celery: they are spared, by all processes together."""

from __future__ import annotations

import time
from typing import Any

import pytest
from tests.servers import ScriptedServer
from tests.troubled import Limiter

CODE = """\
import shoal

PLACE["pace"] = shoal.celery.Pace({pace})
crawl = shoal.Crawl("sites", **{settings!r})
crawl.page()(shoal.crawl.summarize)
PLACE.pop("allow_private")
shoal.celery.attach(app, crawl, **PLACE)
"""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]


@pytest.mark.faults
def test_a_rate_limit_is_kept_to_by_two_workers(new_project: Any, broker: str) -> None:
    """With four processes: few requests are refused, and most of the allowed ones are made."""
    limiter = Limiter()
    with ScriptedServer(limiter) as server:
        settings = {"seeds": [server.url()], "obey_robots": False}
        project = new_project(CODE.format(settings=settings, pace=""), broker=broker)
        workers = [project.worker("-c", "2") for _ in range(2)]
        for worker in workers:
            worker.ready()
        time.sleep(Limiter.LASTS_S)
        assert [worker.stop() for worker in workers] == [0, 0]
    limiter.assert_well_used()
