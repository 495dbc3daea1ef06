"""Requests in, answers out: every page of the shop as a pure function of its URL.

The shop has what real ones have: listings in pages, a redirect, a dead link, a slow page, a page that
is busy at first, an area that robots.txt closes, and links that spell the same URL in several ways.
"""

from __future__ import annotations

from html import escape
from urllib.parse import quote, unquote

from msgspec import Struct

from shoal.shop.catalogue import CATEGORIES, PRODUCTS, Category, Product
from shoal.shop.style import CSS

_BY_PATH = {product.path: product for product in PRODUCTS}
_BY_SLUG = {category.slug: category for category in CATEGORIES}
_NEWEST = PRODUCTS[30]

ROBOTS = "User-agent: *\nDisallow: /staff/\n"


class Answer(Struct, frozen=True):
    """What the shop answers to one request."""

    body: str
    status: int = 200
    content_type: str = "text/html"
    location: str | None = None
    delay_s: float = 0.0
    """How long the shop takes over it."""


def answer(path: str, page: str = "", visit: int = 1) -> Answer:
    """Answer a request for a path, however it is percent-encoded.

    page: the value of `?page=`; visit: 1 the first time that this path is asked for, then 2, 3 ...
    """
    path = quote(unquote(path))
    if path in _BY_PATH:
        return Answer(_product_page(_BY_PATH[path]))
    if path.startswith("/category/"):
        return _listing(_BY_SLUG.get(path.removeprefix("/category/")), page or "1")
    if path == "/catch" and visit == 1:
        return Answer(_frame("One moment", "<p>Still unloading. Come back in a second.</p>"), status=503)
    return _OTHERS.get(path, _MISSING)


def _listing(category: Category | None, page: str) -> Answer:
    if category is None or page not in map(str, range(1, category.pages + 1)):
        return _MISSING
    number = int(page)
    cards = "".join(_card(product) for product in category.shelf(number))
    return Answer(
        _frame(
            category.title,
            f"<h1>{escape(category.title)}</h1><p>Page {number} of {category.pages}</p>"
            f'<ul class="shelf">{cards}</ul>{_pager(category, number)}',
        )
    )


def _pager(category: Category, number: int) -> str:
    previous = f'<a class="previous" href="{_listing_path(category, number - 1)}">Previous</a>'
    following = f'<a class="next" href="{_listing_path(category, number + 1)}">Next</a>'
    return (
        '<p class="pager">'
        f"{previous if number > 1 else ''} {following if number < category.pages else ''}</p>"
    )


def _listing_path(category: Category, number: int) -> str:
    return category.path if number == 1 else f"{category.path}?page={number}"


def _product_page(product: Product) -> str:
    category = _BY_SLUG[product.category]
    stock = f"{product.stock} in stock" if product.stock else "sold out"
    place = category.products.index(product)
    related = [category.products[(place + step) % len(category.products)] for step in (1, 5, 7)]
    cards = "".join(_card(other, spelling) for spelling, other in enumerate(related))
    return _frame(
        product.name,
        f'<p class="crumbs"><a href="/">Home</a> › <a href="{category.path}">{escape(category.title)}</a></p>'
        f'<article class="product" data-sku="{product.sku}">{_picture(product)}<div>'
        f'<h1>{escape(product.name)}</h1><p class="maker">by {escape(product.maker)}</p>'
        f'<p class="price" data-price="{product.price}">£{product.price}</p>'
        f'<p class="stock" data-stock="{product.stock}">{stock}</p>'
        f'<p class="rating" data-rating="{product.rating}" id="reviews">{_stars(product.rating)} '
        f"{product.rating} from {product.reviews} reviews</p>"
        f'<p class="blurb">{escape(product.blurb)}</p></div></article>'
        f'<h2>Goes well with it</h2><ul class="shelf related">{cards}</ul>',
    )


def _card(product: Product, spelling: int = -1) -> str:
    return (
        f'<li><a href="{_spell(product.path, spelling)}">{_picture(product)}'
        f"<h3>{escape(product.name)}</h3></a><p>£{product.price} "
        f'<span class="rating">{_stars(product.rating)}</span></p></li>'
    )


def _spell(path: str, spelling: int) -> str:
    """Write the same URL in another way, as templates and people do."""
    match spelling:
        case 0:
            return path.replace("/product/", "../product/./").replace("%C3%A9", "%c3%a9")
        case 1:
            return path + "#reviews"
        case 2:
            return path.removeprefix("/product/") + "#"
        case _:
            return path


def _stars(rating: float) -> str:
    full = round(rating)
    return "★" * full + "☆" * (5 - full)


def _picture(product: Product) -> str:
    """Draw a little still life from the product's number."""
    hue, number = _BY_SLUG[product.category].hue, product.number
    waves = "".join(
        f'<path d="M0 {y} q20 -{8 + number % 7} 40 0 t40 0 t40 0 t40 0 V120 H0Z" '
        f'fill="hsl({hue} 40% {light}%)"/>'
        for y, light in ((78, 62), (90, 50), (102, 38))
    )
    return (
        '<svg viewBox="0 0 160 120" role="img" aria-hidden="true">'
        f'<rect width="160" height="120" fill="hsl({hue} 60% 88%)"/>'
        f'<circle cx="{30 + number * 37 % 100}" cy="{28 + number % 20}" r="{14 + number % 9}" '
        f'fill="hsl({hue} 75% 66%)"/>{waves}</svg>'
    )


def _frame(title: str, content: str) -> str:
    shelves = "".join(f'<a href="{category.path}">{escape(category.title)}</a>' for category in CATEGORIES)
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<title>{escape(title)} · Harbour Supply</title><link rel="stylesheet" href="/style.css"></head>'
        f'<body><header><a class="name" href="/">Harbour Supply</a><nav>{shelves}</nav></header>'
        f"<main>{content}</main>"
        '<footer><a href="/about">About us</a> <a href="/catch">Catch of the day</a> '
        '<a href="/tides">Tides</a> <a href="/new">What’s new</a> <a href="/staff/rota">Staff</a> '
        '<a href="mailto:shop@example.org">Mail us</a></footer></body></html>'
    )


def _home() -> str:
    cards = "".join(_card(category.products[0]) for category in CATEGORIES)
    return _frame(
        "Welcome",
        "<h1>Plain things for salt water</h1><p>Ninety-six of them, on six shelves. "
        'Looking for the <a href="/product/whale-oil">whale oil</a>? We stopped selling that.</p>'
        f'<ul class="shelf">{cards}</ul>',
    )


_MISSING = Answer(_frame("Not found", "<h1>Gone overboard</h1><p>There is no such page.</p>"), status=404)
_OTHERS = {
    "/": Answer(_home()),
    "/about": Answer(_frame("About us", "<h1>About us</h1><p>A shop that exists to be crawled.</p>")),
    "/catch": Answer(_frame("Catch of the day", "<h1>Catch of the day</h1><p>Herring, as ever.</p>")),
    "/tides": Answer(
        _frame("Tides", "<h1>Tides</h1><p>High water took its time, and so did this page.</p>"), delay_s=1.5
    ),
    "/new": Answer("", status=302, location=_NEWEST.path),
    "/staff/rota": Answer(_frame("Rota", "<h1>Rota</h1><p>Robots are asked not to read this.</p>")),
    "/robots.txt": Answer(ROBOTS, content_type="text/plain"),
    "/style.css": Answer(CSS, content_type="text/css"),
}
