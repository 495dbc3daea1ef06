"""SIGKILL between every two steps of the path of a page, and in the middle of some."""

from __future__ import annotations

import signal
from random import Random

import pytest
from tests.faults.crawling import KINDS, PART_KINDS
from tests.faults.faulty import STEPS

pytestmark = pytest.mark.faults

ALL_STORES = {"jsonl", "csv", "sqlite", *PART_KINDS}
OF_STORES = {
    "store opened": ALL_STORES,
    "start recorded": ALL_STORES,
    "before the write": ALL_STORES,
    "in the middle of the write": {"jsonl", "csv"},
    "before the rows are on disk": {"jsonl", "csv"},
    "between the rows": {"sqlite"},
    "after the write": ALL_STORES,
    "before the commit": {"state", "jsonl", "csv", *PART_KINDS},
    "after the commit": {"state", "jsonl", "csv", *PART_KINDS},
    "before the rows are let go": ALL_STORES,
    "after the rows are let go": ALL_STORES,
    "a part half written": {"parquet", "warc", "two"},
    "before a part is put": {"parquet", "warc", "two"},
    "after a part is put": {"parquet", "warc", "two"},
    "before an object is put": {"s3"},
    "after an object is put": {"s3"},
    "before a part is removed": set(PART_KINDS),
    "before parts are put together": set(PART_KINDS),
    "after parts are put together": set(PART_KINDS),
    "before tidying": set(PART_KINDS),
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
    "before parts are put together": 2,
    "after parts are put together": 2,
    "before tidying": 2,
    "before the end": 1,
    "after the end": 1,
}
"""How often a run passes a step at least; the others 8 times."""

CASES = [
    (kind, step)
    for step in STEPS
    for kind in KINDS | PART_KINDS
    if kind in OF_STORES.get(step, {"state", "jsonl", "csv"})
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
