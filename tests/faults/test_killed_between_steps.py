"""SIGKILL between every two steps of the path of a page, and in the middle of some."""

from __future__ import annotations

import signal
from random import Random

import pytest
from tests.faults.crawling import KINDS
from tests.faults.faulty import STEPS

pytestmark = pytest.mark.faults

OF_STORES = {
    "store opened": {"jsonl", "csv", "sqlite"},
    "start recorded": {"jsonl", "csv", "sqlite"},
    "before the write": {"jsonl", "csv", "sqlite"},
    "in the middle of the write": {"jsonl", "csv"},
    "before the rows are on disk": {"jsonl", "csv"},
    "between the rows": {"sqlite"},
    "after the write": {"jsonl", "csv", "sqlite"},
    "before the rows are let go": {"jsonl", "csv", "sqlite"},
    "after the rows are let go": {"jsonl", "csv", "sqlite"},
}
"""Steps that not all kinds of rows take."""

PASSES = {
    "store opened": 2,
    "start recorded": 2,
    "before the description": 2,
    "before the seeds": 1,
    "after the seeds": 1,
    "in a lease": 80,
    "in the commit": 80,
    "between the rows": 40,
    "before the end": 1,
    "after the end": 1,
}
"""How often a run passes a step at least; the others 8 times."""

CASES = [
    (kind, step) for step in STEPS for kind in KINDS if kind in OF_STORES.get(step, {"state", "jsonl", "csv"})
]


@pytest.mark.parametrize(("kind", "step"), CASES)
def test_a_kill_at_this_step_loses_and_doubles_nothing(new_crawling, site, rng: Random, kind, step):
    """Killed there at the first or a later page, and run again: each page is there once, and right."""
    crawling = new_crawling(site, kind, "--concurrency", 4)
    nth = rng.randint(1, PASSES.get(step, 8))
    print(f"killed {step}, time {nth}")
    assert crawling.start("faulty.py", step, kind, nth).wait() == -signal.SIGKILL
    crawling.assert_sound()
    crawling.finish()


@pytest.mark.parametrize("kind", ["jsonl", "csv", "sqlite"])
@pytest.mark.parametrize("step", ["store opened", "start recorded", "before the seeds"])
def test_a_kill_while_starting_afresh_costs_nothing_but_the_old_rows(new_crawling, site, kind, step):
    """Killed when the old rows are gone, but not all that is known of them, --fresh starts again."""
    crawling = new_crawling(site, kind, "--fresh")
    crawling.finish()
    assert crawling.start("faulty.py", step, kind, 1).wait() == -signal.SIGKILL
    crawling.finish()
