"""What URLs cost in Redis, by the functions of benchmarks/frontier.py with small numbers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from benchmarks.frontier import RedisPlace, all_due, growth, leases, weigh
from tests.services import RedisServer

NOISE = 2.0
"""Times of a busy machine may differ by so much, even the best of some."""

TRIES = 3


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    """A server that keeps nothing on disk."""
    with RedisServer() as server:
        yield server


@pytest.fixture
def place(server: RedisServer) -> RedisPlace:
    """It is empty."""
    return RedisPlace(server)


def test_a_url_takes_little_memory(place: RedisPlace):
    """At most 13 bytes once it is done, and 45 more than its own while it waits."""
    weight = weigh(place, 100_000)
    print(weight)
    assert weight.seen_bytes <= 13
    assert weight.queued_bytes <= weight.url_bytes + 45


def test_a_page_costs_the_same_however_much_is_known(place: RedisPlace):
    """Its page has 50 links."""
    with RedisServer() as other:
        places = {5_000: place, 200_000: RedisPlace(other)}
        small, large = growth(places, rounds=5, pages=20)
    print(small, large)
    assert large.server_us <= NOISE * small.server_us


def test_hosts_that_wait_cost_nothing(server: RedisServer):
    """A lease takes as long with 5,000 of them as with 10."""
    few, many = (
        min(leases(RedisPlace(server), waiting, times=300).server_us for _ in range(TRIES))
        for waiting in (10, 5_000)
    )
    print(few, many)
    assert many <= NOISE * few


def test_hosts_whose_delay_ends_at_once_do_not_block_the_server(server: RedisServer):
    """They are noticed part by part: ten times as many do not block it ten times as long."""
    few, many = (min(all_due(RedisPlace(server), waiting) for _ in range(TRIES)) for waiting in (500, 5_000))
    print(few, many)
    assert many <= 5 * max(few, 1.0)
