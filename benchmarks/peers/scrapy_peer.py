"""Scrapy, doing the work that shoal does in the benchmark: `scrapy_peer.py memory|lean START ITEMS`.

memory: a spider as Scrapy's manual teaches it, with the settings for speed that its manual names.
lean: further than most users go; optional middlewares off, and the spider drops links it has followed.
"""

import sys
from typing import ClassVar

import scrapy
from scrapy.crawler import CrawlerProcess

MODE, START, ITEMS = sys.argv[1:]

SETTINGS = {
    "ROBOTSTXT_OBEY": False,
    "LOG_LEVEL": "ERROR",
    "COOKIES_ENABLED": False,
    "AUTOTHROTTLE_ENABLED": False,
    "TELNETCONSOLE_ENABLED": False,
    "CONCURRENT_REQUESTS": 64,
    "CONCURRENT_REQUESTS_PER_DOMAIN": 16,
    "DOWNLOAD_DELAY": 0,
    "TWISTED_REACTOR": "twisted.internet.asyncioreactor.AsyncioSelectorReactor",
    "ASYNCIO_EVENT_LOOP": "uvloop.Loop",
    "FEEDS": {ITEMS: {"format": "jsonlines", "encoding": "utf8", "overwrite": True}},
}
LEAN = {
    "REFERER_ENABLED": False,
    "SPIDER_MIDDLEWARES": {
        "scrapy.spidermiddlewares.urllength.UrlLengthMiddleware": None,
        "scrapy.spidermiddlewares.depth.DepthMiddleware": None,
    },
    "DOWNLOADER_MIDDLEWARES": {"scrapy.downloadermiddlewares.offsite.OffsiteMiddleware": None},
}


class Spider(scrapy.Spider):
    """Follows every link and yields the product of every page."""

    name = "peer"
    start_urls: ClassVar = [START]
    followed: ClassVar = set()

    def parse(self, response):
        """Yield the item, then a request for each different link."""
        product = response.css("article.product")
        yield {
            "url": response.url,
            "id": product.attrib["data-id"],
            "title": product.css("h1::text").get(),
            "price": product.css("[itemprop=price]").attrib["content"],
        }
        links = {response.urljoin(href) for href in response.css("a::attr(href)").getall()}
        if MODE == "lean":
            links -= self.followed
            self.followed.update(links)
        for url in links:
            if url.lower().startswith("http"):
                yield scrapy.Request(url)


if __name__ == "__main__":
    process = CrawlerProcess(SETTINGS | (LEAN if MODE == "lean" else {}))
    process.crawl(Spider)
    process.start()
