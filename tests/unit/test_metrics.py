"""Metrics as Prometheus reads them."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from shoal.frontier import Frontier, open_frontier
from shoal.meter import MOST_REASONS, Histogram, Meter
from shoal.metrics import frontier_metrics, render, worker_families
from shoal.model import Beat, Lease, Limits, Link, Outcome
from shoal.settle import settle

HOSTILE = 'a "quoted" \\ reason\n# TYPE forged counter\nforged 1'


@pytest.fixture
def frontier(tmp_path: Path) -> Iterator[Frontier]:
    """With pages in several states."""
    with open_frontier(f"sqlite:{tmp_path}/state.shoal", crawl='the "shop"\\') as frontier:
        frontier.add([Link(f"http://{host}.example/", priority=host) for host in range(6)])
        frontier.configure(Limits(per_host=2))
        yield frontier


def work(frontier: Frontier, meter: Meter, *states: str) -> list[Outcome]:
    """Let pages end so."""
    leases = frontier.lease(len(states), 60, worker="w").leases
    outcomes = [_outcome(lease, state) for lease, state in zip(leases, states, strict=True)]
    settle(frontier, (), outcomes, meter)
    return outcomes


def _outcome(lease: Lease, state: str) -> Outcome:
    reason = {"done": "", "queued": "HTTP 503"}.get(state, HOSTILE)
    return Outcome(
        lease,
        state,  # type: ignore[arg-type]
        reason=reason,
        size_bytes=1000,
        elapsed_s=0.3,
        items=({"n": 1},) if state == "done" else (),
    )


def samples(text: str) -> dict[str, float]:
    """All that a text says: what stands before the number, and the number."""
    lines = [line.rpartition(" ") for line in text.splitlines() if not line.startswith("#")]
    return {name: float(value) for name, _, value in lines}


def check(text: str) -> None:
    """Let Prometheus's own tool look at it."""
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed")
    found = subprocess.run([promtool, "check", "metrics"], input=text.encode(), capture_output=True)
    assert (found.returncode, found.stdout + found.stderr) == (0, b"")


def test_prometheus_has_nothing_to_say_against_the_text(frontier: Frontier) -> None:
    """Format, names, units and help are as they should be, whatever crawls and reasons are called."""
    meter = Meter()
    outcomes = work(frontier, meter, "done", "dead", "queued", "skipped")
    meter.committed([replace(outcomes[0], reason="half a character: \ud800")], 0.1, 0.1)
    meter.lags.observe(0.02)
    frontier.beat(Beat("w", 16, 0.0, 1.0), 60)
    check(frontier_metrics(frontier))
    check(render(worker_families(frontier.crawl, [meter])))


def test_a_frontier_tells_how_its_crawl_stands(frontier: Frontier) -> None:
    """As its counters do: states, priorities, hosts, totals, and the workers that are alive."""
    work(frontier, Meter(), "done", "dead", "queued")
    frontier.beat(Beat("w", 16, 0.0, 1.0, bytes_in_flight=7, lag_s=0.5, settle_s=0.25), 60)
    told = {
        re.sub(r'crawl="the \\"shop\\"\\\\",?', "", name): value
        for name, value in samples(frontier_metrics(frontier)).items()
    }
    expected = {
        'shoal_urls{state="queued"}': 4,
        'shoal_urls{state="done"}': 1,
        'shoal_urls{state="dead"}': 1,
        'shoal_queued_urls{priority="0"}': 1,
        'shoal_queued_urls{priority="5"}': 0,
        "shoal_retrying_urls{}": 1,
        "shoal_hosts{}": 6,
        "shoal_ready_hosts{}": 4,
        "shoal_crawl_fetches_total{}": 3,
        "shoal_crawl_retries_total{}": 1,
        "shoal_crawl_fetched_bytes_total{}": 3000,
        "shoal_crawl_fetch_seconds_total{}": pytest.approx(0.9),
        "shoal_workers{}": 1,
        "shoal_workers_concurrency{}": 16,
        "shoal_workers_worst_loop_lag_seconds{}": 0.5,
        "shoal_frontier_up{}": 1,
    }
    assert {name: told[name] for name in expected} == expected


def test_several_crawls_share_the_names(frontier: Frontier, tmp_path: Path) -> None:
    """Each name is explained once, and crawls are told apart by a label."""
    with open_frontier(f"sqlite:{tmp_path}/state.shoal", crawl="other") as other:
        text = frontier_metrics(frontier, other)
    assert text.count("# TYPE shoal_urls gauge") == 1
    assert 'shoal_urls{crawl="other",state="queued"} 0' in text
    check(text)


def test_a_frontier_that_cannot_be_used_is_told_as_such(frontier: Frontier, tmp_path: Path) -> None:
    """The scrape does not fail: there is something to alert on."""
    (tmp_path / "state.shoal").write_bytes(b"no database any more" * 1000)
    (tmp_path / "state.shoal-wal").write_bytes(b"")
    assert list(samples(frontier_metrics(frontier)).values()) == [0]


def test_a_worker_tells_what_was_committed(frontier: Frontier) -> None:
    """By outcome and reason, as committed; and nothing twice for what was lost."""
    meter = Meter()
    outcomes = work(frontier, meter, "done", "done", "queued")
    settle(frontier, (), outcomes, meter)  # somebody else has them now
    told = samples(render(worker_families("shop", [meter])))
    assert told['shoal_pages_total{crawl="shop",outcome="done",reason=""}'] == 2
    assert told['shoal_pages_total{crawl="shop",outcome="retried",reason="HTTP 503"}'] == 1
    assert told['shoal_fetched_bytes_total{crawl="shop"}'] == 3000
    assert told['shoal_items_total{crawl="shop"}'] == 2
    assert told['shoal_lease_losses_total{crawl="shop"}'] == 3
    assert told['shoal_fetch_duration_seconds_bucket{crawl="shop",le="0.25"}'] == 0
    assert told['shoal_fetch_duration_seconds_bucket{crawl="shop",le="0.5"}'] == 3
    assert told['shoal_fetch_duration_seconds_bucket{crawl="shop",le="+Inf"}'] == 3
    assert told['shoal_fetch_duration_seconds_count{crawl="shop"}'] == 3
    assert told['shoal_fetch_duration_seconds_sum{crawl="shop"}'] == pytest.approx(0.9)


def test_the_workers_of_a_process_are_told_together(frontier: Frontier) -> None:
    """One sum, not several samples of the same name."""
    first, second = Meter(), Meter()
    work(frontier, first, "done")
    work(frontier, second, "done", "dead")
    told = samples(render(worker_families("shop", [first, second])))
    assert told['shoal_pages_total{crawl="shop",outcome="done",reason=""}'] == 2
    assert told['shoal_fetch_duration_seconds_count{crawl="shop"}'] == 3


def test_reasons_do_not_fill_the_memory_of_prometheus(frontier: Frontier) -> None:
    """A handler that makes up a reason for every page gets a bounded number of them; the sum is right."""
    meter = Meter()
    (lease,) = frontier.lease(1, 60, worker="w").leases
    meter.committed(
        [Outcome(lease, "skipped", reason=f"because {number}") for number in range(1000)], 0.1, 0.1
    )
    assert len(meter.ends) <= MOST_REASONS + 1
    assert sum(meter.ends.values()) == 1000


def test_a_duration_counts_in_its_bucket() -> None:
    """A bound belongs to its bucket; beyond the last one there is another."""
    counts = Histogram((0.1, 1.0))
    for seconds in (0.0, 0.1, 0.10001, 1.0, 5.0):
        counts.observe(seconds)
    assert (counts.counts, counts.sum_s) == ([2, 2, 1], pytest.approx(6.20001))
