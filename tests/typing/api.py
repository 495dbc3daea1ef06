"""What a user's scraper looks like to a type checker: checked, never run."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass

import shoal
import shoal.function

crawl = shoal.Crawl("books", seeds=["https://books.example/"], concurrency=8, delay_s=0.5)


@dataclass
class Book:
    title: str | None
    price: str


@crawl.login
async def login(session: shoal.AsyncSession) -> None:
    """An async login."""
    page: shoal.Page = await session.get("https://books.example/login")
    page = await session.submit(page.form("form#login"), {"user": "me"})
    if page.status != 200:
        raise shoal.LoggedOut


@crawl.login("/login*")
def plain_login(session: shoal.Session) -> None:
    """A plain one."""
    page: shoal.Page = session.post("https://books.example/login", {"user": "me"})
    session.post(page.url, json={"user": "me"})


@crawl.page("/catalogue/*")
def book(page: shoal.Page) -> Iterator[Book | shoal.Link]:
    """A generator of rows and links."""
    title: str | None = page.css("h1::text").get()
    price: str = page.css(".price::text").get(default="")
    yield Book(title, price)
    for link in page.links("a.next", priority=9):
        url: str = link.url
        yield shoal.Link(url=url + "?all=1", priority=9)


@crawl.page("/api/*")
async def api(page: shoal.Page) -> AsyncIterator[dict[str, object]]:
    """An async generator."""
    yield {"data": page.json()}


@crawl.page()
def listing(page: shoal.Page) -> list[shoal.Link]:
    """A plain function."""
    texts: list[str] = page.css("a::text").getall()
    return page.links() if texts else []


on_aws: Callable[[object, shoal.function.Context], dict[str, object]] = shoal.function.handler(
    crawl, frontier="redis://127.0.0.1", store="rows.jsonl"
)
to_start: int = shoal.function.fan_out(crawl, frontier="redis://127.0.0.1", most=20)
