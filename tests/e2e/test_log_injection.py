"""Titles, URLs and errors full of markup, escape codes and newlines stay text in the log, in both formats."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest
from tests.e2e.shell import Ended, Shell
from tests.servers import ScriptedServer, page, reply

EVIL = "x\n12:00:00 info: forged\r\x1b[2J\x1b]0;owned\x07\x9b31m\x7f\u202egnp\u2028<script>alert(1)</script>"
"""A new line of the log, codes for terminals old and new, text that turns around, and markup."""
SCRAPER = """
from pathlib import Path
import shoal

crawl = shoal.Crawl("evil", seeds=[Path("url").read_text()], retries=1, retry_delay_s=0.01)

@crawl.page("/half")
def half(page):
    raise ValueError("half a character: \\ud800")

@crawl.page("/chained")
def chained(page):
    try:
        raise KeyError(page.title)
    except KeyError as error:
        raise RuntimeError(page.title) from error

@crawl.page("/named")
def named(page):
    raise type(page.title, (Exception,), {})(page.title)

@crawl.page()
def any_page(page):
    yield {"title": page.title}
    yield from page.links()
"""


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    """Whose pages are all called so, and which redirects and fails in words of its own."""
    hrefs = [
        "half",
        "chained",
        "named",
        "a?q=" + EVIL,
        "b/" + EVIL,
        "http://" + EVIL + "/",
        "moved",
        "bad",
        "gone",
    ]
    links = "".join(f'<a href="{href}">{EVIL}</a>' for href in hrefs)
    whole = page(f"<title>{EVIL}</title>{links}".encode())
    evil = EVIL.encode().replace(b"\n", b"").replace(b"\r", b"")
    answers = {
        "/moved": reply(
            b"HTTP/1.1 302 " + evil + b"\r\nLocation: /" + evil + b"\r\nContent-Length: 0\r\n\r\n"
        ),
        "/bad": reply(b"HTTP/9 " + evil + b"\r\n\r\n"),
        "/gone": reply(b"HTTP/1.1 410 " + evil + b"\r\nContent-Length: 0\r\n\r\n"),
        "/robots.txt": page(b""),
    }
    with ScriptedServer(lambda request: answers.get(request.target, whole)) as server:
        yield server


def crawl(shoal: Shell, server: ScriptedServer, *options: str) -> Ended:
    """Run it, a line for each page."""
    shoal.write("evil.py", SCRAPER)
    shoal.write("url", server.url())
    return shoal("run", "evil.py", "-v", *options)


def test_lines_for_people_are_lines_of_ours(shoal: Shell, server: ScriptedServer) -> None:
    """Each begins with a time, or is moved to the right; none acts on the terminal."""
    ended = crawl(shoal, server)
    lines = ended.err.split("\n")
    assert all(line.isprintable() for line in lines)
    logged = [line for line in lines if re.match(r"\d\d:\d\d:\d\d ", line)]
    assert sum("debug" in line for line in logged) >= 9
    assert sum("warning: the handler of" in line for line in logged) == 6
    assert not any(line.endswith("forged") or " info: forged" in line[:25] for line in lines)
    assert r"ValueError: half a character: \ud800" in ended.err


def test_lines_for_machines_are_objects(shoal: Shell, server: ScriptedServer) -> None:
    """Each is one, in plain ASCII, with its fields in place."""
    ended = crawl(shoal, server, "--log-json")
    assert ended.err.isascii()
    lines = [json.loads(line) for line in ended.err.splitlines()]
    assert all(line.isprintable() for line in ended.err.splitlines())
    assert {line["crawl"] for line in lines} == {"evil"}
    assert len({line["worker"] for line in lines}) == 1
    pages = [line for line in lines if line["logger"] == "shoal.visit" and line["level"] == "debug"]
    assert all(
        {"url", "host", "attempt", "outcome", "reason", "status", "latency_ms"} <= line.keys()
        for line in pages
    )


def test_what_is_kept_of_errors_is_shown_as_text(shoal: Shell, server: ScriptedServer) -> None:
    """Half a character costs its page and not the crawl; the dead letter says what it was."""
    crawl(shoal, server, "-q")
    assert json.loads(shoal("why", server.url("/half"), "--json").out)["error"].endswith(r"\ud800")
    for command in (("dead", "--errors"), ("why", server.url("/named")), ("skipped",), ("status",)):
        assert all(line.isprintable() for line in shoal(*command).out.split("\n"))
