"""One crawl on one Celery app: where its URLs and rows are, and how its tickets are sent."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar
from weakref import WeakKeyDictionary

from celery import Celery

from shoal.celery import spans
from shoal.errors import ConfigError
from shoal.frontier import Frontier
from shoal.frontier.tickets import Pace, Ticket
from shoal.local import Job
from shoal.meter import Meter
from shoal.slice import Dresses
from shoal.ticketed import TicketBench
from shoal.tickets import Desk

SLICE = "shoal.slice"
"""The name of the task whose messages are tickets."""

WATCHDOG_TIMEOUT_S = 2  # the worker's parent has other things to do than to wait for Redis
HANGING_S = 30.0  # a slice that goes on so long after its time is killed by Celery

T = TypeVar("T")


class PerThread(Generic[T]):
    """One object for each thread of each process. What a fork has copied is left alone."""

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._made: dict[tuple[int, int], T] = {}

    def get(self) -> T:
        """That of the calling thread; it is made if need be."""
        who = os.getpid(), threading.get_ident()
        if who not in self._made:
            self._made[who] = self._make()
        return self._made[who]

    def of_this_process(self) -> list[T]:
        """All that were made in this process."""
        return [made for (pid, _), made in [*self._made.items()] if pid == os.getpid()]


class Office:
    """What all parts of the integration need of one crawl. Nothing is opened until it is used."""

    def __init__(
        self, app: Celery, job: Job, pace: Pace, *, queue: str | None, patient: bool, dress: Dresses
    ) -> None:
        """queue: for tickets, None: the app's default one. dress: see `Bench`.

        patient: a slice waits for what it has begun as long as Celery lets it: functions cannot be cancelled.
        """
        self.app, self.job, self.pace, self.queue, self.patient = app, job, pace, queue, patient
        self._desks = PerThread(lambda: Desk(job.open_frontier(), pace, self.send))
        self._benches = PerThread(
            lambda: TicketBench(job, pace, self.send, dress, meter=spans.meter(job.crawl.name))
        )

    @property
    def name(self) -> str:
        """That of the crawl."""
        return self.job.crawl.name

    @property
    def queue_name(self) -> str:
        """The queue that a worker must consume to take tickets."""
        return self.queue or str(self.app.conf.task_default_queue)

    def desk(self) -> Desk:
        """For producers in this thread. Raises as `open_frontier` does."""
        return self._desks.get()

    def bench(self) -> TicketBench:
        """For slices in this thread."""
        return self._benches.get()

    def meters(self) -> list[Meter]:
        """What the slices of this process have done."""
        return [bench.meter for bench in self._benches.of_this_process()]

    def close_benches(self) -> None:
        """Those of this process, when it ends."""
        for bench in self._benches.of_this_process():
            bench.close()

    @contextmanager
    def watch(self) -> Iterator[Desk]:
        """For a moment only: a process that forks must have no connection, least of all to SQLite."""
        with self._open_briefly() as frontier:
            yield Desk(frontier, self.pace, self.send)

    def _open_briefly(self) -> Frontier:
        url = self.job.frontier
        if url.startswith("redis"):
            url += ("&" if "?" in url else "?") + f"socket_timeout={WATCHDOG_TIMEOUT_S}"
        return Job(crawl=self.job.crawl, frontier=url, outputs=self.job.outputs).open_frontier()

    def send(self, ticket: Ticket) -> None:
        """Publish one ticket, without trying twice."""
        options: dict[str, object] = {} if self.queue is None else {"queue": self.queue}
        self.app.send_task(
            SLICE,
            args=[self.name, ticket.slot, ticket.generation],
            expires=self.pace.expires_s,
            time_limit=self._time_limit_s(),
            retry=False,
            ignore_result=True,
            add_to_parent=False,
            **options,
        )

    def _time_limit_s(self) -> float:
        own = self.pace.slice_s + self.pace.drain_s + HANGING_S
        return min(own, self.app.conf.task_time_limit or own)


_OFFICES: WeakKeyDictionary[Celery, dict[str, Office]] = WeakKeyDictionary()


def offices(app: Celery) -> dict[str, Office]:
    """The crawls of an app, by name."""
    return _OFFICES.setdefault(app, {})


def office_of(app: Celery, name: str) -> Office:
    """That of one crawl. Raises ConfigError if there is none.

    A child that was spawned has, besides the app that its modules made, a copy that came from its parent.
    """
    if name in offices(app):
        return offices(app)[name]
    for other, opened in [*_OFFICES.items()]:
        if other.main == app.main and name in opened:
            return opened[name]
    raise ConfigError(f"there is no crawl '{name}' here: workers must import the same tasks as producers")
