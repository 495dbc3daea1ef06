"""Crawls by cloud functions: each invocation works off one slice of the crawl, in the time that it has.

    crawl = shoal.Crawl("books", seeds=["https://books.example/"])

    books = shoal.function.handler(crawl, frontier="rediss://...", store="postgresql://...")  # AWS Lambda
    books = shoal.function.gcf(crawl, frontier="rediss://...", store="postgresql://...")  # Google Cloud

An event may bring URLs to add: see `shoal.function.events`. Invocations may run side by side, be killed,
and be repeated. Each answers with a `Report` in JSON.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from functools import partial
from math import inf
from typing import Any, Protocol, TypeAlias

import msgspec

from shoal.crawl import Crawl
from shoal.due import revisit_due
from shoal.errors import FrontierUnavailable, StoreUnavailable
from shoal.frontier import open_frontier
from shoal.function.events import BadEvent, read
from shoal.function.station import Report, Station, start_of
from shoal.slice import PATIENCE_S
from shoal.worker import LEASE_S

__all__ = ["BadEvent", "Report", "fan_out", "gcf", "handler", "is_finished"]

log = logging.getLogger("shoal.function")

MOST = 100
"""Invocations at once, unless you say otherwise."""
TIMEOUT = "CLOUD_RUN_TIMEOUT_SECONDS"
"""The environment variable by which Google Cloud may tell after which time it ends an invocation."""
TIMEOUT_S = 60.0
"""Google's own, unless a function is deployed with another one."""

Answer: TypeAlias = tuple[bytes, int, dict[str, str]]
"""Of an HTTP function: body, status and headers."""


class Context(Protocol):
    """What AWS Lambda tells of an invocation."""

    def get_remaining_time_in_millis(self) -> int:
        """Before it is killed."""


def handler(
    crawl: Crawl,
    *,
    frontier: str,
    store: str | None = None,
    limit_s: float | None = None,
    patience_s: float = PATIENCE_S,
    most: int = MOST,
) -> Callable[[object, Context], dict[str, object]]:
    """Make a handler for AWS Lambda.

    frontier: URL of the frontier ("rediss://..."). store: where rows go, as for `shoal run -o`; None: the
    frontier keeps them, or there are none.
    limit_s: of each invocation; None: all the time that Lambda gives it; 0: URLs are added and none fetched.
    patience_s: end after so long without work. most: invocations at once, for `start` in its answer.
    The handler returns a `Report` as a dict. For SQS it holds `batchItemFailures` as well, so let the event
    source have ReportBatchItemFailures. It raises BadEvent for an event that cannot be read, and ShoalError
    if the frontier or the store cannot be used.
    """
    station = Station(crawl, frontier, store, patience_s=patience_s, most=most)

    def handle(event: object, context: Context) -> dict[str, object]:
        left_s = _until(
            min(inf if limit_s is None else limit_s, context.get_remaining_time_in_millis() / 1000)
        )
        order = read(event, crawl.spelling())
        for each in order.rejected:
            log.error("message %s is refused: %s", each.message_id, each.reason)
        answer: dict[str, object] = msgspec.to_builtins(station.invoke(order, left_s))
        if order.is_batch:
            answer["batchItemFailures"] = [{"itemIdentifier": each.message_id} for each in order.rejected]
        return answer

    return handle


def gcf(
    crawl: Crawl,
    *,
    frontier: str,
    store: str | None = None,
    limit_s: float | None = None,
    patience_s: float = PATIENCE_S,
    most: int = MOST,
) -> Callable[[Any], Answer]:
    """Make a function for Google Cloud, or for functions-framework: called by HTTP, or with CloudEvents.

    limit_s: the timeout that it is deployed with; None: what the environment says of it, or a minute.
    The others as for `handler`.
    It answers 200 with a `Report`; 400 to an event that cannot be read; 503 if the frontier or the store
    cannot be used just now, so that the caller tries again. With CloudEvents it raises instead.
    """
    station = Station(crawl, frontier, store, patience_s=patience_s, most=most)

    def work(event: object) -> Answer:
        left_s = _until(float(os.environ.get(TIMEOUT) or TIMEOUT_S) if limit_s is None else limit_s)
        return _answer(200, station.invoke(read(event, crawl.spelling()), left_s))

    def handle(request: Any) -> Answer:
        if not hasattr(request, "method"):  # a CloudEvent
            return work(request.data)
        try:
            return work(request.get_data())
        except BadEvent as error:
            return _answer(400, {"error": str(error)})
        except (FrontierUnavailable, StoreUnavailable) as error:
            return _answer(503, {"error": str(error)})

    return handle


def fan_out(crawl: Crawl, *, frontier: str, most: int = MOST) -> int:
    """How many invocations are worth starting now, beyond those that are running.

    As many as it takes to have all URLs fetched at once that may be fetched now; one if the crawl has not
    begun; none if nothing can be done at this moment. most: that may run at once.
    Raises as `shoal.frontier.open_frontier` does.
    """
    with open_frontier(frontier, crawl=crawl.name) as opened:
        if not opened.describe():
            return min(1, most)
        revisit_due(opened, crawl)
        opened.lease(0, LEASE_S, worker="")  # takes in what others have pushed, and back what the dead held
        return start_of(opened, opened.stats(), crawl, most)


def is_finished(crawl: Crawl, *, frontier: str) -> bool:
    """Whether the crawl has begun and nothing remains to be done. Raises as `fan_out` does."""
    with open_frontier(frontier, crawl=crawl.name) as opened:
        return bool(opened.describe()) and opened.stats().finished


def _until(seconds: float) -> Callable[[], float]:
    """How many seconds are left of these."""
    return partial(_left_s, time.monotonic() + seconds)


def _left_s(deadline: float) -> float:
    return deadline - time.monotonic()


def _answer(status: int, content: object) -> Answer:
    return msgspec.json.encode(content), status, {"Content-Type": "application/json"}
