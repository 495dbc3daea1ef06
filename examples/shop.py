"""Scrape a small web shop.

`python -m shoal.shop` serves it; `shoal run shop.py -o products.csv`, in another terminal, crawls it.
"""

import shoal

crawl = shoal.Crawl("shop", seeds=["http://127.0.0.1:8765/"])


@crawl.page("/product/*")
def product(page):
    """Read one row from a product's page, and follow it to products that go well with it."""
    yield {
        "sku": page.css("article.product::attr(data-sku)").get(),
        "name": page.css("h1::text").get(),
        "price": page.css(".price::attr(data-price)").get(),
        "stock": int(page.css(".stock::attr(data-stock)").get()),
        "rating": float(page.css(".rating::attr(data-rating)").get()),
    }
    yield from page.links(".related a")


@crawl.page()
def listing(page):
    """Follow all other pages: to the next page of their listing first, then wherever they point."""
    yield from page.links("a.next", priority=9)
    yield from page.links("a")
