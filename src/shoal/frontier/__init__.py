"""Where URLs live. `open_frontier` picks the back end by its URL."""

from __future__ import annotations

from shoal.errors import ConfigError
from shoal.frontier.base import Frontier

__all__ = ["Frontier", "open_frontier"]


def open_frontier(url: str, *, crawl: str, create: bool = True, keep_items: bool = True) -> Frontier:
    """Open the frontier of one crawl.

    url: "sqlite:FILE" (":memory:" for a throw-away one).
    create: make the crawl, and its place, if they do not exist; otherwise that is a ConfigError.
    keep_items: whether the frontier is also the store of the items, if it can be.
    Raises ConfigError for an unknown kind of URL, FrontierError if what is there is not usable.
    """
    kind, _, place = url.partition(":")
    if kind == "sqlite" and place:
        from shoal.frontier.sqlite import SqliteFrontier

        return SqliteFrontier(place, crawl, create=create, keep_items=keep_items)
    raise ConfigError(f"unknown frontier '{url}': use sqlite:FILE")
