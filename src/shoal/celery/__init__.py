"""Scrapers as Celery tasks: `scrape.delay(url)` puts the URL into a frontier, and slices work it off.

    app = Celery("scraper", broker="redis://localhost:6379/0")

    @shoal.celery.scraper(app, frontier="redis://localhost:6379/1", store="postgresql://...")
    def scrape(page):
        return {"url": page.url, "title": page.css("h1::text").get()}

    scrape.delay("https://site.example/page1")

The messages that Celery carries are tickets (`shoal.tickets`), so it does not matter if one is lost or
comes twice, and there are few of them however many URLs there are.

`scraper` makes a task of a function, `attach` one of a crawl that exists already.
"""

from __future__ import annotations

from importlib.util import find_spec

from shoal.errors import ConfigError

if find_spec("celery") is None:
    raise ConfigError("tasks for Celery need: pip install 'shoal[celery]'")

from shoal.celery.declare import attach, scraper
from shoal.celery.result import Scrape
from shoal.celery.task import ScrapeTask
from shoal.frontier.tickets import Pace

__all__ = ["Pace", "Scrape", "ScrapeTask", "attach", "scraper"]
