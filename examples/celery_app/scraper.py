"""Scrape product pages with Celery workers; the rows go to PostgreSQL.

celery -A scraper worker --concurrency=4
"""

import os

from celery import Celery

import shoal.celery

app = Celery("scraper", broker=os.environ.get("BROKER", "redis://localhost:6379/0"))


@shoal.celery.scraper(
    app,
    frontier=os.environ.get("FRONTIER", "redis://localhost:6379/1"),
    store=os.environ.get("DATABASE", "postgresql://localhost/scraper?table=products"),
    max_retries=3,
    retry_delay_s=10,
    scope="any",
    allow=os.environ.get("SITES", "https://site.example/*").split(),
    sort_query=True,
    allow_private=True,  # sites on this machine and in this network, too
)
def scrape(page):
    """Read one row from a product's page, and follow all links to the sites above."""
    product = page.css("article.product")
    if product:
        yield {
            "id": product.css("::attr(data-id)").get(),
            "title": product.css("h1::text").get(),
            "price": product.css("[itemprop=price]::attr(content)").get(),
        }
    yield from page.links()
