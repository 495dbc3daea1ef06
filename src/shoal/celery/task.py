"""The task that users call: what looks like sending a message puts a URL into the frontier."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, ClassVar, TypeVar

from celery import Task
from celery.app.task import Context
from celery.exceptions import MaxRetriesExceededError, Retry
from kombu.exceptions import OperationalError

from shoal import direct
from shoal.celery.decisions import current_request, delay_of, request_for, run_decided
from shoal.celery.office import Office, office_of
from shoal.celery.result import Scrape
from shoal.crawl import check_url
from shoal.errors import ConfigError, FrontierUnavailable
from shoal.frontier import Frontier
from shoal.frontier.base import check_priority
from shoal.frontier.snapshot import chunked
from shoal.model import Lease, Link
from shoal.parse import Page
from shoal.produce import Counts, adding, batch_size
from shoal.urls import normalize

BATCH = 1_000
T = TypeVar("T")

_WITHOUT_MEANING = frozenset(
    {
        *(
            "add_to_parent",
            "argsrepr",
            "compression",
            "connection",
            "group_id",
            "group_index",
            "ignore_result",
        ),
        *("kwargsrepr", "origin", "parent_id", "producer", "publisher", "replaced_task_nesting", "reply_to"),
        *("retry", "retry_policy", "root_id", "serializer", "shadow", "task_id", "task_name"),
    }
)
"""Options about messages and results: nothing is lost by ignoring them."""

_INSTEAD = {
    "chain": "send the next task from the function itself, or yield links",
    "chord": "send the next task from the function itself",
    "link": "send the next task from the function itself",
    "link_error": "see `shoal dead`, and `shoal redrive`",
    "expires": "`shoal forget` takes a URL out again",
    "queue": "tickets have a queue: scraper(..., ticket_queue=...); for URLs there is priority=",
    "time_limit": "set handler_timeout_s= of the scraper, and total_timeout_s= for its fetches",
    "soft_time_limit": "set handler_timeout_s= of the scraper, and total_timeout_s= for its fetches",
}


class ScrapeTask(Task):  # type: ignore[misc]
    """The base of tasks that scrape; made by `shoal.celery.scraper` and `shoal.celery.attach`."""

    abstract = True
    ignore_result = True
    crawl_name: ClassVar[str]
    function: ClassVar[Callable[..., object] | None] = None
    """What the user wrote, if it is a function."""
    fetches_itself: ClassVar[bool] = False
    """Whether it takes a URL; otherwise it takes a Page."""
    takes_self: ClassVar[bool] = False
    """Whether it takes the task first."""
    leases: ClassVar[dict[tuple[str, str], Lease]]
    """What is being done in this process, by URL and key."""

    @property
    def office(self) -> Office:
        """Of its crawl."""
        return office_of(self.app, self.crawl_name)

    # --- adding URLs ----------------------------------------------------------------------

    def apply_async(
        self,
        args: Sequence[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
        *,
        priority: int | None = None,
        countdown: float | None = None,
        eta: datetime | None = None,
        key: str = "",
        **options: Any,
    ) -> Any:
        """Put one URL into the frontier, in one step; returns a `Scrape`, which says whether it was new.

        args: the URL, and for a function that fetches for itself its other arguments; kwargs: for others,
        what handlers find as `page.meta`. JSON must be able to hold them.
        priority: 0..9, the higher the sooner, on every broker. countdown, eta: not before.
        key: sets this scrape apart from others of the same URL, which would be the same page otherwise.
        Raises ConfigError for what is no URL and for options that have no meaning here, kombu's
        OperationalError if the frontier cannot be reached. A broker that is down does not matter.
        """
        if self.app.conf.task_always_eager:
            return super().apply_async(args, dict(kwargs or {}), **options)
        _refuse(options)
        delay_s = delay_of(countdown, eta, self.app)
        link = self._link(args or (), kwargs or {}, self._priority(priority), delay_s, key)
        new = self._add([link])
        return Scrape(link, bool(new), self.app, lambda: self.office.desk().frontier)

    def map_urls(self, urls: Iterable[str], *, priority: int = 0, countdown: float = 0.0) -> Counts:
        """Put many URLs into the frontier, in large steps; returns how many were new, known, rejected.

        Waits while `max_queued` of the crawl are queued. Raises kombu's OperationalError if the frontier
        cannot be reached: what was added until then stays.
        """
        if isinstance(urls, str):
            raise ConfigError("map_urls takes many URLs: for one there is delay(url)")
        counts, spelling = Counts(), self.office.job.crawl.spelling()
        check_priority(priority, "the URLs")
        delay_s = delay_of(countdown, None, self.app)
        frontier = _reachable(self._limited)
        with adding(frontier, _reachable) as wait_for_room:
            for batch in chunked(urls, batch_size(frontier, BATCH)):
                spelled = [normalize(url, None, spelling) for url in batch if isinstance(url, str)]
                links = [Link(url=url, priority=priority, delay_s=delay_s) for url in spelled if url]
                wait_for_room()
                new = self._add(links)
                counts.new += new
                counts.known += len(links) - new
                counts.rejected += len(batch) - len(links)
        return counts

    def _pass_by(self, *_: Any) -> Any:
        """Refused: one message would fetch all these URLs past the frontier."""
        raise ConfigError(f"{self.name}.map, .starmap and .chunks have no meaning: use map_urls(urls)")

    map = starmap = chunks = _pass_by

    def _add(self, links: list[Link]) -> int:
        return _reachable(lambda: self.office.desk().add(links))

    def _limited(self) -> Frontier:
        """The frontier, with the limits of the crawl, which no worker may have set yet."""
        frontier = self.office.desk().frontier
        frontier.configure(self.office.job.crawl.limits())
        return frontier

    def _link(
        self, args: Sequence[Any], kwargs: Mapping[str, Any], priority: int, delay_s: float, key: str
    ) -> Link:
        url, more = self._arguments(args, kwargs)
        spelled = normalize(url, None, self.office.job.crawl.spelling()) if isinstance(url, str) else None
        check_priority(priority, str(url))
        if not isinstance(key, str):
            raise ConfigError(f"key= takes text, not {key!r}")
        return Link(
            url=spelled or check_url(str(url)), priority=priority, key=key, meta=more or None, delay_s=delay_s
        )

    def _arguments(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
        """The URL, and what comes with it. Raises TypeError for arguments that do not fit."""
        if self.fetches_itself and self.function is not None:
            me = (self,) if self.takes_self else ()
            bound = inspect.signature(self.function).bind(*me, *args, **kwargs).arguments
            names = list(bound)[len(me) :]
            return bound[names[0]], {name: bound[name] for name in names[1:]}
        more = dict(kwargs)
        values = [*args] if args else [more.pop("url", None)]
        if len(values) != 1 or values[0] is None:
            raise TypeError(f"{self.name} takes one URL; more goes into kwargs, and is found as page.meta")
        return values[0], more

    def _priority(self, given: int | None) -> int:
        return given if given is not None else self.priority or 0

    # --- being called ---------------------------------------------------------------------

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Scrape here and now, and return the items; a message that came by itself goes to the frontier."""
        request = self.request_stack.top
        if request is not None and not request.called_directly and not request.is_eager:
            given = (request.delivery_info or {}).get("priority")
            return bool(self._add([self._link(args, kwargs, self._priority(given), 0.0, "")]))
        if self.fetches_itself:
            return super().__call__(*args, **kwargs)
        return direct.scrape(self.office.job.crawl, self._link(args, kwargs, 0, 0.0, ""))

    def handle(self, page: Page) -> Any:
        """The handler of its crawl: runs the user's function on a fetched page."""
        lease = self.leases.get((page.url, page.key))
        if lease is None:  # called directly
            return super().__call__(page)
        return self._decided(lambda: self.run(page), lease)

    def fetch(self, lease: Lease) -> Any:
        """Run the user's function on a URL that it fetches for itself."""
        link = lease.link
        return self._decided(lambda: self._run_with(link.url, link.meta or {}), lease)

    def _run_with(self, url: str, more: Mapping[str, Any]) -> Any:
        return self.run(url, **more)

    def _decided(self, work: Callable[[], Any], lease: Lease) -> Any:
        attempts = self.office.job.crawl.retries().max_attempts
        return run_decided(work, request_for(lease, self.name), attempts)

    # --- self.request and self.retry ------------------------------------------------------

    @property
    def request(self) -> Context:
        """In a slice, what belongs to the URL that the function runs for."""
        request: Context = current_request.get() or self._get_request()
        return request

    def retry(
        self,
        args: Any = None,
        kwargs: Any = None,
        exc: BaseException | None = None,
        throw: bool = True,
        eta: datetime | None = None,
        countdown: float | None = None,
        max_retries: int | None = None,
        **options: Any,
    ) -> Retry:
        """Ask for another attempt: it goes back into the frontier, not before `countdown` or `eta`.

        With throw=False when the function has returned; what it returns is of no account then.
        After `max_retries` raises `exc`, or MaxRetriesExceededError, and the URL becomes a dead letter.
        """
        request = current_request.get()
        if request is None:
            result: Retry = super().retry(args, kwargs, exc, throw, eta, countdown, max_retries, **options)
            return result
        own = {"args": [*request.args], "kwargs": request.kwargs, **request.delivery_info}
        given = {"args": args and [*args], "kwargs": kwargs, "priority": options.pop("priority", None)}
        for name, value in given.items():
            if value is not None and value != own[name]:
                raise ConfigError(
                    f"self.retry({name}={value!r}) has no meaning: this URL is tried again as it was added;"
                    " add another one with delay, or yield it"
                )
        _refuse(options)
        most = self.max_retries if max_retries is None else max_retries
        if most is not None and request.retries >= most:
            request.update(given_up=True)
            raise exc or MaxRetriesExceededError(
                f"{self.name} of {request.args[0]} was tried {most + 1} times"
            )
        request.update(allowed=True)
        told = countdown is not None or eta is not None
        delay_s = delay_of(countdown, eta, self.app) if told else self.default_retry_delay
        retry = Retry(exc=exc, when=delay_s)
        if throw:
            raise retry from exc
        request.update(postponed=retry)
        return retry


def _reachable(call: Callable[[], T]) -> T:
    """What Celery raises if a broker cannot be reached, for a frontier."""
    try:
        return call()
    except FrontierUnavailable as error:
        raise OperationalError(str(error)) from error


def _refuse(options: Mapping[str, Any]) -> None:
    for name in options.keys() - _WITHOUT_MEANING:
        if options[name]:
            instead = _INSTEAD.get(name, "URLs do not travel as messages")
            raise ConfigError(f"{name}= has no meaning for a URL in a frontier: {instead}")
