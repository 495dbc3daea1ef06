"""What holds for real sites holds under Celery too: bad servers, traps, credentials, caches, revisits."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from tests.hostile.hosts import Hosts
from tests.hostile.misbehaviours import LIMITS
from tests.servers import Pause, Reply, Request, ScriptedServer, page, reply
from tests.site import Site
from tests.waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

BAD = (
    "a refresh header to itself",
    "links that would split the request",
    "entities that grow",
    "an encoding that nobody knows",
    "chunks that drip",
)
CRAWL = """\
import shoal

crawl = shoal.Crawl("sites", **{settings!r})


@crawl.page()
def read(page):
    with open("parsed", "a") as parsed:
        print(page.url, file=parsed)
    yield {{"url": page.url, "title": page.title, "heading": page.css("h1::text").get()}}
    yield from page.links()


PLACE.pop("allow_private")
shoal.celery.attach(app, crawl, **PLACE)
"""
LOGIN = """

@crawl.login
def login(session):
    session.get({login!r})
"""


@pytest.fixture(params=["redis", "sqlite"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, str]:
    """Where the URLs are."""
    return {} if request.param == "redis" else {"frontier": f"sqlite:{tmp_path}/state.shoal"}


class Members:
    """A site for those who have logged in and have the token, with all that real sites have."""

    PAGES = 60
    LINKS = (
        "/closed",
        "/a/a/a/a",
        "http://192.168.0.1/",
        "/busy",
        "/broken",
        *(f"/n/{n}" for n in range(PAGES)),
    )

    def __init__(self) -> None:
        self.server = ScriptedServer(self)

    def __call__(self, request: Request) -> Reply:
        if request.target == "/login":
            return page(b"", "200 OK", "Set-Cookie: session=1; Path=/")
        if request.target == "/robots.txt":
            sitemap = self.server.url("/s.xml")
            return page(f"User-agent: *\nDisallow: /closed\nSitemap: {sitemap}\n".encode())
        if (request.headers.get("cookie"), request.headers.get("authorization")) != ("session=1", "Bearer t"):
            return page(b"", "403 Forbidden")
        if request.target == "/s.xml":
            return page(b"<urlset><url><loc>/listed</loc></url></urlset>", "200 OK", "Content-Type: text/xml")
        if request.target == "/":
            return page("".join(f'<a href="{href}">x</a>' for href in self.LINKS).encode())
        if request.target == "/broken" or (request.target == "/busy" and self.server.count("/busy") == 1):
            return page(b"", "500 No" if request.target == "/broken" else "503 Not now")
        return reply(Pause(0.05), *page(b"<title>in</title>").steps, keep=True)


def test_a_site_as_they_are_beside_bad_ones(new_project: Any, place: dict[str, str], tmp_path: Path) -> None:
    """The login and the token are used, rules and limits hold, and a cache replays all of it."""
    members = Members()
    with Hosts(BAD) as hosts, members.server as server:
        settings = {
            **LIMITS,
            "seeds": [server.url()],
            "scope": "any",
            "auth": {server.address: "bearer t"},
            "cache": str(tmp_path / "kept"),
            "robots_sitemaps": True,
            "max_queued": 5,
            "retries_by": {"503": 2},
            "retry_delay_s": 0.01,
        }
        with_bad = {**settings, "seeds": [server.url(), *map(hosts.url, BAD)]}
        login = LOGIN.format(login=server.url("/login"))
        project = new_project(CRAWL.format(settings=with_bad) + login, **place)
        worker = project.worker("-c", "2").ready()
        until(lambda: project.stats().overflow > 0, 30, "links in the overflow")
        project.finish()
        frontier = project.office.desk().frontier
        assert hosts.wrong(frontier, BAD) == {}
        assert {(each.url, each.reason) for each in frontier.skipped()} == {
            (server.url("/closed"), "robots.txt"),
            (server.url("/a/a/a/a"), "trap: repeated segments"),
        }
        dead = {each.url: each.reason for each in frontier.dead() if "127.66." not in each.url}
        assert dead == {"http://192.168.0.1/": "blocked address", server.url("/broken"): "HTTP 500"}
        asked = Counter(request.target for request in server.requests)
        assert asked == Counter(
            {f"/n/{n}": 1 for n in range(Members.PAGES)}
            | {"/": 1, "/listed": 1, "/s.xml": 1, "/busy": 2, "/broken": 1}
            | {each: asked[each] for each in ("/login", "/robots.txt")}
        )
        assert max(asked["/login"], asked["/robots.txt"]) <= 2
        assert {each.headers.get("authorization") for each in server.requests} == {"Bearer t"}
        assert worker.stop() == 0
        assert "Bearer t" not in worker.said()

        again = new_project(
            CRAWL.format(settings=settings) + login, store="again.jsonl", **_another(place, tmp_path)
        )
        again.worker("-c", "1").ready()
        again.finish()
        asked_again = Counter(request.target for request in server.requests) - asked
        assert asked_again.keys() <= {"/login", "/broken"}
    assert titles(tmp_path / "again.jsonl") == titles(tmp_path / "rows.jsonl", server.url())


def _another(place: dict[str, str], folder: Path) -> dict[str, str]:
    return {"frontier": f"sqlite:{folder}/again.shoal"} if place else {}


def titles(rows: Path, start: str = "") -> dict[str, str]:
    """By URL; those that begin in this way."""
    found = map(json.loads, rows.read_text().splitlines())
    return {row["url"]: row["title"] for row in found if row["url"].startswith(start)}


def test_hosts_in_trouble_are_spared(new_project: Any, place: dict[str, str]) -> None:
    """Dead ones are paused, probed and given up; a pause that one asks for is kept; the others are done."""

    def busy(request: Request) -> Reply:
        return page() if limited.count("/") > 1 else page(b"", "429 Too Many Requests", "Retry-After: 2")

    def silence(request: Request) -> Reply:
        return reply(Pause(60.0))

    with ScriptedServer(busy) as limited, ScriptedServer(silence) as silent, Site(60, hosts=3) as site:
        dead = ("http://127.0.0.1:9/", silent.url())
        settings = {
            "seeds": [limited.url(), *site.urls[:3], *(f"{url}{n}" for url in dead for n in range(40))],
            "obey_robots": False,
            "read_timeout_s": 0.2,
            "retries": 20,
            "retry_delay_s": 0.01,
            "host_pause_s": 0.1,
            "host_give_up": 6,
        }
        project = new_project(CRAWL.format(settings=settings), **place)
        worker = project.worker("-c", "2").ready()
        project.finish()
        frontier = project.office.desk().frontier
        letters = frontier.dead()
        assert {each.reason for each in letters} == {"host down"}
        assert Counter(each.url.startswith(silent.url()) for each in letters) == {True: 40, False: 40}
        assert {each.host for each in frontier.hosts() if each.given_up} == {"127.0.0.1:9", silent.address}
        assert sum(each.attempts for each in letters) < 40
        probes = [request.at for request in silent.requests]
        assert len(probes) < 20
        assert max(later - earlier for earlier, later in pairwise(probes)) >= 0.4
        first, second = (request.at for request in limited.requests)
        assert second - first >= 1.98
        assert site.fetches() == Counter(site.urls)
        assert worker.stop() == 0


@pytest.mark.parametrize("place", ["redis", pytest.param("sqlite", marks=pytest.mark.faults)], indirect=True)
def test_pages_are_visited_again_without_being_read_again(
    new_project: Any, place: dict[str, str], tmp_path: Path
) -> None:
    """The watchdogs bring pages back as their time comes; what changed, is gone or new is found exactly."""
    pages, changed, gone, added = 40, range(1, 7), {37, 38, 39}, 3
    with Site(pages, validators="etag", more_bytes=20_000) as site:
        settings = {"seeds": [site.url], "retries": 0, "revisit_s": 2.0}
        project = new_project(CRAWL.format(settings=settings), store="sqlite:rows.db", **place)
        worker = project.worker("-c", "2").ready()
        until(lambda: least(site, site.urls) >= 1, 30, "the first visit of all pages")
        until(lambda: len((tmp_path / "parsed").read_text().splitlines()) >= len(site.urls), 30, "all bytes")
        first_bytes = site.sent_bytes
        until(lambda: least(site, site.urls) >= 2, 30, "the second one")
        assert site.sent_bytes - first_bytes < 0.1 * first_bytes
        site.editions.update(changed)
        site.gone, site.added = gone, added
        new = [site.page_url(number) for number in range(pages, pages + added)]
        until(lambda: least(site, new) >= 2, 30, "a second visit of the new pages")
        frontier = project.office.desk().frontier
        lost = {site.page_url(number) for number in gone}
        until(lambda: {each.url for each in frontier.dead(reason="gone")} == lost, 30, "all that is gone")
        asked = site.fetches()
        until(lambda: all(site.fetches()[url] > asked[url] for url in site.urls), 30, "one more visit")
        assert worker.stop() == 0
        read = Counter((tmp_path / "parsed").read_text().splitlines())
        others = {site.page_url(number) for number in changed}
        assert read == Counter([*site.urls, site.url, *others, *new])
    with sqlite3.connect(tmp_path / "rows.db") as db:
        rows = dict(db.execute("SELECT url, last_changed > first_seen FROM items"))
    db.close()
    assert rows.keys() == {*site.urls, *new} - lost
    assert {url for url, has_changed in rows.items() if has_changed} == others


def least(site: Site, urls: list[str]) -> int:
    """How often each of these was asked for."""
    fetches = site.fetches()
    return min(fetches[url] for url in urls)
