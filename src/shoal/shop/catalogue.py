"""What the shop sells: 96 products in six categories, worked out from lists of words."""

from __future__ import annotations

from itertools import product as pairs
from random import Random
from urllib.parse import quote

from msgspec import Struct

PAGE_SIZE = 6
"""Products on one listing page."""


class Product(Struct, frozen=True):
    """One article for sale."""

    number: int
    name: str
    category: str
    price: str
    """Decimal pounds, two places."""
    stock: int
    rating: float
    """Stars, 1.0 to 5.0."""
    reviews: int
    maker: str
    blurb: str

    @property
    def path(self) -> str:
        """The one right path of its page, percent-encoded."""
        return "/product/" + quote(self.name.lower().replace(" ", "-"))

    @property
    def sku(self) -> str:
        """The article number."""
        return f"HS-{self.number:04d}"


class Category(Struct, frozen=True):
    """A shelf of the shop."""

    slug: str
    title: str
    hue: int
    """The colour of its pictures, in degrees."""
    products: tuple[Product, ...]

    @property
    def path(self) -> str:
        """The path of its first listing page."""
        return f"/category/{self.slug}"

    @property
    def pages(self) -> int:
        """How many listing pages it has."""
        return -(-len(self.products) // PAGE_SIZE)

    def shelf(self, number: int) -> tuple[Product, ...]:
        """Return the products on listing page `number`, counted from 1."""
        return self.products[(number - 1) * PAGE_SIZE : number * PAGE_SIZE]


_SHELVES = (
    ("lamps", "Lamps", 42, "Brass Copper Folding Storm", "Lantern|Deck Lamp|Cabin Light|Signal Lamp"),
    ("rope", "Rope & twine", 28, "Hemp Tarred Braided Cotton", "Mooring Line|Heaving Line|Twine|Fender"),
    ("charts", "Charts", 205, "Pocket Coastal Folded Antique", "Chart|Tide Table|Pilot Book|Star Atlas"),
    ("galley", "Galley", 355, "Enamel Steel Camping Cast-iron", "Kettle|Café Pot|Skillet|Mug"),
    ("oilskins", "Oilskins & wool", 52, "Yellow Navy Waxed Heavy", "Jacket|Smock|Sou’wester|Gansey"),
    ("tackle", "Tackle", 165, "Beech Bronze Galvanised Racing", "Block|Cleat|Anchor|Shackle"),
)
_MAKERS = ("Tern & Sons", "Holm Works", "Skerry", "Northby", "A. Kittiwake")
_BLURBS = (
    "Made to be used every day and mended when it breaks.",
    "The one our own crew takes along, in all weathers.",
    "Old pattern, new tools: nothing on it is there for show.",
    "Stows small, works at once, and asks for nothing but a drop of oil.",
    "It will outlast the boat if you rinse it after salt water.",
)


def _product(number: int, name: str, category: str) -> Product:
    rng = Random(number)
    return Product(
        number=number,
        name=name,
        category=category,
        price=f"{rng.randrange(4, 180)}.{rng.choice((0, 25, 50, 95)):02d}",
        stock=max(0, rng.randrange(-4, 40)),
        rating=round(rng.uniform(2.8, 5.0), 1),
        reviews=rng.randrange(3, 240),
        maker=rng.choice(_MAKERS),
        blurb=rng.choice(_BLURBS),
    )


def _category(index: int, slug: str, title: str, hue: int, kinds: str, nouns: str) -> Category:
    names = [f"{kind} {noun}" for noun, kind in pairs(nouns.split("|"), kinds.split())]
    first = index * len(names) + 1
    products = tuple(_product(first + place, name, slug) for place, name in enumerate(names))
    return Category(slug, title, hue, products)


CATEGORIES = tuple(_category(index, *shelf) for index, shelf in enumerate(_SHELVES))
PRODUCTS = tuple(product for category in CATEGORIES for product in category.products)
