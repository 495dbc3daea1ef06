"""From a function, or from a crawl, to a task."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from celery import Celery

from shoal.celery import slices, watchdog
from shoal.celery.office import SLICE, Office, offices
from shoal.celery.task import ScrapeTask
from shoal.crawl import Crawl
from shoal.errand import Errands
from shoal.errors import ConfigError
from shoal.frontier.tickets import Pace
from shoal.local import Job
from shoal.model import Lease, Outcome
from shoal.parse import Page
from shoal.slice import Dresses
from shoal.threads import HandlerThreads
from shoal.visit import Visitor
from shoal.worker import Visits

PACE = Pace()
FOR_EVER = 1_000_000
RETRY_DELAY_S = 180.0  # Celery's own


def scraper(
    app: Celery,
    *,
    frontier: str,
    store: str | None = None,
    name: str | None = None,
    crawl: str | None = None,
    fetch: bool = True,
    bind: bool = False,
    max_retries: int | None = 3,
    retry_delay_s: float | None = None,
    ticket_queue: str | None = None,
    pace: Pace = PACE,
    autoretry_for: tuple[type[BaseException], ...] = (),
    task: dict[str, Any] | None = None,
    **settings: Any,
) -> Callable[[Callable[..., object]], ScrapeTask]:
    """Make a task of `app` that scrapes: the decorator of a function, which may be async or a generator.

    frontier: URL of the frontier ("redis://HOST:PORT/DB", or "sqlite:FILE" on one machine).
    store: where its rows go, as for `shoal run -o`; None: the frontier keeps them, or there are none.
    name: of the task, by default as Celery makes it. crawl: name in the frontier, by default the task's.
    fetch: the function gets a fetched `shoal.Page`; False: it gets the URL, and a thread, and fetches itself.
    bind: it gets the task first, for `self.retry` and `self.request`.
    max_retries: attempts after the first one; None: for ever. retry_delay_s: before the first of them.
    ticket_queue: where its workers find tickets, by default the app's default queue.
    pace: times of slices and tickets. task: more options for `app.task`, such as retry_backoff.
    settings: any of `shoal.crawl.Settings`: delay_s, per_host, concurrency, ...
    Raises ConfigError naming what is wrong.
    """
    if "retries" in settings:
        raise ConfigError("retries of a task are called max_retries, as Celery does")
    if not fetch and settings.get("revisit_s") is not None:
        raise ConfigError(
            "a function that fetches for itself is not told what has changed, so revisit_s has no meaning:"
            " add its URLs again, with another key="
        )
    retries = FOR_EVER if max_retries is None else max_retries
    if retry_delay_s is not None:
        settings["retry_delay_s"] = retry_delay_s

    def decorate(function: Callable[..., object]) -> ScrapeTask:
        task_name = name or app.gen_task_name(function.__name__, function.__module__)
        declared = Crawl(crawl or task_name, retries=retries, **settings)

        def handler(page: Page) -> Any:
            return app.tasks[task_name].handle(page)

        declared.page()(handler)
        options = {
            "bind": bind,
            "function": staticmethod(function),
            "fetches_itself": not fetch,
            "takes_self": bind,
            "max_retries": max_retries,
            "default_retry_delay": RETRY_DELAY_S if retry_delay_s is None else retry_delay_s,
            "autoretry_for": autoretry_for,
        }
        _open_office(
            app,
            Job(declared, frontier, () if store is None else (store,)),
            pace,
            queue=ticket_queue,
            patient=not fetch,
            dress=_dress(app, task_name),
        )
        return _task(app, function, task_name, declared.name, **{**options, **(task or {})})

    return decorate


def attach(
    app: Celery,
    crawl: Crawl,
    *,
    frontier: str,
    store: str | None = None,
    name: str | None = None,
    ticket_queue: str | None = None,
    pace: Pace = PACE,
) -> ScrapeTask:
    """Let the workers of `app` work on a crawl, with its own handlers; its seeds are added when one starts.

    Returns a task, called as the crawl unless `name` says otherwise; its `delay(url)` adds a URL.
    The others as for `scraper`.
    """

    def run(url: str) -> None:
        """Never called: the crawl's handlers are."""

    job = Job(crawl, frontier, () if store is None else (store,))
    _open_office(app, job, pace, queue=ticket_queue, patient=False, dress=lambda visitor, threads: visitor)
    return _task(app, run, name or crawl.name, crawl.name)


def _task(
    app: Celery, function: Callable[..., object], name: str, crawl: str, /, **options: Any
) -> ScrapeTask:
    task: ScrapeTask = app.task(
        function, base=ScrapeTask, name=name, shared=False, crawl_name=crawl, leases={}, **options
    )
    return task


def _open_office(app: Celery, job: Job, pace: Pace, **more: Any) -> None:
    opened = offices(app)
    if job.crawl.name in opened:
        raise ConfigError(f"this app has a crawl '{job.crawl.name}' already: give each a name, crawl=...")
    opened[job.crawl.name] = Office(app, job, pace, **more)
    if len(opened) == 1:
        slices.register(app, SLICE)
        watchdog.install(app)


def _dress(app: Celery, task_name: str) -> Dresses:
    def dress(visitor: Visitor, threads: HandlerThreads) -> Visits:
        task: ScrapeTask = app.tasks[task_name]
        if task.fetches_itself:
            return Errands(task.office.job.crawl, task.fetch, threads)
        return _Noting(visitor, task.leases)

    return dress


class _Noting:
    """Notes which URLs are being done: a handler is told the page, but not the lease."""

    def __init__(self, visitor: Visits, leases: dict[tuple[str, str], Lease]) -> None:
        self._visitor = visitor
        self._leases = leases

    async def visit(self, lease: Lease) -> Outcome:
        page = lease.link.url, lease.link.key
        self._leases[page] = lease
        try:
            return await self._visitor.visit(lease)
        finally:
            self._leases.pop(page, None)
