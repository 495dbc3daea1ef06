"""The bundled shop: a whole small site as a pure function, and its server."""

from __future__ import annotations

from collections import Counter, deque
from html.parser import HTMLParser
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.parse import parse_qs, quote, unquote, urljoin, urlsplit
from urllib.request import urlopen

import pytest

from shoal.demo import Shop, scraper
from shoal.shop.catalogue import CATEGORIES, PRODUCTS
from shoal.shop.pages import Answer, answer

HOME = "http://shop.example/"


class _Hrefs(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found += [value or "" for name, value in attrs if tag == "a" and name == "href"]


def _ask(url: str, visit: int = 1) -> Answer:
    parts = urlsplit(url)
    return answer(parts.path, parse_qs(parts.query).get("page", [""])[0], visit)


def _walk() -> tuple[dict[str, Answer], Counter[str]]:
    """Follow every link from the home page; returns the answer of each URL, and all spellings of links."""
    answers: dict[str, Answer] = {}
    spellings: Counter[str] = Counter()
    waiting = deque([HOME])
    while waiting:
        url = waiting.popleft()
        if url in answers or not url.startswith(HOME):
            continue
        reply = answers[url] = _ask(url, visit=2)
        hrefs = _Hrefs(reply.body).found if reply.content_type == "text/html" else []
        spellings.update(hrefs)
        for href in [*hrefs, *filter(None, [reply.location])]:
            parts = urlsplit(urljoin(url, href))
            path = quote(unquote(parts.path))
            waiting.append(parts._replace(path=path, fragment="").geturl())
    return answers, spellings


def test_every_product_and_listing_page_is_reached_by_links() -> None:
    """From the home page, links lead to all products, all listing pages, and one page that is missing."""
    answers, _ = _walk()
    paths = {url.removeprefix(HOME[:-1]) for url in answers}
    assert {product.path for product in PRODUCTS} <= paths
    assert {category.path for category in CATEGORIES} <= paths
    assert sum("?page=" in path for path in paths) == sum(category.pages - 1 for category in CATEGORIES)
    statuses = Counter(reply.status for reply in answers.values())
    assert statuses == {200: len(answers) - 2, 302: 1, 404: 1}
    assert len(answers) == 121


def test_products_differ() -> None:
    """No two products share a name, an article number or a page."""
    assert len(PRODUCTS) == 96
    assert len({product.path for product in PRODUCTS}) == 96
    assert len({product.sku for product in PRODUCTS}) == 96


def test_the_same_page_is_linked_in_several_spellings() -> None:
    """Links use relative paths, dot segments, fragments and lower-case percent-encoding."""
    _, spellings = _walk()
    product = next(product for product in PRODUCTS if "%C3%A9" in product.path)
    assert product.path in spellings
    assert product.path.replace("/product/", "../product/./").replace("%C3%A9", "%c3%a9") in spellings
    assert product.path + "#reviews" in spellings
    assert product.path.removeprefix("/product/") + "#" in spellings


def test_percent_encoding_does_not_matter() -> None:
    """A path answers the same in upper-case, lower-case and without percent-encoding."""
    path = next(product.path for product in PRODUCTS if "%C3%A9" in product.path)
    assert answer(path).status == 200
    assert answer(path) == answer(path.lower()) == answer(unquote(path))


def test_product_pages_show_what_the_catalogue_says() -> None:
    """Name, price, stock and rating of each product stand in its page."""
    for product in PRODUCTS:
        body = answer(product.path).body
        assert f'data-sku="{product.sku}"' in body
        assert f"<h1>{product.name}</h1>" in body
        assert f'data-price="{product.price}"' in body
        assert f'data-stock="{product.stock}"' in body
        assert f'data-rating="{product.rating}"' in body


@pytest.mark.parametrize("page", ["0", "4", "-1", "x", "01"])
def test_a_listing_page_that_does_not_exist_is_missing(page: str) -> None:
    """Only the pages 1 to 3 of a category exist."""
    assert answer("/category/galley", "3").status == 200
    assert answer("/category/galley", page).status == 404


def test_the_shop_has_the_traps_of_real_sites() -> None:
    """A redirect, a dead link, a slow page, a page that is busy once, and an area closed to robots."""
    assert answer("/new").location in {product.path for product in PRODUCTS}
    assert answer("/product/whale-oil").status == 404
    assert answer("/tides").delay_s > 1
    assert [answer("/catch", visit=visit).status for visit in (1, 2)] == [503, 200]
    assert "Disallow: /staff/" in answer("/robots.txt").body
    assert 'href="/staff/rota"' in answer("/").body


def test_the_server_gives_the_same_answers() -> None:
    """The shop on a socket: pages, errors and headers as the pure function has them."""
    with Shop(latency_s=0) as shop:
        assert shop.url.startswith("http://127.0.0.1:")
        with urlopen(shop.url + "category/galley?page=2") as reply:
            assert reply.read().decode() == answer("/category/galley", "2").body
            assert reply.headers["Content-Type"] == "text/html; charset=utf-8"
        for status in (503, None):
            assert _status(shop.url + "catch") == status
        assert _status(shop.url + "product/whale-oil") == 404
        with urlopen(shop.url + "new") as reply:
            assert reply.url == urljoin(shop.url, answer("/new").location or "")


def test_a_closed_shop_is_gone() -> None:
    """After the context nothing listens any more."""
    with Shop() as shop:
        pass
    with pytest.raises(URLError):
        urlopen(shop.url)


def test_the_example_is_the_scraper_of_the_demo() -> None:
    """`examples/shop.py` and the scraper that `shoal demo` runs are one text."""
    example = Path(__file__).parents[2] / "examples" / "shop.py"
    assert example.read_text(encoding="utf-8") == scraper()
    assert 'seeds=["http://127.0.0.1:1/"]' in scraper("http://127.0.0.1:1/")


def _status(url: str) -> int | None:
    """Return the status if it is an error."""
    try:
        urlopen(url).close()
    except HTTPError as error:
        with error:
            return error.code
    return None
