"""Running handlers of every kind, and sorting what they give."""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from math import inf

import msgspec
import pydantic
import pytest

from shoal.crawl import Crawl, Handler, follow
from shoal.errors import ConfigError, StoreError
from shoal.guard import Bare, raised
from shoal.handle import Sorter, run
from shoal.model import Item, Link, Response
from shoal.parse import Page

URL = "http://books.example/shelf/"


def _page(body: str = "<a href=a>a</a>") -> Page:
    headers = (("content-type", "text/html; charset=utf-8"),)
    return Page(Response(URL, 200, headers, body.encode()), Link(URL, depth=2))


async def _in_thread(work: Callable[[], list[object]]) -> list[object]:
    return await asyncio.to_thread(work)


def _run(handler: Handler) -> list[object]:
    return asyncio.run(run(handler, _page(), _in_thread))


def _sort(*results: object, **settings: object) -> tuple[tuple[Item, ...], tuple[Link, ...]]:
    return Sorter(Crawl("books", seeds=[URL], **settings)).sort(results, _page())


@dataclass
class Data:
    n: int


class Struct(msgspec.Struct):
    n: int


class Model(pydantic.BaseModel):
    n: int


# --- running --------------------------------------------------------------------------------


def _returns_one(page: Page) -> object:
    return {"n": 1}


def _returns_a_list(page: Page) -> object:
    return [{"n": 1}, {"n": 2}]


def _yields(page: Page) -> Iterator[object]:
    yield {"n": 1}
    yield {"n": 2}


async def _async_one(page: Page) -> object:
    await asyncio.sleep(0)
    return {"n": 1}


async def _async_list(page: Page) -> object:
    return [{"n": 1}, {"n": 2}]


async def _async_yields(page: Page) -> AsyncIterator[object]:
    yield {"n": 1}
    await asyncio.sleep(0)
    yield {"n": 2}


class _Callable:
    def __call__(self, page: Page) -> object:
        return {"n": 1}


class _AsyncCallable:
    async def __call__(self, page: Page) -> object:
        return {"n": 1}


ONE = [_returns_one, _async_one, _Callable(), _AsyncCallable(), lambda page: _async_one(page)]
TWO = [_returns_a_list, _yields, _async_list, _async_yields, lambda page: _async_yields(page)]


@pytest.mark.parametrize("handler", ONE)
def test_a_handler_may_return_one_result(handler: Handler) -> None:
    """Plain or async, a function, an object, or async behind something that is not."""
    assert _run(handler) == [{"n": 1}]
    assert _run(functools.partial(handler)) == [{"n": 1}]


@pytest.mark.parametrize("handler", TWO)
def test_a_handler_may_give_several_results(handler: Handler) -> None:
    """In a list, or one by one."""
    assert _run(handler) == [{"n": 1}, {"n": 2}]
    assert _run(functools.partial(handler)) == [{"n": 1}, {"n": 2}]


def test_a_model_is_one_result() -> None:
    """Though one of pydantic's can be iterated over."""
    model = Model(n=1)
    assert _run(lambda page: model) == [model]


def test_plain_handlers_run_in_a_thread_to_their_end() -> None:
    """A generator's body, too; async ones run in the event loop, built-in ones where they are called."""
    threads: list[threading.Thread] = []

    def plain(page: Page) -> Iterator[None]:
        threads.append(threading.current_thread())
        yield
        threads.append(threading.current_thread())

    async def in_loop(page: Page) -> None:
        threads.append(threading.current_thread())

    async def never(work: Callable[[], list[object]]) -> list[object]:
        raise AssertionError("built-in handlers need no thread")

    _run(plain)
    _run(in_loop)
    main = threading.current_thread()
    assert [thread is main for thread in threads] == [False, False, True]
    [link] = asyncio.run(run(follow, _page(), never))
    assert isinstance(link, Link)


def test_what_a_handler_raises_comes_through() -> None:
    """With its own type, wherever it runs and however far it came."""

    def plain(page: Page) -> object:
        raise KeyError("price")

    def late(page: Page) -> Iterator[object]:
        yield {"n": 1}
        raise KeyError("price")

    async def async_late(page: Page) -> AsyncIterator[object]:
        yield {"n": 1}
        raise KeyError("price")

    async def async_plain(page: Page) -> object:
        raise KeyError("price")

    for broken in (plain, late, async_late, async_plain):
        with pytest.raises(KeyError, match="price"):
            _run(broken)


def test_a_cancellation_is_the_handlers_or_that_of_its_task() -> None:
    """What a handler cancels itself is an error like others; whoever cancels its task is obeyed."""

    async def cancels_itself(page: Page) -> None:
        inner = asyncio.ensure_future(asyncio.sleep(30))
        inner.cancel()
        await inner

    async def waits(page: Page) -> None:
        await asyncio.sleep(30)

    async def cancel() -> None:
        task = asyncio.create_task(run(waits, _page(), _in_thread))
        await asyncio.sleep(0)
        task.cancel()
        await task

    with pytest.raises(Bare) as cancelled:
        _run(cancels_itself)
    assert isinstance(raised(cancelled.value), asyncio.CancelledError)
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(cancel())


# --- sorting: items -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "result", [{"n": 1}, Data(1), Struct(1), Model(n=1)], ids=lambda each: type(each).__name__
)
def test_items_become_rows(result: object) -> None:
    """Dicts and models of every kind alike."""
    assert _sort(result) == (({"n": 1},), ())


def test_items_and_links_keep_their_order() -> None:
    """Each among its own; nothing is dropped but None."""
    links = _page("<a href=a>a</a><a href=b>b</a>").links()
    items, found = _sort({"n": 1}, links[1], None, {"n": 2}, links[0])
    assert items == ({"n": 1}, {"n": 2})
    assert found == (links[1], links[0])


@pytest.mark.parametrize("result", ["text", 3, ["n"], b"", Link, object()])
def test_what_is_no_row_is_refused(result: object) -> None:
    """Naming its type."""
    with pytest.raises(StoreError, match="a row"):
        _sort(result)


def test_a_value_without_a_form_is_refused() -> None:
    """Naming the field."""
    with pytest.raises(StoreError, match='the field "page" cannot be stored'):
        _sort({"n": 1, "page": _page()})


# --- sorting: links -------------------------------------------------------------------------


def test_links_made_by_hand_are_completed() -> None:
    """Joined to the page, normalized as the crawl does it, one step deeper."""
    made = Link("../New/?b=1&a=2#top", priority=9, key="k", meta={"n": 1}, delay_s=2)
    _, [link] = _sort(made, sort_query=True)
    assert link == Link(
        "http://books.example/New/?a=2&b=1", priority=9, depth=3, key="k", meta={"n": 1}, delay_s=2
    )


def test_a_relative_link_is_completed_whatever_its_depth() -> None:
    """A user may set it."""
    _, [link] = _sort(Link("new", depth=7))
    assert (link.url, link.depth) == (URL + "new", 3)


def test_links_out_of_scope_are_dropped() -> None:
    """Found or made by hand."""
    found = _page("<a href=http://other.example/>x</a><a href=/deny>x</a>").links()
    assert _sort(*found, Link("http://other.example/"), Link("/deny"), deny=["/deny"]) == ((), ())


BAD = {
    "not http": (Link("mailto:a@b.example"), "the handler gave a link that is not an http.s. URL: 'mailto:"),
    "no text": (Link(None), "the handler gave a bad link: Expected `str`, got `null` - at `.*url`"),  # type: ignore[arg-type]
    "priority": (Link("a", priority=10), "the handler gave a link with priority 10: use 0..9"),
    "below 0": (Link("a", priority=-1), "the handler gave a link with priority -1: use 0..9"),
    "a bool": (Link(URL, priority=True, depth=3), "the handler gave a link with priority True: use 0..9"),
    "never": (Link("a", delay_s=inf), "the handler gave a link with delay_s inf: that time never comes"),
    "found": (Link(URL, priority=10, depth=3), "the handler gave a link with priority 10: use 0..9"),
    "a word": (Link("a", priority="9"), "Expected `int`, got `str` - at `.*priority`"),  # type: ignore[arg-type]
    "key": (Link("a", key=3), "Expected `str`, got `int` - at `.*key`"),  # type: ignore[arg-type]
    "delay": (Link("a", delay_s="1"), "Expected `float`, got `str`"),  # type: ignore[arg-type]
    "meta": (Link("a", meta=[1]), "Expected `object . null`, got `array`"),  # type: ignore[arg-type]
    "meta that JSON lacks": (Link("a", meta={"x": {1: object()}}), "with meta that JSON cannot hold"),
    "found, meta": (Link(URL, depth=3, meta={"x": _page()}), "with meta that JSON cannot hold"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_link_that_the_frontier_could_not_keep_is_refused(case: str) -> None:
    """Before it reaches it: it would stop more than this one page."""
    link, message = BAD[case]
    with pytest.raises(ConfigError, match=message):
        _sort(link)
