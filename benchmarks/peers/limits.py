"""What shoal's own client and parser can do without a crawler around them: `limits.py MODE TRUTH ITEMS`.

fetch: ask for every URL of the site, and drop the bodies.
parse: also take the row, and the href of every link, as they are.

There is no queue, no store, no limit of any host, and nothing is normalized: it is a bound, not a crawler.
"""

import asyncio
import gc
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

import msgspec
import uvloop

from shoal.fetch import Fetcher, FetchSettings
from shoal.model import Response
from shoal.parse import Field, Page, extract, parse_field

TASKS = 64
FIELDS = (
    "id=article.product::attr(data-id)",
    "title=article.product h1",
    "price=[itemprop=price]::attr(content)",
)


async def crawl(urls: Iterable[str], fields: list[Field], rows: BinaryIO) -> None:
    """Fetch all; without fields, nothing is parsed."""
    waiting = iter(urls)
    settings = FetchSettings(allow=frozenset({"loopback"}), connections=TASKS)
    async with Fetcher(settings) as fetcher:
        tasks = [asyncio.create_task(fetch(fetcher, waiting, fields, rows)) for _ in range(TASKS)]
        await asyncio.gather(*tasks)


async def fetch(fetcher: Fetcher, urls: Iterator[str], fields: list[Field], rows: BinaryIO) -> None:
    """Take one URL after the other."""
    encode = msgspec.json.encode
    for url in urls:
        response = await fetcher.fetch(url)
        if not isinstance(response, Response):
            raise SystemExit(f"{url}: {response.detail}")
        if fields:
            page = Page(response)
            rows.write(encode(extract(page, fields)) + b"\n")
            page.css("a::attr(href)").getall()


def main() -> None:
    mode, truth, items = sys.argv[1:]
    with Path(truth).open() as lines:
        urls = [msgspec.json.decode(line)["url"] for line in lines]
    gc.freeze()
    if mode == "fetch":
        uvloop.run(crawl(urls, [], sys.stdout.buffer))
        return
    with Path(items).open("wb") as rows:
        uvloop.run(crawl(urls, [*map(parse_field, FIELDS)], rows))


if __name__ == "__main__":
    main()
