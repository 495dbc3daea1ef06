"""What newcomers try first: the demo, the examples, and the commands of the README, on the bundled shop."""

from __future__ import annotations

import csv
import io
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.shell import Shell

from shoal.demo import SHOP_URL, Shop
from shoal.shop.catalogue import PRODUCTS

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted(ROOT.glob("examples/*.py"))


@pytest.fixture
def shop() -> Iterator[Shop]:
    """The bundled shop, on a free port, answering at once."""
    with Shop(latency_s=0) as shop:
        yield shop


def test_the_demo_shows_all_products(shoal: Shell) -> None:
    """A table of 96 rows on standard output, the summary on standard error, and no file left behind."""
    ended = shoal.alone("demo")
    header, *lines = ended.out.splitlines()
    assert header.split() == ["sku", "name", "price", "stock", "rating"]
    assert sorted(line.split()[0] for line in lines) == [product.sku for product in PRODUCTS]
    assert "finished after 0:00:" in ended.err
    assert " 96 rows, " in ended.err
    assert ".shoal" not in ended.err  # it is gone
    assert shoal.files() == {}


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_an_example_finds_every_product_once(shoal: Shell, shop: Shop, example: Path) -> None:
    """Each file in examples/ is a scraper for the shop and does what it says."""
    text = example.read_text(encoding="utf-8")
    assert SHOP_URL in text
    shoal.write(example.name, text.replace(SHOP_URL, shop.url))
    shoal("run", example.name, "-o", "products.jsonl")
    rows = [json.loads(line) for line in shoal.read("products.jsonl").splitlines()]
    assert sorted(row["name"] for row in rows) == sorted(product.name for product in PRODUCTS)


def test_the_shop_example_reads_what_the_shop_shows(shoal: Shell, shop: Shop) -> None:
    """Text, numbers and attributes, as the catalogue has them."""
    shoal.write("shop.py", (ROOT / "examples" / "shop.py").read_text("utf-8").replace(SHOP_URL, shop.url))
    shoal("run", "shop.py")
    assert sorted(shoal.rows(), key=lambda row: row["sku"]) == [
        {
            "sku": product.sku,
            "name": product.name,
            "price": product.price,
            "stock": product.stock,
            "rating": product.rating,
        }
        for product in PRODUCTS
    ]


def test_a_shop_can_be_crawled_without_code(shoal: Shell, shop: Shop) -> None:
    """The command of the README: every product once in a table, one dead link, one page closed to robots."""
    shoal(
        *("crawl", shop.url, "--select", "sku=article.product::attr(data-sku)", "--select", "name=h1"),
        *("--select", "price=.price::attr(data-price)", "-o", "products.csv"),
    )
    rows = list(csv.DictReader(io.StringIO(shoal.read("products.csv"))))
    products = [(row["sku"], row["name"], row["price"]) for row in rows if row["sku"]]
    assert sorted(products) == [(each.sku, each.name, each.price) for each in PRODUCTS]
    assert set(Counter(row["url"] for row in rows).values()) == {1}
    assert shoal("dead").out == f"HTTP 404: {shop.url}product/whale-oil\n"
    assert shoal("skipped").out == f"robots.txt: {shop.url}staff/rota\n"
