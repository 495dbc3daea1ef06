"""A zombie: a worker that is stopped for longer than its leases last, and then goes on."""

from __future__ import annotations

import fcntl
import os
import signal
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from tests.faults.crawling import KINDS, Crawling
from tests.site import Site

from shoal.store import lock

pytestmark = pytest.mark.faults

SHORT = ("hasty.py", "LEASE_S=1.2,TEND_S=0.4")
NEGLECTFUL = ("hasty.py", "LEASE_S=1.2,TEND_S=100")
"""It does not look after its leases, so that it notices only when it commits that they were lost."""


@pytest.fixture
def site() -> Iterator[Site]:
    """A slow site: most of the time, a worker waits for it."""
    with Site(pages=30, hosts=2, latency_s=0.3) as served:
        yield served


@pytest.mark.parametrize("until_the_end", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_a_late_commit_is_refused(new_crawling, site, kind, until_the_end):
    """What a stopped worker held is done by another one, and not a second time when it wakes up."""
    crawling = new_crawling(site, kind, "--concurrency", 6)
    zombie = crawling.start(*NEGLECTFUL)
    crawling.until(lambda: crawling.done() > 5 and crawling.at_work(), zombie)
    stop_outside_a_transaction(crawling, zombie.signal)
    other = crawling.start(*SHORT)
    if until_the_end:
        assert other.wait() == 0
        crawling.assert_finished()
    else:
        crawling.until(lambda: crawling.ask("SELECT 1 FROM crawls WHERE losses > 0 AND leased > 0"), other)
    zombie.signal(signal.SIGCONT)
    assert zombie.wait() == 0
    assert other.wait() == 0
    assert "their pages are done again" in zombie.said()
    crawling.assert_finished()


@pytest.mark.parametrize("told", [False, True])
def test_a_command_does_not_wait_for_a_worker_that_is_stopped(new_crawling, site, told):
    """It names the process, and when all others have ended it ends, too, of itself or when it is told to."""
    crawling = new_crawling(site, "jsonl", "--processes", 2, "--concurrency", 3)
    run = crawling.start(*SHORT)
    crawling.until(lambda: crawling.done() > 5 and len(run.members()) == 3, run)
    zombie = max(run.members())
    stop_outside_a_transaction(crawling, lambda number: os.kill(zombie, number))
    crawling.until(
        lambda: f"worker {zombie} is stopped: `kill -CONT {zombie}` lets it go on" in run.said(), run
    )
    if told:
        run.signal(signal.SIGTERM)
    assert run.wait() == (130 if told else 0)
    assert f"worker {zombie} was killed" in run.said()
    if told:
        assert crawling.start(*SHORT).wait() == 0
    crawling.assert_finished()


def stop_outside_a_transaction(crawling: Crawling, send: Callable[[signal.Signals], None]) -> None:
    """Stop a process while it holds leases and no lock: those who hold a lock make all others wait."""
    while True:
        send(signal.SIGSTOP)
        time.sleep(0.01)
        if crawling.at_work() and not _locked(crawling):
            return
        send(signal.SIGCONT)
        time.sleep(0.05)


def _locked(crawling: Crawling) -> bool:
    if crawling.kind in {"jsonl", "csv"} and _file_locked(crawling.output):
        return True
    databases = [crawling.state, *([crawling.output] if crawling.kind == "sqlite" else [])]
    return any(_database_locked(path) for path in databases)


def _file_locked(path: Path) -> bool:
    with path.open("r+b") as file:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, lock.ALONE)
        except BlockingIOError:
            return True
        return False


def _database_locked(path: Path) -> bool:
    with closing(sqlite3.connect(path, timeout=0.1, isolation_level=None)) as db:
        try:
            db.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError:
            return True
        db.execute("ROLLBACK")
        return False
