"""Sites without an end: with the rules on, a crawl of each comes to its end by itself."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta

import pytest
from tests.e2e.shell import Shell
from tests.servers import NOT_FOUND, Reply, Request, ScriptedServer, page


def _links(*hrefs: str) -> Reply:
    return page("".join(f'<a href="{href}">x</a>' for href in hrefs).encode())


def _site(answer: Callable[[str], Reply]) -> ScriptedServer:
    def reply(request: Request) -> Reply:
        return NOT_FOUND if request.target == "/robots.txt" else answer(request.target)

    return ScriptedServer(reply)


def _skips(shoal: Shell) -> dict[str, int]:
    """How many pages each rule has skipped."""
    return {row["rule"]: row["pages"] for row in shoal("skipped", "--summary", "--json").objects}


def _calendar(target: str) -> Reply:
    """Each month leads to the one before and the one after, for ever, and to all its days."""
    found = re.fullmatch(r"/calendar/(\d+)/(\d+)", target)
    if not found:
        now = datetime.now(UTC)
        return _links(f"/calendar/{now.year}/{now.month}", "/about")
    first = date(int(found[1]), int(found[2]), 1)
    months = [first - timedelta(days=1), first + timedelta(days=31)]
    return _links("/", *(f"/calendar/{month.year}/{month.month}" for month in months))


def test_a_calendar_ends(shoal: Shell) -> None:
    """Some years from now, in both directions."""
    with _site(_calendar) as server:
        shoal("crawl", server.url(), "--years-ahead", 1, "--years-back", 1)
        assert _skips(shoal) == {"trap: calendar": 2}
        assert 24 < shoal.status()["done"] <= 38
        year = datetime.now(UTC).year
        [late] = shoal("why", server.url(f"/calendar/{year + 2}/1"), "--json").objects
        assert (late["state"], late["reason"]) == ("skipped", "trap: calendar")
        listed = shoal("skipped", "--reason", "trap: calendar", "--host", server.address).out
        assert f"trap: calendar: {server.url(f'/calendar/{year + 2}/1')}\n" in listed


def test_relative_links_that_pile_up_end(shoal: Shell) -> None:
    """A page that answers at any path, with links below itself."""
    with _site(lambda target: _links("a/", "b/")) as server:
        shoal("crawl", server.url())
        assert set(_skips(shoal)) == {"trap: repeated segments"}
        assert shoal.status()["finished"]


def test_urls_that_grow_end(shoal: Shell) -> None:
    """By their length."""
    with _site(lambda target: _links(f"{target}{len(target)}x")) as server:
        shoal("crawl", server.url(), "--max-url-length", 200)
        assert _skips(shoal) == {"trap: URL too long": 1}


def _sessions(number: int = 0) -> Callable[[str], Reply]:
    """Each answer has links with a session id of its own."""

    def answer(target: str) -> Reply:
        nonlocal number
        number += 1
        return _links(*(f"/{path}?PHPSESSID={number:032x}" for path in ("a", "b", "c")))

    return answer


def test_session_ids_can_be_dropped(shoal: Shell) -> None:
    """Then each page is fetched once."""
    with _site(_sessions()) as server:
        shoal("crawl", server.url(), "--drop-sessions")
        assert shoal.status()["done"] == 4


def test_session_ids_end_by_the_number_of_queries(shoal: Shell) -> None:
    """So many URLs of each path."""
    with _site(_sessions()) as server:
        shoal("crawl", server.url(), "--max-per-path", 5)
        assert shoal.status()["done"] == 1 + 3 * 5
        assert set(_skips(shoal)) == {"trap: too many queries"}


@pytest.mark.parametrize("duplicates", ["body", "text"])
def test_pages_with_the_same_content_end_it_too(shoal: Shell, duplicates: str) -> None:
    """Their rows are not kept and their links not followed, and it is said which page had it first."""

    def answer(target: str) -> Reply:
        number = int(target[1:] or 0)
        links = f'<a href="/{number + 1}">x</a>' if duplicates == "text" else "<a href='/1'>x</a><a href=/2>"
        return page(f"<title>T</title>{links}<p>same</p>".encode())

    with _site(answer) as server:
        shoal("crawl", server.url(), "--duplicates", duplicates)
        status = shoal.status()
        assert (status["done"], status["items"]) == (1, 1)
        assert set(_skips(shoal)) == {"trap: duplicate content"}
        [second] = shoal("why", server.url("/1"), "--json").objects
        assert second["error"] == f"as {server.url()}"


def test_pages_of_one_shape_can_be_limited(shoal: Shell) -> None:
    """Over all processes together; others are not affected."""

    def answer(target: str) -> Reply:
        number = int(target.rpartition("/")[2] or 0)
        return _links(f"/item/{2 * number + 1}", f"/item/{2 * number + 2}", "/about", "/legal")

    with _site(lambda target: answer(target) if target[1:5] in ("", "item") else _links()) as server:
        shoal("crawl", server.url(), "--max-per-shape", 50, "--processes", 2)
        assert shoal.status()["done"] == 1 + 50 + 2
        [row] = shoal("skipped", "--summary", "--json").objects
        assert (row["rule"], row["host"]) == ("trap: too many of one shape", server.address)
        assert row["pages"] == shoal.status()["skipped"] == 52


def test_a_large_shop_is_not_cut(shoal: Shell) -> None:
    """By default, no number of pages of one kind is too many."""

    def answer(target: str) -> Reply:
        hrefs = [f"/category/{n // 50}?page={n % 50}&sort=price" for n in range(100)]
        return _links(*hrefs, *(f"/product/{n}/blue-shirt-{n}.html" for n in range(400)))

    with _site(lambda target: answer(target) if target == "/" else _links("/")) as server:
        shoal("crawl", server.url())
        assert (shoal.status()["done"], shoal.status()["skipped"]) == (501, 0)


def test_traps_can_be_ignored(shoal: Shell) -> None:
    """Then only the limits of the crawl end it."""
    with _site(lambda target: _links("a/")) as server:
        shoal("crawl", server.url(), "--ignore-traps", "--max-pages", 30)
        assert (shoal.status()["done"], shoal.status()["skipped"]) == (30, 0)


def test_redirects_to_ever_new_urls_end(shoal: Shell) -> None:
    """After ten in a row, with a dead letter."""

    def answer(target: str) -> Reply:
        number = int(target.rpartition("=")[2] or 0) if "=" in target else 0
        return page(b"", "302 Found", f"Location: /go?n={number + 1}")

    with _site(answer) as server:
        shoal("crawl", server.url(), code=0)
        [letter] = shoal("dead", "--json").objects
        assert letter["reason"] == "too many redirects"
        assert shoal.status()["finished"]


def test_a_redirect_into_a_trap_is_cut(shoal: Shell) -> None:
    """As a link would be."""
    with _site(lambda target: page(b"", "302 Found", "Location: /a/a/a/a")) as server:
        shoal("crawl", server.url())
        assert _skips(shoal) == {"trap: repeated segments": 1}


def test_skipped_pages_are_summed_up(shoal: Shell) -> None:
    """As a table for people, by rule and host, closed pages included."""
    robots = page(b"User-agent: *\nDisallow: /private", "200 OK", "Content-Type: text/plain")
    with ScriptedServer(
        {"/robots.txt": robots, "/": _links("/private/1", "/private/2", "/x/x/x", "/ok"), "/ok": _links()}
    ) as server:
        shoal("crawl", server.url())
        lines = [line.split("  ") for line in shoal("skipped", "--summary").out.splitlines()]
        assert [list(filter(None, map(str.strip, line))) for line in lines] == [
            ["rule", "host", "pages"],
            ["robots.txt", server.address, "2"],
            ["trap: repeated segments", server.address, "1"],
        ]
        assert shoal("skipped", "--summary", "--reason", "nothing").out == ""
