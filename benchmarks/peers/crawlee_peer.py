"""Crawlee, doing the work that shoal does in the benchmark: `crawlee_peer.py MODE START ITEMS`.

usual: ParselCrawler and its enqueue_links and push_data, as Crawlee's manual teaches it.
stripped: further than users go; the quickest parser and client that it can have, rows written by the handler,
and links that it has seen are dropped before Crawlee is told of them.

Queue and rows are kept in memory, which is the quickest: in files, its default, they cost twice as much.
"""

import json
import sys
from datetime import timedelta
from pathlib import Path
from urllib.parse import urldefrag, urljoin

import uvloop
from crawlee import ConcurrencySettings, Request, service_locator
from crawlee.configuration import Configuration
from crawlee.crawlers import AbstractHttpCrawler, AbstractHttpParser, ParselCrawler
from crawlee.http_clients import CurlImpersonateHttpClient, ImpitHttpClient
from crawlee.storage_clients import MemoryStorageClient
from selectolax.lexbor import LexborHTMLParser

MODE, START, ITEMS = sys.argv[1:]
TASKS = 64

SETTINGS = {
    "use_session_pool": False,
    "retry_on_blocked": False,
    "concurrency_settings": ConcurrencySettings(
        min_concurrency=TASKS, desired_concurrency=TASKS, max_concurrency=TASKS
    ),
    "statistics_log_format": "inline",
    "status_message_logging_interval": timedelta(hours=1),
}


class Lexbor(AbstractHttpParser):
    """Parses in the event loop, without a hop into a thread."""

    async def parse(self, response):
        return LexborHTMLParser((await response.read()).decode())

    async def parse_text(self, text):
        return LexborHTMLParser(text)

    async def select(self, parsed_content, selector):
        return parsed_content.css(selector)

    def is_matching_selector(self, parsed_content, selector):
        return parsed_content.css_first(selector) is not None

    def find_links(self, parsed_content, selector, attribute):
        found = (node.attributes.get(attribute) for node in parsed_content.css(selector))
        return [value.strip() for value in found if value]


def usual():
    """Return the crawler of the manual."""
    client = ImpitHttpClient(persist_cookies_per_session=False, browser=None)
    crawler = ParselCrawler(http_client=client, **SETTINGS)

    @crawler.router.default_handler
    async def handle(context):
        page = context.selector
        row = {
            "url": context.request.url,
            "id": page.css("article.product::attr(data-id)").get(),
            "title": page.css("article.product h1::text").get(),
            "price": page.css("[itemprop=price]::attr(content)").get(),
        }
        await context.push_data(row)
        await context.enqueue_links(strategy="all")

    return crawler


def stripped(rows):
    """Return the crawler that has only what it cannot be without."""
    client = CurlImpersonateHttpClient(persist_cookies_per_session=False)
    crawler = AbstractHttpCrawler.create_parsed_http_crawler_class(Lexbor())(http_client=client, **SETTINGS)
    seen = set()

    @crawler.router.default_handler
    async def handle(context):
        base, page = context.request.url, context.parsed_content
        row = {
            "url": base,
            "id": page.css_first("article.product").attributes["data-id"],
            "title": page.css_first("article.product h1").text(),
            "price": page.css_first("[itemprop=price]").attributes["content"],
        }
        rows.write(json.dumps(row) + "\n")
        hrefs = {href for link in page.css("a[href]") if (href := link.attributes["href"])}
        urls = {urldefrag(urljoin(base, href)).url for href in hrefs}
        new = [url for url in urls - seen if url.lower().startswith("http")]
        seen.update(new)
        if new:
            await context.add_requests(new, strategy="all")

    return crawler


async def main(rows):
    """Crawl until there is nothing left."""
    service_locator.set_configuration(
        Configuration(log_level="WARNING", max_used_cpu_ratio=1.0, available_memory_ratio=0.9)
    )
    service_locator.set_storage_client(MemoryStorageClient())
    crawler = stripped(rows) if MODE == "stripped" else usual()
    await crawler.run([Request.from_url(START)])
    if MODE == "usual":
        dataset = await crawler.get_dataset()
        rows.writelines([json.dumps(row) + "\n" async for row in dataset.iterate_items()])


if __name__ == "__main__":
    with Path(ITEMS).open("w") as rows:
        uvloop.run(main(rows))
