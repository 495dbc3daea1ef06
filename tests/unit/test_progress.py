"""How progress is counted and told."""

from __future__ import annotations

import logging
import time
from pathlib import Path

import pytest

from shoal.frontier import open_frontier
from shoal.model import Link, Outcome, Stats
from shoal.progress import WINDOW_S, Lines, Pace, Silent, clock, count, counters, progress, size, summary


def test_the_pace_is_that_of_the_last_seconds() -> None:
    """Nothing at first, then the average since the first look, then that of the window."""
    pace = Pace()
    assert pace.per_s(100.0, 50) == 0
    assert pace.per_s(101.0, 60) == 10
    assert pace.per_s(104.0, 90) == 10
    assert pace.per_s(100.0 + WINDOW_S + 1, 90) == pytest.approx(30 / WINDOW_S)
    assert pace.per_s(200.0, 90) == 0


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0:00:00"), (59.9, "0:00:59"), (3661, "1:01:01"), (360_000, "100:00:00")]
)
def test_a_clock(seconds: float, text: str) -> None:
    """Hours, minutes, seconds."""
    assert clock(seconds) == text


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.0 kB"),
        (12_345_678, "12.3 MB"),
        (5e9, "5.0 GB"),
        (5e15, "5,000.0 TB"),
    ],
)
def test_a_size(number: float, text: str) -> None:
    """In steps of a thousand."""
    assert size(number) == text


@pytest.mark.parametrize(("number", "text"), [(0, "0 rows"), (1, "1 row"), (1234, "1,234 rows")])
def test_a_count(number: int, text: str) -> None:
    """One row, but two rows."""
    assert count(number, "row") == text


STATS = Stats(done=1234, queued=5, leased=2, retrying=1, dead=3, skipped=4, items=1000, size_bytes=2_500_000)


def test_a_summary_in_one_line() -> None:
    """For people, and as numbers for machines."""
    assert summary(STATS, 12.34, 61) == (
        "0:01:01 12.3 pages/s: 1,234 done, 5 queued, 2 leased, 1 retrying, 3 dead, 2.5 MB"
    )
    assert counters(STATS) == {
        "done": 1234,
        "queued": 5,
        "overflow": 0,
        "leased": 2,
        "retrying": 1,
        "dead": 3,
        "skipped": 4,
        "items": 1000,
        "size_bytes": 2_500_000,
    }


def test_a_line_every_five_seconds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """However often it is asked to show; the rate is that of the last seconds."""
    now = 1000.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    with (
        open_frontier(f"sqlite:{tmp_path}/a.shoal", crawl="books") as frontier,
        caplog.at_level(logging.INFO),
    ):
        lines = Lines()
        frontier.add([Link(f"http://a.example/{number}") for number in range(30)])
        for _ in range(60):  # a quarter of a second each
            now += 0.25
            leases = frontier.lease(1, 60.0, worker="w").leases
            frontier.commit([Outcome(lease=lease, state="done", size_bytes=100) for lease in leases])
            lines.show(frontier)
        lines.close()
    assert [record.getMessage() for record in caplog.records] == [
        "0:00:05 4.0 pages/s: 20 done, 10 queued, 0 leased, 0 retrying, 0 dead, 2.0 kB",
        "0:00:10 3.0 pages/s: 30 done, 0 queued, 0 leased, 0 retrying, 0 dead, 3.0 kB",
        "0:00:15 1.0 pages/s: 30 done, 0 queued, 0 leased, 0 retrying, 0 dead, 3.0 kB",
    ]
    assert vars(caplog.records[1])["pages_per_s"] == 3.0
    assert vars(caplog.records[1])["done"] == 30


def test_what_is_shown_where() -> None:
    """Nothing if quiet, lines where stderr is no terminal."""
    assert isinstance(progress("a", quiet=True, plain=False), Silent)
    assert isinstance(progress("a", quiet=False, plain=False), Lines)
    assert isinstance(progress("a", quiet=False, plain=True), Lines)
