"""Scrapy, doing the work that shoal does in the benchmark: `scrapy_peer.py MODE START ITEMS`.

memory: a spider as Scrapy's manual teaches it, with the settings for speed that its manual names.
lean: further than most users go; optional middlewares off, and the spider drops links it has followed.
redis, redis-lean: the same with scrapy-redis, queue and seen set in the Redis named by REDIS_URL.
shoal: as memory, with the queue in shoal's frontier named by SHOAL_FRONTIER.
shoal-store: the same, with the items in shoal's store ITEMS instead of Scrapy's feed.

CLOSE_AFTER: so many pages, then it is closed. IDLE_S: scrapy-redis ends when it was idle so long.
"""

import os
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
    "REMOTE_CONTROL_ENABLED": False,
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


REDIS = {
    "SCHEDULER": "scrapy_redis.scheduler.Scheduler",
    "DUPEFILTER_CLASS": "scrapy_redis.dupefilter.RFPDupeFilter",
    "SCHEDULER_PERSIST": True,
    "REDIS_URL": os.environ.get("REDIS_URL"),
    "MAX_IDLE_TIME_BEFORE_CLOSE": int(os.environ.get("IDLE_S", 0)),
}


class Pages:
    """Follows every link and yields the product of every page."""

    name = "peer"
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
        if "lean" in MODE:
            links -= self.followed
            self.followed.update(links)
        for url in links:
            if url.lower().startswith("http"):
                yield scrapy.Request(url)


class Spider(Pages, scrapy.Spider):
    """It has a start of its own."""

    start_urls: ClassVar = [START]


def main():
    """Crawl until there is nothing left; with Redis, until somebody ends it."""
    settings, spider = SETTINGS | (LEAN if "lean" in MODE else {}), Spider
    if "redis" in MODE:
        from scrapy_redis.spiders import RedisSpider

        settings |= REDIS
        spider = type("RedisPages", (Pages, RedisSpider), {})
    if "shoal" in MODE:
        settings |= {"SCHEDULER": "shoal.scrapy.Scheduler", "SHOAL_FRONTIER": os.environ["SHOAL_FRONTIER"]}
    if "store" in MODE:
        settings |= {"FEEDS": {}, "ITEM_PIPELINES": {"shoal.scrapy.StorePipeline": 900}, "SHOAL_STORE": ITEMS}
    if "CLOSE_AFTER" in os.environ:
        settings |= {"CLOSESPIDER_PAGECOUNT": int(os.environ["CLOSE_AFTER"])}
    process = CrawlerProcess(settings)
    process.crawl(spider)
    process.start()


if __name__ == "__main__":
    main()
