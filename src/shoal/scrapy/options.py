"""What the settings of a Scrapy project say to shoal."""

from __future__ import annotations

from itertools import pairwise

from scrapy.settings import BaseSettings

from shoal.crawl import Crawl
from shoal.errors import ConfigError
from shoal.local import Job
from shoal.scrapy.requests import PRIORITIES

UNLIMITED = 256
"""Requests at once if Scrapy's settings say that there is no limit."""


def job_of(settings: BaseSettings, spider: str, *, stores: bool) -> Job:
    """What to work on. stores: whether items are to be kept. Raises ConfigError naming what is wrong."""
    frontier = settings.get("SHOAL_FRONTIER")
    if not frontier:
        raise ConfigError("SHOAL_FRONTIER is not set: say redis://HOST:PORT/DB or sqlite:FILE")
    output = settings.get("SHOAL_STORE")
    if output and not stores:
        raise ConfigError(
            "SHOAL_STORE is set, but nothing is stored: ITEM_PIPELINES needs shoal.scrapy.StorePipeline"
        )
    if stores and not output and not str(frontier).startswith("sqlite:"):
        raise ConfigError(
            "this frontier keeps no rows: say with SHOAL_STORE where they go, such as rows.jsonl"
        )
    return Job(
        crawl=_crawl(settings, settings.get("SHOAL_CRAWL") or spider),
        frontier=str(frontier),
        outputs=(str(output),) if output else (),
        rows=stores,
        fields=tuple(settings.getlist("SHOAL_FIELDS")),
        fixed={"by": "scrapy"},
        drain=not settings.getbool("SHOAL_KEEP_ALIVE"),
        fresh=settings.getbool("SHOAL_FRESH"),
    )


def _crawl(settings: BaseSettings, name: str) -> Crawl:
    """As Scrapy's own settings say, unless SHOAL_SETTINGS says otherwise."""
    ours = {
        "concurrency": settings.getint("CONCURRENT_REQUESTS") or UNLIMITED,
        "per_host": settings.getint("CONCURRENT_REQUESTS_PER_DOMAIN") or UNLIMITED,
        "delay_s": settings.getfloat("DOWNLOAD_DELAY"),
        "host_give_up": 0,  # what becomes of a request is for Scrapy's middlewares to say
        "scope": "any",
        "obey_robots": False,  # this too
        "avoid_traps": False,
        "sort_query": True,
    }
    return Crawl(name, **ours | settings.getdict("SHOAL_SETTINGS"))


def priorities_of(settings: BaseSettings) -> tuple[int, ...]:
    """From which priority of Scrapy's on each of 1..9 is used. Raises ConfigError."""
    given = tuple(int(each) for each in settings.getlist("SHOAL_PRIORITIES", list(PRIORITIES)))
    if len(given) != len(PRIORITIES) or any(one >= next_one for one, next_one in pairwise(given)):
        raise ConfigError(f"SHOAL_PRIORITIES must be nine numbers that grow, not {list(given)}")
    return given
