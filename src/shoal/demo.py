"""What `shoal demo` shows: the bundled shop, and a scraper for it as a user would write it."""

from __future__ import annotations

import tempfile
from pathlib import Path

from shoal import log, words
from shoal.local import INTERRUPTED, Job, prepare, run
from shoal.progress import progress
from shoal.scraper import load
from shoal.shop.server import PORT, Server, application

SHOP_URL = f"http://127.0.0.1:{PORT}/"
"""Where `python -m shoal.shop` serves, and the seed of `examples/shop.py`."""

_SCRAPER = '''\
"""Scrape a small web shop.

`python -m shoal.shop` serves it; `shoal run shop.py -o products.csv`, in another terminal, crawls it.
"""

import shoal

crawl = shoal.Crawl("shop", seeds=["{url}"])


@crawl.page("/product/*")
def product(page):
    """Read one row from a product's page, and follow it to products that go well with it."""
    yield {{
        "sku": page.css("article.product::attr(data-sku)").get(),
        "name": page.css("h1::text").get(),
        "price": page.css(".price::attr(data-price)").get(),
        "stock": int(page.css(".stock::attr(data-stock)").get()),
        "rating": float(page.css(".rating::attr(data-rating)").get()),
    }}
    yield from page.links(".related a")


@crawl.page()
def listing(page):
    """Follow all other pages: to the next page of their listing first, then wherever they point."""
    yield from page.links("a.next", priority=9)
    yield from page.links("a")
'''


def scraper(url: str = SHOP_URL) -> str:
    """Return the text of the scraper file for the shop at `url`."""
    return _SCRAPER.format(url=url)


class Shop(Server):
    """The shop on a free port of 127.0.0.1 while the context is open; `url` is its start page.

    latency_s: how long each answer takes; enough to watch a crawl, by default.
    """

    def __init__(self, latency_s: float = 0.15) -> None:
        super().__init__(application(latency_s))


def run_demo(processes: int = 1) -> int:
    """Serve the shop, crawl it with live progress, and print its rows; returns the exit code."""
    with tempfile.TemporaryDirectory() as folder, Shop() as shop:
        file = Path(folder, "shop.py")
        file.write_text(scraper(shop.url))
        job = Job(crawl=load(str(file)), frontier=f"sqlite:{folder}/shop.shoal", processes=processes)
        say = words.Speaker(job, quiet=False, passing=True)
        prepare(job)
        watch = progress(job.crawl.name, quiet=False, plain=False)
        log.set_up(as_json=False, quiet=False, verbose=False)
        try:
            stopped = run(job, watch)
        finally:
            watch.close()
        with job.open_frontier() as frontier:
            print(words.table(frontier.items()))
            stats = say.end(frontier, stopped=stopped)
            return INTERRUPTED if stopped else words.exit_code(stats, strict=False)
