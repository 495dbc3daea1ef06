"""How many invocations are worth starting: pure."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.function.fleet import worth_starting
from shoal.model import Limits, Stats, WorkerRecord


def running(count: int, concurrency: int = 10, *, alive: bool = True) -> list[WorkerRecord]:
    """So many invocations."""
    return [
        WorkerRecord(f"w{number}", leases=0, alive=alive, concurrency=concurrency) for number in range(count)
    ]


@pytest.mark.parametrize(
    ("stats", "limits", "workers", "start"),
    [
        (Stats(), Limits(), [], 0),
        (Stats(queued=1, ready_hosts=1), Limits(), [], 1),
        (Stats(queued=1_000, ready_hosts=1), Limits(per_host=8), [], 1),
        (Stats(queued=1_000, ready_hosts=3), Limits(per_host=8), [], 3),
        (Stats(queued=30, ready_hosts=30), Limits(), [], 3),
        (Stats(queued=31, ready_hosts=31), Limits(), [], 4),
        (Stats(queued=1_000, ready_hosts=15), Limits(delay_s=1.0), [], 2),
        (Stats(queued=1_000, delayed=995, ready_hosts=5), Limits(), [], 1),
        (Stats(queued=1_000, ready_hosts=0), Limits(), [], 0),
        (Stats(queued=100_000, ready_hosts=10_000), Limits(), [], 50),
        (Stats(queued=100_000, ready_hosts=10_000), Limits(), running(20), 30),
        (Stats(queued=40, ready_hosts=40, leased=20), Limits(), running(2), 4),
        (Stats(queued=40, ready_hosts=40, leased=5), Limits(), running(2), 3),
        (Stats(queued=10, ready_hosts=10), Limits(), running(1), 0),
        (Stats(queued=10, ready_hosts=10, leased=10), Limits(), running(1, alive=False), 1),
        (Stats(queued=1_000, ready_hosts=1_000, done=90, leased=5), Limits(max_pages=100), [], 1),
        (Stats(queued=1_000, ready_hosts=1_000, done=100), Limits(max_pages=100), [], 0),
        (Stats(queued=1_000, ready_hosts=1_000, paused=True), Limits(), [], 0),
    ],
)
def test_as_many_as_have_something_to_do(
    stats: Stats, limits: Limits, workers: list[WorkerRecord], start: int
) -> None:
    """Of ten fetches at once each, 50 invocations at most."""
    assert worth_starting(stats, limits, workers, 10, 50) == start


@given(
    *(st.integers(0, 10_000), st.integers(0, 10_000), st.integers(0, 1_000), st.integers(0, 1_000)),
    *(st.integers(0, 60), st.integers(1, 64), st.integers(0, 100)),
)
def test_never_more_than_useful(
    queued: int, delayed: int, ready_hosts: int, leased: int, workers: int, concurrency: int, most: int
) -> None:
    """Each one started could have a URL of its own; no more run at once than may."""
    stats = Stats(queued=queued, delayed=min(queued, delayed), ready_hosts=ready_hosts, leased=leased)
    start = worth_starting(stats, Limits(), running(workers, concurrency), concurrency, most)
    assert 0 <= start <= max(0, queued - stats.delayed)
    assert start == 0 or start + workers <= most
