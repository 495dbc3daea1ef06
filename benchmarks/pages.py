"""Some pages of the site, in memory, and the reading of them: row and links."""

from __future__ import annotations

from benchmarks import site
from shoal.model import Link, Response
from shoal.parse import Page, extract, parse_field
from shoal.urls import Spelling

SITE = site.Site(pages=2_000, hosts=16, seed=1, kb=30, port=8811)
SPELLING = Spelling(sort_query=True)
FIELDS = [
    parse_field("id=article.product::attr(data-id)"),
    parse_field("title=article.product h1"),
    parse_field("price=[itemprop=price]::attr(content)"),
]


def answers(count: int) -> list[Response]:
    """What the server answers for the first pages."""
    headers = (("content-type", "text/html; charset=utf-8"),)
    return [
        Response(SITE.url(number), 200, headers, site.page_html(SITE, number).encode())
        for number in range(count)
    ]


def links(answer: Response) -> list[Link]:
    """The links of a page."""
    return Page(answer, spelling=SPELLING).links()


def row(answer: Response) -> dict[str, str | None] | None:
    """The row of a page."""
    return extract(Page(answer), FIELDS)


def read(answer: Response) -> tuple[dict[str, str | None] | None, list[Link]]:
    """Both, as a crawl does it."""
    page = Page(answer, spelling=SPELLING)
    return extract(page, FIELDS), page.links()
