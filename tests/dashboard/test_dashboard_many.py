"""A million queued URLs on a hundred thousand hosts: every view answers at once."""

from __future__ import annotations

import http.client
import statistics
import time
from typing import get_args
from urllib.parse import quote, urlsplit

import pytest
from tests.services import RedisServer

from shoal.frontier import open_frontier
from shoal.model import HostOrder, Link, Outcome

pytestmark = [pytest.mark.faults, pytest.mark.timeout(900)]

URLS, HOSTS, ENDED = 1_000_000, 100_000, 20_000
BATCH = 10_000
ANSWER_S = 0.2
REASONS = ("HTTP 404", "timeout", "HTTP 410", "refused", "handler: ValueError")


@pytest.fixture(scope="module", params=["sqlite", "redis"])
def place(request, tmp_path_factory):
    """That of the crawl; there are dead letters and skipped pages as well."""
    if request.param == "sqlite":
        place = f"sqlite:{tmp_path_factory.mktemp('many')}/many.shoal"
        fill(place)
        yield place
    else:
        with RedisServer() as server:
            fill(server.url)
            yield server.url


def fill(place):
    """Queue them all, and end some."""
    with open_frontier(place, crawl="many") as frontier:
        for start in range(0, URLS + ENDED, BATCH):
            numbers = range(start, start + BATCH)
            frontier.add(
                Link(f"http://host{number % HOSTS}.test/{number}", priority=number % 10) for number in numbers
            )
        ended = 0
        while ended < ENDED:
            leases = frontier.lease(1000, 600, worker="ann").leases
            outcomes = [
                Outcome(
                    lease,
                    "dead" if number % 2 else "skipped",
                    reason=REASONS[number % len(REASONS)],
                    error="what happened",
                    elapsed_s=0.1 + number / 1000,
                    sign="fine",
                )
                for number, lease in enumerate(leases)
            ]
            assert not frontier.commit(outcomes)
            ended += len(leases)


def seconds(url, path, times=5):
    """How long answers take: the median."""
    target, took = urlsplit(url), []
    for _ in range(times):
        connection = http.client.HTTPConnection(target.hostname, target.port, timeout=60)
        began = time.monotonic()
        connection.request("GET", path)
        answer = connection.getresponse()
        body = answer.read()
        took.append(time.monotonic() - began)
        assert answer.status == 200, body
        connection.close()
    return statistics.median(took)


def test_every_view_answers_at_once(place, serve):
    """Within 200 ms."""
    url = serve(place)
    reason, page = quote(REASONS[1]), quote("http://host77.test/500077", safe="")
    orders = [f"hosts?by={order}&" for order in get_args(HostOrder)]
    paths = [
        *("overview?", "history?minutes=4320&", "settings?", "items?"),
        *orders,
        *("hosts?having=t777&", "hosts?by=queued&ascending=true&"),
        *("dead?", f"dead?reason={reason}&", f"dead?reason={reason}&host=host1.test&"),
        *("skipped?", f"skipped?reason={reason}&", f"page?url={page}&"),
    ]
    took = {path: seconds(url, f"/api/{path}crawl=many") for path in paths}
    took["metrics"] = seconds(url, "/metrics")
    print(*(f"{1000 * each:6.0f} ms  {path}" for path, each in took.items()), sep="\n")
    assert {path: each for path, each in took.items() if each > ANSWER_S} == {}
