"""What a user's function raises, and what becomes of its URL; without any worker."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
from celery import Celery
from celery.exceptions import Ignore, MaxRetriesExceededError, Reject, Retry

import shoal.celery
from shoal.errors import ConfigError
from shoal.handle import Ended
from shoal.model import Lease, Link

URL = "http://site.example/a"


@pytest.fixture
def run(tmp_path):
    """Runs a function as a slice does; returns its result, or the decision as (state, reason, seconds)."""
    with Celery("scraper", broker="memory://") as app:

        def run(function, attempt=1, priority=0, meta=None, **options):
            given = {"fetch": False, "bind": True, "max_retries": 3, "retry_delay_s": 10} | options
            decorate = shoal.celery.scraper(app, frontier=f"sqlite:{tmp_path / 'x.shoal'}", **given)
            task = decorate(function)
            link = Link(url=URL, priority=priority, meta=meta)
            try:
                result = task.fetch(Lease(1, 77, link, "site.example", attempt))
                return asyncio.run(result) if asyncio.iscoroutine(result) else result
            except Ended as decision:
                return decision.state, decision.reason, round(decision.retry_s, 1)

        yield run


def raising(error):
    """A function that does nothing else."""

    def scrape(self, url):
        raise error

    return scrape


@pytest.mark.parametrize(
    ("error", "decision"),
    [
        (Ignore(), ("skipped", "ignored", 0)),
        (Ignore("not ours"), ("skipped", "not ours", 0)),
        (Reject("bad"), ("dead", "bad", 0)),
        (Reject("busy", requeue=True), ("queued", "busy", 0)),
        (Retry(when=7), ("queued", "retried", 7)),
        (MaxRetriesExceededError("x"), ("dead", "too many retries", 0)),
    ],
)
def test_exceptions_of_celery(run, error, decision):
    """Each has its meaning for the URL."""
    assert run(raising(error)) == decision


@pytest.mark.parametrize("error", [Reject("busy", requeue=True), Retry(when=7)])
def test_nothing_is_tried_for_ever(run, error):
    """The last attempt is the last."""
    assert run(raising(error), attempt=4)[0] == "dead"


@pytest.mark.parametrize(
    ("attempt", "decision", "goes_on"),
    [(1, ("queued", "retried", 7), True), (4, ("dead", "too many retries", 0), False)],
)
def test_a_retry_may_be_asked_for_before_the_end(run, attempt, decision, goes_on):
    """`throw=False`: the function goes on, and then it counts."""
    went_on = []

    def scrape(self, url):
        went_on.append(self.retry(throw=False, countdown=7))
        yield {"url": url}

    assert run(scrape, attempt=attempt) == decision
    assert bool(went_on) is goes_on


@pytest.mark.parametrize("when", [float("inf"), float("nan"), 1e18, "soon"])
def test_a_retry_that_never_comes_is_a_mistake(run, when):
    """Which is told, as any other in the function."""
    with pytest.raises(ConfigError, match="countdown="):
        run(raising(Retry(when=when)))


def test_other_exceptions_come_through(run):
    """The policy of the crawl decides about them."""
    with pytest.raises(KeyError):
        run(raising(KeyError("x")))


def test_retry_waits_as_long_as_it_says(run):
    """`countdown`, `eta`, or the delay of the task."""

    def scrape(self, url, **how):
        if "eta" in how:
            how = {"eta": datetime.now(UTC) + timedelta(seconds=60)}
        raise self.retry(exc=ConnectionError("gone"), **how)

    assert run(scrape, crawl="a") == ("queued", "retried after ConnectionError", 10)
    assert run(scrape, meta={"countdown": 3}, crawl="b") == ("queued", "retried after ConnectionError", 3)
    state, _, seconds = run(scrape, meta={"eta": True}, crawl="c")
    assert state == "queued"
    assert seconds == pytest.approx(60, abs=2)


@pytest.mark.parametrize(
    ("name", "value"), [("args", ["other"]), ("kwargs", {"a": 1}), ("priority", 9), ("expires", 60)]
)
def test_retry_changes_nothing_else(run, name, value):
    """Its own arguments may be given again, as Celery's users do; others would be for another URL."""

    def same(self, url):
        request = self.request
        priority = request.delivery_info["priority"]
        raise self.retry(args=request.args, kwargs=request.kwargs, priority=priority, countdown=1)

    def other(self, url):
        raise self.retry(countdown=1, **{name: value})

    assert run(same, crawl="a") == ("queued", "retried", 1)
    with pytest.raises(ConfigError, match=f"{name}=.* has no meaning"):
        run(other, crawl="b")


def test_retry_gives_up_after_the_last_attempt(run):
    """With the exception that it was given; the function may catch it."""

    def scrape(self, url):
        raise self.retry(exc=ConnectionError("gone"))

    def caught(self, url):
        try:
            raise self.retry(countdown=0)
        except MaxRetriesExceededError:
            return "caught"

    assert run(scrape, attempt=3, crawl="a")[0] == "queued"
    assert run(scrape, attempt=4, crawl="b") == ("dead", "raised ConnectionError", 0)
    assert run(caught, attempt=4, crawl="c") == "caught"


def test_max_retries_of_a_call_counts_for_it(run):
    """It may be more or fewer than those of the task."""

    def scrape(self, url, most):
        raise self.retry(max_retries=most, countdown=0)

    assert run(scrape, attempt=2, meta={"most": 1}, crawl="a")[0] == "dead"
    assert run(scrape, attempt=9, meta={"most": 9}, crawl="b")[0] == "queued"


def test_autoretry_is_celerys_own(run):
    """`autoretry_for` with a backoff, without any code in the function."""
    more = {"autoretry_for": (ConnectionError,), "task": {"retry_backoff": 4, "retry_jitter": False}}

    def scrape(url):
        raise ConnectionError("gone")

    assert run(scrape, attempt=2, bind=False, crawl="a", **more) == (
        "queued",
        "retried after ConnectionError",
        8,
    )
    assert run(scrape, attempt=4, bind=False, crawl="b", **more)[0] == "dead"


def test_request_tells_about_the_url(run):
    """Also in async functions, and it ends with the function."""

    def told(task):
        request = task.request
        return request.id, request.retries, request.args, request.delivery_info["priority"]

    def scrape(self, url):
        yield told(self)

    async def async_scrape(self, url):
        await asyncio.sleep(0)
        return told(self)

    wanted = ("77", 2, (URL,), 5)
    assert run(scrape, attempt=3, priority=5, crawl="a") == [wanted]
    assert run(async_scrape, attempt=3, priority=5, crawl="b") == wanted


def test_an_async_function_may_decide_too(run):
    """After it has waited."""

    async def scrape(self, url):
        await asyncio.sleep(0)
        raise self.retry(countdown=2)

    assert run(scrape) == ("queued", "retried", 2)
