"""Run the handler of a page and sort what it gives: items, and links that belong.

A handler may return or yield; be a function, a generator, or async. A plain function runs in a thread,
so that a slow one does not stop the fetching; the built-in ones are quick and run where they are.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, Iterator

import msgspec

from shoal import crawl as builtin
from shoal.crawl import Crawl, Handler
from shoal.errors import ConfigError
from shoal.guard import guarded
from shoal.model import MOST_DELAY_S, PRIORITIES, SEEN_FIELDS, Item, Link, State
from shoal.parse import Page
from shoal.store.encode import to_item
from shoal.urls import normalize

InThread = Callable[[Callable[[], list[object]]], Awaitable[list[object]]]
"""Runs a function in a thread."""


async def run(
    handler: Handler, page: Page, in_thread: InThread, timeout_s: float | None = None
) -> list[object]:
    """All that the handler returns or yields for this page. What it raises comes as from `guarded`."""
    return await guarded(_run(handler, page, in_thread), timeout_s)


async def _run(handler: Handler, page: Page, in_thread: InThread) -> list[object]:
    if inspect.isasyncgenfunction(handler) or inspect.iscoroutinefunction(handler):
        return await _awaited(handler(page))
    if handler.__module__ == builtin.__name__:
        return _flat(handler(page))
    results = await in_thread(lambda: _flat(handler(page)))
    if len(results) == 1 and (inspect.isawaitable(results[0]) or inspect.isasyncgen(results[0])):
        return await _awaited(results[0])  # a decorator hid that the handler is async
    return results


async def _awaited(result: object) -> list[object]:
    if inspect.isasyncgen(result):
        return [each async for each in result]
    assert inspect.isawaitable(result)
    return _flat(await result)


def _flat(result: object) -> list[object]:
    """One result, or several; a pydantic model can be iterated over, but is one."""
    return list(result) if isinstance(result, list | tuple | set | Iterator) else [result]


class Ended(Exception):  # noqa: N818 - a decision, not an error
    """Raised by a handler that has decided itself what becomes of its page."""

    def __init__(self, state: State, reason: str, *, retry_s: float = 0.0) -> None:
        super().__init__(reason)
        self.state = state
        self.reason = reason
        self.retry_s = retry_s


class Sorter:
    """Sorts what the handlers of a crawl give."""

    def __init__(self, crawl: Crawl) -> None:
        self._scope = crawl.scope()
        self._spelling = crawl.spelling()
        self._revisits = crawl.settings.revisit_s is not None

    def sort(self, results: Iterable[object], page: Page) -> tuple[tuple[Item, ...], tuple[Link, ...]]:
        """Items in a form that stores can write, and the links that are in scope.

        Raises StoreError for a value that cannot be stored, ConfigError for a link that cannot be kept.
        """
        items: list[Item] = []
        links: list[Link] = []
        page_url, follows, takes_all = page.url, self._scope.follows, self._scope.takes_all
        for result in results:
            if isinstance(result, Link):
                link = result
                if link.depth < 1 or not link.url.startswith(("http://", "https://")):
                    link = self._complete(link, page)  # it is not from `page.links`
                priority = link.priority
                if (
                    link.meta is not None
                    or link.delay_s
                    or type(priority) is bool
                    or priority not in PRIORITIES
                ):
                    _check(link)
                if takes_all or follows(link.url, page_url):
                    links.append(link)
            elif result is not None:
                items.append(to_item(result))
        if self._revisits:
            _check_names(items)
        return tuple(items), tuple(links)

    def _complete(self, link: Link, page: Page) -> Link:
        """A link that the user made by hand: it may be relative, and is one step from its page."""
        try:
            link = msgspec.convert(msgspec.structs.asdict(link), Link)
        except msgspec.ValidationError as error:
            raise ConfigError(f"the handler gave a bad link: {error}: {link}") from error
        url = normalize(link.url, page.url, self._spelling)
        if url is None:
            raise ConfigError(f"the handler gave a link that is not an http(s) URL: '{link.url}'")
        return msgspec.structs.replace(link, url=url, depth=page.depth + 1)


def _check_names(items: Iterable[Item]) -> None:
    """Refuse fields that are filled in later."""
    for name in SEEN_FIELDS:
        if any(name in item for item in items):
            raise ConfigError(f"the handler gave a field '{name}', which revisits fill in: call it otherwise")


def _check(link: Link) -> None:
    """Refuse what the frontier could not keep."""
    if link.priority not in PRIORITIES or isinstance(link.priority, bool):
        raise ConfigError(f"the handler gave a link with priority {link.priority}: use 0..9")
    if link.delay_s and not link.delay_s <= MOST_DELAY_S:
        raise ConfigError(f"the handler gave a link with delay_s {link.delay_s:g}: that time never comes")
    if link.meta is not None:
        try:
            msgspec.json.encode(link.meta)
        except (TypeError, ValueError, RecursionError) as error:
            raise ConfigError(f"the handler gave a link with meta that JSON cannot hold: {error}") from error
