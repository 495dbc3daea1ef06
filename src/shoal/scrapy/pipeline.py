"""Items into the same stores as shoal's own rows, and as safely."""

from __future__ import annotations

from typing import Any, Self

from scrapy.crawler import Crawler
from scrapy.utils.misc import load_object

from shoal.errors import ConfigError, StoreError
from shoal.scrapy.visit import current
from shoal.settle import NOT_STORABLE
from shoal.store.encode import to_item


class StorePipeline:
    """Keeps the items of a request until its callback is done; then all of them are stored, or none."""

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        """Made by Scrapy. Raises ConfigError without the scheduler, which does the storing."""
        from shoal.scrapy.scheduler import Scheduler

        scheduler = load_object(crawler.settings["SCHEDULER"])
        if Scheduler not in scheduler.__mro__:  # issubclass would only ask what methods it has
            raise ConfigError("StorePipeline needs SCHEDULER = 'shoal.scrapy.Scheduler'")
        return cls()

    def process_item(self, item: Any, spider: object = None) -> Any:
        """Raises StoreError for what cannot be stored: its request becomes a dead letter.

        spider: given by Scrapy 2.13.
        """
        visit = current.get()
        if visit is None:
            raise StoreError("an item that comes from no request cannot be stored: yield it in a callback")
        try:
            visit.items.append(to_item(item))
        except StoreError as error:
            visit.failed(NOT_STORABLE, str(error))
            raise
        return item
