"""How much a worker may take."""

from __future__ import annotations

import asyncio
import time

from shoal.load import MOST_SETTLE_S, Load
from shoal.model import Lease, Link, Outcome


def _outcomes(count: int, size_bytes: int = 0) -> list[Outcome]:
    lease = Lease(1, 1, Link("http://a.test/"), "a.test", 1)
    return [Outcome(lease, "done", size_bytes=size_bytes)] * count


def test_no_more_than_are_fetched_at_once_and_as_many_that_wait() -> None:
    """A slow store holds leasing up when it is one round behind."""
    load = Load(10, 1_000_000_000)
    assert load.room(0, []) == 10
    assert load.room(4, []) == 6
    assert load.room(0, _outcomes(10)) == 10
    assert load.room(4, _outcomes(14)) == 2
    assert load.room(0, _outcomes(20)) == 0


def test_large_pages_are_taken_few_at_a_time() -> None:
    """As soon as one was seen; and none while the memory is full."""
    load = Load(10, 1_000_000)
    for _ in range(10):
        load.hold(500_000)
        load.drop(500_000)
    assert load.room(0, []) == 2
    assert load.room(1, []) == 1
    load.hold(1_000_000)
    assert load.room(1, []) == 0
    load.drop(1_000_000)
    assert load.room(0, _outcomes(2, 500_000)) == 0


def test_one_page_is_always_possible() -> None:
    """Even one that is larger than all that is allowed."""
    load = Load(10, 1_000)
    load.hold(1_000_000)
    assert load.room(1, []) == 0
    load.drop(1_000_000)
    assert load.room(0, []) == 1


def test_small_pages_after_large_ones_are_many_again() -> None:
    """What is typical follows."""
    load = Load(10, 1_000_000)
    for size_bytes in (900_000, *[1_000] * 200):
        load.hold(size_bytes)
        load.drop(size_bytes)
    assert load.room(0, []) == 10


def test_a_store_that_is_slow_gets_small_batches() -> None:
    """So that leases are extended between two of them."""
    load = Load(10, 1_000_000)
    assert load.batch() == 10
    load.settled(10, 10 * MOST_SETTLE_S / 4)
    assert load.batch() == 4
    assert load.settle_s == 10 * MOST_SETTLE_S / 4
    load.settled(0, 99.0)
    assert load.batch() == 4


def test_a_late_event_loop_is_noticed_once() -> None:
    """By the worst of it since it was asked last."""

    async def block() -> list[float]:
        load = Load(10, 1_000_000)
        watching = asyncio.create_task(load.watch())
        await asyncio.sleep(0.01)
        time.sleep(0.5)  # noqa: ASYNC251 - this is what is to be noticed
        await asyncio.sleep(0.01)
        watching.cancel()
        return [load.take_lag_s(), load.take_lag_s()]

    late_s, then_s = asyncio.run(block())
    assert late_s >= 0.2
    assert then_s == 0.0
