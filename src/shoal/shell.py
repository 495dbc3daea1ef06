"""A page and the tools of a scraper at a Python prompt."""

from __future__ import annotations

import asyncio
import code
import sys
from contextlib import AsyncExitStack
from importlib.util import find_spec
from typing import Any

import shoal
from shoal.crawl import Crawl
from shoal.direct import opened
from shoal.local import loop_factory
from shoal.model import Link
from shoal.parse import Page
from shoal.urls import normalize

_BANNER = """\
{page!r} {title}

    page         what a handler gets: page.css("h1::text").get(), page.links("a.next"), page.text
    fetch(URL)   another page, with the same cookies
    crawl        the crawl '{crawl.name}': list(crawl.handler(page.url)(page)), crawl.settings
"""


def interact(crawl: Crawl, url: str) -> None:
    """Fetch a page and prompt for Python until the end of input.

    Raises Unanswered if there is no page, ConfigError for what is no URL.
    """
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        stack = AsyncExitStack()
        access, _ = runner.run(stack.enter_async_context(opened(crawl)))

        def fetch(reference: str) -> Page:
            """The page that a URL leads to, or a reference such as "/about" on the first page."""
            target = normalize(reference, url) or reference
            return runner.run(access.page(target, Link(target)))

        try:
            page = runner.run(access.page(url, Link(url)))
            names = {"page": page, "fetch": fetch, "crawl": crawl, "shoal": shoal}
            _prompt(names, _BANNER.format(page=page, title=page.title or "", crawl=crawl))
        finally:
            runner.run(stack.aclose())


def _prompt(names: dict[str, Any], banner: str) -> None:
    """By IPython, if there is one and somebody sits at a terminal."""
    if not sys.stdin.isatty():
        sys.ps1 = sys.ps2 = ""  # what is printed is all that there is on standard output
    elif find_spec("IPython"):
        from IPython import embed

        print(banner, file=sys.stderr)
        embed(user_ns=names, display_banner=False, colors="neutral")
        return
    code.interact(banner, local=names, exitmsg="")
