"""How fast URLs are queued. What is asserted is loose, for busy machines; what was measured is printed."""

from __future__ import annotations

import time

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]


def best(work, count, times=3):
    """The best rate of a few, in a second."""
    rates = []
    for turn in range(times):
        began = time.perf_counter()
        work(turn)
        rates.append(count / (time.perf_counter() - began))
    return max(rates)


def test_delay_is_quick(new_project):
    """One by one, from one producer in a loop."""
    scrape = new_project().module.scrape

    def work(turn):
        for number in range(2_000):
            scrape.delay(f"http://site.example/{turn}/page/{number}")

    rate = best(work, 2_000)
    print(f"delay: {rate:,.0f} a second")
    assert rate > 500


def test_many_urls_are_queued_quickly(new_project):
    """In large steps."""
    scrape = new_project().module.scrape

    def work(turn):
        scrape.map_urls(f"http://h{n % 16}.example/{turn}/page/{n}" for n in range(50_000))

    rate = best(work, 50_000)
    print(f"map_urls: {rate:,.0f} a second")
    assert rate > 10_000
