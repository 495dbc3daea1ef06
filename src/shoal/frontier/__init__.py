"""Where URLs live. `open_frontier` picks the back end by its URL."""

from __future__ import annotations

from shoal.errors import ConfigError
from shoal.frontier.base import Frontier

__all__ = ["Frontier", "open_frontier"]


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
    if kind in {"redis", "rediss", "redis+sentinel"}:
        try:
            from shoal.frontier.redis import RedisFrontier
        except ImportError as error:
            raise ConfigError("the frontier on Redis needs: pip install 'shoal[redis]'") from error
        return RedisFrontier(url, crawl, create=create)
    raise ConfigError(f"unknown frontier '{url}': use sqlite:FILE or redis://HOST:PORT/DB")
