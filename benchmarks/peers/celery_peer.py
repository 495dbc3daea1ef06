"""A crawler as it is usually written for Celery: a message for each URL, and a Redis set of seen URLs.

READER=lxml is the usual way: lxml, w3lib's canonical URLs, one question to Redis for each link.
READER=lean is as cheap as it gets: shoal's parser and URLs, one question to Redis for each page.
"""

from __future__ import annotations

import json
import os
from urllib.parse import urljoin

import redis
import requests
from celery import Celery

app = Celery("celery_peer", broker=os.environ["BROKER"])
app.conf.task_ignore_result = True
seen = redis.Redis.from_url(os.environ["SEEN"])
session = requests.Session()


def new_by_one(urls):
    """Return those that nobody has seen; Redis is asked about each."""
    return [url for url in urls if seen.sadd("seen", url)]


def new_at_once(urls):
    """Return those that nobody has seen; Redis is asked once."""
    pipe = seen.pipeline()
    for url in urls:
        pipe.sadd("seen", url)
    return [url for url, new in zip(urls, pipe.execute(), strict=True) if new]


def read_with_lxml(answer):
    """Return the row and the links of a page."""
    tree = html.fromstring(answer.text)
    (product,) = tree.xpath("//article[@class='product']")
    row = {
        "id": product.get("data-id"),
        "title": product.xpath(".//h1")[0].text_content(),
        "price": product.xpath(".//*[@itemprop='price']/@content")[0],
    }
    return row, [canonicalize_url(urljoin(answer.url, href)) for href in tree.xpath("//a/@href")]


def read_with_shoal(answer):
    """Return the row and the links of a page."""
    headers = tuple((name.lower(), value) for name, value in answer.headers.items())
    page = Page(Response(answer.url, 200, headers, answer.content), spelling=Spelling(sort_query=True))
    row = {
        "id": page.css("article.product::attr(data-id)").get(),
        "title": page.css("article.product h1::text").get(),
        "price": page.css("[itemprop=price]::attr(content)").get(),
    }
    return row, list(dict.fromkeys(link.url for link in page.links()))


if os.environ["READER"] == "lxml":
    from lxml import html
    from w3lib.url import canonicalize_url

    read, new = read_with_lxml, new_by_one
else:
    from shoal.model import Response
    from shoal.parse import Page
    from shoal.urls import Spelling

    read, new = read_with_shoal, new_at_once


@app.task(name="crawl", bind=True, max_retries=3)
def crawl(self, url):
    """Fetch a page, keep its row, and send a message for each link that is new."""
    try:
        answer = session.get(url, timeout=10)
        answer.raise_for_status()
    except requests.RequestException as error:
        raise self.retry(exc=error, countdown=2**self.request.retries) from error
    row, links = read(answer)
    with open(f"{os.environ['ROWS']}.{os.getpid()}", "a") as rows:  # noqa: PTH123
        rows.write(json.dumps(row) + "\n")
    for link in new([each for each in links if each.startswith("http")]):
        crawl.delay(link)
    seen.incr("done")
