"""The display of a crawl while its frontier cannot be reached for a moment."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from tests.site import Site

from shoal import Crawl, FrontierError, local
from shoal.errors import FrontierUnavailable
from shoal.frontier import Frontier, open_frontier

TROUBLES = [FrontierUnavailable("no connection"), FrontierError("no sense")]


class Watch:
    """Notes what it sees, and meets trouble each second time."""

    def __init__(self) -> None:
        self.done: list[int] = []
        self._looks = 0

    def show(self, frontier: Frontier) -> None:
        self._looks += 1
        if self._looks % 2 == 0:
            raise TROUBLES[self._looks // 2 % 2]
        self.done.append(frontier.stats().done)


def test_trouble_of_the_display_is_over_when_the_frontier_is_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It goes on showing, and says nothing: the worker does."""
    failures = iter([*TROUBLES, None, *TROUBLES])

    def flaky(place: str, **more: object) -> Frontier:
        if threading.current_thread().name == "shoal-watch" and (error := next(failures, None)):
            raise error
        return open_frontier(place, **more)

    monkeypatch.setattr(local, "open_frontier", flaky)
    with Site(16, latency_s=0.3) as site:
        crawl = Crawl("test", seeds=[site.url], concurrency=1)
        job = local.Job(crawl, f"sqlite:{tmp_path}/a.shoal")
        local.prepare(job)
        watch = Watch()
        assert local.run(job, watch) is False
    assert next(failures, "all met") == "all met"
    assert watch.done == sorted(watch.done)
    assert max(watch.done) > 3
