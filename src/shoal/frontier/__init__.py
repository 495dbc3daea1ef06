"""Where URLs live. `open_frontier` picks the back end by its URL."""

from __future__ import annotations

from importlib.util import find_spec

from shoal.errors import ConfigError
from shoal.frontier.base import Frontier

__all__ = ["Frontier", "crawl_names", "open_frontier"]

_REDIS = ("redis", "rediss", "redis+sentinel")


def open_frontier(url: str, *, crawl: str, create: bool = True, keep_items: bool = True) -> Frontier:
    """Open the frontier of one crawl.

    url: "sqlite:FILE", "redis://HOST:PORT/DB", "rediss://..." (TLS) or "redis+sentinel://...".
    create: make the crawl, and its place, if they do not exist; otherwise that is a ConfigError.
    keep_items: whether the frontier is also the store of the items, if it can be.
    Raises ConfigError for an unknown kind of URL, FrontierError if what is there is not usable.
    """
    kind, _, place = url.partition(":")
    if kind == "sqlite" and place:
        from shoal.frontier.sqlite import SqliteFrontier

        return SqliteFrontier(place, crawl, create=create, keep_items=keep_items)
    if kind in _REDIS:
        _need_redis()
        from shoal.frontier.redis import RedisFrontier

        return RedisFrontier(url, crawl, create=create)
    raise _unknown(url)


def crawl_names(url: str) -> list[str]:
    """The crawls that this place has. Raises as `open_frontier` does."""
    kind, _, place = url.partition(":")
    if kind == "sqlite" and place:
        from shoal.frontier import sqlite_file

        return sqlite_file.crawl_names(place)
    if kind in _REDIS:
        _need_redis()
        from shoal.frontier import redis_server

        return redis_server.crawl_names(url)
    raise _unknown(url)


def _need_redis() -> None:
    if find_spec("redis") is None:
        raise ConfigError("the frontier on Redis needs: pip install 'shoal[redis]'")


def _unknown(url: str) -> ConfigError:
    return ConfigError(f"unknown frontier '{url}': use sqlite:FILE or redis://HOST:PORT/DB")
