"""One process of a function: an event in, a slice worked off, counts out."""

from __future__ import annotations

import asyncio
import logging
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from threading import Lock, Thread
from uuid import uuid4

from msgspec import Struct

from shoal.crawl import Crawl
from shoal.due import revisit_due
from shoal.frontier import Frontier
from shoal.frontier.snapshot import chunked
from shoal.function.events import Order
from shoal.function.fleet import worth_starting
from shoal.local import Job, prepare
from shoal.model import Link, Stats
from shoal.slice import Bench, Ends, patiently, shorten_timeout
from shoal.worker import GRACE_S, LEASE_S

SPARE_S = GRACE_S + 0.5  # kept back of an invocation's time: to give back, to commit, to answer
MOST_GRACE_S = 10.0  # for what has begun when the slice leases no more
PATIENT_S = 2.0  # with a frontier that cannot be reached
BATCH = 1_000

log = logging.getLogger("shoal.function")


class Report(Struct, frozen=True):
    """What came of one invocation, and how the crawl stands after it."""

    added: int
    """URLs of the event that were new."""
    known: int
    """URLs of the event that the frontier had already."""
    done: int
    dead: int
    skipped: int
    retried: int
    """Attempts that failed, so that their pages are tried again."""
    finished: bool
    """Whether nothing remains to be done in the whole crawl."""
    queued: int
    leased: int
    """By other invocations."""
    start: int
    """How many more invocations are worth starting now."""
    again_s: float | None
    """In how many seconds time alone may bring work, if not now; None: nothing waits for time."""


class Station:
    """Works off slices of one crawl, with what earlier invocations have left open. Safe for threads."""

    def __init__(
        self, crawl: Crawl, frontier: str, store: str | None, *, patience_s: float, most: int
    ) -> None:
        """Nothing is opened yet: what a snapshot of the process holds is good in all its copies."""
        self.crawl = crawl
        self._job = Job(crawl, frontier, () if store is None else (store,))
        self._patience_s = patience_s
        self._most = most
        self._preparing = Lock()
        self._prepared = False
        self._idle: deque[_Place] = deque()
        weakref.finalize(self, _close, self._idle)  # when the process ends, at the latest

    def invoke(self, order: Order, left_s: Callable[[], float]) -> Report:
        """Add the links, then work until the time is over or there is nothing to do.

        left_s: how much time the invocation has, before its process is killed or frozen.
        Raises ShoalError if it could not do that. Nothing is lost then, and doing it again does no harm.
        """
        self._prepare(left_s())
        with self._place() as place:
            frontier = place.bench.open()
            added = patiently(partial(_add, frontier, order.links), PATIENT_S)
            patiently(partial(revisit_due, frontier, self.crawl), PATIENT_S)
            ends = self._work(place, left_s())
            report = patiently(partial(self._report, place, ends, added, len(order.links)), PATIENT_S)
        log.info("%s", report)
        return report

    def _prepare(self, left_s: float) -> None:
        """Once in each process, since all that it does is done for good."""
        with self._preparing:
            if not self._prepared:
                slice_s, _ = times(left_s)
                if slice_s > 0:
                    shorten_timeout(self.crawl, slice_s)
                patiently(partial(prepare, self._job), PATIENT_S)
                self._prepared = True

    def _work(self, place: _Place, left_s: float) -> dict[str, int]:
        slice_s, grace_s = times(left_s)
        if slice_s <= 0:
            return {}
        return place.bench.work(
            place.name,
            Ends(slice_s=slice_s, grace_s=grace_s),
            patience_s=self._patience_s,
            lease_s=min(LEASE_S, left_s + SPARE_S),  # then its process is no more
        )

    def _report(self, place: _Place, ends: dict[str, int], added: int, links: int) -> Report:
        frontier = place.bench.open()
        grant = frontier.lease(0, LEASE_S, worker=place.name)  # which only looks
        stats = frontier.stats()
        return Report(
            added=added,
            known=links - added,
            done=ends.get("done", 0),
            dead=ends.get("dead", 0),
            skipped=ends.get("skipped", 0),
            retried=ends.get("queued", 0),
            finished=grant.finished,
            queued=stats.queued,
            leased=stats.leased,
            start=start_of(frontier, stats, self.crawl, self._most),
            again_s=grant.again_s,
        )

    @contextmanager
    def _place(self) -> Iterator[_Place]:
        """One that nobody else uses: the one that was used last, or else a new one."""
        try:
            place = self._idle.pop()
        except IndexError:
            place = _Place(self._job)
        try:
            yield place
        except BaseException:
            place.bench.close()
            raise
        self._idle.append(place)


class _Place:
    """Where one invocation at a time works."""

    def __init__(self, job: Job) -> None:
        self.name = f"function:{uuid4().hex}"  # no `worker_name`: sandboxes share host names and process ids
        self.bench = Bench(job, worker=self.name)


def _close(places: Iterable[_Place]) -> None:
    """The garbage collector may call it at any moment: where a loop runs, no other one can be ended."""
    if _a_loop_runs_here():
        elsewhere = Thread(target=_close, args=(places,))
        elsewhere.start()
        elsewhere.join()
        return
    for place in places:
        place.bench.close()


def _a_loop_runs_here() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def times(left_s: float) -> tuple[float, float]:
    """How long to lease, and how long what has begun may take then."""
    whole_s = left_s - SPARE_S
    grace_s = min(MOST_GRACE_S, whole_s / 4)
    return whole_s - grace_s, grace_s


def start_of(frontier: Frontier, stats: Stats, crawl: Crawl, most: int) -> int:
    """How many more invocations are worth starting on this crawl."""
    return worth_starting(stats, frontier.limits, frontier.workers(), crawl.settings.concurrency, most)


def _add(frontier: Frontier, links: tuple[Link, ...]) -> int:
    return sum(frontier.add(batch) for batch in chunked(links, BATCH))
