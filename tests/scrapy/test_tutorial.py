"""A project as Scrapy's own tutorial makes it runs unchanged, and so do other download handlers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from types import ModuleType
from typing import Any

import pytest
from scrapy import Request, Spider
from scrapy.http import HtmlResponse
from scrapy.linkextractors import LinkExtractor
from scrapy.spiders import CrawlSpider, Rule
from tests.servers import Reply, ScriptedServer, page
from tests.servers import Request as Received
from tests.site import Site

SPIDER = """\
import scrapy


class QuotesSpider(scrapy.Spider):
    name = "quotes"

    def __init__(self, site, **more):
        super().__init__(**more)
        self.start_urls = [site]

    def parse(self, response):
        for quote in response.css("div.quote"):
            yield {
                "text": quote.css("span.text::text").get(),
                "author": quote.css("small.author::text").get(),
                "tags": quote.css("div.tags a.tag::text").getall(),
            }
        yield from response.follow_all(css=".quote a.about", callback=self.parse_author)
        yield from response.follow_all(css="ul.pager li.next a", callback=self.parse)

    def parse_author(self, response):
        yield {"name": response.css("h3.author-title::text").get()}
"""
LINES = """
SCHEDULER = "shoal.scrapy.Scheduler"
SHOAL_FRONTIER = "sqlite:crawl.shoal"
ITEM_PIPELINES = {"shoal.scrapy.StorePipeline": 900}
"""
PAGES, AUTHORS = 5, 3


def quotes(request: Received) -> Reply:
    """Five pages of quotes by three people, and a page about each of these."""
    if request.target.startswith("/author/"):
        return page(f"<h3 class=author-title>{request.target[8:]}</h3>".encode())
    if not request.target.startswith("/page/"):
        return page(b"", "404 Not Found")
    number = int(request.target.split("/")[2])
    quote = "".join(
        f"<div class=quote><span class=text>{number}.{n}</span><small class=author>A{n % AUTHORS}</small>"
        f'<a class=about href="/author/A{n % AUTHORS}">(about)</a>'
        f"<div class=tags><a class=tag>t{n}</a><a class=tag>u</a></div></div>"
        for n in range(4)
    )
    more = f'<li class=next><a href="/page/{number + 1}/">Next</a></li>' if number < PAGES else ""
    return page(f"{quote}<ul class=pager>{more}</ul>".encode())


@pytest.mark.timeout(120)
def test_a_project_of_the_tutorial_runs_unchanged(tmp_path):
    """Made by `scrapy startproject`, with three lines more in its settings, and asked about by `shoal`."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}

    def run(*words: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", *words],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout + done.stderr

    folder = tmp_path
    run("scrapy", "startproject", "tutorial")
    folder = tmp_path / "tutorial"
    (folder / "tutorial" / "spiders" / "quotes_spider.py").write_text(SPIDER)
    with (folder / "tutorial" / "settings.py").open("a") as settings:
        settings.write(LINES)
    with ScriptedServer(quotes) as server:
        said = run(
            *("scrapy", "crawl", "quotes", "-a", f"site={server.url('/page/1/')}"),
            *("-s", "DOWNLOAD_DELAY=0", "-s", "CONCURRENT_REQUESTS_PER_DOMAIN=8"),
        )
        assert "'finish_reason': 'finished'" in said
        fetched = Counter(request.target for request in server.requests)
    assert fetched == {
        "/robots.txt": 1,
        **{f"/page/{n}/": 1 for n in range(1, PAGES + 1)},
        **{f"/author/A{n}": 1 for n in range(AUTHORS)},
    }
    assert "quotes (finished)" in run("shoal", "status")
    run("shoal", "export", "-o", "rows.jsonl")
    rows = [json.loads(line) for line in (folder / "rows.jsonl").read_text().splitlines()]
    assert sorted(row["name"] for row in rows if row.get("name")) == ["A0", "A1", "A2"]
    assert sorted(row["text"] for row in rows if row.get("text")) == sorted(
        f"{number}.{n}" for number in range(1, PAGES + 1) for n in range(4)
    )


def test_a_crawl_spider_follows_its_rules(any_place):
    """Its callbacks are private methods, and its requests carry the number of their rule."""

    class ByRules(CrawlSpider):
        name = "test"
        rules = (Rule(LinkExtractor(allow="/p/"), callback="parse_page", follow=True),)

        def __init__(self, url: str) -> None:
            super().__init__()
            self.start_urls = [url]

        def parse_page(self, response):
            yield {"id": response.css("article::attr(data-id)").get()}

    with Site(pages=20) as site:
        any_place.crawl(ByRules, given={"url": site.url}, **any_place.stored)
        assert site.fetches() == Counter(site.urls)
    assert sorted(row["id"] for row in any_place.rows()) == sorted(f"P{n}" for n in range(1, 20))


class Tab:
    """What a browser has open: it cannot be kept in any queue."""


class Browser:
    """A download handler as one that drives a browser: it leaves a page of its own in `meta`."""

    lazy = False
    opened: Counter[str] = Counter()

    @classmethod
    def from_crawler(cls, crawler: Any) -> Browser:
        return cls()

    async def download_request(self, request: Request) -> HtmlResponse:
        self.opened[request.url] += 1
        request.meta["playwright_page"] = Tab()
        status = 503 if self.opened[request.url] == 1 else 200
        return HtmlResponse(request.url, status=status, body=b"<h1>drawn</h1>", request=request)

    async def close(self) -> None:
        """Nothing is open."""


def test_another_download_handler_may_leave_what_it_likes_in_meta(any_place, monkeypatch):
    """Its requests are retried without being kept anew; what tells it what to do comes back as it was."""
    drawn = []
    module = ModuleType("scrapy_playwright.page")

    class PageMethod:
        def __init__(self, method: str, *args: Any, **kwargs: Any) -> None:
            self.method, self.args, self.kwargs = method, args, kwargs

    PageMethod.__module__, PageMethod.__qualname__ = module.__name__, "PageMethod"
    module.PageMethod = PageMethod  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "scrapy_playwright", ModuleType("scrapy_playwright"))
    monkeypatch.setitem(sys.modules, module.__name__, module)

    class Drawn(Spider):
        name = "test"

        async def start(self):
            yield self.ask("http://x.example/")

        def ask(self, url):
            method = PageMethod("wait_for_selector", "h1", timeout=5)
            return Request(url, meta={"playwright": True, "playwright_page_methods": [method]})

        async def parse(self, response):
            assert isinstance(response.meta["playwright_page"], Tab)
            (method,) = response.meta["playwright_page_methods"]
            drawn.append((response.url, method.method, method.args, method.kwargs))
            if len(drawn) < 2:
                yield self.ask("http://x.example/2")

    Browser.opened.clear()
    any_place.crawl(Drawn, DOWNLOAD_HANDLERS={"http": Browser})
    what = "wait_for_selector", ("h1",), {"timeout": 5}
    assert drawn == [("http://x.example/", *what), ("http://x.example/2", *what)]
    assert set(Browser.opened.values()) == {2}
    assert any_place.stats().done == 2
