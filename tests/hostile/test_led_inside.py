"""Whole crawls that a public site sends to a private address, on each way that leads elsewhere."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
from tests.hostile.network import Names, everywhere
from tests.servers import Reply, Request, ScriptedServer, page

import shoal
from shoal.crawl import summarize
from shoal.fetch import Fetcher
from shoal.frontier import Frontier, open_frontier
from shoal.worker import Worker

PUBLIC, PRIVATE = "93.184.215.14", "192.168.0.1"
START = "http://public.test/start"
SITEMAP = "http://public.test/sitemap.xml"
TARGETS = ("router.test", PRIVATE, "[::ffff:192.168.0.1]")


class Sites:
    """A public site that redirects one of its paths to the same path on a private one."""

    def __init__(self, redirected: str, target: str) -> None:
        self.redirected, self.target = redirected, target

    def __call__(self, request: Request) -> Reply:
        if request.headers["host"] != "public.test":
            return self._inside(request)
        if request.target == self.redirected:
            return page(b"", "302 Found", f"Location: http://{self.target}{request.target}")
        return page(b"<title>public</title>") if request.target == "/start" else page(b"", "404 Not Found")

    def _inside(self, request: Request) -> Reply:
        if request.target == "/robots.txt":
            return page(b"User-agent: *\nDisallow: /start\n", "200 OK", "Content-Type: text/plain")
        if request.target == "/sitemap.xml":
            return page(f"http://{self.target}/listed\n".encode(), "200 OK", "Content-Type: text/plain")
        return page(b"<title>secret</title>")


@contextmanager
def crawled(
    sites: Sites, folder: Path, monkeypatch: pytest.MonkeyPatch, **settings: object
) -> Iterator[tuple[Frontier, list[str]]]:
    """The frontier of a crawl that has come to its end, and the addresses that it connected to."""
    names = Names({"public.test": [(PUBLIC,)], "router.test": [(PRIVATE,)]})
    monkeypatch.setattr("shoal.worker.Fetcher", partial(Fetcher, resolver=names))
    crawl = shoal.Crawl("sites", scope="any", retries=0, **settings)
    crawl.page()(summarize)
    with (
        ScriptedServer(sites) as server,
        everywhere((server.host, server.port), monkeypatch) as connected,
        open_frontier(f"sqlite:{folder / 'state.shoal'}", crawl="sites") as frontier,
    ):
        frontier.configure(crawl.limits())
        frontier.add(crawl.seeds())
        asyncio.run(asyncio.wait_for(Worker(crawl, frontier, (), name="tester").run(), 30))
        yield frontier, connected


def titles(frontier: Frontier) -> list[object]:
    """Of the pages that gave rows."""
    return [item["title"] for item in frontier.items()]


@pytest.mark.parametrize("target", TARGETS)
def test_a_page_that_redirects_inside(target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where it leads is a dead letter and nothing is sent there, unless that is allowed."""
    sites, seeds = Sites("/start", target), [START]
    with crawled(sites, tmp_path, monkeypatch, seeds=seeds) as (frontier, connected):
        assert set(connected) == {PUBLIC}
        assert [letter.reason for letter in frontier.dead()] == ["blocked address"]
        assert titles(frontier) == []
        frontier.purge()
    with crawled(sites, tmp_path, monkeypatch, seeds=seeds, allow_private=True) as (frontier, connected):
        assert frontier.dead() == []
        assert set(connected) > {PUBLIC}
        assert [each.reason for each in frontier.skipped()] == ["robots.txt"]


@pytest.mark.parametrize("target", TARGETS)
def test_a_page_that_redirects_inside_is_read_if_that_is_allowed(
    target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As any page is."""
    settings = {"seeds": [START], "obey_robots": False, "allow_private": True}
    with crawled(Sites("/start", target), tmp_path, monkeypatch, **settings) as (frontier, connected):
        assert len(connected) == 2
        assert titles(frontier) == ["secret"]


@pytest.mark.parametrize("target", TARGETS)
def test_a_robots_txt_that_redirects_inside(
    target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not read there, unless that is allowed: then its rules are obeyed."""
    sites, seeds = Sites("/robots.txt", target), [START]
    with crawled(sites, tmp_path, monkeypatch, seeds=seeds) as (frontier, connected):
        assert set(connected) == {PUBLIC}
        assert frontier.skipped() == []
        assert frontier.stats().seen == 1
        frontier.purge()
    with crawled(sites, tmp_path, monkeypatch, seeds=seeds, allow_private=True) as (frontier, _):
        assert [(each.url, each.reason) for each in frontier.skipped()] == [(START, "robots.txt")]


@pytest.mark.parametrize("target", TARGETS)
def test_a_sitemap_that_redirects_inside(
    target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is a dead letter and lists nothing, unless that is allowed: then its pages are fetched."""
    sites, settings = Sites("/sitemap.xml", target), {"sitemaps": [SITEMAP], "seeds": [START]}
    with crawled(sites, tmp_path, monkeypatch, **settings) as (frontier, connected):
        assert set(connected) == {PUBLIC}
        assert [letter.reason for letter in frontier.dead()] == ["blocked address"]
        assert titles(frontier) == ["public"]
        frontier.purge()
    with crawled(sites, tmp_path, monkeypatch, **settings, allow_private=True) as (frontier, _):
        assert frontier.dead() == []
        assert sorted(map(str, titles(frontier))) == ["public", "secret"]
