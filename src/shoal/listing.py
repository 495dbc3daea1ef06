"""The links that a sitemap, a feed or a robots.txt gives: which pages it lists, and which sitemaps.

A sitemap travels the frontier like a page, as a link with the key SITEMAP. The pages that it lists count as
seeds do: a sitemap is no step on the way to them, and they must be in scope. A sitemap that it names may lie
elsewhere on the same registrable domain; one that robots.txt names, anywhere (sitemaps.org, "Sitemaps & Cross
Submits").
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from shoal import robots
from shoal.crawl import Crawl
from shoal.model import SITEMAP, Link
from shoal.policy import Hop, follow
from shoal.scope import registrable_domain
from shoal.sitemap import DEFAULT_PRIORITY, Entry, entries, priority_of
from shoal.urls import DEFAULT, host_key, normalize, origin, path_query

ROBOTS = "/robots.txt"


class Lister:
    """Reads the sitemaps of one crawl."""

    def __init__(self, crawl: Crawl) -> None:
        self._scope = crawl.scope()
        self._spelling = crawl.spelling()
        self._by_priority = crawl.settings.sitemap_priority

    def links(self, body: bytes, link: Link) -> tuple[Link, ...]:
        """What the document at `link` leads to: sitemaps, and pages as far as they belong.

        Takes up to a few seconds for the longest document that is read.
        """
        return tuple(self._links(body, link))

    def _links(self, body: bytes, link: Link) -> Iterator[Link]:
        if path_query(link.url) == ROBOTS:
            named = (normalize(text, link.url) for text in robots.parse(body, "*").sitemaps)
            yield from (found for url in named if url is not None for found in self._sitemap(url, link))
            return
        for entry in entries(body, link.url):
            if isinstance(entry, Entry):
                yield from self._page(entry, link)
            elif self.may_read(entry.url, link.url):
                yield from self._sitemap(entry.url, link)

    def may_read(self, url: str, sitemap_url: str) -> bool:
        """Whether a sitemap may lead to this one."""
        return self._scope.reason(url, sitemap_url) is None or _domain(url) == _domain(sitemap_url)

    def _sitemap(self, url: str, link: Link) -> Iterator[Link]:
        """With the same bounds as redirects have, so that nobody can lead us on for ever."""
        hop = follow(url, link.url, link.via, set_cookie=False)
        if isinstance(hop, Hop):
            yield replace(link, url=hop.url, via=hop.via)

    def _page(self, entry: Entry, link: Link) -> Iterator[Link]:
        url = entry.url if self._spelling is DEFAULT else normalize(entry.url, None, self._spelling)
        if url is not None and self._scope.reason(url, link.url) is None:
            yield Link(url=url, priority=self._priority(entry, link), depth=link.depth, meta=link.meta)

    def _priority(self, entry: Entry, link: Link) -> int:
        if not self._by_priority:
            return link.priority
        return priority_of(DEFAULT_PRIORITY if entry.priority is None else entry.priority)


def of_robots(url: str) -> Link:
    """The link to the robots.txt of a page, to be read for the sitemaps that it names."""
    return Link(url=origin(url) + ROBOTS, key=SITEMAP)


def _domain(url: str) -> str:
    return registrable_domain(host_key(url))
