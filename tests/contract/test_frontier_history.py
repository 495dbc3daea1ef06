"""The history of a crawl, on every back end. Time is passed in, as in test_frontier_contract.py."""

from __future__ import annotations

import time

from test_frontier_contract import A, B, C, add, commit, done, fetch, lease

from shoal.frontier.history import MINUTES
from shoal.model import Limits, Link, Minute, Outcome, Visit

NOON = 4_000_000_020.0  # at the beginning of a minute
MINUTE_S = 60


def test_a_minute_tells_what_the_counters_gained(frontier):
    """Pages by how they ended, attempts, bytes, rows, durations, and URLs that became known."""
    frontier.configure(Limits(per_host=3))
    add(frontier, A, B, C, at=NOON)
    first, second, third = lease(frontier, at=NOON)
    commit(
        frontier,
        done(first, size_bytes=1000, elapsed_s=0.25, items=({"n": 1}, {"n": 2}), links=(Link(A + "new"),)),
        Outcome(second, "dead", reason="HTTP 404", size_bytes=10, elapsed_s=0.5),
        Outcome(third, "queued", reason="timeout", retry_s=5),
        at=NOON + 59,
    )
    assert frontier.history(NOON, now=NOON + 59) == [
        Minute(
            NOON,
            done=1,
            dead=1,
            fetches=3,
            retries=1,
            found=4,
            items=2,
            size_bytes=1010,
            elapsed_s=0.75,
        )
    ]


def test_each_minute_is_told_apart(frontier):
    """In order; those in which nothing happened are left out."""
    for at in (NOON, NOON + 59.9, NOON + 60, NOON + 600):
        fetch(frontier, f"{A}{at}", at=at)
    minutes = frontier.history(NOON, now=NOON + 600)
    assert [(minute.at - NOON, minute.done) for minute in minutes] == [(0, 2), (60, 1), (600, 1)]


def test_the_minute_of_since_is_the_first_one_told(frontier):
    """And it is told whole."""
    fetch(frontier, A, at=NOON)
    fetch(frontier, B, at=NOON + 65)
    assert [each.done for each in frontier.history(NOON + 59, now=NOON + 65)] == [1, 1]
    assert [each.done for each in frontier.history(NOON + 60, now=NOON + 65)] == [1]
    assert frontier.history(NOON + 120, now=NOON + 125) == []


def test_skipped_links_and_lost_leases_are_told(frontier):
    """As they are counted: when a trap cuts the link, when the lease is taken back."""
    frontier.configure(Limits(max_losses=1))
    frontier.add([Link(A, trap="trap: calendar"), Link(B)], now=NOON)
    lease(frontier, at=NOON, seconds=10)
    lease(frontier, at=NOON + MINUTE_S)
    assert frontier.history(NOON, now=NOON + MINUTE_S) == [
        Minute(NOON, skipped=1, found=2),
        Minute(NOON + MINUTE_S, dead=1, losses=1),
    ]


def test_what_is_taken_away_is_no_event(frontier):
    """Redriven, revisited and forgotten pages leave what had happened as it was."""
    fetch(frontier, A, visit=Visit(1.0, 1.0, 1.0), at=NOON)
    fetch(frontier, B, "dead", at=NOON)
    fetch(frontier, C, "skipped", at=NOON)
    before = frontier.history(NOON, now=NOON)
    assert frontier.revisit(1, now=NOON + 30) == 1
    assert frontier.redrive(now=NOON + 30) == 1
    assert frontier.forget(C)
    assert frontier.history(NOON, now=NOON + 30) == before


def test_a_commit_of_lost_leases_is_no_event(frontier):
    """History and counters change in the same step, or neither does."""
    add(frontier, A, B, at=NOON)
    held, gone = lease(frontier, at=NOON)
    frontier.release([gone.token], now=NOON)
    assert frontier.commit([done(held), done(gone)], now=NOON + MINUTE_S) == {gone.token}
    assert frontier.history(NOON + MINUTE_S, now=NOON + MINUTE_S) == []


def test_only_the_last_days_are_kept(frontier):
    """What has left the window is not told, and does not add up with what takes its place."""
    fetch(frontier, A, at=NOON)
    last = NOON + (MINUTES - 1) * MINUTE_S
    assert len(frontier.history(0.0, now=last)) == 1
    assert frontier.history(0.0, now=last + MINUTE_S) == []
    fetch(frontier, B, at=last + MINUTE_S)
    assert [each.done for each in frontier.history(0.0, now=last + MINUTE_S)] == [1]


def test_every_process_adds_to_the_same_minute(place):
    """The history belongs to the crawl."""
    first, second = place.open(), place.open()
    fetch(first, A, at=NOON)
    fetch(second, B, at=NOON + 1)
    assert [each.done for each in first.history(NOON, now=NOON + 1)] == [2]


def test_crawls_have_a_history_each(place):
    """And `purge` forgets it."""
    first, second = place.open("one"), place.open("two")
    fetch(first, A, at=NOON)
    assert second.history(NOON, now=NOON) == []
    first.purge()
    assert first.history(NOON, now=NOON) == []


def test_without_now_the_clock_of_the_frontier_counts(frontier):
    """As everywhere."""
    began = time.time()
    frontier.add([Link(A)])
    (minute,) = frontier.history(began - 1)
    assert began - 61 <= minute.at <= time.time() + 1
    assert minute.found == 1
