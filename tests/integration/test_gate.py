"""robots.txt as the gate reads it, from real servers."""

from __future__ import annotations

import asyncio

from tests.servers import ScriptedServer, page

from shoal.access import Access
from shoal.crawl import Crawl
from shoal.fetch import Fetcher, FetchSettings
from shoal.gate import Gate
from shoal.model import Failure
from shoal.policy import Retries
from shoal.robots import MAX_BYTES
from shoal.threads import HandlerThreads


def read(server, path="/page"):
    """The rules for a page of the server."""

    async def ask():
        crawl = Crawl("gate")
        async with Fetcher(FetchSettings(allow=frozenset({"loopback"}))) as fetcher:
            gate = Gate(Access(crawl, fetcher, HandlerThreads(1)), crawl.settings, Retries())
            rules = await gate.read(server.url(path))
            assert gate.known(server.url("/other")) == rules
            return rules

    return asyncio.run(ask())


def test_a_large_file_is_obeyed_as_far_as_it_is_read():
    """Of a robots.txt beyond the cap the first part counts (RFC 9309 section 2.5)."""
    body = b"User-agent: *\nDisallow: /private\n" + b"# filler\n" * (MAX_BYTES // 4)
    with ScriptedServer({"/robots.txt": page(body, "200 OK", "Content-Type: text/plain")}) as server:
        rules = read(server)
    assert not isinstance(rules, Failure)
    assert not rules.allows("/private/1")
    assert rules.allows("/public")


def test_a_redirected_file_is_obeyed():
    """Redirects are followed (RFC 9309 section 2.3.1.2)."""
    moved = page(b"", "301 Moved", "Location: /rules.txt")
    rules = page(b"User-agent: shoal\nDisallow: /x\nCrawl-delay: 2\n")
    with ScriptedServer({"/robots.txt": moved, "/rules.txt": rules}) as server:
        found = read(server)
    assert not isinstance(found, Failure)
    assert (found.allows("/x"), found.allows("/y"), found.crawl_delay_s) == (False, True, 2.0)


def test_an_overloaded_server_defers_and_may_ask_for_a_pause():
    """503 is not permission: nothing may be fetched now, and Retry-After is passed on."""
    with ScriptedServer({"/robots.txt": page(b"", "503 Busy", "Retry-After: 7")}) as server:
        found = read(server)
    assert isinstance(found, Failure)
    assert (found.kind, found.pause_s) == ("robots", 7.0)


def test_no_file_allows_everything():
    """404 is permission (RFC 9309 section 2.3.1.3)."""
    with ScriptedServer({"/robots.txt": page(b"none", "404 Not Found")}) as server:
        found = read(server)
    assert not isinstance(found, Failure)
    assert found.allows("/anything")
