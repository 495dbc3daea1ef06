"""The links that sitemaps lead to: which pages belong, which sitemaps are read."""

from __future__ import annotations

from typing import Any

import pytest

from shoal.crawl import Crawl
from shoal.listing import Lister, of_robots
from shoal.model import SITEMAP, Link

URL = "http://www.a.test/maps/1.xml"


def _links(document: str, url: str = URL, via: tuple[str, ...] = (), **settings: Any) -> tuple[Link, ...]:
    lister = Lister(Crawl("a", **{"seeds": ["http://www.a.test/"]} | settings))
    return lister.links(document.encode(), Link(url=url, key=SITEMAP, via=via, priority=3, meta={"n": 1}))


def _urlset(*entries: str) -> str:
    return f"<urlset>{''.join(f'<url><loc>{entry}</loc></url>' for entry in entries)}</urlset>"


def _index(*urls: str) -> str:
    return f"<sitemapindex>{''.join(f'<sitemap><loc>{url}</loc></sitemap>' for url in urls)}</sitemapindex>"


def test_pages_count_as_seeds() -> None:
    """They have the depth, the priority and the data of the sitemap's link."""
    assert _links(_urlset("/a")) == (Link("http://www.a.test/a", priority=3, depth=0, meta={"n": 1}),)


def test_pages_out_of_scope_are_left_out() -> None:
    """As links of pages are."""
    found = _links(_urlset("/a", "/b", "http://b.test/a"), deny=["/b"])
    assert [link.url for link in found] == ["http://www.a.test/a"]


def test_pages_are_spelled_as_all_urls_of_the_crawl() -> None:
    """So that none is fetched twice."""
    [link] = _links(_urlset("/a?b=1&amp;a=2&amp;utm_x=3"), sort_query=True, drop_params=["utm_*"])
    assert link.url == "http://www.a.test/a?a=2&b=1"


def test_priorities_of_a_sitemap() -> None:
    """They count if that is asked for; a page without one has that of sitemaps.org, 0.5."""
    document = "<urlset><url><loc>/a</loc><priority>1.0</priority></url><url><loc>/b</loc></url></urlset>"
    assert [link.priority for link in _links(document, sitemap_priority=True)] == [9, 5]
    assert [link.priority for link in _links(document)] == [3, 3]


def test_an_index_leads_to_sitemaps() -> None:
    """Of the same registrable domain; elsewhere only to those in scope."""
    document = _index("/2.xml", "http://cdn.a.test/3.xml", "http://b.test/4.xml")
    found = _links(document)
    assert [(link.url, link.key) for link in found] == [
        ("http://www.a.test/2.xml", SITEMAP),
        ("http://cdn.a.test/3.xml", SITEMAP),
    ]
    assert len(_links(document, scope="any")) == 3


def test_sitemaps_do_not_lead_on_for_ever() -> None:
    """Neither in a circle nor along an endless chain."""
    [link] = _links(_index(URL, "/2.xml"))
    assert (link.url, link.via) == ("http://www.a.test/2.xml", (URL,))
    assert _links(_index("/2.xml"), via=tuple(f"http://www.a.test/{n}" for n in range(10))) == ()


def test_robots_txt_names_sitemaps() -> None:
    """Anywhere, and whatever else it says."""
    link = of_robots("http://www.a.test/some/page")
    assert link == Link("http://www.a.test/robots.txt", key=SITEMAP)
    text = "User-agent: *\nDisallow: /\nSitemap: /1.xml\nsitemap: http://b.test/2.xml\nSitemap: mailto:x\n"
    assert [link.url for link in _links(text, link.url)] == ["http://www.a.test/1.xml", "http://b.test/2.xml"]


@pytest.mark.parametrize("document", ["", "<html><a href=/a>a</a></html>", "\x00\xff", "Disallow: /"])
def test_what_is_no_sitemap_lists_nothing(document: str) -> None:
    """And does no harm."""
    assert _links(document) == ()
