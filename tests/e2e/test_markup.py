"""What pages say about themselves is obeyed only if the user wants it."""

from __future__ import annotations

import pytest
from tests.e2e.shell import Shell
from tests.servers import ScriptedServer, page

SITE = {
    "/robots.txt": page(b"", "404 Not Found"),
    "/": page(
        b'<title>start</title><a href="/a">a</a><a href="/b" rel="nofollow">b</a><iframe src="/f"></iframe>'
    ),
    "/a": page(b'<title>a</title><link rel="canonical" href="/c"><a href="/d">d</a>'),
    "/b": page(b'<title>b</title><meta name="robots" content="noindex">'),
    "/c": page(b"<title>c</title>"),
    "/d": page(b"<title>d</title>"),
    "/f": page(b"<title>f</title>"),
}


@pytest.mark.parametrize(
    ("options", "titles"),
    [
        ([], {"start", "a", "b", "d"}),
        (["--obey-nofollow"], {"start", "a", "d"}),
        (["--obey-noindex"], {"start", "a", "d"}),
        (["--obey-canonical"], {"start", "c", "b"}),
        (["--iframes"], {"start", "a", "b", "d", "f"}),
    ],
)
def test_marks_of_pages_are_obeyed_on_request(shoal: Shell, options: list[str], titles: set[str]) -> None:
    """Marks like nofollow, noindex and canonical, and frames."""
    with ScriptedServer(SITE) as server:
        shoal("crawl", server.url("/"), "--select", "title=title", *options)
    assert {row["title"] for row in shoal.rows()} == titles
