"""Scrapers as users write them: every kind of handler, what it may give, and what goes wrong in it."""

from __future__ import annotations

import json
import re
from collections import Counter

import pytest
from tests.e2e.shell import Shell
from tests.servers import Pause, Request, ScriptedServer, page, reply
from tests.site import Site

HEAD = """
from __future__ import annotations

import asyncio
import dataclasses
import functools
import time

import msgspec
import pydantic
import shoal


@dataclasses.dataclass
class Data:
    title: str


class Struct(msgspec.Struct):
    title: str


class Model(pydantic.BaseModel):
    title: str


"""


def _scraper(shoal: Shell, seed: str, handlers: str, settings: str = "") -> None:
    made = f'crawl = shoal.Crawl("test", seeds=["{seed}"]{settings and ", " + settings})\n'
    shoal.write("scraper.py", HEAD + made + handlers)


# --- kinds of handlers and of what they give -------------------------------------------------

PLAIN = "@crawl.page()\ndef row(page):\n    "
ASYNC = "@crawl.page()\nasync def row(page):\n    await asyncio.sleep(0)\n    "
DECORATED = """
def logged(handler):
    return lambda page: handler(page)

@crawl.page()
@logged
async def row(page):
    """
TITLE = {"title": "Start"}
KINDS = {
    "returns a dict": (PLAIN + "return {'title': page.title}", [TITLE]),
    "returns a dataclass": (PLAIN + "return Data(page.title)", [TITLE]),
    "returns a msgspec Struct": (PLAIN + "return Struct(page.title)", [TITLE]),
    "returns a pydantic model": (PLAIN + "return Model(title=page.title)", [TITLE]),
    "returns a list": (PLAIN + "return [{'title': page.title}, Data('b'), None]", [TITLE, {"title": "b"}]),
    "returns a tuple": (PLAIN + "return {'title': page.title}, {'other': 1}", [TITLE, {"other": 1}]),
    "returns nothing": (PLAIN + "return None", []),
    "returns an empty list": (PLAIN + "return []", []),
    "yields": (PLAIN + "yield {'title': page.title}\n    yield Model(title='b')", [TITLE, {"title": "b"}]),
    "yields nothing": (PLAIN + "yield None", []),
    "returns a generator": (PLAIN + "return ({'n': n} for n in range(2))", [{"n": 0}, {"n": 1}]),
    "async, returns a dict": (ASYNC + "return {'title': page.title}", [TITLE]),
    "async, returns a list": (ASYNC + "return [Data(page.title)]", [TITLE]),
    "async, returns nothing": (ASYNC + "pass", []),
    "async, yields": (
        ASYNC + "yield {'title': page.title}\n    yield None\n    yield Struct('b')",
        [TITLE, {"title": "b"}],
    ),
    "a lambda": ("crawl.page()(lambda page: {'title': page.title})", [TITLE]),
    "a partial": (
        "crawl.page()(functools.partial(lambda page, name: {name: page.title}, name='title'))",
        [TITLE],
    ),
    "an object": (
        "class Row:\n  def __call__(self, page):\n    return Data(page.title)\ncrawl.page()(Row())",
        [TITLE],
    ),
    "async behind a decorator": (DECORATED + "return {'title': page.title}", [TITLE]),
    "async, yields, behind a decorator": (DECORATED + "yield {'title': page.title}", [TITLE]),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_handler_of_every_kind_gives_its_rows(shoal: Shell, kind: str) -> None:
    """Plain or async, returning or yielding, dicts or models or nothing: the rows arrive in their order."""
    handler, rows = KINDS[kind]
    with ScriptedServer({"/": page(b"<title>Start</title>")}) as server:
        _scraper(shoal, server.url(), handler)
        shoal("run", "scraper.py", "--strict")
    assert shoal.rows() == rows


def test_without_handlers_links_are_followed(shoal: Shell, site: Site) -> None:
    """And no row is stored."""
    _scraper(shoal, site.url, "")
    shoal("run", "scraper.py")
    assert site.fetches() == Counter(site.urls)
    assert shoal.rows() == []


def test_the_first_pattern_that_matches_counts(shoal: Shell) -> None:
    """Patterns in the order of their registration, the one without a pattern last, wherever it stands."""
    handlers = """
        @crawl.page()
        def other(page):
            yield {"handler": "other", "path": page.url.partition("/")[2]}
            yield from page.links()

        @crawl.page("/shop/sale/*")
        def sale(page):
            yield {"handler": "sale"}

        @crawl.page("/shop/*")
        def shop(page):
            yield {"handler": "shop"}

        @crawl.page("*?id=*")
        def by_id(page):
            yield {"handler": "id"}
        """
    links = ["/shop/1", "/shop/sale/2", "/news", "/shop/3?id=1", "/news?id=1"]
    with ScriptedServer(
        lambda request: page("".join(f'<a href="{link}">x</a>' for link in links).encode())
    ) as server:
        _scraper(shoal, server.url(), re.sub("(?m)^        ", "", handlers))
        shoal("run", "scraper.py", "--concurrency", "1")
    assert [row["handler"] for row in shoal.rows()] == ["other", "shop", "sale", "other", "shop", "id"]


def test_one_of_several_crawls_may_be_named(shoal: Shell, site: Site) -> None:
    """FILE.py:NAME."""
    _scraper(shoal, site.url, f'second = shoal.Crawl("second", seeds=["{site.url}"], max_depth=0)\n')
    shoal("run", "scraper.py:second")
    assert shoal.status()["crawl"] == "second"
    assert site.fetches().total() == 1


def test_options_replace_settings_of_the_file(shoal: Shell, site: Site) -> None:
    """What is given on the command line counts; all else is as the file says."""
    _scraper(shoal, site.url, "", "max_pages=3, user_agent='file/1', headers={'X-A': '1'}")
    shoal("run", "scraper.py", "--max-pages", "5", "--header", "X-B: 2")
    assert site.fetches().total() == 5
    headers = site.log[-1].headers
    assert headers["user-agent"] == "file/1"
    assert headers["x-b"] == "2"
    assert "x-a" not in headers


@pytest.mark.parametrize("name", ["shoal.py", "json.py", "site.py"])
def test_a_scraper_may_have_the_name_of_a_module(shoal: Shell, site: Site, name: str) -> None:
    """Of shoal itself, or of one of Python's own: neither is replaced."""
    _scraper(shoal, site.url, PLAIN + "return {'title': page.title}", "max_depth=0")
    (shoal.folder / "scraper.py").rename(shoal.folder / name)
    shoal.alone("run", name, "-o", "rows.jsonl")
    assert json.loads(shoal.read("rows.jsonl")) == {"title": "Site"}


def test_a_scraper_may_import_what_is_beside_it(shoal: Shell, site: Site) -> None:
    """Wherever it is run from."""
    (shoal.folder / "books").mkdir()
    shoal.write("books/helper.py", "def row(page):\n    return {'title': page.title}\n")
    shoal.write(
        "books/scraper.py",
        f"import shoal\nimport helper\ncrawl = shoal.Crawl('books', seeds=['{site.url}'], max_depth=0)\n"
        "crawl.page()(helper.row)\n",
    )
    shoal("run", "books/scraper.py")
    assert shoal.rows() == [{"title": "Site"}]


# --- what a page offers ---------------------------------------------------------------------


def test_a_page_offers_what_the_server_sent(shoal: Shell) -> None:
    """Selectors, JSON, headers, status, text, body and where the page stands in the crawl."""
    handlers = """
@crawl.page("/api")
def api(page):
    return {"url": page.url, "data": page.json()["items"], "type": page.content_type, "text": page.text}

@crawl.page()
def start(page):
    yield {
        "first": page.css("li::text").get(),
        "all": page.css("li::text").getall(),
        "href": page.css("a::attr(href)").get(),
        "none": page.css("h9").get(),
        "default": page.css("h9::text").get(default="-"),
        "nested": [li.css("b::text").get() for li in page.css("li")],
        "header": page.header("X-Shelf"),
        "status": page.status,
        "depth": page.depth,
        "encoding": page.encoding,
        "canonical": page.canonical,
        "size": len(page.body),
    }
    yield from page.links("a")
"""
    body = b"<link rel=canonical href=/c><ul><li>one<b>1</b></li><li>two</li></ul><a href='api'>api</a>"
    with ScriptedServer(
        {
            "/": page(body, "200 OK", "X-Shelf: lamps"),
            "/api": page(b'{"items": [1, 2]}', "200 OK", "Content-Type: application/json"),
        }
    ) as server:
        _scraper(shoal, server.url(), handlers)
        shoal("run", "scraper.py", "--strict")
        first, second = shoal.rows()
    assert first == {
        "first": "one",
        "all": ["one", "two"],
        "href": "api",
        "none": None,
        "default": "-",
        "nested": ["1", None],
        "header": "lamps",
        "status": 200,
        "depth": 0,
        "encoding": "utf-8",
        "canonical": server.url("/c"),
        "size": len(body),
    }
    assert second == {
        "url": server.url("/api"),
        "data": [1, 2],
        "type": "application/json",
        "text": '{"items": [1, 2]}',
    }


# --- links ----------------------------------------------------------------------------------


def _order(server: ScriptedServer) -> list[str]:
    return [request.target for request in server.requests if request.target not in ("/robots.txt", "/")]


def test_higher_priorities_are_fetched_first(shoal: Shell) -> None:
    """On one host: by priority, and first-in first-out among equals."""
    handlers = """
@crawl.page("/")
def start(page):
    for number in range(10):
        yield from page.links(f"a.p{number}", priority=number)

@crawl.page()
def other(page):
    return None
"""
    body = "".join(f'<a class=p{n % 10} href="/{n % 10}/{n}">x</a>' for n in range(30)).encode()
    with ScriptedServer(lambda request: page(body if request.target == "/" else b"")) as server:
        _scraper(shoal, server.url(), handlers)
        shoal("run", "scraper.py", "--concurrency", "1")
        expected = [f"/{p}/{n}" for p in reversed(range(10)) for n in range(30) if n % 10 == p]
        assert _order(server) == expected


def test_links_may_be_made_by_hand(shoal: Shell) -> None:
    """Relative or absolute, with a priority and data of one's own; in scope or dropped."""
    handlers = """
@crawl.page("/")
def start(page):
    yield shoal.Link("low#top")
    yield shoal.Link(url="../high", priority=9, meta={"shelf": ["lamps", 1]})
    yield shoal.Link(page.url + "deep", depth=page.depth + 1, priority=5)
    yield shoal.Link("relative", depth=page.depth + 1, priority=4)
    yield shoal.Link("http://other.example/")

@crawl.page()
def other(page):
    return {"url": page.url, "depth": page.depth, "priority": page.priority, "meta": dict(page.meta)}
"""
    with ScriptedServer(lambda request: page(b"")) as server:
        _scraper(shoal, server.url(), handlers)
        shoal("run", "scraper.py", "--concurrency", "1", "--strict")
        assert shoal.rows() == [
            {"url": server.url("/high"), "depth": 1, "priority": 9, "meta": {"shelf": ["lamps", 1]}},
            {"url": server.url("/deep"), "depth": 1, "priority": 5, "meta": {}},
            {"url": server.url("/relative"), "depth": 1, "priority": 4, "meta": {}},
            {"url": server.url("/low"), "depth": 1, "priority": 0, "meta": {}},
        ]


def test_a_link_may_wait_and_may_be_set_apart(shoal: Shell) -> None:
    """delay_s keeps it from being fetched earlier; a key makes one URL several pages."""
    handlers = """
@crawl.page("/")
def start(page):
    yield shoal.Link("late", delay_s=0.6)
    for number in range(3):
        yield shoal.Link("form", key=str(number), meta={"number": number})

@crawl.page()
def other(page):
    return {"number": page.meta.get("number")}
"""
    with ScriptedServer(lambda request: page(b"")) as server:
        _scraper(shoal, server.url(), handlers)
        shoal("run", "scraper.py", "--strict")
        at = {request.target: request.at for request in server.requests}
        assert server.count("/form") == 3
        assert at["/late"] - at["/"] >= 0.6
        assert sorted(str(row["number"]) for row in shoal.rows()) == ["0", "1", "2", "None"]


def test_data_of_a_link_survives_a_restart(shoal: Shell) -> None:
    """It is kept with the link, and travels from page to page."""
    handlers = """
@crawl.page()
def step(page):
    steps = page.meta.get("steps", 0)
    yield {"steps": steps}
    if steps < 3:
        yield from page.links("a", meta={"steps": steps + 1})
"""
    with Site(1) as site:
        _scraper(shoal, site.url + "trap/0", handlers)
        shoal("run", "scraper.py", "--max-pages", "2")
        shoal("run", "scraper.py")
    assert [row["steps"] for row in shoal.rows()] == [0, 1, 2, 3]


# --- what goes wrong in a handler -----------------------------------------------------------

BROKEN = """
@crawl.page("/bad")
def bad(page):
    yield {"lost": True}
    price(page)

def price(page):
    return page.css(".price::text").get() + 1

@crawl.page()
def good(page):
    yield {"url": page.url}
    yield from page.links()
"""


def test_a_handler_that_raises_makes_a_dead_letter(shoal: Shell) -> None:
    """Tried again, then given up with the traceback of the user's code; the crawl goes on."""
    links = b'<a href="/bad">bad</a><a href="/a">a</a><a href="/b">b</a>'
    with ScriptedServer(lambda request: page(links)) as server:
        _scraper(shoal, server.url(), BROKEN)
        ended = shoal("run", "scraper.py", "--retries", "1")
        assert server.count("/bad") == 2
        assert sorted(row["url"] for row in shoal.rows()) == [
            server.url(target) for target in ("/", "/a", "/b")
        ]
        assert f"the handler of {server.url('/bad')} raised TypeError: unsupported operand" in ended.err
        line = f"handler raised TypeError after 2 attempts: {server.url('/bad')}"
        assert shoal("dead").out == line + "\n"
        first, *traceback = shoal("dead", "--errors").out.splitlines()
        assert first == line
        assert re.fullmatch(r'    +File ".*/scraper\.py", line \d+, in bad', traceback[0])
        assert any(re.fullmatch(r' +File ".*/scraper\.py", line \d+, in price', each) for each in traceback)
        assert traceback[-1].strip().startswith("TypeError: unsupported operand")
        assert not any("/shoal/" in each for each in traceback)
        shoal("run", "scraper.py", "--strict", code=1)


def test_a_page_is_done_when_its_handler_is_mended(shoal: Shell) -> None:
    """redrive, and the same command again."""
    with ScriptedServer({"/": page(b"<title>Start</title>")}) as server:
        _scraper(shoal, server.url(), PLAIN + "return {'title': page.titel}")
        shoal("run", "scraper.py", "--retries", "0", code=1)
        _scraper(shoal, server.url(), PLAIN + "return {'title': page.title}")
        shoal("redrive", "--reason", "handler raised AttributeError")
        shoal("run", "scraper.py")
    assert shoal.rows() == [TITLE]


STOPS = {
    "plain": (PLAIN + "next(iter(()))", "RuntimeError", "StopIteration"),
    "async": (ASYNC + "next(iter(()))", "RuntimeError", "StopIteration"),
    "yields": (
        "@crawl.page()\ndef row(page):\n    next(iter(()))\n    yield",
        "RuntimeError",
        "StopIteration",
    ),
    "plain exit": (PLAIN + "raise GeneratorExit", "RuntimeError", "GeneratorExit"),
    "async exit": (ASYNC + "raise GeneratorExit", "GeneratorExit", "GeneratorExit"),
}


@pytest.mark.parametrize("stop", STOPS)
def test_a_handler_that_raises_what_ends_iterators_is_like_any_other(shoal: Shell, stop: str) -> None:
    """Python means something else by it: the page is tried again, and then a dead letter that names it."""
    handler, reason, name = STOPS[stop]
    with ScriptedServer({"/": page()}) as server:
        _scraper(shoal, server.url(), handler, "retries=2, retry_delay_s=0.001")
        shoal("run", "scraper.py", code=1)
        assert server.count("/") == 3
    [letter] = shoal("dead", "--json").objects
    assert (letter["attempts"], letter["reason"]) == (3, f"handler raised {reason}")
    assert ("next(iter(()))" if name == "StopIteration" else "raise GeneratorExit") in letter["error"]
    assert name in letter["error"]


MISTAKES = {
    "no row": (
        "return 'title'",
        "StoreError",
        "a row needs named fields, as in a dict or a dataclass; this is a str",
    ),
    "a value without a form": (
        "return {'title': object()}",
        "StoreError",
        'the field "title" cannot be stored: a object has no form in a row',
    ),
    "a link that is none": (
        "return shoal.Link('mailto:a@b.example')",
        "ConfigError",
        "the handler gave a link that is not an http(s) URL: 'mailto:a@b.example'",
    ),
    "a priority out of range": (
        "return shoal.Link('a', priority=10)",
        "ConfigError",
        "the handler gave a link with priority 10: use 0..9",
    ),
    "a priority in words": (
        "return shoal.Link('a', priority='high')",
        "ConfigError",
        "the handler gave a bad link: Expected `int`, got `str`",
    ),
    "a key that is no text": (
        "return shoal.Link('a', key=7)",
        "ConfigError",
        "the handler gave a bad link: Expected `str`, got `int`",
    ),
    "data that JSON lacks": (
        "return shoal.Link('a', meta={'page': page})",
        "ConfigError",
        "the handler gave a link with meta that JSON cannot hold: Encoding objects of type Page",
    ),
    "data that JSON lacks, for found links": (
        "return page.links(meta={'page': page})",
        "ConfigError",
        "the handler gave a link with meta that JSON cannot hold",
    ),
    "a bad selector": ("return page.css('h1[').get()", "ConfigError", "invalid CSS selector 'h1['"),
    "no JSON": ("return page.json()", "ValueError", "not JSON: "),
    "a bad priority for found links": (
        "return page.links(priority=10)",
        "ValueError",
        "priority 10 is not in 0..9",
    ),
    "a recursion": ("return row(page)", "RecursionError", "maximum recursion depth exceeded"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_in_a_handler_costs_its_page_only(shoal: Shell, mistake: str) -> None:
    """The page is a dead letter that names the mistake, and the others are done."""
    code, error, message = MISTAKES[mistake]
    handlers = f"""
@crawl.page("/")
def start(page):
    return shoal.Link("bad"), shoal.Link("good")

@crawl.page("/bad")
def row(page):
    {code}

@crawl.page()
def good(page):
    return {{"title": page.title}}
"""
    with ScriptedServer(lambda request: page(b"<title>Start</title><a href=/x>x</a>")) as server:
        _scraper(shoal, server.url(), handlers)
        shoal("run", "scraper.py", "--retries", "0")
        [letter] = shoal("dead", "--json").objects
    assert letter["url"] == server.url("/bad")
    assert letter["reason"] == f"handler raised {error}"
    assert message in letter["error"]
    assert TITLE in shoal.rows()


NO_EXCEPTIONS = {
    "SystemExit": "sys.exit(3)",
    "CancelledError": "raise asyncio.CancelledError",
    "KeyboardInterrupt": "raise KeyboardInterrupt",
    "BaseExceptionGroup": "raise BaseExceptionGroup('several', [KeyboardInterrupt()])",
    "Panic": "raise type('Panic', (BaseException,), {})",
}


@pytest.mark.parametrize("kind", ["def", "async def"])
def test_what_is_no_exception_costs_its_page_only_too(shoal: Shell, kind: str) -> None:
    """Each is tried again, then a dead letter that names it; the worker and the crawl go on."""
    start = f"@crawl.page('/')\ndef start(page):\n    return map(shoal.Link, {[*NO_EXCEPTIONS]})\n"
    handlers = f"import sys\n{start}"
    for name, code in NO_EXCEPTIONS.items():
        handlers += f"@crawl.page('/{name}')\n{kind} raise_{name}(page):\n    {code}\n"
    with ScriptedServer(lambda request: page()) as server:
        _scraper(shoal, server.url(), handlers, "retries=1, retry_delay_s=0.001")
        ended = shoal("run", "scraper.py")
        letters = shoal("dead", "--json").objects
    assert {(letter["url"], letter["attempts"], letter["reason"]) for letter in letters} == {
        (server.url(f"/{name}"), 2, f"handler raised {name}") for name in NO_EXCEPTIONS
    }
    assert all(NO_EXCEPTIONS[letter["reason"].split()[-1]] in letter["error"] for letter in letters)
    assert "internal error" not in ended.err
    assert "Traceback" not in ended.err


@pytest.mark.parametrize(("kind", "sleep"), [("def", "time.sleep"), ("async def", "await asyncio.sleep")])
def test_a_handler_that_runs_very_long_is_named(shoal: Shell, kind: str, sleep: str) -> None:
    """It may hang, and has no time limit of its own; one that ends in time is not spoken of."""
    with Site(2) as site:
        seconds = f"0.6 if page.url == '{site.url}' else 0"
        handler = f"@crawl.page()\n{kind} row(page):\n    {sleep}({seconds})\n    return page.links()\n"
        _scraper(shoal, site.url, f"import shoal.visit\nshoal.visit.SLOW_S = 0.2\n{handler}")
        said = shoal("run", "scraper.py").err
        assert said.count("has been running for 0.2 s") == 1
        assert f"the handler of {site.url} has been running" in said


@pytest.mark.parametrize("kind", ["def", "async def"])
def test_handlers_that_hang_keep_nothing_from_being_done(shoal: Shell, kind: str) -> None:
    """More of them than may run at once; they become dead letters, and the crawl ends."""
    wait = "threading.Event().wait()" if kind == "def" else "await asyncio.Event().wait()"
    handlers = f"""
import asyncio, threading

@crawl.page("/p/*")
{kind} hangs(page):
    if page.url.endswith(("/p/9", "/p/10", "/p/11")):
        {wait}
    return page.links()
"""
    with Site(12) as site:
        settings = "concurrency=2, handler_timeout_s=1, retries=1, retry_delay_s=0.1"
        _scraper(shoal, site.url, handlers, settings)
        said = shoal("run", "scraper.py").err
        letters = shoal("dead", "--json").objects
        assert {letter["url"] for letter in letters} == {site.page_url(number) for number in (9, 10, 11)}
        assert {(letter["reason"], letter["attempts"]) for letter in letters} == {("handler too slow", 2)}
        assert {letter["error"] for letter in letters} == {"not done within 1 s"}
        assert f"the handler of {site.page_url(9)} was not done within 1 s" in said
        assert shoal.status()["done"] == 9


def test_slow_plain_handlers_do_not_stop_fetching(shoal: Shell) -> None:
    """While one sleeps, the server is asked for all the other pages."""
    handlers = """
@crawl.page("/slow")
def slow(page):
    time.sleep(1.5)
    return {"slow": True}

@crawl.page()
def other(page):
    return page.links()
"""
    links = b'<a href="/slow">x</a>' + b"".join(b'<a href="/%d">x</a>' % n for n in range(50))
    with ScriptedServer(lambda request: page(links)) as server:
        _scraper(shoal, server.url(), handlers)
        shoal("run", "scraper.py", "--concurrency", "4")
        slow = next(request.at for request in server.requests if request.target == "/slow")
        meanwhile = [request for request in server.requests if slow < request.at < slow + 1.4]
    assert len(meanwhile) >= 20
    assert shoal.rows() == [{"slow": True}]


def test_slow_plain_handlers_run_side_by_side(shoal: Shell) -> None:
    """As many as fetches: eight that sleep a second are all under way before the first one ends."""
    with Site(9) as site:
        _scraper(
            shoal,
            site.url,
            "@crawl.page('/')\ndef start(page):\n    return [shoal.Link(f'/p/{n}') for n in range(1, 9)]\n"
            "@crawl.page()\ndef slow(page):\n    began = time.time()\n    time.sleep(1)\n"
            "    return {'began': began, 'ended': time.time()}\n",
        )
        shoal("run", "scraper.py")
    rows = shoal.rows()
    assert len(rows) == 8
    assert max(row["began"] for row in rows) < min(row["ended"] for row in rows)


def test_an_async_handler_may_wait_for_something_else(shoal: Shell) -> None:
    """It runs in the event loop; the others go on."""

    def answer(request: Request) -> object:
        return (
            reply(Pause(0.5), *page(b"").steps) if request.target == "/never" else page(b"<title>T</title>")
        )

    with ScriptedServer(answer) as server:
        _scraper(
            shoal,
            server.url(),
            "@crawl.page('/')\nasync def start(page):\n    await asyncio.sleep(0.1)\n"
            "    yield {'title': page.title}\n    yield shoal.Link('/a')\n    await asyncio.sleep(0.1)\n"
            "    yield shoal.Link('/b')\n",
        )
        shoal("run", "scraper.py")
        assert sorted(_order(server)) == ["/a", "/b"]
    assert shoal.rows() == [{"title": "T"}]
