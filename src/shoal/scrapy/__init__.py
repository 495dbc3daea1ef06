"""Scrapy spiders on shoal's frontier: SCHEDULER = "shoal.scrapy.Scheduler", SHOAL_FRONTIER = "redis://..."."""

from shoal.scrapy.pipeline import StorePipeline
from shoal.scrapy.scheduler import Scheduler

__all__ = ["Scheduler", "StorePipeline"]
