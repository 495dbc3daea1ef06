"""What one worker has done so far, in plain numbers: counting a page costs a microsecond.

`shoal.metrics` makes text of it. Each number is written by one thread; others may read it at any time.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

from shoal.model import Beat, Lease, Outcome

Visit: TypeAlias = Callable[[Lease], Awaitable[Outcome]]

MOST_REASONS = 100
OTHER = "other"
"""Stands for all reasons beyond so many: handlers may give one of their own for every page."""

FETCH_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
SETTLE_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
LAG_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)


class Histogram:
    """Durations, counted by how long they were."""

    __slots__ = ("bounds", "counts", "sum_s")

    def __init__(self, bounds_s: tuple[float, ...]) -> None:
        """bounds_s: the longest of each kind, rising; what is longer than all of them is counted as well."""
        self.bounds = bounds_s
        self.counts = [0] * (len(bounds_s) + 1)
        self.sum_s = 0.0

    def observe(self, seconds: float) -> None:
        self.counts[bisect_left(self.bounds, seconds)] += 1
        self.sum_s += seconds

    def add(self, other: Histogram) -> None:
        """One with the same bounds."""
        self.counts = [ours + theirs for ours, theirs in zip(self.counts, other.counts, strict=True)]
        self.sum_s += other.sum_s


class Meter:
    """Counts from the start of a worker on."""

    def __init__(self) -> None:
        self.ends: dict[tuple[str, str], int] = {}
        """Attempts that were committed, by state and reason."""
        self.size_bytes = 0
        self.items = 0
        self.losses = 0
        """Leases that were held here and lost."""
        self.fetches = Histogram(FETCH_S)
        self.stores = Histogram(SETTLE_S)
        """Writing the rows of a batch of pages."""
        self.commits = Histogram(SETTLE_S)
        """Committing a batch to the frontier."""
        self.lags = Histogram(LAG_S)
        """How late the event loop was, each time that it was looked at."""
        self.beat: Beat | None = None
        """What the worker said of itself last."""

    def timed(self, visit: Visit) -> Visit:
        """What visits pages, as it is to be called."""
        return visit

    def committed(self, outcomes: Sequence[Outcome], store_s: float, commit_s: float) -> None:
        """A batch of pages has come to its end. store_s: 0 without a store."""
        for outcome in outcomes:
            kind = outcome.state, outcome.reason
            if kind not in self.ends and len(self.ends) >= MOST_REASONS:
                kind = outcome.state, OTHER
            self.ends[kind] = self.ends.get(kind, 0) + 1
            self.size_bytes += outcome.size_bytes
            self.items += len(outcome.items)
            if outcome.elapsed_s > 0:
                self.fetches.observe(outcome.elapsed_s)
        if store_s:
            self.stores.observe(store_s)
        self.commits.observe(commit_s)

    def lost(self, leases: int) -> None:
        """So many leases turned out to be held no more."""
        self.losses += leases

    def add(self, other: Meter) -> None:
        """Count what another one has counted."""
        for kind, count in other.ends.copy().items():
            self.ends[kind] = self.ends.get(kind, 0) + count
        self.size_bytes += other.size_bytes
        self.items += other.items
        self.losses += other.losses
        for name in ("fetches", "stores", "commits", "lags"):
            getattr(self, name).add(getattr(other, name))
