"""What Celery users rely on: priorities, and functions written for Celery that fetch for themselves."""

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest
from aiohttp import web

from shoal.shop.server import Server

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

PAGES = """\
@shoal.celery.scraper(app, **PLACE, name="scrape")
def scrape(page):
    return {"title": page.css("h1::text").get()}
"""

LESSON = """\
import requests

@shoal.celery.scraper(
    app, **PLACE, name="scrape", fetch=False, bind=True, max_retries=3, retry_delay_s=0.2, per_host=32
)
def scrape(self, url):
    try:
        response = requests.get(url, timeout=10)
        response.raise_for_status()
        return {"status": response.status_code, "attempt": self.request.retries + 1}
    except requests.RequestException as exc:
        raise self.retry(exc=exc, countdown=0.2)
"""

DECISIONS = """\
from celery.exceptions import Ignore, Reject, Retry

@shoal.celery.scraper(app, **PLACE, name="scrape", {how} bind=True, max_retries=2, retry_delay_s=0.1)
def scrape(self, given):
    url = given if isinstance(given, str) else given.url
    what = url.rpartition("/")[2]
    if what == "ignore":
        raise Ignore("not for us")
    if what == "reject":
        raise Reject("nobody wants it", requeue=False)
    if what == "later" and self.request.retries == 0:
        raise self.retry(countdown=0.3)
    if what == "never":
        raise self.retry(exc=ValueError("broken"), countdown=0)
    if what == "twice":
        raise self.retry(max_retries=1, countdown=0)
    if what == "raise":
        raise KeyError("no such thing")
    if what == "interrupt":
        raise KeyboardInterrupt
    if what == "panic":
        raise BaseExceptionGroup("several", [KeyboardInterrupt()])
    return {{"what": what, "retries": self.request.retries}}
"""


class Shaky(Server):
    """Answers any path with a page; `/shaky/N` breaks off the first time, for every fifth N."""

    def __init__(self) -> None:
        self.paths: list[str] = []
        app = web.Application()
        app.router.add_get("/{path:.*}", self._answer)
        super().__init__(app, ("127.0.0.1",))

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        self.paths.append(request.path)
        number = request.path.rpartition("/")[2]
        if "/shaky/" in request.path and int(number) % 5 == 0 and self.paths.count(request.path) == 1:
            assert request.transport is not None
            request.transport.abort()
        return web.Response(text=f"<h1>{request.path}</h1>", content_type="text/html")


@pytest.fixture
def shaky():
    """The server, with an empty log."""
    with Shaky() as served:
        yield served


def rows(project):
    """What is in the store."""
    return [json.loads(line) for line in project.rows.read_text().splitlines()]


def test_higher_priority_runs_first_on_every_broker(new_project, broker, shaky):
    """300 URLs of priority 9, added after 300 of priority 0 on the same host, are all fetched before them."""
    project = new_project(PAGES, broker=broker)
    for number in range(300):
        project.module.scrape.delay(f"{shaky.url}low/{number}")
    for number in range(300):
        project.module.scrape.apply_async(args=[f"{shaky.url}high/{number}"], priority=9)
    project.worker("-c", "2").ready()
    project.finish(most=2)
    fetched = [path for path in shaky.paths if path != "/robots.txt"]
    assert {path.split("/")[1] for path in fetched[:300]} == {"high"}
    assert {path.split("/")[1] for path in fetched[300:]} == {"low"}
    assert len(fetched) == 600


def test_code_written_for_celery_loses_no_url(new_project, broker, shaky):
    """A synchronous function with requests and `self.retry`: a fifth of the first attempts break off."""
    project = new_project(LESSON, broker=broker)
    urls = [f"{shaky.url}shaky/{number}" for number in range(300)]
    for url in urls:
        project.module.scrape.delay(url)
    project.worker("-c", "2").ready()
    project.finish(most=2)
    assert Counter(row["attempt"] for row in rows(project)) == {1: 240, 2: 60}
    stats = project.stats()
    assert (stats.done, stats.dead, stats.skipped) == (300, 0, 0)


@pytest.mark.parametrize("how", ["fetch=False,", ""], ids=["fetches itself", "gets a page"])
def test_what_celery_code_raises_keeps_its_meaning(new_project, shaky, how):
    """Retry: later, and dead after the last; Ignore: skipped; Reject: dead; other exceptions: tried again."""
    project = new_project(DECISIONS.format(how=how))
    for what in ("ok", "ignore", "reject", "later", "never", "twice", "raise", "interrupt", "panic"):
        project.module.scrape.delay(shaky.url + what)
    project.worker("-c", "1").ready()
    project.finish()
    frontier = project.office.desk().frontier
    assert sorted((row["what"], row["retries"]) for row in rows(project)) == [("later", 1), ("ok", 0)]
    assert [(record.reason, record.url) for record in frontier.skipped()] == [
        ("not for us", f"{shaky.url}ignore")
    ]
    subject = "function" if how else "handler"
    assert {
        record.url.rpartition("/")[2]: (record.reason, record.attempts) for record in frontier.dead()
    } == {
        "reject": ("nobody wants it", 1),
        "never": ("raised ValueError", 3),
        "twice": ("too many retries", 2),
        "raise": (f"{subject} raised KeyError", 3),
        "interrupt": (f"{subject} raised KeyboardInterrupt", 3),
        "panic": (f"{subject} raised BaseExceptionGroup", 3),
    }


def test_celerys_own_ways_to_call_it(new_project, shaky):
    """`send_task` goes through a worker to the frontier, with its priority; a countdown is kept."""
    project = new_project(PAGES)
    app, scrape = project.module.app, project.module.scrape
    project.worker("-c", "1").ready()
    app.send_task("scrape", args=[f"{shaky.url}sent"], priority=5)
    began = datetime.now(UTC)
    scrape.apply_async(args=[f"{shaky.url}later"], eta=began + timedelta(seconds=4))
    scrape.delay(f"{shaky.url}now").get(timeout=30)
    if datetime.now(UTC) < began + timedelta(seconds=4):
        assert "/later" not in shaky.paths
    project.finish()
    assert sorted(row["title"] for row in rows(project)) == ["/later", "/now", "/sent"]
